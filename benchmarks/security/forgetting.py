"""What is left of a user who was forgotten: planted strings, looked for in every byte below the state directory, and in
PostgreSQL's files beside its write-ahead log.

The strings of one user are planted wherever a client, a judge, the drawing of shadow groups or a comparison can put
words. Another user's strings are planted beside them, in the same places, and must all stay. A page's key, which is
forgotten too, rates and comments on the other's turns, and the user answers in the other's conversations.
"""

import asyncio
import io
import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select, text
from sqlmodel import Session, col

from benchmarks.bars import Tell
from benchmarks.security.requests import AGENT, TENANT
from benchmarks.security.world import World, asking, fill, world
from burnish import logs
from burnish.adapters.files.store import PROBE, QUARANTINE, AdapterStore
from burnish.adapters.verbs import privacy
from burnish.journal import blobs
from burnish.journal.listing import Place
from burnish.journal.shadows import Drawn, begin, file
from burnish.journal.tables import (
    ComparisonRow,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    KeyRow,
    NextStateRow,
    SampleRow,
    StepRow,
    VersionRow,
)
from burnish.journal.turns import from_bytes, record_judgement
from burnish.keys import Scope
from burnish.records import Judgement, StepOutcome, VersionName, VersionState, Who, who_of
from burnish.rewards import FEEDBACK, NEXT_STATE, WORDS
from burnish.server.ingest.ingester import Ingester
from burnish.server.rollout.traces.told import Told

ANN, BOB, PAGE = (f"{name}-{secrets.token_hex(12)}" for name in ("ann", "bob", "page"))
SECONDS = 60.0
RATED, GRADED, FOLLOWED = range(3)
"""What became of each third of the turns that the forgotten ones spoke about."""


class Planter:
    """Plants one user's strings."""

    def __init__(self, user: str, secret: str) -> None:
        self.user = user
        self._headers = {"authorization": f"Bearer {secret}"}
        self.planted = [user]
        self.left: list[str] = []
        self.unstored: list[str] = []

    def new(self) -> str:
        self.planted.append(f"{self.user[:3]}-{secrets.token_hex(12)}")
        return self.planted[-1]

    def leave(self, text: str = "") -> str:
        """A string in what was made of the user's data, which is no part of an export."""
        self.left.append(text or f"{self.user[:3]}-{secrets.token_hex(12)}")
        return self.left[-1]

    async def talk(self, client: httpx.AsyncClient, made: World) -> str:
        """One conversation of two turns with feedback. Returns the id of its first reply."""
        headers = {**self._headers, "x-session-id": self.new(), "x-burnish-user": self.new()}
        self.planted.append(secrets.token_hex(16))
        headers["traceparent"] = f"00-{self.planted[-1]}-{secrets.token_hex(8)}-01"
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": f'{{"at": "{self.new()}"}}'}}
        tool = {"name": "look", "description": self.new(), "parameters": {"type": "object", "properties": {}}}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"You help with {self.new()}."},
            {"role": "user", "content": f"look at {self.new()} and {self.new()}", "name": self.new()},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": f"exit code 1: {self.new()}"},
        ]
        asked: dict[str, Any] = {"model": AGENT, "tools": [{"type": "function", "function": tool}]}
        said = await client.post("/v1/chat/completions", json={**asked, "messages": messages}, headers=headers)
        first = said.json()
        messages += [first["choices"][0]["message"], {"role": "user", "content": f"no, {self.new()}"}]
        asked |= {"messages": messages, "stream": True}
        await client.post("/v1/chat/completions", json=asked, headers=headers)
        await self.rate(client, first["id"], "down")
        await self.rate(client, headers["x-session-id"], "down", about="session")
        await self.rate(client, f"never-{self.new()}", "up")
        return str(first["id"])

    async def rate(self, client: httpx.AsyncClient, target: str, rating: str, **more: Any) -> str:
        """Feedback with words everywhere. Returns its id. The client's own id is stored as a digest, so nobody's is
        planted to be found again.
        """
        own = f"{self.user[:3]}-{secrets.token_hex(12)}"
        self.unstored.append(own)
        texts = {name: self.new() for name in ("comment", "correction", "demonstration", "label")}
        vote = {"target": target, "rating": rating, "outcome": 1.0 if rating == "up" else -1.0, "id": own, **texts}
        answer = await client.post("/v1/feedback", json=vote | more, headers=self._headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def ask(self, client: httpx.AsyncClient) -> str:
        """One short turn. Returns its reply's id."""
        body = {"model": AGENT, "messages": [{"role": "user", "content": f"hello {secrets.token_hex(4)}"}]}
        return str((await client.post("/v1/chat/completions", json=body, headers=self._headers)).json()["id"])

    def judge(self, session: Session, turn: str) -> None:
        """What judges, shadow groups and comparisons make of a turn."""
        hint, candidates = f"Always say {self.new()}.", (self.new(),)
        record_judgement(
            session,
            Judgement(turn, "base/abc", -1, 1.0, hint, (-1,), 0, 1.0, self.new(), "accepted", (), candidates),
            NEXT_STATE,
        )
        row = session.get_one(InteractionRow, turn)
        begin(session, row, 2, hint, None)
        reply = {"role": "assistant", "content": self.new()}
        file(session, turn, [Drawn(reply, "stop", from_bytes("i", row.token_ids), from_bytes("f", row.logprobs))])
        digests = [blobs.store(session, {"role": "assistant", "content": self.new()}) for _ in range(2)]
        pair: dict[str, Any] = {
            "candidate_digest": digests[0],
            "baseline_digest": digests[1],
            "created_at": 1.0,
            "reason": self.new(),
        }
        session.add(ComparisonRow(agent=AGENT, version=9, interaction_id=turn, baseline=1, **pair))


def measure(
    folder: Path, tell: Tell, n: int = 1000, journal_url: str = "", files: Path | None = None
) -> dict[str, float]:
    """The benchmark's figures. `files` is where a database at `journal_url` keeps its files."""
    return asyncio.run(_measure(folder, tell, n, journal_url, files))


async def _measure(folder: Path, tell: Tell, n: int, journal_url: str, files: Path | None) -> dict[str, float]:
    log = io.StringIO()
    with redirect_stderr(log), world(folder, journal_url) as made:
        logs.configure("json")
        async with asking(made) as client:
            terms = {"scopes": [Scope.INFERENCE, Scope.FEEDBACK]}
            wanted: dict[Any, dict[str, Any]] = {
                user: {**terms, "user": user, "name": f"{user}-laptop"} for user in (ANN, BOB)
            }
            keys = made.add_keys({**wanted, PAGE: {"scopes": [Scope.FEEDBACK], "name": "page"}})
            ann, bob, page = (Planter(user, keys[user]) for user in (ANN, BOB, PAGE))
            page.planted.clear()  # nothing is stored of its name
            turns: dict[str, list[str]] = {ANN: [], BOB: []}
            rated: dict[str, str] = {}
            while len(ann.planted) < n:
                for planter in (ann, bob):
                    turns[planter.user].append(await planter.talk(client, made))
                about = await bob.ask(client)
                rated[about] = await page.rate(client, about, "up") if len(rated) % 3 != FOLLOWED else ""
            await asyncio.to_thread(made.ingest)
            with made.journal.write() as session:
                for planter in (ann, bob):
                    for turn in turns[planter.user]:
                        planter.judge(session, turn)
                _speak(session, rated, turns[ANN], ann)
                lineage = _learned_from(made, session, turns, rated)
                _leave_files(made, session, ann, turns[ANN][0], next(iter(rated)))
            said = [*ann.planted, *page.planted]
            gone = [*said, *ann.left]
            tell(f"{len(gone)} strings are planted")
            _write_out(made, "ANALYZE")
            before = found_below(folder, files, gone)
            with made.journal.read() as session:
                key_id = session.scalars(select(col(KeyRow.key_id)).where(col(KeyRow.name) == "page")).one()
            voices = [who_of(TENANT, "", ANN), who_of(TENANT, key_id, None)]
            exported = ["".join(privacy.export(made.settings, made.journal, who)) for who in voices]
            listed: dict[str, str] = {}
            for who in voices:
                await _forget(made, who)
                with made.journal.read() as session:
                    standing = privacy.standing(session, who)
                listed = {each["version"]: "descended" for each in standing["descended"]} | listed
                listed |= {each["version"]: "used" for each in standing["versions"]}
            after = found_below(folder, files, [*gone, *ann.unstored, *page.unstored], log.getvalue())
            kept = found_below(folder, files, bob.planted)
    right = [listed.get(name, "free") == part for name, part in lineage.items()]
    return {
        "forgotten_planted": len(gone),
        "forgotten_there_before": len(before),
        "forgotten_exported": sum(text in "".join(exported) for text in said) / len(said),
        "forgotten_foreign": sum(text in "".join(exported) for text in bob.planted),
        "forgotten_found": sum(len(text) * n_times for text, n_times in after.items()),
        "forgotten_kept": len(kept) / len(bob.planted),
        "lineage_right": sum(right) / len(right),
    }


def found_below(folder: Path, files: Path | None, texts: Sequence[str], *more: str) -> dict[str, int]:
    """How often each of the texts is in any file below `folder` and `files`, or in `more`. Those that are nowhere are
    left out. PostgreSQL's write-ahead log is its operator's.
    """
    paths = [path for place in (folder, files) if place is not None for path in sorted(place.rglob("*"))]
    everything = b"\0".join(path.read_bytes() for path in paths if path.is_file() and "pg_wal" not in path.parts)
    everything += b"\0".join(text.encode() for text in more)
    counts = {text: everything.count(text.encode()) for text in texts}
    return {text: n for text, n in counts.items() if n}


async def _forget(made: World, who: Who) -> None:
    """Ask for the erasure, and let an ingester carry it out while the gateway runs on."""
    with made.journal.write() as session:
        privacy.forget(session, who, actor="benchmark")
    ingester, until = Ingester.of(made.settings, made.journal), time.monotonic() + SECONDS
    while time.monotonic() < until:
        await asyncio.to_thread(ingester.run_once)
        with made.journal.read() as session:
            is_done = privacy.standing(session, who)["state"] == "done"
        if is_done:
            return _write_out(made)
        await asyncio.sleep(0.1)
    raise TimeoutError("the erasure is not done")


def _speak(session: Session, rated: Mapping[str, str], followers: Sequence[str], ann: Planter) -> None:
    """What judges and shadow groups make of the page's comments and of the user's next messages on another's turns."""
    for place, turn in enumerate(rated):
        if place % 3 == RATED:
            continue
        row = session.get_one(InteractionRow, turn)
        judge_id, origin = "base/abc", NEXT_STATE
        if place % 3 == GRADED:
            said = session.scalars(select(FeedbackRow).where(col(FeedbackRow.interaction_id) == turn)).one()
            hint, judge_id, origin = said.comment or "", f"{WORDS}1", FEEDBACK
        else:
            hint = f"Say {ann.leave()}"
            state: dict[str, Any] = {"kind": "user_reply", "message_digests": [], "created_at": 1.0}
            session.add(NextStateRow(interaction_id=turn, follower_id=followers[place % len(followers)], **state))
        judged = Judgement(turn, judge_id, -1, 1.0, hint, (-1,), 0, 1.0, None, "accepted", (), ())
        record_judgement(session, judged, origin)
        begin(session, row, 2, hint, None)


def _learned_from(
    made: World, session: Session, turns: Mapping[str, Sequence[str]], rated: Mapping[str, str]
) -> dict[str, str]:
    """Versions in a random tree, each from a turn of one of the users in some way. Returns what each should be listed
    as.
    """
    chance, store = random.Random(0), AdapterStore.of(made.settings)
    about = list(rated)
    parts: dict[int, str] = {1: "free"}
    for number in range(10, 80):
        parent, ways = chance.choice(list(parts)), list(_ways(chance, turns, about, rated))
        is_used, rows, groups, good = chance.choice(ways)
        step = StepRow(
            agent=AGENT, version=number, parent=parent, outcome=StepOutcome.PUBLISHED, metrics={}, started_at=1.0
        )
        session.add(step)
        session.flush()
        assert step.step_id is not None
        for turn, records in rows.items():
            session.add(SampleRow(step_id=step.step_id, interaction_id=turn, record_ids=records, hint="a hint"))
        for turn in groups:
            session.add(GroupSampleRow(step_id=step.step_id, interaction_id=turn, scores=[0.0, 1.0]))
        facts = {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": parent, "rows": list(rows)}
        with store.aside(AGENT, number) as directory:
            fill(directory)
            store.publish(AGENT, number, directory, {**facts, "groups": groups, "good": good})
        state: dict[str, Any] = {"state": VersionState.RETIRED, "evidence": {}, "digest": "d", "created_at": 1.0}
        session.add(VersionRow(agent=AGENT, version=number, parent=parent, step_id=step.step_id, **state))
        parts[number] = "used" if is_used else "free" if parts[parent] == "free" else "descended"
    return {str(VersionName(AGENT, number)): part for number, part in parts.items()}


_Way = tuple[bool, dict[str, list[str]], list[str], list[list[str | None]]]


def _ways(
    chance: random.Random, turns: Mapping[str, Sequence[str]], about: Sequence[str], rated: Mapping[str, str]
) -> Iterator[_Way]:
    """The ways in which a step can use a turn: whether it learns from a forgotten voice, rows, groups, good replies."""
    hers, his = chance.choice(turns[ANN]), chance.choice(turns[BOB])
    thirds = [chance.choice(about[kind::3]) for kind in (RATED, GRADED, FOLLOWED)]
    own: dict[str, list[str]] = {his: ["next_state"]}
    yield True, {hers: []}, [], []
    yield True, {thirds[RATED]: [rated[thirds[RATED]]]}, [], []
    yield True, {thirds[FOLLOWED]: ["next_state"]}, [], []
    yield True, own, [hers], []
    yield True, own, [thirds[GRADED]], []
    yield True, own, [thirds[FOLLOWED]], []
    yield True, own, [], [[hers, None]]
    yield True, own, [], [[thirds[GRADED], rated[thirds[GRADED]]]]
    for turn in {his, chance.choice(turns[BOB])}:
        yield False, {turn: ["next_state"]}, [], []
        yield False, own, [turn], []
        yield False, own, [], [[turn, None]]
    yield False, {thirds[RATED]: ["j-of another judge"]}, [], []


def _leave_files(made: World, session: Session, ann: Planter, hers: str, about: str) -> None:
    """What earlier versions and an interrupted step left in files: ids that clients had chosen for feedback, tokens of
    turns. And how far traces have been told.
    """
    store = AdapterStore.of(made.settings)
    for number in (80, 81):
        tokens = int(ann.leave(str(10**30 + secrets.randbelow(10**30))))
        good = [[hers, f"sk-burnish-a:{ann.leave()}"]]
        facts = {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": 0, "rows": [hers], "good": good}
        with store.aside(AGENT, number) as directory:
            fill(directory)
            probe = {"rows": [{"prompt_ids": [tokens], "completion_ids": [1]}], "positions": []}
            (directory / PROBE).write_text(json.dumps(probe))
            store.publish(AGENT, number, directory, facts)
    aside = store.root / QUARANTINE / f"{AGENT}@v000081-old"
    aside.parent.mkdir()
    store.path(AGENT, 81).rename(aside)
    for sample in session.scalars(select(SampleRow).where(col(SampleRow.interaction_id) == hers)):
        sample.record_ids = [f"sk-burnish-a:{ann.leave()}"]
    row = session.scalars(select(FeedbackRow).where(col(FeedbackRow.interaction_id) == about)).one()
    told = replace(Told.until(session, time.time()), feedback=Place(row.created_at, row.feedback_id))
    (made.settings.run_dir / "traces.json").write_text(json.dumps(told.written()))


def _write_out(made: World, *before: str) -> None:
    """Have PostgreSQL write everything into its files. `ANALYZE` before has it keep the most common values of each
    column, as it does by itself from time to time.
    """
    if not made.journal.has_one_writer:
        with made.journal.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in (*before, "CHECKPOINT"):
                connection.execute(text(statement))
