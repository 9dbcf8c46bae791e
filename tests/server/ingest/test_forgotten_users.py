"""A user is forgotten: planted through the real gateway, gone from every byte below the state directory."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from benchmarks.security.forgetting import measure
from burnish import config
from burnish.adapters.files.store import QUARANTINE, AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.personal import name_of
from burnish.adapters.serving.prepare import prepare
from burnish.adapters.verbs import privacy
from burnish.config import Personal, Settings
from burnish.errors import JournalError, NotFound
from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.journal.tables import (
    AgentRow,
    AuditRow,
    ErasureJob,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    KeyRow,
    SampleRow,
    StepRow,
    VersionRow,
)
from burnish.journal.turns import interaction_of
from burnish.keys import Scope, mint
from burnish.records import UNDECIDED, Interaction, StepOutcome, VersionState
from burnish.segments.file import SegmentWriter, aside_of, read
from burnish.segments.frames import encode
from burnish.server.ingest.ingester import Ingester
from burnish.server.ingest.personal_requests import PersonalRequests
from burnish.server.ingest.segment_folder import SegmentFolder
from tests import postgres
from tests.adapters.files.test_store import fill
from tests.factories import interaction, user
from tests.server.ingest.pen import Pen
from tests.turns import add_feedback, add_turn


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """The benchmark sets the log up."""
    before = structlog.get_config()
    yield
    structlog.contextvars.clear_contextvars()
    structlog.configure(**before)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_nothing_of_a_forgotten_user_is_left_and_everything_of_another_is(
    tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    if database == "postgresql":
        server = postgres.running(request.config)
        figures = measure(tmp_path, print, 60, server.url(server.empty()), server.folder / "data")
    else:
        figures = measure(tmp_path, print, 60)
    assert figures["forgotten_planted"] >= 50
    assert figures["forgotten_there_before"] == figures["forgotten_planted"]
    assert figures["forgotten_exported"] == 1.0
    assert figures["forgotten_found"] == 0
    assert figures["forgotten_kept"] == 1.0
    assert figures["forgotten_foreign"] == 0
    assert figures["lineage_right"] == 1.0


@pytest.mark.parametrize(
    ("place", "name", "left"),
    [
        (Journal, "compact", None),
        (SegmentFolder, "erase", (0, 0)),
        (erasure, "drop_unused", 0),
        (erasure, "_forget_wishes", set()),
        (erasure, "_forget_ids", None),
        (privacy, "_clean", None),
        (privacy, "forget_user", (0, [])),
    ],
)
def test_a_part_that_is_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, left: Any
) -> None:
    monkeypatch.setattr(place, name, lambda *_: left)
    assert measure(tmp_path, print, 60)["forgotten_found"] > 0


class Server:
    """A state directory with an ingester that carries erasures out, and without a gateway."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(state_dir=folder)
        self.journal = prepare(self.settings)
        self.pen = Pen(self.settings.segments_dir / "pen")
        self.pen.folder = self.settings.segments_dir
        self.ingester = Ingester.of(self.settings, self.journal)
        self.store = AdapterStore.of(self.settings)

    def ask(self, user: str = "ann", tenant: str = "default") -> None:
        with self.journal.write() as session:
            privacy.forget(session, (tenant, "user", user), actor="test", reason="she asked")

    def run(self, n: int = 3, who: Any = ("default", "user", "ann")) -> dict[str, Any]:
        """`n` rounds of the ingester. Returns how far the erasure is."""
        for _ in range(n):
            self.ingester._erasures._next_look = 0.0  # type: ignore[union-attr]
            self.ingester.run_once()
        with self.journal.read() as session:
            return privacy.standing(session, who)

    def publish(
        self, number: int, rows: list[str], state: VersionState, parent: int = 0, records: Any = (), **facts: Any
    ) -> None:
        """A version that a step made from `rows`, with a probe of all of them."""
        probe: dict[str, Any] = {"rows": [{"prompt_ids": [7, 7], "completion_ids": [8]} for _ in rows], "positions": []}
        probe["positions"] = [{"row": place, "index": 0} for place in range(len(rows))]
        with self.store.aside("agent", number) as directory:
            fill(directory)
            (directory / "probe.json").write_text(json.dumps(probe))
            facts |= {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": parent, "rows": rows}
            self.store.publish("agent", number, directory, facts)
        with self.journal.write() as session:
            is_open = state in UNDECIDED
            outcome = StepOutcome.OPEN if is_open else StepOutcome.PUBLISHED
            step = StepRow(agent="agent", version=number, parent=parent, outcome=outcome, metrics={}, started_at=1.0)
            session.add(step)
            session.flush()
            for name in rows:
                session.add(SampleRow(step_id=step.step_id or 0, interaction_id=name, record_ids=list(records)))
            made: dict[str, Any] = {"step_id": step.step_id, "state": state, "digest": "d", "evidence": {}}
            session.add(VersionRow(agent="agent", version=number, parent=parent, created_at=1.0, **made))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_a_version_on_trial_is_refused_and_others_rows_come_again(server: Server) -> None:
    hers, his = (server.pen.say([user("hi")], "ok", user=name) for name in ("ann", "bob"))
    server.ingester.run_once()
    server.publish(3, [hers.interaction_id, his.interaction_id], VersionState.CANDIDATE)
    server.ask()
    found = server.run()
    assert found["state"] == "done"
    assert [(each["version"], each["state"]) for each in found["versions"]] == [("agent@v3", "refused")]
    with server.journal.read() as session:
        assert session.get_one(InteractionRow, his.interaction_id).spent_step is None
        assert session.scalars(select(StepRow.outcome)).all() == [StepOutcome.SUPERSEDED]


def test_the_probe_of_a_live_version_loses_the_turns_tokens(server: Server) -> None:
    hers, his = (server.pen.say([user("hi")], "ok", user=name) for name in ("ann", "bob"))
    server.ingester.run_once()
    server.publish(3, [hers.interaction_id, his.interaction_id], VersionState.RETIRED)
    server.ask()
    assert [each["state"] for each in server.run()["versions"]] == ["retired"]
    probe = json.loads((server.store.path("agent", 3) / "probe.json").read_text())
    assert [row["prompt_ids"] for row in probe["rows"]] == [[], [7, 7]]
    assert [place["row"] for place in probe["positions"]] == [1]
    server.store.verify("agent", 3)


def test_what_a_voice_said_about_others_turns_lists_the_versions_that_learned_it(server: Server) -> None:
    turns = [server.pen.say([user(text)], "ok", user="bob").interaction_id for text in "abcd"]
    server.ingester.run_once()
    add_feedback(server.journal, turns[0], 1.0, key_id="page", feedback_id="page:words of the page")
    server.publish(3, [turns[0]], VersionState.RETIRED, records=["page:words of the page"])
    server.publish(4, [turns[1]], VersionState.RETIRED, good=[[turns[0], "page:words of the page"]])
    server.publish(5, [turns[1]], VersionState.RETIRED, jurors=[turns[0]])
    server.publish(6, [turns[2]], VersionState.LIVE, good=[[turns[1], "key-1:words of bob"]])
    server.publish(7, [turns[3]], VersionState.CANDIDATE, records=["f-1"], good=[[turns[0], None]])
    page = ("default", "key", "page")
    with server.journal.write() as session:
        privacy.forget(session, page, actor="test")
    told = server.run(who=page)
    assert [each["version"] for each in told["versions"]] == ["agent@v3", "agent@v4", "agent@v5", "agent@v7"]
    manifests = "".join(path.read_text() for path in server.settings.state_dir.rglob("manifest.json"))
    assert "words of the page" not in manifests and "words of bob" in manifests
    with server.journal.read() as session:
        assert session.get_one(VersionRow, ("agent", 7)).state == VersionState.REFUSED


def test_what_an_interrupted_step_left_loses_the_turns_tokens(server: Server) -> None:
    """In quarantine, and before the learner has moved it there."""
    hers = server.pen.say([user("hi")], "ok", user="ann").interaction_id
    server.ingester.run_once()
    probe = {"rows": [{"prompt_ids": [7, 7], "completion_ids": [8]}], "positions": [{"row": 0, "index": 0}]}
    for number in (3, 4):
        with server.store.aside("agent", number) as directory:
            fill(directory)
            (directory / "probe.json").write_text(json.dumps(probe))
            facts = {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": 0, "rows": [hers]}
            server.store.publish("agent", number, directory, facts | {"good": [[hers, "key-1:words of ann"]]})
    aside = server.store.path("agent", 3).rename(server.store.root / "agent@v3-old")
    (server.store.root / QUARANTINE).mkdir()
    aside.rename(server.store.root / QUARANTINE / aside.name)
    server.ask()
    assert [each["version"] for each in server.run()["versions"]] == ["agent@v3", "agent@v4"]
    for directory in server.store.directories():
        assert "7" not in (directory / "probe.json").read_text()
        assert "words of ann" not in (directory / "manifest.json").read_text()


def test_a_turn_that_is_read_after_the_erasure_but_began_before_is_left_out(server: Server) -> None:
    server.pen.say([user("first")], "ok", user="ann")
    server.ingester.run_once()
    server.ask()
    assert server.run()["n_turns"] == 1
    late = server.pen.say([user("long under way")], "ok", user="ann", gateway="b")
    after = server.pen.say([user("new words")], "ok", user="ann", gateway="c", started_at=time.time() + 1.0)
    other = server.pen.say([user("first")], "ok", user="bob", gateway="d")
    server.run()
    with server.journal.read() as session:
        found = set(session.scalars(select(InteractionRow.interaction_id)))
        assert late.interaction_id not in found and {after.interaction_id, other.interaction_id} <= found
        for name in found:  # the ingester remembers no text that is gone
            interaction_of(session, session.get_one(InteractionRow, name))


def test_a_segment_that_a_gateway_writes_to_is_waited_for(server: Server) -> None:
    writer = SegmentWriter(server.settings.segments_dir)
    writer.append(interaction([user("of ann")], user="ann"))
    server.ingester.run_once()
    server.ask()
    found = server.run()
    assert found["state"] == "running" and "a gateway still writes to" in found["waits_for"]
    writer.renew()
    with server.journal.write() as session:
        for row in session.scalars(select(ErasureJob)):
            row.run_after = 0.0
    assert server.run()["state"] == "done"
    writer.close()


def test_a_compaction_that_fails_is_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pen.say([user("of ann")], "ok", user="ann")
    server.ingester.run_once()
    server.ask()

    def fail(_journal: Journal) -> None:
        raise JournalError("a reader keeps what was deleted")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "compact", fail)
        assert server.run(1)["waits_for"] == "a reader keeps what was deleted"
    with server.journal.write() as session:
        job = session.scalars(select(ErasureJob)).one()
        assert "ann" not in json.dumps(job.payload)
        job.run_after = 0.0
    found = server.run()
    assert (found["state"], found["n_turns"]) == ("done", 1)


def test_records_set_aside_go_if_they_are_hers_or_nobodys(server: Server) -> None:
    aside = aside_of(server.settings.segments_dir)
    aside.mkdir()
    hers, his = (interaction([user(f"of {name}")], user=name) for name in ("ann", "bob"))
    (aside / "records-a.seg").write_bytes(encode(hers) + encode(his) + b"damaged words of somebody")
    server.pen.say([user("hi")], "ok", user="ann")
    server.ingester.run_once()
    server.ask()
    found = server.run()
    assert found["n_unreadable"] == 1
    assert [record.user for record, _ in read(aside / "records-a.seg") if isinstance(record, Interaction)] == ["bob"]
    assert b"damaged" not in (aside / "records-a.seg").read_bytes()


def test_a_forgotten_users_personal_agent_is_at_the_base_and_nobodys(server: Server) -> None:
    name = name_of("default", "agent", "ann")
    server.pen.say([user("hi")], "ok", user="ann")
    server.ingester.run_once()
    with server.journal.write() as session:
        session.add(AgentRow(name=name, tenant="default", created_at=1.0, parent="agent", user="ann"))
        session.flush()
        lifecycle.ensure_agent(session, name)
        made: dict[str, Any] = {"state": VersionState.CANDIDATE, "digest": "d", "evidence": {}, "created_at": 1.0}
        session.add(VersionRow(agent=name, version=1, parent=0, **made))
        session.flush()
        lifecycle.promote(session, name, 1, expected=0, actor="test")
    home = server.store.path(name, 1)
    home.mkdir(parents=True)
    (home / "adapter_model.safetensors").write_bytes(b"weights of ann")
    server.ask()
    assert server.run()["state"] == "done"
    assert not home.exists()
    with server.journal.read() as session:
        assert lifecycle.alias(session, name) == 0 and session.get_one(AgentRow, name).user == ""
    personal = PersonalRequests(Personal(enabled=True))
    again = interaction([user("hi")], user="ann", started_at=time.time() + 9, ended_at=time.time() + 9)
    with server.journal.write() as session:
        personal.note(session, again)
        assert session.get_one(AgentRow, name).user == "ann"


def exported(server: Server, who: Any = ("default", "user", "ann")) -> list[dict[str, Any]]:
    return [json.loads(line) for line in privacy.export(server.settings, server.journal, who)]


def test_what_waits_for_the_journal_and_what_was_set_aside_is_handed_over(server: Server) -> None:
    folder = aside_of(server.settings.segments_dir)
    folder.mkdir(parents=True)
    broken = interaction([user("set aside words of ann")], user="ann")
    (folder / f"records-{time.time_ns():020d}-x-0.seg").write_bytes(
        encode(broken) + encode(interaction([user("words of bob")], user="bob"))
    )
    server.pen.say([user("waiting words of ann")], "ok", user="ann")
    server.pen.say([user("waiting words of bob")], "ok", user="bob")
    found = exported(server)
    assert [(each["what"], each["messages"][-1]["content"]) for each in found] == [
        ("unfiled turn", "waiting words of ann"),
        ("unfiled turn", "set aside words of ann"),
    ]
    assert found[1]["file"].startswith("aside/") and "token_ids" not in found[0]
    server.ingester.run_once()
    assert [each["what"] for each in exported(server)] == ["unfiled turn", "turn", "session"]
    with pytest.raises(NotFound):
        exported(server, ("default", "user", "nobody"))


def test_steps_with_a_group_and_the_audit_entries_of_the_keys_are_handed_over(server: Server) -> None:
    hers = server.pen.say([user("hi")], "ok", user="ann").interaction_id
    server.ingester.run_once()
    _, key = mint([Scope.INFERENCE], user="ann")
    with server.journal.write() as session:
        session.add(GroupSampleRow(step_id=4, interaction_id=hers, scores=[0.25, 1.0]))
        session.add(KeyRow.of(key))
        for actor, target in ((key.key_id, "agent@v3"), ("cli", key.key_id), ("cli", "agent@v4")):
            session.add(AuditRow(at=1.0, actor=actor, action="pin", object=target))
    found = exported(server)
    (turn,) = (each for each in found if each["what"] == "turn")
    assert [(step["step_id"], step["scores"]) for step in turn["group_steps"]] == [(4, [0.25, 1.0])]
    told = [(each["actor"], each["object"]) for each in found if each["what"] == "audit entry"]
    assert told == [(key.key_id, "agent@v3"), ("cli", key.key_id)]


def test_an_unknown_user_and_an_unproved_name_are_told_apart(server: Server) -> None:
    server.pen.say([user("hi")], "ok", quoted_user="carl")
    server.ingester.run_once()
    with pytest.raises(NotFound, match="nothing is stored of the user 'nobody'"):
        server.ask("nobody")
    with pytest.raises(NotFound, match=r"keys key-1 name that user without a proof, so those turns are their key's"):
        server.ask("carl")
    with pytest.raises(NotFound, match="in the tenant 'other'"):
        server.ask("ann", "other")


def test_what_is_older_than_the_settings_allow_is_erased(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path,
        journal=config.Journal(keep={"turns": 30, "feedback": 10, "audit": 365}),
    )
    server = Server(tmp_path, settings)
    now, day = time.time(), 86_400.0

    def add(name: str, days: float) -> str:
        at = now - days * day
        return add_turn(server.journal, interaction([user(f"words {name}")], started_at=at, ended_at=at))

    old, young = add("of old", 31), add("of now", 29)
    add_feedback(server.journal, old, 1.0, comment="on old", created_at=now)
    add_feedback(server.journal, young, 1.0, comment="too old", created_at=now - 11 * day)
    add_feedback(server.journal, young, 1.0, comment="young", created_at=now - 9 * day)
    with server.journal.write() as session:
        for days in (366, 1):
            row = AuditRow(at=now - days * day, actor="cli", action="test", object=f"audit {days}")
            session.add(row)
    aside = aside_of(settings.segments_dir)
    aside.mkdir()
    for days in (31, 1):
        (aside / f"{days}.seg").write_bytes(b"unreadable")
        os.utime(aside / f"{days}.seg", (now - days * day, now - days * day))
    server.ingester.run_once()
    with server.journal.read() as session:
        assert session.scalars(select(InteractionRow.interaction_id)).all() == [young]
        assert session.scalars(select(FeedbackRow.comment)).all() == ["young"]
        assert session.scalars(select(AuditRow.object)).all() == ["audit 1"]
    assert [path.name for path in aside.iterdir()] == ["1.seg"]
    found = (tmp_path / "journal.db").read_bytes() + (tmp_path / "journal.db-wal").read_bytes()
    assert b"words of now" in found and b"words of old" not in found and b"too old" not in found


def test_without_a_period_everything_stays(server: Server) -> None:
    name = add_turn(server.journal, interaction([user("of 1970")]))
    add_feedback(server.journal, name, 1.0)
    server.ingester.run_once()
    with server.journal.read() as session:
        assert session.scalars(select(InteractionRow.interaction_id)).all() == [name]
        assert len(session.scalars(select(FeedbackRow)).all()) == 1


def test_a_journal_that_is_larger_than_the_settings_allow_loses_its_oldest_turns(tmp_path: Path) -> None:
    for n, size in ((0, None), (1, 0.002), (2, 50.0)):
        settings = Settings(
            state_dir=tmp_path / str(n), journal=config.Journal(keep={} if size is None else {"gigabytes": size})
        )
        server = Server(tmp_path / str(n), settings)
        names = [
            add_turn(server.journal, interaction([user(f"{i} " + os.urandom(40_000).hex())], ended_at=1000.0 + i))
            for i in range(60)
        ]
        before = server.journal.size()
        server.ingester.run_once()
        assert server.ingester._erasures is not None
        # much of so small a journal is what no turn takes, so it may need a second look
        server.ingester._erasures._next_look = server.ingester._erasures._next_measure = 0.0
        server.ingester.run_once()
        with server.journal.read() as session:
            left = session.scalars(select(InteractionRow.interaction_id).order_by(InteractionRow.ended_at)).all()
        if n != 1:
            assert left == names
            continue
        assert 0 < len(left) < 45 and left == names[-len(left) :]  # the oldest went
        assert server.journal.size() <= 0.002e9 < before
