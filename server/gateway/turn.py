"""One request becomes Interactions: the engine's chunks go in, the client's bytes come out, and each choice is
recorded.

A piece with a choice's `finish_reason` is returned only after that choice has been appended to the segment. So a client
that has seen the end of a reply can rely on its record.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from burnish.errors import EngineError
from burnish.segments.frames import Begun
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.call import Call
from burnish.server.gateway.engines.engines import engine_error
from burnish.server.gateway.http.sse import DONE, data_of
from burnish.server.gateway.labels import Labels
from burnish.server.gateway.recorder import Recorder, Redacting, Unrecorded
from burnish.server.gateway.routing import Target
from burnish.wire import chunks
from burnish.wire.chunks import NOTHING, Answer, Chunk
from burnish.wire.draft import ABORTED, Draft

A = TypeVar("A", bound=Answer)
NO_TOOLS = msgspec.Raw(b"[]")
log = structlog.get_logger(__name__)


class Turn:
    """The recording of one request, pinned to one version for its whole life."""

    def __init__(
        self,
        call: Call,
        route: str,
        labels: Labels,
        target: Target,
        caller: Caller,
        recorder: Recorder | Redacting | Unrecorded,
        request_id: str,
        started_at: float,
    ) -> None:
        self._call = call
        self._route = route
        self._labels = labels
        self.target = target
        self._caller = caller
        self._recorder = recorder
        self._request_id = request_id
        self._renderer = call.render(target.name, request_id)
        self._started_at = started_at
        self._begun = None if call.prompts else self._begin(call.messages)
        self._response_id = ""
        self._prompt = NOTHING
        self._drafts: dict[int, Draft] = {}
        self._recorded: set[int] = set()
        self.is_done = False
        self.n_prompt = self.n_output = 0
        self.finish: str | None = None

    def pass_on(self, event: bytes) -> bytes:
        """What the client gets for one event of the engine's stream. Raises EngineUnavailable if the event is an
        error."""
        data = data_of(event)
        if data is None:
            return event + b"\n\n" if event.strip() else b""
        if data == DONE:
            self.is_done = True
            return self._renderer.end()
        taken = self._checked(chunks.read, data)
        self._collect(taken)
        return self._renderer.chunk(data, taken)

    def pass_whole(self, body: bytes) -> bytes:
        """What the client gets for the engine's whole (not streamed) answer.

        An answer with one choice is recorded as the engine wrote it and only skimmed for what its client reads.
        """
        answer = self._checked(chunks.skim, body)
        if self._begun is not None and len(answer.choices) == 1 and answer.choices[0].index == 0:
            self._recorder.answered(self._begun, self._response_id, body)
            self.finish = answer.choices[0].finish_reason
        else:
            self._collect(self._checked(chunks.read, body))
        if answer.usage is not None:
            self.n_prompt, self.n_output = answer.usage.prompt_tokens, answer.usage.completion_tokens or 0
        self.is_done = True
        return self._renderer.whole(body, answer)

    def abandon(self) -> None:
        """Record every unfinished choice as aborted, with the tokens sampled so far."""
        for draft in list(self._drafts.values()):
            if not draft.is_empty:
                self._record(draft, is_aborted=True)
        self._drafts.clear()

    def _checked(self, read: Callable[[bytes], A], data: bytes) -> A:
        """The engine's answer as `read` parses it. Raises EngineError, EngineUnavailable or RequestError."""
        try:
            taken = read(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable(data, error) from error
        if taken.error is not None:
            raise engine_error(taken.error, self._request_id, has_begun=bool(self._response_id))
        if not self._response_id:
            if not taken.id:
                raise self._unreadable(data, ValueError("no id"))
            self._response_id = self._renderer.response_id(taken.id)
        return taken

    def _collect(self, taken: Chunk) -> None:
        """Keep what the engine sampled, and append each choice that is complete."""
        if taken.prompt_token_ids and not self._prompt:
            self._prompt = taken.prompt_token_ids
        for choice in taken.choices:
            index = choice.index
            if index in self._recorded:  # a record never changes, so anything after its end is dropped
                continue
            draft = self._drafts.get(index)
            if draft is None:
                draft = self._drafts[index] = Draft(index)
            draft.add(choice)
            if draft.finish_reason is not None:
                del self._drafts[index]
                self._recorded.add(index)
                self._record(draft, is_aborted=draft.finish_reason == ABORTED)

    def _unreadable(self, data: bytes, error: Exception) -> EngineError:
        log.error("unreadable engine answer", request_id=self._request_id, error=repr(error)[:200], n_bytes=len(data))
        return EngineError("the engine's answer is not a completion; is it a vLLM server?")

    def _record(self, draft: Draft, *, is_aborted: bool) -> None:
        if not draft.prompt_ids:
            draft.add_prompt(self._prompt)
        is_remote = self.target.upstream is not None
        reason = None if is_remote else draft.quarantine()
        self.n_prompt = max(self.n_prompt, len(draft.prompt_ids))
        self.n_output += len(draft.token_ids)
        self.finish = ABORTED if is_aborted else draft.finish_reason
        rest = {
            "interaction_id": f"{self._response_id}#{draft.index}" if draft.index else self._response_id,
            "reply": draft.message,
            "ended_at": time.time(),
            "finish_reason": draft.finish_reason,
            "choice": draft.index,
            "is_aborted": is_aborted,
            "quarantine": reason,
            "stop": draft.stop,
        }
        begun = self._begun if self._begun is not None else self._begin(self._call.messages_of(draft.index))
        self._recorder.finish(begun, rest, draft.prompt_ids, draft.token_ids, draft.logprobs)

    def _begin(self, messages: msgspec.Raw) -> Begun:
        """The part of the record that is known before the reply to `messages`."""
        labels, target, caller, call = self._labels, self.target, self._caller, self._call
        return Begun(
            {
                "request_id": self._request_id,
                "agent": target.agent,
                "version": target.version,
                "tenant": caller.tenant,
                "key_id": caller.key_id,
                "messages": messages,
                "tools": call.tools or NO_TOOLS,
                "started_at": self._started_at,
                "sampling": call.sampling,
                "n_choices": call.n,
                "user": call.user,
                "quoted_user": call.quoted_user,
                "quoted_session": labels.session_id,
                "turn_type": labels.turn_type,
                "is_session_done": labels.is_session_done,
                "may_train": labels.may_train and not target.is_base,
                "route": self._route,
                "quoted_by": labels.quoted_by,
                "upstream": target.upstream,
                "retry": labels.retry,
                "traceparent": labels.traceparent,
            }
        )
