"""`personal_wrong_version`: many personal agents on one engine with few slots, compared with one agent.

One round keeps all adapters in the engine's memory, one does not. Users talk while their parent agent changes its
voice, so that each group of users branches from another version. All goes through the product: gateway, segment,
ingester, swapper. Then all users ask in turn, and every reply must be in the voice of the user's own agent.
"""

import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks.adapters import load, stand
from benchmarks.adapters.clients import AGENT, Job, Seen
from benchmarks.adapters.stand import Stand
from benchmarks.adapters.words import voice_of
from benchmarks.bars import Bar, Tell
from burnish import serving_table
from burnish.adapters.registry.personal import name_of
from burnish.adapters.serving.prepare import routes_file
from burnish.journal.tables import VersionRow

N_USERS, SLOTS, N_VOICES, SECONDS, MAX_SECONDS = 200, 4, 20, 30.0, 300.0
BARS: tuple[Bar, ...] = (
    (
        f"failed requests and replies of a wrong version, {N_USERS} personal agents, {SLOTS} slots",
        "personal_wrong_version",
        "0",
        lambda f: f["personal_wrong_version"] == 0,
    ),
)


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """Two rounds: the engine reads adapters beyond its slots from disk, and the engine keeps all adapters in memory."""
    figures: dict[str, float] = {}
    for prefix, n_in_memory in (("personal", 2 * SLOTS), ("personal_in_memory", N_USERS + 2 * SLOTS)):
        place = folder / prefix
        place.mkdir()
        room = ("--max-cpu-loras", str(n_in_memory))
        flags = {"personal__enabled": True, "engine__max_loras": SLOTS, "engine__extra_args": room}
        with stand.running(place, N_VOICES, **flags) as whole:
            tell(f"{prefix}: {N_USERS} users, {n_in_memory} adapters in memory")
            figures |= {f"{prefix}_{key}": value for key, value in _measure(whole, tell).items()}
    return figures


def _measure(whole: Stand, tell: Tell) -> dict[str, float]:
    users = [f"user-{i}" for i in range(N_USERS)]
    agents = {user: name_of("default", AGENT, user) for user in users}
    started = time.monotonic()
    for i in range(0, N_USERS, N_USERS // N_VOICES):
        whole.swap()
        _create_agents(whole, {user: agents[user] for user in users[i : i + N_USERS // N_VOICES]})
    made = time.monotonic() - started
    with whole.journal.read() as session:
        parents = {name: session.get_one(VersionRow, (name, 1)).parent for name in agents.values()}
    voices = {f"{name}@v1": voice_of(parent, len(whole.voices)) for name, parent in parents.items()}
    tell("one agent")
    alone = _ask(Job(whole.port, len(whole.voices)), SECONDS)
    seconds = min(
        MAX_SECONDS, max(SECONDS, 2.5 * N_USERS * SECONDS / max(1, len(alone.answers)))
    )  # long enough for each user to ask
    tell(f"{N_USERS} agents, for {seconds:.0f} s")
    seen = _ask(Job(whole.port, len(whole.voices), key=whole.admin_key, users=agents, voices=voices), seconds)
    for fault in seen.faults[:5]:
        tell(fault)
    return {
        "wrong_version": seen.n_wrong + seen.n_failed + alone.n_wrong + alone.n_failed,
        "agents": len({version for *_, version, _ in seen.answers}),
        "made_per_s": N_USERS / made,
        **_timings("one", alone, SECONDS),
        **_timings("many", seen, seconds),
    }


def _create_agents(whole: Stand, agents: Mapping[str, str]) -> None:
    """Send one short request of each user and return when all of them have their own agents."""
    with whole.admin() as http:
        for user in agents:
            body = {"model": AGENT, "user": user, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
            http.post("/v1/chat/completions", json=body).raise_for_status()
    deadline = time.monotonic() + 120
    while not set(agents.values()) <= serving_table.watch(routes_file(whole.settings)).current().agents.keys():
        if time.monotonic() > deadline:
            raise SystemExit(
                f"expected {len(agents)} personal agents within 120 s, got fewer; see the logs of ingester and swapper"
            )
        time.sleep(0.05)


def _ask(job: Job, seconds: float) -> Seen:
    with load.running(job) as clients:
        time.sleep(seconds)
    return clients.seen


def _timings(name: str, seen: Seen, seconds: float) -> dict[str, float]:
    times = sorted(1e3 * (ended - asked) for asked, ended, *_ in seen.answers)
    gaps = sorted(1e3 * gap for _, gap in seen.gaps)
    ends = sorted(ended for _, ended, *_ in seen.answers)
    return {
        f"{name}_requests_per_s": len(times) / seconds,
        f"{name}_ms_median": times[len(times) // 2],
        f"{name}_ms_p99": times[int(0.99 * (len(times) - 1))],
        f"{name}_itl_p99_ms": gaps[int(0.99 * (len(gaps) - 1))],
        f"{name}_longest_silence_ms": 1e3 * max((b - a for a, b in pairwise(ends)), default=0.0),
    }
