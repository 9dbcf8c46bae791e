"""A fake inference engine (the seam is `server/rollout/engine/engine.py`), and adapter versions for it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters.files.store import AdapterStore
from burnish.errors import EngineError, EngineUnavailable
from burnish.server.rollout.engine.engine import Reply
from tests.adapters.files.test_store import publish

ROWS = [{"prompt_ids": [1, 2], "completion_ids": [3, 4]}]
CANDIDATE, PARENT, BASE = (-1.0, -2.0), (-1.5, -2.0), (-3.0, -2.5)
TOKENS = (70, 80)


def make_version(store: AdapterStore, number: int, **contents: bytes) -> Path:
    """A version with a probe of two places: token 70 behind [1, 2] and token 80 behind [1, 2, 3]."""
    positions = [
        {"row": 0, "index": i, "token_id": TOKENS[i], "candidate": CANDIDATE[i], "parent": PARENT[i], "base": BASE[i]}
        for i in range(2)
    ]
    probe = {"schema": 2, "temperature": 1.0, "rows": ROWS, "positions": positions, "gap_base": 2.0, "gap_parent": 0.5}
    return publish(store, number, **{"probe.json": json.dumps(probe).encode(), **contents})


class FakeEngine:
    """Serves `values` as the probe's log-probs (per model, the candidate's by default) and "ok" for every chat.

    `fails` is called before each call: (method, model or name) to an error, or None. `calls` keeps all calls.
    """

    def __init__(self, url: str = "http://engine") -> None:
        self.url = url
        self.loaded: dict[str, str] = {}
        self.values: dict[str, Sequence[float]] = {}
        self.replies: Callable[[str, str], str] = lambda model, text: "ok"
        self.drawn: list[tuple[str, float, int | None]] = []
        self.fails: Callable[[str, str], Exception | None] = lambda method, name: None
        self.calls: list[tuple[str, str]] = []

    def be_away(self, method: str | None = None) -> None:
        """Answer no call, or none to `method`, until `come_back`."""
        gone = EngineUnavailable("connection refused")
        self.fails = lambda called, name: gone if method in (None, called) else None

    def refuse(self, method: str) -> None:
        """Answer 400 to every call to `method`."""
        self.fails = lambda called, name: (
            EngineError(f"{method}: the engine answered 400") if called == method else None
        )

    def come_back(self) -> None:
        self.fails = lambda method, name: None

    async def models(self) -> Sequence[str]:
        self._call("models", "")
        return ["base", *self.loaded]

    async def load(self, name: str, path: str) -> None:
        self._call("load", name)
        if name in self.loaded:
            raise EngineError(f"{name} has already been loaded")
        if not (Path(path) / "adapter_model.safetensors").exists():
            raise EngineError(f"no adapter found for {path}")
        self.loaded[name] = path

    async def unload(self, name: str) -> None:
        self._call("unload", name)
        self.loaded.pop(name, None)

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        self._call("next_logprobs", model)
        self._must_know(model)
        place = len(token_ids) - 2
        values = self.values.get(model, CANDIDATE)
        return {TOKENS[place]: values[place], 99: -9.0} if 0 <= place < len(TOKENS) else {99: -9.0}

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        priority: int = 0,
        seed: int | None = None,
    ) -> Reply:
        self._call("chat", model)
        self.drawn.append((model, temperature, seed))
        self._must_know(model)
        message = {"role": "assistant", "content": self.replies(model, str(messages[-1]["content"]))}
        return Reply(message, "stop", prompt_ids=[99] * 8, token_ids=[99] * 9)

    async def close(self) -> None: ...

    def n_calls(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)

    def _must_know(self, model: str) -> None:
        if model != "base" and model not in self.loaded:
            raise EngineError(f"the model {model} does not exist")

    def _call(self, method: str, name: str) -> None:
        self.calls.append((method, name))
        error = self.fails(method, name)
        if error is not None:
            raise error
