"""Attacks by another user of the same machine, and secrets where they do not belong."""

from functools import partial
from pathlib import Path

from benchmarks.security.attacks import add, attack
from benchmarks.security.attacks.stand import ENGINE_KEY, JUDGE_KEY, PROVIDER_KEY, WEBHOOK, Stand


def _is_open(pattern: str, stand: Stand) -> bool:
    found = list(stand.state.glob(pattern)) if pattern else [stand.state]
    return any(path.stat().st_mode & 0o077 for path in found)


for _name, _pattern in (
    ("the state directory", ""),
    ("the journal", "journal.db*"),
    ("the segments", "segments/**/*"),
    ("the serving table", "run/**/*"),
    ("the administrator's key", "admin.key"),
):
    add(f"another user of the machine reads {_name}", partial(_is_open, _pattern))


def secrets_of(stand: Stand) -> dict[str, str]:
    """Everything that nobody may find outside its place."""
    given = {f"the key {name}": secret for name, secret in stand.secrets.items()}
    outside = {"the provider's key": PROVIDER_KEY, "the judge's key": JUDGE_KEY, "the webhook's address": WEBHOOK}
    return given | {"the engine's key": ENGINE_KEY} | outside | _of_files(stand)


def _of_files(stand: Stand) -> dict[str, str]:
    paths = (stand.state / "admin.key", *stand.state.glob("run/*.key"))
    return {f"the secret in {path.name}": path.read_text().strip() for path in paths if path.exists()}


@attack("a process list shows a secret")
def _processes(stand: Stand) -> bool:
    shown = b"\n".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in stand.pids.values())
    return any(secret.encode() in shown for secret in secrets_of(stand).values())


@attack("the log shows a secret or a body")
def _log(stand: Stand) -> bool:
    marker = "body-marker-51c0"
    stand.chat(messages=[{"role": "user", "content": marker}])
    stand.chat(model=marker)
    stand.ask("POST", "/v1/chat/completions", "talker", content=f'{{"{marker}'.encode())
    stand.ask("POST", "/v1/feedback", "voter", {"target": marker, "rating": "up", "comment": marker})
    stand.engine.base_name, name = marker, stand.engine.base_name
    stand.chat()
    stand.engine.base_name = name
    shown = stand.log()
    return marker in shown or any(secret in shown for secret in secrets_of(stand).values())


@attack("an answer of the administration shows a secret")
def _answers(stand: Stand) -> bool:
    paths = (
        *("/admin/agents", "/admin/agents/agent", "/admin/audit?limit=1000", "/admin/agents/agent/learner"),
        *("/admin/agents/agent/export", "/admin/agents/agent/versions", "/openapi.json", "/healthz", "/readyz"),
        "/admin/privacy/export?user=ann",
    )
    shown = "".join(stand.ask("GET", path, "admin").text for path in paths)
    return any(secret in shown for secret in secrets_of(stand).values())
