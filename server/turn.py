"""One request becomes Interactions: the engine's chunks go in, the client's chunks come out, each choice is recorded between.

A piece that carries a choice's `finish_reason` is given back only after that choice has been appended to the segment, so a
client that has seen the end of a reply can rely on its record. What the client did not ask for is stripped.
"""

import time
from array import array
from typing import Any

import msgspec
import structlog

from burnish.errors import EngineError
from burnish.records import IntArray, Interaction
from server.auth import Caller
from server.chat_request import ChatRequest, Labels
from server.models import Target
from server.recorder import Recorder
from server.reply import Draft
from server.sse import DONE, data_of, event_of
from server.upstream import engine_error

ABORTED = "abort"  # vLLM's finish_reason for a reply that it gave up
log = structlog.get_logger(__name__)
_decode = msgspec.json.Decoder().decode


class Turn:
    """The recording of one request, pinned to one version for its whole life."""

    def __init__(
        self, request: ChatRequest, labels: Labels, target: Target, caller: Caller, recorder: Recorder, request_id: str
    ) -> None:
        self._request = request
        self._labels = labels
        self._target = target
        self._caller = caller
        self._recorder = recorder
        self._request_id = request_id
        self._started_at = time.time()
        self._response_id = ""
        self._prompt_ids: IntArray = array("i")
        self._drafts: dict[int, Draft] = {}
        self._recorded: set[int] = set()
        self.is_done = False

    def pass_on(self, event: bytes) -> bytes:
        """What the client gets for one event of the engine's stream; raises EngineUnavailable where it is an error."""
        data = data_of(event)
        if data is None:
            return event + b"\n\n" if event.strip() else b""
        if data == DONE:
            self.is_done = True
            return b"data: [DONE]\n\n"
        chunk = self._take(data)
        return event_of(chunk) if self._strip(chunk, "delta") else b""

    def pass_whole(self, body: bytes) -> bytes:
        """What the client gets for the engine's whole (not streamed) answer."""
        response = self._take(body)
        self._strip(response, "message")
        self.is_done = True
        return msgspec.json.encode(response)

    def abandon(self) -> None:
        """Record every unfinished choice as aborted, with what was sampled of it."""
        for draft in list(self._drafts.values()):
            if not draft.is_empty:
                self._record(draft, is_aborted=True)
        self._drafts.clear()

    def _take(self, data: bytes) -> dict[str, Any]:
        """Collect what the engine sampled; append each choice that is complete."""
        try:
            tree: dict[str, Any] = _decode(data)
            if "error" in tree:
                raise engine_error(tree["error"], self._request_id)
            self._response_id = self._response_id or tree["id"]
            if not self._prompt_ids and (prompt_ids := tree.get("prompt_token_ids")):
                self._prompt_ids = array("i", prompt_ids)
            for choice in tree["choices"]:
                self._draft(choice["index"]).add(choice)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, OverflowError) as error:
            log.error("unreadable engine answer", request_id=self._request_id, error=repr(error), data=data[:500])
            raise EngineError("the engine's answer is not a chat completion; is it a vLLM server?") from error
        for draft in [draft for draft in self._drafts.values() if draft.finish_reason is not None]:
            del self._drafts[draft.index]
            self._recorded.add(draft.index)
            self._record(draft, is_aborted=draft.finish_reason == ABORTED)
        return tree

    def _draft(self, index: int) -> Draft:
        """The choice's draft; a throw-away one for what comes after its end, since a record never changes."""
        if index in self._recorded:
            return Draft(index)
        return self._drafts.setdefault(index, Draft(index))

    def _strip(self, tree: dict[str, Any], piece_key: str) -> bool:
        """Make the engine's answer ours; False where nothing is left of it that the client asked for."""
        fields = self._request.fields
        tree["model"] = tree["system_fingerprint"] = self._target.name
        if not fields.return_token_ids:
            tree.pop("prompt_token_ids", None)
        had_choices = bool(tree["choices"])
        is_chunk = piece_key == "delta"
        if is_chunk and not self._request.wants_usage:
            tree.pop("usage", None)
        wants_logprobs = fields.logprobs and fields.include_reasoning is not False
        is_needed = not is_chunk or "usage" in tree or bool(fields.return_token_ids)
        for choice in tree["choices"]:
            if not fields.return_token_ids:
                choice.pop("token_ids", None)
            if not wants_logprobs:
                choice["logprobs"] = None
            piece = choice.get(piece_key) or {}
            if fields.include_reasoning is False:
                piece.pop("reasoning", None)
            is_needed = is_needed or bool(piece or choice.get("finish_reason") or choice.get("logprobs"))
        return is_needed if had_choices or "usage" in tree else False

    def _record(self, draft: Draft, *, is_aborted: bool) -> None:
        reason = draft.quarantine(self._prompt_ids)
        if reason is not None and not is_aborted:
            self._recorder.n_quarantined += 1
            log.warning("turn quarantined", request_id=self._request_id, response_id=self._response_id, reason=reason)
        fields, labels, target = self._request.fields, self._labels, self._target
        self._recorder.append(
            Interaction(
                interaction_id=f"{self._response_id}#{draft.index}" if draft.index else self._response_id,
                request_id=self._request_id,
                agent=target.agent,
                version=target.version,
                tenant=self._caller.tenant,
                key_id=self._caller.key_id,
                messages=fields.messages,
                reply=draft.message,
                started_at=self._started_at,
                ended_at=time.time(),
                finish_reason=draft.finish_reason,
                sampling=self._request.sampling,
                prompt_ids=self._prompt_ids,
                token_ids=draft.token_ids,
                logprobs=draft.logprobs,
                tools=fields.tools or (),
                choice=draft.index,
                n_choices=fields.n or 1,
                user=fields.user,
                quoted_session=labels.session_id,
                turn_type=labels.turn_type,
                is_session_done=labels.is_session_done,
                may_train=labels.may_train and not target.is_base,
                is_aborted=is_aborted,
                quarantine=reason,
            )
        )
