"""Records for tests, with a default for every field."""

from array import array
from typing import Any

from burnish.records import Feedback, FeedbackSource, Interaction, Judgement, Sampling

_count = 0


def interaction(messages: list[dict[str, Any]], reply: str = "ok", **changes: Any) -> Interaction:
    """A sound interaction: three prompt tokens, two sampled ones."""
    global _count
    _count += 1
    name = changes.pop("interaction_id", f"chatcmpl-{_count}")
    fields: dict[str, Any] = {
        "interaction_id": name,
        "request_id": changes.pop("request_id", name.partition("#")[0]),
        "agent": "agent",
        "version": 0,
        "tenant": "default",
        "key_id": "key-1",
        "messages": messages,
        "reply": {"role": "assistant", "content": reply},
        "started_at": 1000.0 + _count,
        "ended_at": 1000.5 + _count,
        "finish_reason": "stop",
        "sampling": Sampling(),
        "prompt_ids": array("i", [1, 2, 3]),
        "token_ids": array("i", [4, 5]),
        "logprobs": array("f", [-0.5, -0.25]),
    }
    return Interaction(**fields | changes)


def feedback(target: str, rating: float | None = None, **changes: Any) -> Feedback:
    """An authenticated user's feedback."""
    global _count
    _count += 1
    fields: dict[str, Any] = {
        "feedback_id": f"f-{_count}",
        "target": target,
        "tenant": "default",
        "key_id": "key-1",
        "source": FeedbackSource.USER,
        "created_at": 2000.0 + _count,
        "rating": rating,
    }
    return Feedback(**fields | changes)


def judgement(interaction_id: str, score: int | None, hint: str | None = None, **changes: Any) -> Judgement:
    """A unanimous verdict of three votes."""
    fields: dict[str, Any] = {
        "interaction_id": interaction_id,
        "judge_id": "base/abc",
        "score": score,
        "confidence": 1.0,
        "hint": hint,
        "votes": [score] * 3,
        "n_failed": 0,
        "created_at": 3000.0,
        "hint_status": "accepted" if hint else None,
    }
    return Judgement(**fields | changes)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}
