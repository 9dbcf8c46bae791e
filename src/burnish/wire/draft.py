"""A choice as it grows: the pieces of a reply, merged into one assistant message with token ids and log-probs.

Nothing is invented. If the engine left out a log-prob, a value is not finite, or a count does not match, the reply is
quarantined with the reason and never trained on.
"""

import math
from array import array
from typing import Any

import msgspec

from burnish.records import FloatArray, IntArray, int_array
from burnish.wire.chunks import CallPiece, Choice, Words
from burnish.wire.prompt_ids import ids_in

ABORTED = "abort"  # vLLM's finish_reason for a reply that it gave up
ABSENT_LOGPROB = -9998.0  # vLLM writes -9999 if it has none
MANY = 16
TOLERANCE = 1e-3  # rounding may leave the log of a probability of 1 slightly above 0


class Draft:
    """One choice of one response, complete once `finish_reason` is set."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.prompt_ids: IntArray = array("i")
        self.token_ids: IntArray = array("i")
        self.logprobs: FloatArray = array("f")
        self.finish_reason: str | None = None
        self.stop: str | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}  # joined at the end: a text that grows is copied with every piece
        self._problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """True until the engine has sampled something."""
        return not (self.token_ids or self._content or self._calls)

    @classmethod
    def of(cls, choice: Words) -> "Draft":
        """A reply that came whole, without ids and log-probs if these could not be read."""
        draft = cls(choice.index)
        if isinstance(choice, Choice):
            draft.add(choice)
        else:
            draft._add_words(choice)
        return draft

    def add(self, choice: Choice) -> None:
        """Merge one `choices[]` entry, of a chunk or of a whole response."""
        self._add_words(choice)
        try:
            if choice.token_ids:
                if len(choice.token_ids) < MANY:
                    self.token_ids.extend(choice.token_ids)
                else:
                    self.token_ids += int_array(choice.token_ids)
        except OverflowError as error:
            self._note(f"token ids out of range: {error}")
        if choice.prompt_token_ids:
            self.add_prompt(choice.prompt_token_ids)
        if choice.logprobs is not None:
            if choice.logprobs.content:
                self._add_logprobs([entry.logprob for entry in choice.logprobs.content])
            elif choice.logprobs.token_logprobs:
                self._add_logprobs(choice.logprobs.token_logprobs)

    def add_prompt(self, text: msgspec.Raw) -> None:
        """The prompt's ids, which an engine gives with a choice or beside the choices."""
        try:
            self.prompt_ids += ids_in(bytes(text))
        except (OverflowError, msgspec.DecodeError) as error:
            self._note(f"unreadable prompt ids: {error}")

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message as a client would send it back in its next request."""
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if self._calls else "")}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [self._call(position) for position in sorted(self._calls)]
        return message

    def quarantine(self) -> str | None:
        """Why ids and log-probs cannot be trusted. None if they are consistent."""
        if self._problem is not None:
            return self._problem
        if not self.prompt_ids:
            return "no prompt token ids"
        if not self.token_ids:
            return "no sampled token ids"
        if len(self.token_ids) != len(self.logprobs):
            return f"{len(self.token_ids)} token ids but {len(self.logprobs)} log-probs"
        return None

    def _add_words(self, choice: Words) -> None:
        piece = choice.piece
        if piece is not None:
            if piece.content:
                self._content.append(piece.content)
            if reasoning := piece.reasoning or piece.reasoning_content:
                self._reasoning.append(reasoning)
            if piece.tool_calls:
                for position, call in enumerate(piece.tool_calls):
                    self._add_call(position if call.index is None else call.index, call)
        elif choice.text:
            self._content.append(choice.text)
        self.finish_reason = choice.finish_reason or self.finish_reason
        if isinstance(choice.stop_reason, str):
            self.stop = choice.stop_reason

    def _add_call(self, position: int, piece: CallPiece) -> None:
        call = self._calls.setdefault(position, {"id": None, "type": "function", "function": {"name": ""}})
        call["id"] = piece.id or call["id"]
        if piece.function is not None:
            call["function"]["name"] += piece.function.name or ""
            self._arguments.setdefault(position, []).append(piece.function.arguments or "")

    def _call(self, position: int) -> dict[str, Any]:
        call = self._calls[position]
        arguments = "".join(self._arguments.get(position, ()))
        return {**call, "function": {**call["function"], "arguments": arguments}}

    def _add_logprobs(self, values: list[float | None]) -> None:
        try:
            if min(values) > ABSENT_LOGPROB and max(values) <= TOLERANCE:  # type: ignore[type-var, operator]
                self.logprobs.extend(values)  # type: ignore[arg-type]
                return
        except TypeError:
            pass
        for value in values:
            if value is None or value <= ABSENT_LOGPROB:
                self._note(f"the engine has no log-prob for token {len(self.logprobs)}")
                value = math.nan
            elif value > TOLERANCE:
                self._note(f"log-prob {value} of token {len(self.logprobs)} is not finite and <= 0")
            self.logprobs.append(value)

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem
