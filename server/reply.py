"""A choice as it grows: the pieces of a reply, merged to one assistant message with its token ids and log-probs.

Nothing is invented. A log-prob that the engine left out, a value that is not finite, a count that does not match: each makes
the reply quarantined, with the reason, and never trained.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.records import FloatArray, IntArray

ABSENT_LOGPROB = -9998.0  # vLLM writes -9999 where it has none
TOLERANCE = 1e-3  # rounding may leave the log of a probability of 1 a little above 0


class Draft:
    """One choice of one response, complete once `finish_reason` is set."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.token_ids: IntArray = array("i")
        self.logprobs: FloatArray = array("f")
        self.finish_reason: str | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """True until the engine has sampled something."""
        return not (self.token_ids or self._content or self._calls)

    def add(self, choice: Mapping[str, Any]) -> None:
        """Merge one `choices[]` entry, of a chunk (`delta`) or of a whole response (`message`)."""
        piece = choice.get("delta") or choice.get("message") or {}
        if content := piece.get("content"):
            self._content.append(content)
        if reasoning := piece.get("reasoning") or piece.get("reasoning_content"):
            self._reasoning.append(reasoning)
        for position, call in enumerate(piece.get("tool_calls") or ()):
            self._add_call(call.get("index", position), call)
        self._add_tokens(choice.get("token_ids"), choice.get("logprobs"))
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message as a client would send it back in its next request."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if self._calls else "")}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [self._calls[position] for position in sorted(self._calls)]
        return message

    def quarantine(self, prompt_ids: IntArray) -> str | None:
        """Why ids and log-probs cannot be trusted; None where they add up."""
        if self._problem is not None:
            return self._problem
        if not prompt_ids:
            return "no prompt token ids"
        if not self.token_ids:
            return "no sampled token ids"
        if len(self.token_ids) != len(self.logprobs):
            return f"{len(self.token_ids)} token ids but {len(self.logprobs)} log-probs"
        return None

    def _add_call(self, position: int, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        call = self._calls.setdefault(position, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = piece.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def _add_tokens(self, token_ids: Sequence[int] | None, logprobs: Mapping[str, Any] | None) -> None:
        try:
            self.token_ids.extend(token_ids or ())
            for entry in (logprobs or {}).get("content") or ():
                value = entry.get("logprob")
                if value is None or value <= ABSENT_LOGPROB:
                    self._note(f"the engine has no log-prob for token {len(self.logprobs)}")
                    value = math.nan
                elif not math.isfinite(value) or value > TOLERANCE:
                    self._note(f"log-prob {value} of token {len(self.logprobs)} is not finite and <= 0")
                self.logprobs.append(value)
        except (TypeError, OverflowError, AttributeError) as error:
            self._note(f"unreadable token ids or log-probs: {error}")

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem
