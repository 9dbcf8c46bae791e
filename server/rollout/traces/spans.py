"""What the spans of a trace are: names, places, attributes. Functions of rows, without the SDK.

A trace is that of one request. With a `traceparent`, it is the client's. Every id is derived from ids of the journal.
So a span that is sent twice is the same span, and a later one knows its parent without any state.

Attributes `gen_ai.*` are those of the GenAI semantic conventions. Evaluations come long after their turn has been sent.
So each is a span with the attributes of the convention's event `gen_ai.evaluation.result`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.journal.tables import AuditRow, FeedbackRow, GroupSampleRow, JudgementRow, SampleRow, StepRow, VersionRow
from burnish.records import StepOutcome, VersionName
from burnish.wire.traceparent import Remote, parse

Value = str | int | float | bool | list[str]
PROVIDER = "burnish"
MOST_CHARACTERS = 500
"""Of a reason."""
PROMOTED, REFUSED, ROLLED_BACK = "promoted", "refused", "rolled back"
SCORES = {1: "good", 0: "neutral", -1: "bad", None: "abstained"}
_TURN = "turn"
_VERBS = {PROMOTED: "promote", REFUSED: "refuse", ROLLED_BACK: "roll back"}
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, slots=True)
class Origin:
    """The turn from which a trace begins in Burnish. `parent` is the client's span."""

    interaction_id: str
    request_id: str
    agent: str
    parent: Remote | None = None

    @classmethod
    def of(cls, row: Any) -> "Origin":
        """The origin in a row with the columns of a turn."""
        parent = parse(row.traceparent) if row.traceparent else None
        return cls(row.interaction_id, row.request_id, row.agent, parent)

    @property
    def trace_id(self) -> int:
        return self.parent.trace_id if self.parent is not None else _number(16, "trace", self.request_id)

    def span_id(self, key: str) -> int:
        """The id of the span `key` in this turn's trace."""
        return _number(8, key, self.interaction_id)


@dataclass(frozen=True, slots=True)
class Span:
    """One span. `key` identifies it in its trace, and `parent` is the key of another; None for the turn's own span.

    Times are seconds since the epoch. `error` says what failed.
    """

    origin: Origin
    key: str
    parent: str | None
    name: str
    start: float
    end: float
    attributes: Mapping[str, Value]
    error: str | None = None


def of_turn(row: Any, origin: Origin, words: Mapping[str, str]) -> Span:
    """The turn itself, from the request to the end of the reply. `words` are what was said, if it may leave."""
    operation = "text_completion" if row.route == "completions" else "chat"
    sampling: Mapping[str, Any] = row.sampling
    attributes: dict[str, Value | None] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.agent.name": row.agent,
        "gen_ai.request.model": row.agent,
        "gen_ai.response.model": row.upstream or str(VersionName(row.agent, row.version)),
        "gen_ai.response.id": row.interaction_id,
        "gen_ai.response.finish_reasons": [row.finish_reason] if row.finish_reason else None,
        "gen_ai.conversation.id": row.session_id,
        "gen_ai.usage.input_tokens": row.n_prompt or None,
        "gen_ai.usage.output_tokens": row.n_output // 4 or None,
        "gen_ai.request.choice.count": row.n_choices if row.n_choices > 1 else None,
        **{f"gen_ai.request.{name}": sampling.get(name) for name in _SAMPLING},
        "gen_ai.request.top_k": top_k if (top_k := sampling.get("top_k", -1)) > 0 else None,
        "burnish.agent": row.agent,
        "burnish.version": row.version,
        "burnish.tenant": row.tenant,
        "burnish.route": row.route,
        "burnish.kind": row.kind,
        "burnish.choice": row.choice,
        "burnish.aborted": row.is_aborted,
        **words,
    }
    name = f"{operation} {row.agent}"
    return Span(origin, _TURN, None, name, row.started_at, row.ended_at, _given(attributes))


def of_verdict(row: JudgementRow, origin: Origin, *, has_content: bool) -> Span:
    """A judge's verdict."""
    said = row.hint or row.reason if has_content else None
    attributes = {
        "gen_ai.evaluation.score.value": None if row.score is None else float(row.score),
        "gen_ai.evaluation.score.label": SCORES.get(row.score),
        "gen_ai.evaluation.explanation": said,
        "burnish.evaluation.source": "judge",
        "burnish.evaluation.judge": row.judge_id,
        "burnish.evaluation.origin": row.origin,
        "burnish.evaluation.confidence": row.confidence,
    }
    return _evaluation(origin, f"verdict {row.judgement_id}", "verdict", row.created_at, attributes)


def of_feedback(row: FeedbackRow, origin: Origin, *, has_content: bool) -> list[Span]:
    """What a user, a verifier or a harness said: a span for each number, or one for words alone."""
    words = {"comment": row.comment, "correction": row.correction, "demonstration": row.demonstration}
    said = [(name, text) for name, text in words.items() if text]
    attributes = {
        "gen_ai.evaluation.explanation": said[0][1] if said and has_content else None,
        "burnish.evaluation.source": row.source,
        "burnish.evaluation.about": row.about,
        "burnish.evaluation.label": row.label if has_content else None,
    }
    numbers = {"rating": row.rating, "score": row.score, "outcome": row.outcome}
    values = {name: value for name, value in numbers.items() if value is not None}
    made = []
    for name in values or [name for name, _ in said[:1]]:
        whole = {"gen_ai.evaluation.score.value": values.get(name), **attributes}
        made.append(_evaluation(origin, f"feedback {row.feedback_id} {name}", name, row.created_at, whole))
    return made


def of_step(step: StepRow, trained_until: float, row: SampleRow | GroupSampleRow, origin: Origin) -> Span:
    """The training step that used a turn, from its beginning until its version was published, or it ended without."""
    attributes = {
        "burnish.step.id": step.step_id,
        "burnish.step.outcome": step.outcome,
        "burnish.step.reason": _short(step.reason),
        "burnish.step.parent": step.parent,
        "burnish.step.attempt": step.attempt,
        "burnish.row.skipped": row.skipped,
        "burnish.row.weight": row.weight,
        "burnish.row.reward": row.reward if isinstance(row, SampleRow) else None,
        "burnish.row.reward_source": row.reward_source if isinstance(row, SampleRow) else None,
    }
    name = VersionName(step.agent, step.version)
    key, end = _step_key(step.step_id), max(step.started_at, trained_until)
    error = (step.reason or step.outcome) if step.outcome == StepOutcome.FAILED else None
    return _of_version(origin, key, _TURN, "train", name, step.started_at, end, attributes, error)


def of_decision(entry: AuditRow, outcome: str, version: VersionRow, since: float | None, origin: Origin) -> Span:
    """What was decided about the version that a step made. The first decision ends its trial, which began at `since`.
    A later one has no `since`.
    """
    name = VersionName(version.agent, version.version)
    verb = "trial" if since is not None else _VERBS[outcome]
    attributes = {
        "burnish.decision.outcome": outcome,
        "burnish.decision.actor": entry.actor,
        "burnish.decision.reason": _short(entry.reason),
    }
    start = entry.at if since is None else min(since, entry.at)
    key = f"audit {entry.audit_id} {version.version}"
    return _of_version(origin, key, _step_key(version.step_id), verb, name, start, entry.at, attributes)


def _of_version(
    origin: Origin,
    key: str,
    parent: str,
    verb: str,
    version: VersionName,
    start: float,
    end: float,
    attributes: Mapping[str, Value | None],
    error: str | None = None,
) -> Span:
    whole = {"burnish.agent": version.agent, "burnish.version": version.version, **attributes}
    return Span(origin, key, parent, f"{verb} {version}", start, end, _given(whole), _short(error))


def _evaluation(origin: Origin, key: str, name: str, at: float, attributes: Mapping[str, Value | None]) -> Span:
    whole = {"gen_ai.evaluation.name": name, "gen_ai.response.id": origin.interaction_id, **attributes}
    return Span(origin, key, _TURN, f"evaluate {name}", at, at, _given({**whole, "burnish.agent": origin.agent}))


def _step_key(step_id: int | None) -> str:
    return f"step {step_id}"


def _given(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Those that are known. Absent is not zero."""
    return {name: value for name, value in attributes.items() if value is not None}


def _short(text: str | None) -> str | None:
    return text[:MOST_CHARACTERS] if text else None


def _number(n_bytes: int, *names: str) -> int:
    """A number for names, never 0, which is no id."""
    digest = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=n_bytes).digest()
    return int.from_bytes(digest, "big") or 1
