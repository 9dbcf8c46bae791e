"""The figures of the attacks: how many there are, how many succeed, and how many succeed on an older checkout."""

from pathlib import Path

from benchmarks.bars import Tell
from benchmarks.security import images
from benchmarks.security.attacks import ATTACKS, remote, succeeded
from benchmarks.security.attacks.local import secrets_of
from benchmarks.security.attacks.stand import HERE, Stand, standing

ADMIN = (
    *("/admin/agents", "/admin/agents/agent", "/admin/agents/agent/learner", "/admin/agents/agent/versions"),
    *("/admin/agents/agent/status", "/admin/agents/agent/export", "/admin/agents/agent/judges", "/admin/keys"),
    *("/admin/audit?limit=1000", "/admin/privacy/export?user=ann", "/metrics", "/openapi.json", "/readyz"),
)


def measure(folder: Path, tell: Tell, before: Path | None = None) -> dict[str, float]:
    """The benchmark's figures. Attacks that succeed are told. `before` is an older checkout's directory of packages."""
    found, n_secrets = _all(folder / "now", HERE, tell)
    for name in found:
        tell(f"succeeded: {name}")
    copied = images.secrets_copied(folder / "checkout")
    for name in copied:
        tell(f"an image would hold {name}")
    figures = {
        "attacks": len(ATTACKS) + len(remote.ATTACKS),
        "attacks_succeeded": len(found),
        "secrets_found": n_secrets + len(copied),
    }
    if before is not None:
        earlier, _ = _all(folder / "before", before, tell)
        for name in earlier:
            tell(f"succeeded before: {name}")
        figures["attacks_succeeded_before"] = len(earlier)
    return {name: float(value) for name, value in figures.items()}


def _all(folder: Path, root: Path, tell: Tell) -> tuple[list[str], int]:
    tell("attacks on the gateway and the ingester")
    with standing(folder / "local", root) as stand:
        found = succeeded(stand)
        n_secrets = secrets_found(stand)
    tell("attacks through a remote model")
    with remote.standing_beside(folder / "remote", root) as stand:
        return found + remote.succeeded(stand), n_secrets + secrets_found(stand)


def secrets_found(stand: Stand) -> int:
    """Planted secrets in the logs with the tracebacks that the attacks have provoked, in the process lists, and in
    everything that the administration tells and exports.
    """
    places = {"log": stand.log()}
    for path in ADMIN:
        places[path] = stand.ask("GET", path, "admin").text
    for part, pid in stand.pids.items():
        places[f"command line of {part}"] = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return sum(secret in text for secret in secrets_of(stand).values() for text in places.values())
