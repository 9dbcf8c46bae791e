"""`python -m benchmarks.gateway [--json FILE]`: what the gateway costs, and whether it records and links every turn.

A stub engine in vLLM's wire shape answers with 64 tokens, ids and log-probs. Clients run in their own processes. The
gateway has one core, with recording on. The gateway, a bare raw-ASGI relay and the litellm proxy are measured in
interleaved rounds.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import bars
from benchmarks.gateway import exactness, linking, litellm_proxy, ours, report, routes, servers
from benchmarks.gateway.rounds import DIRECT, OURS, RELAY, Rounds, slope_mb_per_100k
from benchmarks.gateway.servers import GATEWAY_CORE, LOAD_CORE, Server

UPSTREAM_PORT, RELAY_PORT, OURS_PORT, LITELLM_PORT, EXTRA_PORT = 18701, 18702, 18700, 18703, 18704
WORK = Path(".work")


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; figures are medians over them")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--memory-requests", type=int, default=100_000, help="requests of the memory measurement")
    parser.add_argument(
        "--without-litellm", action="store_true", help="leave the litellm proxy out (it is installed at the first run)"
    )
    parser.add_argument(
        "--harness-report", type=Path, default=WORK / "harness" / "report.json", help="report of `make test-harness`"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    with bars.workplace(console, "gateway") as (folder, tell):
        figures = _measure(given, folder, tell)
    report.show(console, figures)
    sys.exit(bars.finish(console, report.BARS, figures, given.json))


def _measure(given: argparse.Namespace, folder: Path, tell: bars.Tell) -> dict[str, float]:
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}"
    python = [sys.executable, "-m"]
    with ExitStack() as stack:
        command = [*python, "benchmarks.gateway.upstream", "--port", str(UPSTREAM_PORT)]
        direct = stack.enter_context(
            servers.running(DIRECT, command, UPSTREAM_PORT, LOAD_CORE, folder / "upstream.log")
        )
        command = [*python, "benchmarks.gateway.relay", "--port", str(RELAY_PORT), "--upstream", upstream]
        relay = stack.enter_context(servers.running(RELAY, command, RELAY_PORT, GATEWAY_CORE, folder / "relay.log"))
        gateway, settings = stack.enter_context(ours.gateway(folder / "ours", OURS_PORT, upstream))
        targets = [direct, relay, Server(OURS, gateway.port, gateway.pid)]
        if not given.without_litellm:
            tell("installing the litellm proxy (once)")
            cache = WORK / "litellm"
            targets.append(stack.enter_context(litellm_proxy.proxy(folder / "litellm", LITELLM_PORT, upstream, cache)))
        rounds = Rounds(targets, given.seconds)
        tell("warming up")
        rounds.warm_up()
        for number in range(given.rounds):
            rounds.run_one(number, tell)
        tell("memory")
        slope = slope_mb_per_100k(gateway, rounds.figures, given.memory_requests)
    tell("the journal")
    n_turns, ingested_per_s = exactness.check(settings, rounds.figures.request_ids, tell)
    tell("routes")
    shares = routes.measure(folder / "routes", EXTRA_PORT)
    tell("linking")
    linked = linking.measure(folder / "linking", EXTRA_PORT)
    figures = report.from_rounds(rounds.figures, has_litellm=not given.without_litellm)
    figures |= {"rss_slope_mb_per_100k": slope, "journal_turns": n_turns, "ingested_per_s": ingested_per_s}
    figures |= report.trainable(shares, given.harness_report)
    figures |= {"linked_right": linked.share, "misjoined": linked.misjoined, "linked_turns": linked.n_turns}
    return figures | {"colliding_openings": linked.n_colliding, "rounds": given.rounds}


if __name__ == "__main__":
    main()
