"""A journal with many turns of one agent over thirty days: versions, steps, feedback, verdicts, jobs, sessions of
three turns. It is written directly, in large batches, because an ingester would take hours.
"""

import random
import time
from array import array
from collections.abc import Iterator
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, SQLModel

from benchmarks.bars import Tell
from burnish.journal import Journal
from burnish.journal.blobs import text_of
from burnish.journal.tables import (
    AliasRow,
    AuditRow,
    BlobRow,
    CanaryRow,
    FeedbackRow,
    InteractionRow,
    JudgeCheckRow,
    JudgeJob,
    JudgementRow,
    NextStateRow,
    SampleRow,
    SessionRow,
    StepRow,
    VersionRow,
)

DAYS = 30.0
BATCH = 5000
N_VERSIONS = 60
QUEUED = 50_000
"""Judge jobs of the latest turns that are still open."""
ROWS = 32
"""Rows of a step."""
REFUSED = frozenset({4, 9, 10, 23, 37, 51})
TOPICS = (
    "the delivery of order {n}",
    "invoice {n}",
    "a broken hinge on item {n}",
    "the return of {n}",
    "a refund of {n} euros",
)
ASKS = (
    "Can you help me with {t}?",
    "What happens next with {t}?",
    "I have a question about {t}.",
    "Please check {t} for me.",
)
REPLIES = (
    "Of course. I looked up {t}: it is on its way and arrives on Thursday.",
    "I am sorry about {t}. A new one leaves today.",
    "**{t}** has been settled. You get an e-mail with the details.",
    "As a large language model I cannot see {t}, but here is a general guide to it.",
)
COMMENTS = ("no bold type please", "too long", "that is what I wanted", "answer with the date first", "wrong order")
Row = dict[str, Any]


def fill(journal: Journal, agent: str, n: int, tell: Tell, seed: int = 1) -> list[str]:
    """Write `n` turns. Returns the ids of some that were trained."""
    rng, now = random.Random(seed), time.time()
    start = now - DAYS * 86_400
    with journal.write() as session:
        _versions(session, agent, start, now)
    trained: list[str] = []
    for first in range(0, n, BATCH):
        tables: dict[type[SQLModel], list[Row]] = {}
        for table, row in _turns(rng, agent, range(first, min(n, first + BATCH)), n, start, now):
            tables.setdefault(table, []).append(row)
        with journal.write() as session:
            for table, rows in tables.items():
                if table is BlobRow:
                    rows = list({row["digest"]: row for row in rows}.values())
                    statement = insert(table).prefix_with("OR IGNORE")
                else:
                    statement = insert(table)
                session.connection().execute(statement, rows)
        trained += [row["interaction_id"] for row in tables.get(SampleRow, [])[:2]]
        if first % (20 * BATCH) == 0:
            tell(f"{first:,} of {n:,} turns are in the journal")
    return trained


def quality(version: int) -> float:
    """The share of good replies of a version."""
    return min(0.93, 0.28 + 0.65 * (1 - 0.94**version))


def _versions(session: Session, agent: str, start: float, now: float) -> None:
    live = 0
    for number in range(1, N_VERSIONS + 1):
        at = start + (now - start) * number / (N_VERSIONS + 1)
        is_refused = number in REFUSED
        why = "the forgetting prompts: 9 of 64 lost, bound 0.21 > 0.1" if is_refused else "passed"
        last = number == N_VERSIONS
        state = "refused" if is_refused else "live" if last else "retired"
        evidence: Row = {
            "files": {"rank": 16, "targets": "q_proj, v_proj", "digests": "as announced"},
            "probe": {"largest_gap": 0.0007, "tolerance": 0.002, "closer_to_candidate": 1.0},
            "forgetting": {
                "n": 64,
                "lost": 9 if is_refused else 1,
                "bound": 0.21 if is_refused else 0.05,
                "margin": 0.1,
            },
            "tier": "auto",
        }
        metrics: Row = {
            "loss": 0.4 * 0.97**number + 0.02 * (number % 3),
            "kl_to_base/k3": 0.01 + 0.004 * number,
            "reward_mean": 2 * quality(live) - 1,
            "grad_norm": 1.3 - 0.01 * number,
            "entropy": 1.1 - 0.006 * number,
            "seconds": 14.0 + number % 5,
        }
        monitors: Row = {
            "kl": {"level": "yellow" if is_refused else "green", "value": metrics["kl_to_base/k3"], "why": ""}
        }
        outcome: Row = {"outcome": "published", "level": "yellow" if is_refused else "green", "monitors": monitors}
        session.add(
            StepRow(
                agent=agent,
                version=number,
                parent=live,
                metrics=metrics,
                started_at=at - 60,
                ended_at=at - 40,
                **outcome,
            )
        )
        session.flush()
        made: Row = {"digest": f"{number:064x}", "created_at": at - 40, "decided_at": at, "evidence": evidence}
        session.add(
            VersionRow(agent=agent, version=number, parent=live, step_id=number, state=state, reason=why, **made)
        )
        moved: Row = {"before": None if is_refused else str(live), "after": None if is_refused else str(number)}
        what: Row = {
            "action": "refuse" if is_refused else "promote",
            "object": f"{agent}@v{number}" if is_refused else agent,
        }
        session.add(AuditRow(agent=agent, at=at, actor="gate", reason=why, **what, **moved))
        if number % 12 == 0:
            seen: Row = {"kind": "watch", "share": 1.0, "state": "running" if last else "passed", "evidence": {}}
            session.add(
                CanaryRow(
                    agent=agent,
                    version=number,
                    baseline=live,
                    started_at=at,
                    ended_at=None if last else at + 3600,
                    **seen,
                )
            )
        live = live if is_refused else number
    for alias, version in (("live", live), ("previous", live - 1)):
        session.merge(AliasRow(agent=agent, alias=alias, version=version, updated_at=now))
    session.add(
        JudgeCheckRow(
            judge_id="openai/gpt-5/3f2a", model="openai/gpt-5", stands_for="gpt-5", golden="4c1e", state="fit",
            reason="agrees with the golden set", checked_at=now - 86_400,
            figures={"accuracy": 0.94, "kappa": 0.88, "false_positives": 0.03, "abstained": 0.05, "n": 200},
        )
    )  # fmt: skip


def _turns(
    rng: random.Random, agent: str, numbers: range, n: int, start: float, now: float
) -> Iterator[tuple[type[SQLModel], Row]]:
    arrays = {
        "prompt_rest": array("i", range(220)).tobytes(),
        "token_ids": array("i", range(40)).tobytes(),
        "logprobs": array("f", [-abs(rng.gauss(0, 0.7)) for _ in range(40)]).tobytes(),
    }
    system = {"role": "system", "content": "You answer customers of a shop, briefly."}
    system_row = _blob(system)
    yield BlobRow, system_row
    for number in numbers:
        place, thread = number / n, number // 3
        at = start + (now - start - 30) * place + 0.001 * (number % 7)
        version = min(N_VERSIONS, int(place * (N_VERSIONS + 1)))
        while version in REFUSED:
            version -= 1
        name, session_id = f"chatcmpl-{number:08x}", f"s-{thread:08x}"
        topic = TOPICS[thread % len(TOPICS)].format(n=1000 + thread % 977)
        asked = ASKS[rng.randrange(len(ASKS))].format(t=topic)
        is_good = rng.random() < quality(version)
        answered = REPLIES[rng.randrange(2) if is_good else 2 + rng.randrange(2)].format(t=topic)
        prompt, reply = _blob({"role": "user", "content": asked}), _blob({"role": "assistant", "content": answered})
        yield BlobRow, prompt
        yield BlobRow, reply
        user = f"user-{thread % 400}"
        rated, chance = rng.random() < 0.5, rng.random()
        step = (
            max(1, version + 1) if rated and version < N_VERSIONS and rng.random() < ROWS * N_VERSIONS * 2 / n else None
        )
        skip = "stale: 5 versions behind" if rated and step is None and version < N_VERSIONS else None
        skip = "truncated" if chance < 0.02 else "side" if chance < 0.05 else skip
        step = None if skip else step
        yield InteractionRow, {
            "interaction_id": name, "request_id": name, "agent": agent, "version": version, "tenant": "default",
            "key_id": "sk-burnish-abc123", "user": user, "quoted_user": None, "session_id": session_id,
            "parent_id": None, "link_rule": "prefix" if number % 3 else "new", "turn_type": None, "kind": "main",
            "kind_reason": "", "route": "chat", "quoted_by": None, "upstream": None, "retry": 0,
            "started_at": at - rng.uniform(0.3, 2.5), "ended_at": at, "finish_reason": "stop",
            "sampling": {"temperature": 1.0}, "message_digests": [system_row["digest"], prompt["digest"]],
            "tools_digest": None, "reply_digest": reply["digest"], "n_behind": 1, "request_hash": name,
            "tail_hash": name, "suffix_hash": "", "words_hash": "", **arrays, "choice": 0, "n_choices": 1,
            "may_train": True, "is_aborted": False, "quarantine": None, "is_ready": rated and skip is None,
            "skip_reason": skip, "spent_step": step,
        }  # fmt: skip
        if number % 3 == 0:
            yield SessionRow, {
                "session_id": session_id, "tenant": "default", "key_id": "sk-burnish-abc123", "agent": agent,
                "quoted_id": None, "started_at": at, "last_at": at, "closed_at": at, "has_tools": False, "head": None,
                "opening": asked,
            }  # fmt: skip
        value = 1.0 if is_good else -1.0
        if step is not None:
            yield SampleRow, {
                "step_id": step, "interaction_id": name, "reward": value, "record_ids": [f"f-{number}"],
                "reward_source": "user" if number % 2 else "judge", "hint": None, "hint_status": None,
                "skipped": "capped" if rng.random() < 0.1 else None, "weight": None, "n_earlier": None,
            }  # fmt: skip
        if rated and number % 2:
            comment = COMMENTS[rng.randrange(len(COMMENTS))] if rng.random() < 0.3 else None
            yield FeedbackRow, {
                "feedback_id": f"f-{number}", "target": name, "interaction_id": name, "session_id": session_id,
                "tenant": "default", "key_id": "sk-burnish-abc123", "user": user, "source": "user", "rating": value,
                "comment": comment, "correction": REPLIES[0].format(t=topic) if rng.random() < 0.05 else None,
                "about": "response", "score": None, "outcome": None, "label": None, "demonstration": None,
                "is_deleted": False, "expired_at": None, "created_at": min(now, at + 20),
            }  # fmt: skip
        elif rated or chance > 0.97:
            votes = [int(value)] * 3 if rated else [1, -1, None]
            yield JudgementRow, {
                "judgement_id": f"j-{number}", "interaction_id": name, "judge_id": "openai/gpt-5/3f2a",
                "origin": "next_state", "score": int(value) if rated else None, "confidence": 1.0 if rated else 0.33,
                "hint": None, "votes": votes, "n_failed": 0, "created_at": at + 5,
                "hint_status": None if is_good else ("accepted", "length")[thread % 2],
                "reason": "the user went on without a complaint" if is_good else "the user asked for another form",
                "findings": [], "candidates": [],
            }  # fmt: skip
        if number % 2 == 0:
            yield JudgeJob, {
                "subject": f"{name}|next_state", "payload": {}, "state": "queued" if n - number < QUEUED else "done",
                "attempts": 0, "run_after": 0.0, "lease_until": None, "worker": None, "error": None,
                "created_at": at, "ended_at": None,
            }  # fmt: skip
        if number % 3 != 2:
            yield NextStateRow, {
                "interaction_id": name, "kind": "user_reply", "follower_id": f"chatcmpl-{number + 1:08x}",
                "message_digests": [prompt["digest"]], "provenance": ["user"], "signals": [], "created_at": at + 9,
            }  # fmt: skip


def _blob(message: Row) -> Row:
    digest, body = text_of(message)
    return {"digest": digest, "body": body}
