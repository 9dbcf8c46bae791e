"""Attacks by an agent's own settings, which a tenant's operator sets over HTTP."""

from functools import partial
from typing import Any

from benchmarks.security.attacks import add
from benchmarks.security.attacks.stand import Stand

_VERBS = ("set", "settings")
"""This release's name, and that before."""
_TRIED: dict[str, tuple[dict[str, Any], ...]] = {
    "a file of forgetting prompts": ({"gate.forgetting_prompts": "/etc/passwd"}, {"gate.retention": "/nonexistent"}),
    "a file of anchors": ({"learner.anchors": "/dev/zero"},),
    "a file of acceptance prompts": ({"gate.acceptance_prompts": "/etc/passwd"}, {"gate.acceptance": "/etc/passwd"}),
    "a million passes": ({"learner.recipe": {"num_iterations": 1_000_000}}, {"learner.passes": 1_000_000}),
    "a billion rows": ({"learner.max_rows": 10**9},),
    "an endless rank": ({"learner.rank": 10**6},),
    "another base model": ({"engine.model": "/tmp/evil"},),
    "another journal": ({"journal.url": "sqlite:////tmp/evil.db"},),
    "another state directory": ({"state_dir": "/tmp/evil"},),
    "a webhook": ({"alerts.webhook": "http://169.254.169.254/"},),
    "a judge elsewhere": ({"judge.url": "http://169.254.169.254/"},),
}


def _is_taken(tried: tuple[dict[str, Any], ...], stand: Stand) -> bool:
    is_taken = False
    for verb in _VERBS:
        path = f"/admin/agents/second/{verb}"
        is_taken |= any(stand.ask("POST", path, "operator", {"settings": each}).is_success for each in tried)
        stand.ask("POST", path, "operator", {"settings": {}})
    return is_taken


for _name, _each in _TRIED.items():
    add(f"an agent's own settings name {_name}", partial(_is_taken, _each))
