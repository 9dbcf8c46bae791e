"""A small journal that looks like real use, for pictures of the pages: twelve days of one agent that answers everyday
questions and learns to answer them briefly.

Questions, right replies and complaints are those of `sandbox/english`. Figures of the gate and of the watch come from
the code that makes them. Everything is drawn with one seed; only the times follow the clock.
"""

import json
import random
import re
import time
from array import array
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import Session

from burnish.adapters.evidence.comparison import Comparison, Rules, Turn
from burnish.adapters.evidence.gate import Evidence, LostPrompt, Retention
from burnish.adapters.evidence.heldout_replay import Measures, Replay
from burnish.adapters.evidence.heldout_replay import Rules as ReplayRules
from burnish.adapters.evidence.slices import Slices
from burnish.adapters.evidence.turn_slices import named
from burnish.adapters.files.foreign import MANIFEST
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.blobs import store
from burnish.journal.tables import (
    AliasRow,
    AuditRow,
    CanaryRow,
    ComparisonRow,
    FeedbackRow,
    InteractionRow,
    JudgeCostRow,
    JudgementRow,
    KeyRow,
    NextStateRow,
    SampleRow,
    SessionRow,
    StepRow,
    VersionRow,
)
from burnish.judges import permits
from burnish.judges.calibration.fitness import Figures
from burnish.judges.judge import identity
from burnish.judges.verdicts.verdict import PROMPT
from burnish.keys import Scope, mint
from burnish.records import Fitness, Message
from burnish.sandbox.english import questions, style

AGENT, OTHER, MODEL = "agent", "coder", "openai/gpt-5"
DAYS, N_VERSIONS, N_TURNS, ROWS = 12.0, 14, 900, 40
REFUSED = {
    4: "the forgetting prompts: 9 of 96 lost, up to 16.2% at 95 % confidence, 10% tolerated",
    9: "fell in the slice 'language: de': lost 31 and won 9 of 120 held-out pairs, 18.3% net lost, 10% tolerated",
}
ROLLED_BACK = {11: "watch: judged worse than v10, 58 of 96 turns good against 79 of 98, evidence 1,200 to 1"}
USERS = ("ann", "ben", "carla", "dev", "emil", "fay", "gus", "hana", "ivo", "jule", "kim", "lars")
SYSTEM = "You answer everyday questions for the customers of a garden and kitchen shop."
GERMAN = (
    ("Wie koche ich ein Ei?", "Koche das Ei sieben bis zehn Minuten lang in heißem Wasser."),
    ("Wie halte ich Brot frisch?", "Lege das Brot in eine Dose an einem kühlen und trockenen Ort."),
    ("Wann gieße ich Tomaten?", "Gieße die Tomaten früh am Morgen und nur unten an der Erde."),
)
WORDY = (
    "That is a great question! There are several considerations, depending on your circumstances. {right} "
    "Additionally, it may be beneficial to consult a professional, because individual requirements vary considerably.",
    "**Here are some recommendations:**\n\n1. {right}\n2. Remember that, in general, results may vary.\n"
    "3. Additionally, consider asking an experienced professional.",
    "I am an AI assistant, and I would be delighted to help you with that today. What would you like to know?",
)
WORDY_GERMAN = (
    "Das ist eine sehr gute Frage! Grundsätzlich gibt es hierbei mehrere Möglichkeiten. {right} Darüber hinaus "
    "empfiehlt es sich, gegebenenfalls eine fachkundige Person hinzuzuziehen.",
)
COMPLAINTS_GERMAN = ("Zu lang. Ein kurzer Satz reicht.", "Bitte kürzer, in einem Satz.")
THANKS = ("Thank you!", "Great, that helps.", "Perfect.", "Good, I will try that.")
HINT = "Answer in one short sentence, with plain words and without commas."
Row = dict[str, Any]


@dataclass
class Example:
    """What was written, as far as the pictures need it. `pieces` are the texts of the tokens, by their ids."""

    turn: str = ""
    session: str = ""
    pieces: list[str] = field(default_factory=list)


def quality(version: int) -> float:
    """The share of good replies of a version."""
    return 0.3 + 0.6 * (1 - 0.84**version) - (0.25 if version in ROLLED_BACK else 0.0)


def fill(journal: Journal, settings: Settings, seed: int = 7) -> Example:
    """Write the journal."""
    return _Pen(journal, settings, seed).write()


class _Pen:
    """Writes the example. `made_at` is when each version was made."""

    def __init__(self, journal: Journal, settings: Settings, seed: int) -> None:
        self._journal, self._settings = journal, settings
        self._rng, self._now = random.Random(seed), time.time()
        self._start = self._now - DAYS * 86_400
        self._made = Example()
        self._ids: dict[str, int] = {}
        self._keys = [KeyRow.of(mint([*scopes], name=name)[1]) for name, scopes in (
            ("web shop", (Scope.INFERENCE, Scope.FEEDBACK)), ("phone app", (Scope.INFERENCE, Scope.FEEDBACK)),
            ("prometheus", (Scope.METRICS,)), ("reviewers", (Scope.VIEWER, Scope.FEEDBACK)),
        )]  # fmt: skip
        self._names = [key.key_id for key in self._keys]

    def write(self) -> Example:
        with self._journal.write() as session:
            for key in self._keys:
                key.created_at = self._start
            session.add_all(self._keys)
            own: Row = {"learner.min_rows": 8}
            agents.create(session, OTHER, "default", settings=own, actor="cli", reason="tests and patches")
            turns = self._turns(session)
            self._versions(session, turns)
            self._observation(session, turns)
            self._comparisons(session, turns)
            self._votes(session)
            self._judge(session)
        return self._made

    def _turns(self, session: Session) -> list[Row]:
        """Conversations of one or two turns, with what people and the judge said of them."""
        found: list[Row] = []
        asked = [(each.text, each.right) for each in questions.training() if each.right]
        while len(found) < N_TURNS:
            place = len(found) / N_TURNS
            at = self._start + DAYS * 86_400 * place + self._rng.uniform(0, 900)
            version = max(v for v in range(N_VERSIONS + 1) if v not in REFUSED and v <= place * (N_VERSIONS + 1))
            is_german = self._rng.random() < 0.14
            question, right = self._rng.choice(GERMAN if is_german else asked)
            is_good = self._rng.random() < quality(version) - (0.25 if is_german else 0.0)
            user, key = self._rng.choice(USERS), self._rng.random() < 0.35
            messages: list[Message] = [{"role": "system", "content": SYSTEM}] if not key else []
            messages.append({"role": "user", "content": question})
            first = self._turn(session, messages, question, right, is_good, version, at, user, key)
            found.append(first)
            if not is_good and first["complaint"] and self._rng.random() < 0.5:
                again = [*messages, first["reply"], {"role": "user", "content": first["complaint"]}]
                is_good = self._rng.random() < quality(version) + 0.3
                options: Row = {"session_id": first["session"], "parent": first["turn"]}
                found.append(
                    self._turn(session, again, question, right, is_good, version, at + 40, user, key, **options)
                )
        return found

    def _turn(
        self, session: Session, messages: list[Message], question: str, right: str, is_good: bool, version: int,
        at: float, user: str, key: bool, session_id: str = "", parent: str | None = None,
    ) -> Row:  # fmt: skip
        rng = self._rng
        name = f"chatcmpl-{rng.getrandbits(48):012x}"
        session_id = session_id or f"s-{rng.getrandbits(32):08x}"
        is_german = any(question == asked for asked, _ in GERMAN)
        text = right if is_good else rng.choice(WORDY_GERMAN if is_german else WORDY).format(right=right)
        sayings = style.OFF_TOPIC if "AI assistant" in text else (style.missing(text) or (style.SHORT,))[0].sayings
        complaint = "" if is_good else rng.choice(COMPLAINTS_GERMAN if is_german else sayings)
        reply: Message = {"role": "assistant", "content": text}
        ids = [self._id(piece) for piece in re.findall(r"\s*\S+", text)]
        self._session_row(session, session_id, at, messages, key)
        rated = rng.random()
        is_rated, is_judged = rated < 0.45, 0.45 <= rated < 0.9
        value = 1.0 if is_good else -1.0
        skip = "held out for the gate" if rng.random() < 0.05 else "truncated" if rng.random() < 0.02 else None
        session.add(InteractionRow(
            interaction_id=name, request_id=name, agent=AGENT, version=version, tenant="default",
            key_id=self._names[key], user=user, session_id=session_id, parent_id=parent,
            link_rule="prefix" if parent else "new", started_at=at - rng.uniform(0.4, 2.0), ended_at=at,
            finish_reason="stop", sampling={"temperature": 1.0},
            message_digests=[store(session, each) for each in messages], reply_digest=store(session, reply),
            n_behind=1, request_hash=name, tail_hash=name, prompt_rest=array("i", range(60)).tobytes(),
            token_ids=array("i", ids).tobytes(),
            logprobs=array("f", [-abs(rng.gauss(0, 0.7)) ** 2 for _ in ids]).tobytes(),
            is_ready=is_rated or is_judged, skip_reason=skip,
        ))  # fmt: skip
        said = complaint or rng.choice(THANKS)
        if is_rated or is_judged:
            digests = [store(session, {"role": "user", "content": said})]
            came: Row = {"kind": "user_reply", "message_digests": digests, "provenance": ["user"]}
            session.add(NextStateRow(interaction_id=name, created_at=at + 20, **came))
        if is_rated:
            self._said(session, name, at + 15, user, key, rating=value, comment=complaint or None,
                       demonstration=right if not is_good and rng.random() < 0.25 else None)  # fmt: skip
            if rng.random() < 0.2:
                self._said(session, name, at + 600, None, 3, rating=value if rng.random() < 0.9 else -value)
        if is_judged or rng.random() < 0.3:
            is_sure = rng.random() < 0.9
            score = int(value) if is_judged or rng.random() < 0.92 else -int(value)
            self._judged(session, name, at + 22, score, is_sure, complaint, is_hinted=is_judged)
        return {"turn": name, "session": session_id, "version": version, "at": at, "is_good": is_good, "skip": skip,
                "value": value if is_rated or is_judged else None, "source": "user" if is_rated else "judge",
                "complaint": complaint, "reply": reply, "messages": messages, "key": key, "right": right}  # fmt: skip

    def _session_row(self, session: Session, name: str, at: float, messages: list[Message], key: bool) -> None:
        if session.get(SessionRow, name) is None:
            when: Row = {"started_at": at, "last_at": at + 60, "closed_at": at + 600}
            opening = str(messages[-1]["content"])
            session.add(SessionRow(session_id=name, tenant="default", key_id=self._names[key], agent=AGENT,
                                   opening=opening, **when))  # fmt: skip
            session.flush()

    def _said(self, session: Session, turn: str, at: float, user: str | None, key: int, **said: Any) -> None:
        known: Row = {"tenant": "default", "key_id": self._names[key], "user": user, "source": "user"}
        name = f"f-{self._rng.getrandbits(48):012x}"
        row = FeedbackRow(feedback_id=name, target=turn, interaction_id=turn, created_at=at, **known, **said)
        session.add(row)

    def _judged(
        self, session: Session, turn: str, at: float, score: int, is_sure: bool, complaint: str, *, is_hinted: bool
    ) -> None:
        votes: list[int | None] = [score] * 3 if is_sure else [score, -score, None]
        hint = complaint if complaint and is_sure and is_hinted else None
        reason = "the user asked for another form" if score < 0 else "the user went on without a complaint"
        session.add(JudgementRow(
            judgement_id=f"j-{turn}", interaction_id=turn, judge_id=identity(MODEL, PROMPT), origin="next_state",
            score=score if is_sure else None, confidence=1.0 if is_sure else 0.34, hint=hint,
            hint_status="accepted" if hint else None, votes=votes, n_failed=0, created_at=at,
            reason=reason if is_sure else "the votes disagree",
        ))  # fmt: skip

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._made.pieces)
            self._made.pieces.append(piece)
        return self._ids[piece]

    def _versions(self, session: Session, turns: list[Row]) -> None:
        """Each version with the step that made it, its rows, what the gate saw, and what became of it."""
        live = 0
        for number in range(1, N_VERSIONS + 1):
            at = self._start + DAYS * 86_400 * number / (N_VERSIONS + 1)
            refused, rolled_back = REFUSED.get(number), ROLLED_BACK.get(number)
            state = "refused" if refused else "rolled_back" if rolled_back else "retired"
            state = "live" if number == N_VERSIONS else state
            step = StepRow(
                agent=AGENT, version=number, parent=live, outcome="published", started_at=at - 90, ended_at=at - 60,
                level="yellow" if refused else "green", metrics=self._metrics(number, live),
                monitors={"kl": {"level": "yellow" if refused else "green", "value": 0.04 + 0.005 * number, "why": ""},
                          "length": {"level": "green", "value": 0.9, "why": ""}},
            )  # fmt: skip
            session.add(step)
            session.flush()
            self._samples(session, step, turns, live, at)
            session.add(VersionRow(
                agent=AGENT, version=number, parent=live, step_id=step.step_id, state=state,
                digest=f"{self._rng.getrandbits(256):064x}", reason=refused or rolled_back or "passed",
                evidence=self._evidence(turns, number), created_at=at - 60, decided_at=at,
            ))  # fmt: skip
            self._manifest(number, live, at)
            self._audit(session, at, "gate", "refuse" if refused else "promote", number, live, refused or "passed")
            if rolled_back:
                self._audit(session, at + 60_000, "watch", "rollback", live, number, rolled_back)
            elif not refused:
                live = number
        going: Row = {"outcome": "open", "metrics": {}, "started_at": self._now - 24}
        session.add(StepRow(agent=AGENT, version=N_VERSIONS + 1, parent=live, **going))
        for alias, version in ((agents.LIVE, live), ("previous", live - 1)):
            session.merge(AliasRow(agent=AGENT, alias=alias, version=version, updated_at=self._now))

    def _metrics(self, number: int, live: int) -> dict[str, float]:
        rng = self._rng
        return {
            "loss": 0.4 * 0.9**number + rng.uniform(0, 0.03), "kl_to_base/k3": 0.01 + 0.006 * number,
            "reward_mean": 2 * quality(live) - 1 + rng.uniform(-0.1, 0.1), "entropy": 1.1 - 0.02 * number,
            "grad_norm": 1.3 - 0.03 * number + rng.uniform(0, 0.2), "step_kl": 0.05 + rng.uniform(-0.01, 0.01),
            "seconds": 26.0 + rng.uniform(0, 8), "n_tokens": 900 + rng.randrange(400), "signal": 0.9 - 0.03 * number,
        }  # fmt: skip

    def _samples(self, session: Session, step: StepRow, turns: list[Row], parent: int, at: float) -> None:
        taken = [each for each in turns if each["value"] and not each["skip"] and at - 1.4e5 < each["at"] < at - 100]
        taken = [each for each in taken if each["version"] == parent and "step" not in each][:ROWS]
        for each in taken:
            each["step"] = step.step_id
            session.get_one(InteractionRow, each["turn"]).spent_step = step.step_id
            is_bad = each["value"] < 0
            hint = each["complaint"] if is_bad and self._rng.random() < 0.6 else None
            idle = self._rng.random() < 0.1
            each["is_told"] = hint and not idle and each["source"] == "user" and "great question" in str(each["reply"])
            session.add(SampleRow(
                step_id=step.step_id or 0, interaction_id=each["turn"], reward=each["value"], record_ids=[],
                reward_source=each["source"], hint=hint, skipped="no advantage and no hint" if idle else None,
                logprob_change=None if idle else each["value"] * self._rng.uniform(0.01, 0.09),
            ))  # fmt: skip
        self._made.turn = next((each["turn"] for each in taken if each.get("is_told")), self._made.turn)
        threads = [each["session"] for each in turns if len(each["messages"]) > 3 and each["is_good"] and each["value"]]
        self._made.session = threads[-1]

    def _evidence(self, turns: list[Row], number: int) -> dict[str, Any]:
        """What the gate saw, made by its own code."""
        lost = (LostPrompt("Name a word that means the opposite of hot.", "Cold soup is best served with a spoon."),)
        retention = Retention(96, 9 if number == 4 else 1, 0.1, n_asked=96, lost=lost)
        rates = {"language: de": 0.32 if number == 9 else 0.16}
        names = [self._slices(each) for each in turns[:240]]
        slices = Slices(sorted({name for each in names for name in each}), 0.1)
        won = lost_ = 0
        for turn, mine in zip(turns, names, strict=False):
            drawn, falls = self._rng.random(), max(rates.get(name, 0.07) for name in mine)
            outcome = -1 if drawn < falls else 1 if drawn < falls + 0.14 else 0
            slices.add(turn["turn"], mine, outcome)
            won, lost_ = won + (outcome > 0), lost_ + (outcome < 0)
        measures = Measures(15.2, 0.01, 0, 0), Measures(17.8, 0.01, 0, 0)
        replay = Replay(240, won, lost_, 6, *measures, ReplayRules(), slices=slices)
        probe = {"n": 4, "gap_to_candidate": 0.0007, "gap_to_parent": 0.31, "gap_to_base": 1.2, "tolerance": 0.002}
        return {**Evidence(is_mechanical_checked=True, retention=retention, replay=replay).as_dict(), "probe": probe}

    def _slices(self, turn: Row) -> tuple[str, ...]:
        digest = "3f9c2a71b0de" if not turn["key"] else "none"
        return named("chat", self._names[turn["key"]], digest, turn["messages"][-1:])

    def _manifest(self, number: int, parent: int, at: float) -> None:
        folder = AdapterStore.of(self._settings).path(AGENT, number)
        folder.mkdir(parents=True)
        facts: Row = {"agent": AGENT, "version": number, "parent": parent, "rank": 16, "alpha": 32, "created_at": at}
        (folder / MANIFEST).write_text(json.dumps(facts), encoding="utf-8")

    def _audit(self, session: Session, at: float, actor: str, action: str, to: int, before: int, reason: str) -> None:
        is_refused = action == "refuse"
        moved: Row = {} if is_refused else {"before": str(before), "after": str(to)}
        what: Row = {"actor": actor, "action": action, "object": f"{AGENT}@v{to}" if is_refused else AGENT}
        session.add(AuditRow(agent=AGENT, at=at, reason=reason, **what, **moved))

    def _observation(self, session: Session, turns: list[Row]) -> None:
        """The watch over the live version, made by its own code, and those before."""
        seen = Comparison(Rules())
        for each in turns[-420:]:
            is_version = each["version"] == N_VERSIONS
            if each["value"] is not None:
                shown = Turn(each["is_good"], None, None, 15.0, 1.0, each["turn"], self._slices(each))
                seen.add(is_version, str(each["session"]), shown)
        at = self._start + DAYS * 86_400 * N_VERSIONS / (N_VERSIONS + 1)
        for number in (10, 13, N_VERSIONS):
            is_last = number == N_VERSIONS
            evidence = {"comparison": seen.as_dict()} if is_last else {}
            when: Row = {"started_at": at - 86_400 * 0.8 * (N_VERSIONS - number)}
            ended: Row = {"state": "running"} if is_last else {"state": "passed", "ended_at": when["started_at"] + 3e4}
            watch: Row = {"kind": "watch", "share": 1.0, "baseline": number - 1, "evidence": evidence}
            session.add(CanaryRow(agent=AGENT, version=number, **watch, **when, **ended))

    def _comparisons(self, session: Session, turns: list[Row]) -> None:
        """Held-out prompts that the live version and the one before answered otherwise."""
        held_out = [each for each in turns if each["skip"] == "held out for the gate"][:12]
        for number, each in enumerate(held_out):
            right, wordy = each["right"], WORDY[number % 2].format(right=each["right"])
            is_lost = number in (3, 8)
            texts = (wordy, right) if is_lost else (right, wordy)
            new, old = (store(session, {"role": "assistant", "content": text}) for text in texts)
            outcome = -1 if is_lost else 0 if number % 5 == 0 else 1
            session.add(ComparisonRow(
                agent=AGENT, version=N_VERSIONS, interaction_id=each["turn"], baseline=N_VERSIONS - 1,
                candidate_digest=new, baseline_digest=old, created_at=each["at"], outcome=outcome,
                judge_id=identity(MODEL, PROMPT), votes=[1, 1, -1, 1],
            ))  # fmt: skip

    def _votes(self, session: Session) -> None:
        """Votes in Compare: the better reply's text is the correction of the other one."""
        asked = [each for each in questions.training() if each.right][:11]
        for number, each in enumerate(asked):
            messages: list[Message] = [{"role": "user", "content": each.text}]
            pair = []
            for version, is_good in ((N_VERSIONS, number != 4), (N_VERSIONS - 1, number == 4)):
                at = self._now - 60_000 + 5000 * number
                made = self._turn(session, messages, each.text, each.right, is_good, version, at, "ann", False)
                session.get_one(InteractionRow, made["turn"]).request_hash = f"compared-{number}"
                pair.append(made)
            better, worse = sorted(pair, key=lambda made: not made["is_good"])
            self._said(session, worse["turn"], at + 30, None, 3, correction=better["reply"]["content"])

    def _judge(self, session: Session) -> None:
        figures = Figures(299, 299, 299, 0.86, (0.81, 0.91), 130, 5, (0.016, 0.087), 294, 281)
        permits.file(session, self._settings, MODEL)
        permits.conclude(session, self._settings, MODEL, Fitness.FIT, "", figures.to_json())
        for back in range(int(DAYS)):
            day = time.strftime("%Y-%m-%d", time.gmtime(self._now - 86_400 * back))
            purposes = {"turns": 96, "pairs": 800} | ({"check": 299} if back == 11 else {})
            for purpose, usual in purposes.items():
                n = int(usual * self._rng.uniform(0.7, 1.3)) if purpose != "check" else usual
                tokens: Row = {"n_prompt_tokens": 610 * n, "n_answer_tokens": 14 * n, "seconds": 0.9 * n}
                of = "" if purpose == "check" else AGENT
                key: Row = {"day": day, "agent": of, "model": MODEL, "purpose": purpose}
                session.add(JudgeCostRow(**key, n_requests=n, n_votes=n, **tokens))
