"""The figures as one flat dictionary, each with its bar."""

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import bars
from benchmarks.bars import Bar, text
from benchmarks.gateway.rounds import DIRECT, LITELLM, OURS, RELAY, Figures

BARS: tuple[Bar, ...] = (
    ("added latency, 1 client, p50, ms", "added_p50_ms", "≤ 0.3", lambda f: f["added_p50_ms"] <= 0.3),
    (
        "added latency at 1,000 requests/s, p99, ms",
        "added_p99_ms_1k",
        "≤ max(2, relay + 1)",
        lambda f: f["added_p99_ms_1k"] <= max(2.0, f["relay_p99_ms_1k"] + 1),
    ),
    ("requests/s on one core, share of the relay's", "rps_of_relay", "≥ 0.5", lambda f: f["rps_of_relay"] >= 0.5),
    (
        "requests/s on one core, over the litellm proxy's",
        "rps_of_litellm",
        "≥ 10",
        lambda f: f.get("rps_of_litellm", 0) >= 10,
    ),
    ("streamed chunks/s", "chunks_per_s", "≥ 15,000", lambda f: f["chunks_per_s"] >= 15_000),
    ("CPU time per chunk, µs", "us_per_chunk", "≤ 60", lambda f: f["us_per_chunk"] <= 60),
    ("added time to the first token, ms", "added_ttft_p50_ms", "≤ 0.3", lambda f: f["added_ttft_p50_ms"] <= 0.3),
    (
        "requests/s with 100 KB bodies, share of the relay's",
        "rps_100k_of_relay",
        "≥ 0.5",
        lambda f: f["rps_100k_of_relay"] >= 0.5,
    ),
    (
        "memory gained per 100,000 requests, MB",
        "rss_slope_mb_per_100k",
        "≤ 5",
        lambda f: f["rss_slope_mb_per_100k"] <= 5,
    ),
    ("trainable share, worst route or harness", "trainable_share", "≥ 0.98", lambda f: f["trainable_share"] >= 0.98),
    (
        "turns linked correctly",
        "linked_right",
        "≥ 0.99",
        lambda f: f["linked_right"] >= 0.99 and f["linked_turns"] >= 300,
    ),
    ("turns linked to a wrong session", "misjoined", "0", lambda f: f["misjoined"] == 0),
)


def from_rounds(seen: Figures, *, has_litellm: bool) -> dict[str, float]:
    """Medians over the rounds. A server's latency is what it adds to the upstream's own."""
    median = seen.median
    figures = {
        "direct_p50_ms": median(DIRECT, "p50_ms"),
        "added_p50_ms": median(OURS, "p50_ms") - median(DIRECT, "p50_ms"),
        "relay_p50_ms": median(RELAY, "p50_ms") - median(DIRECT, "p50_ms"),
        "added_p99_ms_1k": median(OURS, "p99_ms_1k") - median(DIRECT, "p99_ms_1k"),
        "relay_p99_ms_1k": median(RELAY, "p99_ms_1k") - median(DIRECT, "p99_ms_1k"),
        "rps": median(OURS, "rps"),
        "rps_relay": median(RELAY, "rps"),
        "rps_of_relay": median(OURS, "rps") / median(RELAY, "rps"),
        "us_per_request": median(OURS, "us_per_request"),
        "us_per_request_relay": median(RELAY, "us_per_request"),
        "chunks_per_s": median(OURS, "chunks_per_s"),
        "chunks_per_s_relay": median(RELAY, "chunks_per_s"),
        "us_per_chunk": median(OURS, "us_per_chunk"),
        "us_per_chunk_relay": median(RELAY, "us_per_chunk"),
        "added_ttft_p50_ms": median(OURS, "ttft_p50_ms") - median(DIRECT, "ttft_p50_ms"),
        "relay_ttft_p50_ms": median(RELAY, "ttft_p50_ms") - median(DIRECT, "ttft_p50_ms"),
        "rps_100k": median(OURS, "rps_100k"),
        "rps_100k_relay": median(RELAY, "rps_100k"),
        "rps_100k_of_relay": median(OURS, "rps_100k") / median(RELAY, "rps_100k"),
    }
    if has_litellm:
        figures |= {
            "rps_litellm": median(LITELLM, "rps"),
            "rps_of_litellm": median(OURS, "rps") / median(LITELLM, "rps"),
            "litellm_p50_ms": median(LITELLM, "p50_ms") - median(DIRECT, "p50_ms"),
            "litellm_ttft_p50_ms": median(LITELLM, "ttft_p50_ms") - median(DIRECT, "ttft_p50_ms"),
            "chunks_per_s_litellm": median(LITELLM, "chunks_per_s"),
        }
    return figures


def trainable(shares: Mapping[str, float], harness_report: Path) -> dict[str, float]:
    """The lowest share over the routes, and over the harnesses if `make test-harness` has been run."""
    figures = {"trainable_share_routes": min(shares.values())}
    worst = [*shares.values()]
    if harness_report.exists():
        rows = json.loads(harness_report.read_text(encoding="utf-8"))["rows"]
        found = [row["n_trainable"] / row["n_eligible"] for row in rows if row["n_eligible"]]
        figures["trainable_share_harnesses"] = min(found)
        worst += found
    return figures | {"trainable_share": min(worst)}


def show(console: Console, figures: Mapping[str, float]) -> None:
    """Print the bars as a table, then every figure."""
    bars.show(console, "the gateway on one core, recording on; upstream is a stub", BARS, figures)
    sides = Table("", "ours", "relay", "litellm", title="side by side (medians)")
    for what, own, other, third in (
        ("added latency, 1 client, ms", "added_p50_ms", "relay_p50_ms", "litellm_p50_ms"),
        ("added latency at 1,000/s, p99, ms", "added_p99_ms_1k", "relay_p99_ms_1k", ""),
        ("requests/s", "rps", "rps_relay", "rps_litellm"),
        ("CPU time per request, µs", "us_per_request", "us_per_request_relay", ""),
        ("requests/s, 100 KB", "rps_100k", "rps_100k_relay", ""),
        ("chunks/s", "chunks_per_s", "chunks_per_s_relay", "chunks_per_s_litellm"),
        ("CPU time per chunk, µs", "us_per_chunk", "us_per_chunk_relay", ""),
        ("added time to the first token, ms", "added_ttft_p50_ms", "relay_ttft_p50_ms", "litellm_ttft_p50_ms"),
    ):
        sides.add_row(what, *(text(figures[key]) if key in figures else "–" for key in (own, other, third)))
    console.print(sides)
    rest = ("journal_turns", "ingested_per_s", "trainable_share_routes", "trainable_share_harnesses", "linked_turns")
    console.print(", ".join(f"{key} {text(figures[key])}" for key in (*rest, "colliding_openings") if key in figures))
