"""The vocabulary: what each stage hands to the next, as frozen types. Words keep one meaning
(docs/explanation/design.md §2).

Per-token sequences are plural and share one axis (`token_ids`, `logprobs`). `None` is "absent", never zero: a turn
without a verdict was not judged 0, a row without log-probs has none. Times are seconds since the epoch (UTC).
"""

import hashlib
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Message = Mapping[str, Any]
IntArray: TypeAlias = "array[int]"
FloatArray: TypeAlias = "array[float]"


def int_array(values: Sequence[int]) -> IntArray:
    """`values` as int32. Raises OverflowError if one does not fit. Takes half the time of array's own constructor."""
    made: IntArray = array("i")
    try:
        made.frombytes(struct.pack(f"={len(values)}i", *values))
    except struct.error as error:
        raise OverflowError(str(error)) from error
    return made


class NextStateKind(StrEnum):
    """What came back after a reply. The last three apply if nobody answered it."""

    USER_REPLY = "user_reply"
    TOOL_RESULT = "tool_result"
    REGENERATED = "regenerated"
    SESSION_CLOSED = "session_closed"
    ABANDONED = "abandoned"


class Provenance(StrEnum):
    """Whose words a text is. Only a user's own words become a hint."""

    USER = "user"
    VERIFIER = "verifier"
    TOOL = "tool"
    WEB = "web"
    HARNESS = "harness"


class SignalKind(StrEnum):
    """A typed fact in a next state."""

    EXIT_CODE = "exit_code"
    HTTP_STATUS = "http_status"
    TIMEOUT = "timeout"
    TESTS = "tests"
    EDIT = "edit"


class LinkRule(StrEnum):
    """The rule that decided the session of a turn."""

    HEADER = "header"
    HARNESS = "harness"
    BODY = "body"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    EDITED = "edited"
    NEW = "new"
    AMBIGUOUS = "ambiguous"


class FeedbackSource(StrEnum):
    """Who gave feedback, and so how far it is trusted: a verifier outranks a user, a user the judge. The harness's is
    no reward.
    """

    VERIFIER = "verifier"
    USER = "user"
    HARNESS = "harness"


class TargetKind(StrEnum):
    """The target of feedback: one reply, all replies to one request, or a whole session."""

    RESPONSE = "response"
    TURN = "turn"
    SESSION = "session"


class StepOutcome(StrEnum):
    """How a training step ended. Only `OPEN` is not final."""

    OPEN = "open"
    PUBLISHED = "published"
    REFUSED = "refused"
    FAILED = "failed"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"
    """Broken off for no fault of its rows: journal or disk did not answer. Their tries do not count it."""


class VersionState(StrEnum):
    """The state of an adapter version."""

    CANDIDATE = "candidate"
    CANARY = "canary"
    LIVE = "live"
    REFUSED = "refused"
    RETIRED = "retired"
    ROLLED_BACK = "rolled_back"


UNDECIDED = (VersionState.CANDIDATE, VersionState.CANARY)
"""States of a version that may still go live automatically. An agent has at most one such version."""


class Observation(StrEnum):
    """The kind of an observation: before a promotion, unseen, or after it."""

    CANARY = "canary"
    SHADOW = "shadow"
    WATCH = "watch"


TRIALS = (Observation.CANARY, Observation.SHADOW)
"""Observations before a promotion. An agent has at most one, and its version has the alias `canary`."""


class CanaryState(StrEnum):
    """The state of an observation. Only `RUNNING` is not final. `SKIPPED` means too little evidence."""

    RUNNING = "running"
    PASSED = "passed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class Fitness(StrEnum):
    """Whether a judge may speak, by its check on a golden set."""

    UNCHECKED = "unchecked"
    FIT = "fit"
    UNFIT = "unfit"


class JudgedFor(StrEnum):
    """What a judge was asked for: verdicts on turns, comparisons of pairs, scores of shadow groups, or its check."""

    TURNS = "turns"
    PAIRS = "pairs"
    GROUPS = "groups"
    CHECK = "check"


class GroupState(StrEnum):
    """The state of a shadow group: its replies are drawn, scored, and spent in a step, or it is dropped with a
    reason."""

    DRAWING = "drawing"
    DRAWN = "drawn"
    SCORED = "scored"
    SPENT = "spent"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters that were in force, as the engine used them."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    has_logit_bias: bool = False
    is_constrained: bool = False

    @property
    def is_plain(self) -> bool:
        """True if every token was drawn from the full softmax at `temperature`."""
        return (
            self.top_p >= 1.0
            and self.top_k in (-1, 0)
            and self.min_p == 0.0
            and self.presence_penalty == 0.0
            and self.frequency_penalty == 0.0
            and self.repetition_penalty == 1.0
            and not self.has_logit_bias
            and not self.is_constrained
            and self.temperature > 0.0
        )

    @property
    def has_ratio(self) -> bool:
        """True if the recorded log-probs can be behaviour log-probs of a policy gradient: the policy chose the tokens
        itself. How narrowly the request let it choose (temperature, top-p, penalties) does not matter.
        """
        return not self.has_logit_bias and not self.is_constrained


Who = tuple[str, str, str]


def who_of(tenant: str, key_id: str, user: str | None) -> Who:
    """One voice: a proved user, whatever the key; without one, the key."""
    return (tenant, "key", key_id) if user is None else (tenant, "user", user)


def is_proved(who: Who) -> bool:
    """True if the voice is a proved user."""
    return who[1] == "user"


def digest_of_voice(who: Who) -> str:
    """A name for a voice that does not reveal it."""
    return hashlib.blake2b("\0".join(who).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def id_without_words(record_id: str) -> str:
    """The same id with a digest in place of what a client chose. Ids that Burnish made stay as they are."""
    prefix, colon, own = record_id.partition(":")
    if not colon or (len(own) == 32 and _HEX.issuperset(own)):
        return record_id
    return f"{prefix}:{hashlib.blake2b(own.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Interaction:
    """One recorded agent reply, exactly as sampled.

    `interaction_id` is the client's response id, with `#i` behind it for choice i > 0. `prompt_ids`, `token_ids` are
    int32 arrays, `logprobs` a float32 array with the policy's natural-log probability of each sampled token at
    temperature 1, whatever the request's. `version` is the adapter version's number, 0 for the frozen base.
    `quarantine` holds the reason why ids and log-probs cannot be trusted, None where they add up. `user` is proved
    (server/gateway/access/keyring.py), `quoted_user` is the name that the request gave. `quoted_session` is the id that
    the request named, `quoted_by` the header or field that named it. `route` is the dialect it came in. `upstream`
    names the remote model that answered in the agent's place, None where the engine did; such a turn has no version of
    ours and never trains. `may_train` is the user's word on it. `retry` is the number of earlier tries that the client
    says it made; `stop` the stop string that ended the reply and is no part of it. `traceparent` names the client's
    span (src/burnish/wire/traceparent.py). With a `remark` this is no reply, but what the user said about the last one
    in `messages` (server/gateway/feedback/remark.py).
    """

    interaction_id: str
    request_id: str
    agent: str
    version: int
    tenant: str
    key_id: str
    messages: Sequence[Message]
    reply: Message
    started_at: float
    ended_at: float
    finish_reason: str | None
    sampling: Sampling
    prompt_ids: IntArray = field(default_factory=lambda: array("i"))
    token_ids: IntArray = field(default_factory=lambda: array("i"))
    logprobs: FloatArray = field(default_factory=lambda: array("f"))
    tools: Sequence[Mapping[str, Any]] = ()
    choice: int = 0
    n_choices: int = 1
    user: str | None = None
    quoted_user: str | None = None
    quoted_session: str | None = None
    turn_type: str | None = None
    is_session_done: bool = False
    may_train: bool = True
    is_aborted: bool = False
    quarantine: str | None = None
    route: str = "chat"
    quoted_by: str | None = None
    upstream: str | None = None
    retry: int = 0
    stop: str | None = None
    remark: Mapping[str, Any] | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """One typed fact in a next state: an exit code, an HTTP status, a time-out (1), the share of the tests that passed,
    the share of the reply that somebody changed.

    `provenance` is whose text it was read from; `detail` quotes the place.
    """

    kind: SignalKind
    value: float
    provenance: Provenance
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on a reply, a request or a session, joined by the target's id (`about` says which kind).

    `rating` and `outcome` are in [-1, 1], `score` in [0, 1]; each is None if it was not given. An `outcome` is a later
    result (`label` names it). A `demonstration` is a reply that would have been right. `user` is the proved user who
    gave it. `is_deleted` deletes the earlier feedback with the same id, for the key `deleted_by`.
    """

    feedback_id: str
    target: str
    tenant: str
    key_id: str
    source: FeedbackSource
    created_at: float
    rating: float | None = None
    comment: str | None = None
    correction: str | None = None
    about: TargetKind = TargetKind.RESPONSE
    score: float | None = None
    outcome: float | None = None
    label: str | None = None
    demonstration: str | None = None
    user: str | None = None
    is_deleted: bool = False
    deleted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's verdict on one turn. `score` is +1, 0 or -1, None for an abstention. `confidence` is the share of votes
    behind it.

    `reason` names the rule that gave the score without a vote, or why the judge abstained. `hint` is the judge's hint.
    `hint_status` is `accepted` or the code of the reason why it is not used. `candidates` are other usable hints of the
    same ballot. `findings` names texts that look like prompt injection.
    """

    interaction_id: str
    judge_id: str
    score: int | None
    confidence: float
    hint: str | None
    votes: Sequence[int | None]
    n_failed: int
    created_at: float
    reason: str | None = None
    hint_status: str | None = None
    findings: Sequence[str] = ()
    candidates: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reward:
    """The effective reward of one turn, with the ids of the records behind it, the best source first.

    `value` is in [-1, 1]. With `step`, the turn's place in a tool session with a known outcome, it is outcome plus
    step: [-2, 2]. `candidates` are hints that the teacher may choose in place of `hint`.
    """

    value: float
    source: str
    record_ids: Sequence[str]
    hint: str | None
    step: int | None = None
    candidates: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class VersionName:
    """An agent's adapter version, written `agent@v12`; version 0 is the frozen base."""

    agent: str
    version: int

    def __str__(self) -> str:
        return f"{self.agent}@v{self.version}"

    @classmethod
    def parse(cls, text: str) -> "VersionName | None":
        """The name in `text`. None if it is not of the form `agent@v<number>`."""
        agent, mark, number = text.rpartition("@v")
        return cls(agent, int(number)) if mark and agent and number.isdecimal() and len(number) < 10 else None
