"""What is left of a user who was forgotten: planted strings, looked for in every byte below the state directory.

The strings of one user are planted wherever a client, a judge, the drawing of shadow groups or a comparison can put
words. Another user's strings are planted beside them, in the same places, and must all stay.
"""

import asyncio
import io
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select
from sqlmodel import Session, col

from benchmarks.bars import Tell
from benchmarks.security.requests import AGENT, TENANT
from benchmarks.security.world import World, asking, world
from burnish import logs
from burnish.adapters.verbs import privacy
from burnish.journal import blobs
from burnish.journal.shadows import Drawn, begin, file
from burnish.journal.tables import ComparisonRow, InteractionRow, SampleRow, StepRow, VersionRow
from burnish.journal.turns import from_bytes, record_judgement
from burnish.keys import Scope
from burnish.records import Judgement, StepOutcome, VersionName, VersionState, Who, who_of
from burnish.rewards import NEXT_STATE
from burnish.server.ingest.ingester import Ingester

ANN, BOB = (f"{name}-{secrets.token_hex(12)}" for name in ("ann", "bob"))
SECONDS = 60.0


class Planter:
    """Plants one user's strings."""

    def __init__(self, user: str, secret: str) -> None:
        self.user = user
        self._headers = {"authorization": f"Bearer {secret}"}
        self.planted = [user]

    def new(self) -> str:
        self.planted.append(f"{self.user[:3]}-{secrets.token_hex(12)}")
        return self.planted[-1]

    async def talk(self, client: httpx.AsyncClient, made: World) -> str:
        """One conversation of two turns with feedback. Returns the id of its first reply."""
        headers = {**self._headers, "x-session-id": self.new(), "x-burnish-user": self.new()}
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
        votes = [
            {"target": first["id"], "rating": "down", "comment": self.new(), "demonstration": self.new()},
            {"target": headers["x-session-id"], "about": "session", "outcome": 1.0, "comment": self.new()},
            {"target": f"never-{self.new()}", "rating": "up", "comment": self.new()},
        ]
        for vote in votes:
            answer = await client.post("/v1/feedback", json=vote, headers=self._headers)
            assert answer.status_code == 202, answer.text
        return str(first["id"])

    def judge(self, session: Session, turn: str) -> None:
        """What judges, shadow groups and comparisons make of a turn."""
        hint, candidates = f"Always say {self.new()}.", (self.new(),)
        record_judgement(
            session,
            Judgement(turn, "base/abc", -1, 1.0, hint, (-1,), 0, 1.0, self.new(), "accepted", (), candidates),
            NEXT_STATE,
        )
        row = session.get_one(InteractionRow, turn)
        begin(session, row, 2, f"wish for {self.new()}", None)
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


def measure(folder: Path, tell: Tell, n: int = 1000) -> dict[str, float]:
    """The benchmark's figures."""
    return asyncio.run(_measure(folder, tell, n))


async def _measure(folder: Path, tell: Tell, n: int) -> dict[str, float]:
    log = io.StringIO()
    with redirect_stderr(log), world(folder) as made:
        logs.configure("json")
        async with asking(made) as client:
            terms = {"scopes": [Scope.INFERENCE, Scope.FEEDBACK]}
            keys = made.add_keys({user: {**terms, "user": user, "name": f"{user}-laptop"} for user in (ANN, BOB)})
            ann, bob = (Planter(user, keys[user]) for user in (ANN, BOB))
            turns: dict[str, list[str]] = {ANN: [], BOB: []}
            while len(ann.planted) < n:
                for planter in (ann, bob):
                    turns[planter.user].append(await planter.talk(client, made))
            await asyncio.to_thread(made.ingest)
            with made.journal.write() as session:
                for planter in (ann, bob):
                    for turn in turns[planter.user]:
                        planter.judge(session, turn)
                wanted = _learned_from(session, turns)
            n_planted = len(ann.planted)
            tell(f"{n_planted} strings are planted")
            before = found_below(folder, ann.planted)
            exported = "".join(privacy.export(made.settings, made.journal, who_of(TENANT, "", ANN)))
            await _forget(made, who_of(TENANT, "", ANN))
            with made.journal.read() as session:
                standing = privacy.standing(session, who_of(TENANT, "", ANN))
            after = found_below(folder, ann.planted, log.getvalue())
            kept = found_below(folder, bob.planted)
    listed = {
        **{each["version"]: "used" for each in standing["versions"]},
        **{each["version"]: "descended" for each in standing["descended"]},
    }
    right = [listed.get(name, "free") == part for name, part in wanted.items()]
    return {
        "forgotten_planted": n_planted,
        "forgotten_there_before": len(before),
        "forgotten_exported": sum(text in exported for text in ann.planted) / n_planted,
        "forgotten_foreign": sum(text in exported for text in bob.planted),
        "forgotten_found": sum(len(text) * n_times for text, n_times in after.items()),
        "forgotten_kept": len(kept) / len(bob.planted),
        "lineage_right": sum(right) / len(right),
    }


def found_below(folder: Path, texts: Sequence[str], *more: str) -> dict[str, int]:
    """How often each of the texts is in any file below `folder`, or in `more`. Those that are nowhere are left out."""
    everything = b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
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
            if privacy.standing(session, who)["state"] == "done":
                return
        await asyncio.sleep(0.1)
    raise TimeoutError("the erasure is not done")


def _learned_from(session: Session, turns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Forty versions in a random tree, each from turns of one of the users. Returns what each should be listed as."""
    chance = random.Random(0)
    live = [str(row) for row in session.scalars(select(col(InteractionRow.interaction_id)))]
    assert live, "nothing was ingested"
    parts: dict[int, str] = {1: "free"}
    for number in range(10, 50):
        parent, user = chance.choice(list(parts)), chance.choice([ANN, BOB, BOB])
        step = StepRow(
            agent=AGENT, version=number, parent=parent, outcome=StepOutcome.PUBLISHED, metrics={}, started_at=1.0
        )
        session.add(step)
        session.flush()
        assert step.step_id is not None
        for turn in chance.sample(turns[user], min(3, len(turns[user]))):
            session.add(SampleRow(step_id=step.step_id, interaction_id=turn, record_ids=[], hint="a hint"))
        state: dict[str, Any] = {"state": VersionState.RETIRED, "evidence": {}, "digest": "d", "created_at": 1.0}
        session.add(VersionRow(agent=AGENT, version=number, parent=parent, step_id=step.step_id, **state))
        parts[number] = "used" if user == ANN else "free" if parts[parent] == "free" else "descended"
    return {str(VersionName(AGENT, number)): part for number, part in parts.items()}
