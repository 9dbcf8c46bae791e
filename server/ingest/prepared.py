"""A record before it meets the journal: everything that takes time for a long text and needs no SQL.

The ingester prepares records before it takes the journal's write lock, so that no writer waits for somebody's long
conversation to be parsed and hashed.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from burnish.journal.blobs import N_TIME, SHORT, Parted, dated, is_key_of, is_storable, key_of, storable, text_of
from burnish.journal.linked_turns import LinkedTurn
from burnish.journal.turns import to_bytes
from burnish.records import Feedback, Interaction, Message, Sampling, digest_of_voice
from burnish.segments.frames import Record
from burnish.segments.texts import once
from burnish.server.ingest.linking import Trace


class Blob(NamedTuple):
    """A message or a tool list as it is stored."""

    digest: str
    body: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """One interaction with its hashes and its stored texts. `head` is the digest of its system prompt.

    `session_id` is that of the session that the turn names, None if it names none.
    """

    turn: Interaction
    trace: Trace
    messages: Sequence[Blob]
    tools: Blob | None
    reply: Blob
    prompt: Parted
    head: str | None
    session_id: str | None

    @classmethod
    def of(cls, turn: Interaction) -> "Prepared":
        messages = [_blob(message) for message in turn.messages]
        tools = _blob(turn.tools) if turn.tools else None
        named = _quoted_id(turn) if turn.quoted_session else None
        prompt = Parted.of(turn.prompt_ids)
        return cls(turn, Trace(turn), messages, tools, _blob(turn.reply), prompt, head_of(turn.messages), named)

    def unless(self, opted_out: Collection[str]) -> "Prepared":
        """The same, kept out of training if its user, proved or only claimed, is one of these digests of voices."""
        user = self.turn.user or self.turn.quoted_user
        if user is None or digest_of_voice((self.turn.tenant, "user", user)) not in opted_out:
            return self
        return replace(self, turn=replace(self.turn, may_train=False))


def head_of(messages: Sequence[Message]) -> str | None:
    """The digest of the system prompt."""
    return next((_blob(message).digest for message in messages if message.get("role") == "system"), None)


def without_unstorable(record: Record) -> Record:
    """`record` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate
    pairs."""
    names = _FEEDBACK if isinstance(record, Feedback) else _INTERACTION
    texts = {name: value for name in names if isinstance(value := getattr(record, name), str)}
    if is_storable("".join(texts.values())):
        return record
    clean: dict[str, Any] = {name: storable(text) for name, text in texts.items()}
    return replace(record, **clean)


@dataclass(frozen=True, slots=True)
class Stored:
    """The keys under which a turn's texts and the parts of its prompt are stored, and those that may be new."""

    messages: Sequence[str]
    reply: str
    tools: str | None
    parts: Sequence[str]
    new_texts: Mapping[str, str]
    new_parts: Mapping[str, bytes]

    @classmethod
    def of(cls, given: Prepared, parent: LinkedTurn | None) -> "Stored":
        """What `parent`, the continued turn, has keeps its key: it is stored, the parent could not be there without."""
        turn = given.turn
        texts, parts, tools = _Keys(()), _Keys(()), _Keys(())
        if parent is not None:
            texts = _Keys([*parent.message_digests, parent.reply_digest])
            parts = _Keys(parent.part_digests)
            tools = _Keys([parent.tools_digest] if parent.tools_digest is not None else ())
        new_texts: dict[str, str] = {}
        new_parts: dict[str, bytes] = {}

        def of_text(keys: "_Keys", place: int, value: Any, blob: Blob) -> str:
            if (key := keys.find(place, blob.digest)) is None:
                key = key_of(value, blob.digest, turn.started_at, is_short=len(blob.body) < SHORT)
                new_texts[key] = blob.body
            return key

        def of_part(place: int, digest: str) -> str:
            if (key := parts.find(place, digest)) is None:
                key = dated(digest, turn.started_at)
                new_parts[key] = given.prompt.parts[digest]
            return key

        return cls(
            messages=[
                of_text(texts, place, value, blob)
                for place, (value, blob) in enumerate(zip(turn.messages, given.messages, strict=True))
            ],
            reply=of_text(texts, -1, turn.reply, given.reply),
            tools=of_text(tools, 0, turn.tools, given.tools) if given.tools is not None else None,
            parts=list(map(of_part, range(len(given.prompt.digests)), given.prompt.digests)),
            new_texts=new_texts,
            new_parts=new_parts,
        )


class _Keys:
    """The keys of another turn. Most are found at the same place, so the others are looked through only if needed."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._by_digest: dict[str, str] | None = None

    def find(self, place: int, digest: str) -> str | None:
        if 0 <= place < len(self._keys) and is_key_of(key := self._keys[place], digest):
            return key
        if self._by_digest is None:
            self._by_digest = {key[N_TIME:]: key for key in self._keys}
        return self._by_digest.get(digest[N_TIME:])


def turn_of(given: Prepared, stored: Stored, **found: Any) -> LinkedTurn:
    """The turn of a record. `found` is what linking has found out."""
    turn = given.turn
    return LinkedTurn(
        interaction_id=turn.interaction_id,
        request_id=turn.request_id,
        agent=turn.agent,
        tenant=turn.tenant,
        user=turn.user,
        turn_type=turn.turn_type,
        retry=turn.retry,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
        finish_reason=turn.finish_reason,
        digests=json_of(stored.messages),
        prompt_parts=json_of(stored.parts),
        tools_digest=stored.tools,
        reply_digest=stored.reply,
        tail_hash=given.trace.tail,
        choice=turn.choice,
        may_train=turn.may_train and not turn.upstream,
        upstream=turn.upstream,
        is_aborted=turn.is_aborted,
        **found,
    )


def row_of(turn: LinkedTurn, given: Prepared, rule: str) -> Mapping[str, Any]:
    """A row of the interaction table."""
    record, trace = given.turn, given.trace
    return {
        "interaction_id": turn.interaction_id,
        "request_id": turn.request_id,
        "agent": turn.agent,
        "version": record.version,
        "tenant": turn.tenant,
        "key_id": record.key_id,
        "user": turn.user,
        "quoted_user": record.quoted_user,
        "session_id": turn.session_id,
        "parent_id": turn.parent_id,
        "link_rule": rule,
        "turn_type": turn.turn_type,
        "kind": turn.kind,
        "kind_reason": turn.kind_reason,
        "route": record.route,
        "quoted_by": record.quoted_by,
        "upstream": turn.upstream,
        "retry": turn.retry,
        "started_at": turn.started_at,
        "ended_at": turn.ended_at,
        "finish_reason": turn.finish_reason,
        "sampling": _sampling(record.sampling),
        "message_digests": turn.digests,
        "tools_digest": turn.tools_digest,
        "reply_digest": turn.reply_digest,
        "n_behind": turn.n_behind,
        "request_hash": trace.request,
        "tail_hash": trace.tail,
        "suffix_hash": trace.suffix,
        "words_hash": trace.words,
        "prompt_parts": turn.prompt_parts,
        "prompt_rest": given.prompt.rest,
        "token_ids": to_bytes(record.token_ids),
        "logprobs": to_bytes(record.logprobs),
        "choice": turn.choice,
        "n_choices": record.n_choices,
        "may_train": turn.may_train,
        "is_aborted": turn.is_aborted,
        "quarantine": record.quarantine,
        "is_ready": False,
        "skip_reason": turn.skip_reason,
        "spent_step": None,
        "traceparent": record.traceparent,
    }


def json_of(value: Any) -> str:
    """JSON text of numbers and ASCII."""
    return msgspec.json.encode(value).decode()


@lru_cache
def _sampling(sampling: Sampling) -> str:
    return json_of(asdict(sampling))


@once
def _blob(value: Any) -> Blob:
    return Blob(*text_of(value))


def _quoted_id(turn: Interaction) -> str:
    """The session id for the name that a turn quotes. Names under different keys or of different users never meet."""
    asker = [turn.tenant, turn.key_id, *([turn.user] if turn.user else [])]
    return "q-" + hashlib.sha256("\0".join([*asker, str(turn.quoted_session)]).encode()).hexdigest()[:24]


_FEEDBACK, _INTERACTION = (
    tuple(field.name for field in fields(kind) if "str" in str(field.type)) for kind in (Feedback, Interaction)
)
