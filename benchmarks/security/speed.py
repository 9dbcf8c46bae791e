"""What the guards cost: the gateway's added latency and throughput with all of them on, beside the code before.

Both gateways have one core in turn, record, and are asked with a key that has limits (here also made for a user), in
the interleaved rounds of `benchmarks.gateway`. An agent whose turns are redacted is asked too; it has no bar, because
redaction is off by default.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bars import Tell
from benchmarks.gateway import servers
from benchmarks.gateway.rounds import DIRECT, OURS, RELAY, Figures, Rounds
from benchmarks.gateway.servers import GATEWAY_CORE, LOAD_CORE, Server
from benchmarks.security.attacks.stand import HERE, command_of, environment_of, set_up

BEFORE, REDACTING = "before", "redacting"
UPSTREAM_PORT, RELAY_PORT, OURS_PORT, BEFORE_PORT = 18711, 18712, 18710, 18713
N_ROUNDS = 5
SECONDS = 3.0
LIMITS = {"requests_per_minute": 10_000_000, "max_concurrent": 1000}
KEYS = {"talker": {"scopes": ["inference", "feedback"], "user": "ann", **LIMITS}}


def measure(folder: Path, tell: Tell, before: Path | None, n_rounds: int = N_ROUNDS) -> dict[str, float]:
    """The benchmark's figures. `before` is an older checkout's directory of packages."""
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}"
    python = [sys.executable, "-m"]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:

        def run(name: str, module: str, port: int, core: int, *more: str) -> Server:
            command = [*python, f"benchmarks.gateway.{module}", "--port", str(port), *more]
            return stack.enter_context(servers.running(name, command, port, core, folder / f"{name}.log"))

        direct = run(DIRECT, "upstream", UPSTREAM_PORT, LOAD_CORE)
        relay = run(RELAY, "relay", RELAY_PORT, GATEWAY_CORE, "--upstream", upstream)
        ours, key = stack.enter_context(
            _gateway(OURS, HERE, folder, OURS_PORT, upstream, BURNISH_JOURNAL__REDACT='["second"]')
        )
        targets = [direct, relay, ours, Server(REDACTING, ours.port, ours.pid)]
        asking = {OURS: {"key": key}, REDACTING: {"key": key, "model": "second"}}
        if before is not None:
            server, old = stack.enter_context(_gateway(BEFORE, before, folder, BEFORE_PORT, upstream))
            targets.append(server)
            asking[BEFORE] = {"key": old}
        rounds = Rounds(targets, SECONDS, asking=asking)
        rounds.warm_up()
        for number in range(n_rounds):
            rounds.run_one(number, tell)
    return _figures(rounds.figures, before is not None)


@contextmanager
def _gateway(
    name: str, root: Path, folder: Path, port: int, upstream: str, **settings: str
) -> Iterator[tuple[Server, str]]:
    """A gateway with the code in `root`, and a key."""
    place = folder / name
    environment = environment_of(root, place, upstream, port) | settings
    key = set_up(environment, place, KEYS)["talker"]
    command, log = command_of("gateway", root), folder / f"{name}.log"
    with servers.running(name, command, port, GATEWAY_CORE, log, environment, "/healthz", place) as server:
        yield server, key


def _figures(seen: Figures, has_before: bool) -> dict[str, float]:
    names = {OURS: "", REDACTING: "_redacting", **({BEFORE: "_before"} if has_before else {})}
    found = {
        f"{quantity}{tail}": value
        for server, tail in names.items()
        for quantity, value in (
            ("added_p50_ms", seen.median(server, "p50_ms") - seen.median(DIRECT, "p50_ms")),
            ("rps_of_relay", seen.median(server, "rps") / seen.median(RELAY, "rps")),
            ("us_per_request", seen.median(server, "us_per_request")),
        )
    }
    if has_before:
        found["added_p50_of_before"] = found["added_p50_ms"] / found["added_p50_ms_before"]
        found["rps_of_before"] = found["rps_of_relay"] / found["rps_of_relay_before"]
    return found
