"""Attacks through a remote model: fields that would send the operator's key, or words, to the attacker."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.security.attacks.stand import PROVIDER_KEY, Stand, standing
from burnish.testing import StubEngine

_EVIL = "evil"
"""Stands for the listener's address in a field."""
FIELDS: dict[str, Any] = {
    "base_url": _EVIL,
    "api_base": _EVIL,
    "extra_headers": {"x-evil": "1"},
    "headers": {"x-evil": "1"},
    "extra_body": {"x_evil": "x-evil"},
    "mock_response": "x-evil",
    "api_key": "x-evil-key",
    "organization": "x-evil",
    "fallbacks": [{"model": "openai/x-evil", "api_base": _EVIL}],
    "custom_llm_provider": "x-evil",
}


@contextmanager
def standing_beside(folder: Path, root: Path) -> Iterator[Stand]:
    """A stand whose replies come from a remote model, a stub as well."""
    with StubEngine(["from afar"], base_name="larger", needs_loaded=False) as model:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        settings = {
            "BURNISH_REMOTE__MODEL": "openai/larger",
            "BURNISH_REMOTE__URL": f"{model.url}/v1",
            "BURNISH_REMOTE__API_KEY": PROVIDER_KEY,
            "BURNISH_REMOTE__USE": "always",
        }
        if not (root / "burnish" / "config" / "machine.py").exists():  # before, it had a port of its own
            settings["BURNISH_REMOTE__PORT"] = str(port)
        with standing(folder, root, False, **settings) as stand:
            stand.engine = model
            yield stand


def _gets_out(name: str, value: Any, stand: Stand) -> bool:
    """True if the attacker's server was reached, or if the provider or the client got what the field asked for."""
    before = len(stand.engine.requests), len(stand.evil.heard)
    planted = json.loads(json.dumps(value).replace(f'"{_EVIL}"', f'"{stand.evil.url}"'))
    answer = stand.chat(fields={name: planted})
    sent = json.dumps(stand.engine.requests[before[0] :])
    told = json.dumps([dict(headers) for headers in stand.engine.headers[before[0] :]])
    said = answer.json().get("choices", [{}]) if answer.is_success else []
    return len(stand.evil.heard) > before[1] or "x-evil" in f"{sent} {told} {json.dumps(said)}"


ATTACKS = {f"a remote model is asked with {name}": partial(_gets_out, name, value) for name, value in FIELDS.items()}


def succeeded(stand: Stand) -> list[str]:
    """The attacks that succeed."""
    return [name for name, attack in ATTACKS.items() if attack(stand)]
