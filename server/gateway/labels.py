"""What a request says about itself: its session, its kind, and whether it may be recorded and trained on.

The order is fixed: our header, then the headers of known harnesses, then body fields. The name that was found is
stored. If there is none, the ingester goes by the messages (server/ingest/linking.py).
"""

import msgspec

from burnish.records import digest_of_voice
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.call import NO_BODY_LABELS, BodyLabels, Call
from burnish.serving_table import Routes
from burnish.session_names import HARNESS, OURS
from burnish.wire import traceparent

MAX_LENGTH = 512
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class Labels(msgspec.Struct, frozen=True):
    """What a client says about a turn. `quoted_by` is the header or field that named the session, `traceparent` the
    client's span.
    """

    session_id: str | None = None
    quoted_by: str | None = None
    turn_type: str | None = None
    is_session_done: bool = False
    may_train: bool = True
    may_record: bool = True
    retry: int = 0
    traceparent: str | None = None


def labels_of(headers: dict[bytes, str], said: BodyLabels) -> Labels:
    """The labels in the headers, else those in the body."""
    if said is NO_BODY_LABELS and headers.keys().isdisjoint(_SAYING):
        return NO_LABELS
    session_id, quoted_by = _session(headers, said)
    done = headers.get(b"x-session-done") or said.is_done
    kind = headers.get(b"x-turn-type") or said.turn_type
    return Labels(
        session_id=session_id,
        quoted_by=quoted_by,
        turn_type=kind.strip().lower() if kind else "subagent" if headers.get(b"x-parent-session-id") else None,
        is_session_done=str(done).strip().lower() in _TRUE,
        may_train=headers.get(b"x-burnish-train", "true").strip().lower() not in _FALSE,
        may_record=_wants_record(headers),
        retry=_count(headers.get(b"x-stainless-retry-count")),
        traceparent=traceparent.checked(headers.get(b"traceparent")),
    )


def with_consent(labels: Labels, caller: Caller, call: Call, routes: Routes) -> Labels:
    """The labels with what key and user allow. A request can only allow less.

    A name that is not proved counts here too: who opts somebody else's name out keeps only the own turn back.
    """
    may_train, may_record = labels.may_train and caller.may_train, labels.may_record and caller.may_record
    user = call.user or call.quoted_user
    if routes.opt_outs and user:
        opted_out = routes.opt_outs.get(digest_of_voice((caller.tenant, "user", user)))
        may_train, may_record = may_train and opted_out is None, may_record and opted_out is not False
    if (may_train, may_record) == (labels.may_train, labels.may_record):
        return labels
    return msgspec.structs.replace(labels, may_train=may_train, may_record=may_record)


def may_store(headers: dict[bytes, str], caller: Caller, routes: Routes) -> bool:
    """Whether a caller's feedback may be stored, by its request, its key and its proved user."""
    voice = digest_of_voice((caller.tenant, "user", caller.user)) if caller.user is not None else ""
    return _wants_record(headers) and caller.may_record and routes.opt_outs.get(voice) is not False


def _wants_record(headers: dict[bytes, str]) -> bool:
    return headers.get(b"x-burnish-record", "true").strip().lower() not in _FALSE


def _session(headers: dict[bytes, str], said: BodyLabels) -> tuple[str | None, str | None]:
    if not headers.keys().isdisjoint(_ALL):
        for name in _ALL:
            if value := headers.get(name):
                return value[:MAX_LENGTH], name.decode()
    if said.session:
        return said.session[:MAX_LENGTH], said.session_field
    return None, None


def _count(text: str | None) -> int:
    return min(int(text), 1000) if text and text.isdecimal() and len(text) < 6 else 0


NO_LABELS = Labels()
_ALL = (*OURS, *HARNESS)
_SAYING = frozenset(
    {
        *_ALL,
        b"x-session-done",
        b"x-turn-type",
        b"x-burnish-train",
        b"x-burnish-record",
        b"x-stainless-retry-count",
        b"x-parent-session-id",
        b"traceparent",
    }
)
