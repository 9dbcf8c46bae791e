"""`burnish turns`: messages, next state, judgements, feedback and training status."""

from array import array
from pathlib import Path

import pytest

from burnish.journal import Journal, shadows
from burnish.journal.evidence import settle
from burnish.journal.shadows import Drawn
from burnish.journal.tables import InteractionRow, JudgeJob
from burnish.journal.turns import ask_judge, judge_subject, record_judgement
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.testing import StubEngine
from tests.cli.conftest import Run, listening
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_next_state, add_turn


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of the working directory of `run`."""
    (tmp_path / ".burnish").mkdir()
    return Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db")


def test_a_turn_s_whole_story_is_told(journal: Journal, run: Run) -> None:
    add_turn(journal, interaction([user("copy [1]")], "**1**", interaction_id="t"))
    add_next_state(journal, "t", NextStateKind.USER_REPLY, user("no bold please"))
    add_feedback(journal, "t", -1.0, comment="ugly")
    with journal.write() as session:
        record_judgement(session, judgement("t", -1, "Write without bold text."), NEXT_STATE)
        settle(session, "t")
    told = run("turns", "show", "t").out
    for text in (
        "copy [1]",
        "**1**",
        "no bold please",
        "ugly",
        "-1 -1 -1",
        "Write without bold text.",
        "-1 by user",
        "ready for",
    ):
        assert text in told
    tree = run("turns", "show", "t", "--json").json
    assert (tree["reward"]["value"], tree["reward"]["source"], tree["training_status"]) == (
        -1.0,
        "user",
        "ready for the learner",
    )
    assert [row["score"] for row in tree["judgements"]] == [-1]
    assert tree["next_state"]["messages"][0]["content"] == "no bold please"


@pytest.mark.parametrize(
    ("state", "training_status"),
    [
        ("queued", "waits for the judge"),
        ("leased", "is with the judge"),
        ("dead", "left unjudged"),
        ("done", "the judge abstained"),
    ],
)
def test_what_a_turn_waits_for_is_said(journal: Journal, run: Run, state: str, training_status: str) -> None:
    add_turn(journal, interaction([user("a")], interaction_id="t"))
    with journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
        session.get_one(JudgeJob, judge_subject("t", NEXT_STATE)).state = state
    assert run("turns", "show", "t", "--json").json["training_status"] == training_status
    assert training_status in run("turns", "list").out


def test_turns_are_told_apart_on_a_narrow_terminal(journal: Journal, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"chatcmpl-{'01a22747' * 3}0000000{i}" for i in range(2)]
    for name in names:
        add_turn(journal, interaction([user("Write about\nthe [sea] " + "and so on " * 9)], interaction_id=name))
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("turns", "list").out
    assert all(name in shown for name in names)
    monkeypatch.delenv("COLUMNS")
    shown = run("turns", "list").out
    assert "Write about the [sea] and so on" in shown and max(map(len, shown.splitlines())) < 250


@pytest.mark.parametrize("wish", ["", "Write short replies."])
def test_a_turn_s_shadow_group_is_shown(journal: Journal, run: Run, wish: str) -> None:
    add_turn(journal, interaction([user("a")], "The live reply.", interaction_id="t"))
    drawn = [_drawn("The first shadow."), _drawn("The second shadow.")]
    with journal.write() as session:
        shadows.begin(session, session.get_one(InteractionRow, "t"), len(drawn) + bool(wish), wish, None)
        shadows.file(session, "t", drawn, for_judge=False)
        scores = [0.5 if wish else None, 1.0, 0.0]
        shadows.score(session, "t", scores, "ratings", [])
    told = run("turns", "show", "t").out
    assert "The first shadow." in told and "The second shadow." in told
    assert ("0 (live)" in told) == bool(wish)
    assert (wish or "people's ratings of other replies") in told


def _drawn(reply: str) -> Drawn:
    return Drawn({"role": "assistant", "content": reply}, "stop", array("i", [1, 2]), array("f", [-0.1, -0.1]))


def test_turns_are_listed_newest_first(journal: Journal, run: Run) -> None:
    for name in ("first", "second", "third"):
        add_turn(journal, interaction([user("a")], interaction_id=name))
    assert [row["turn"] for row in run("turns", "list", "-n", "2", "--json").json] == ["third", "second"]
    assert run("turns", "list", "--json").json[0]["training_status"] == "waits for what comes back"


def test_a_turn_that_is_not_there_is_one_readable_line(journal: Journal, run: Run) -> None:
    done = run("turns", "show", "nobody")
    assert done.status == 1
    assert "there is no turn 'nobody'" in done.error and "turns list" in done.error


def test_without_a_journal_the_remedy_is_named(run: Run) -> None:
    assert "burnish up" in run("turns", "list").error


def test_tokens_are_told_as_text_by_the_engine(journal: Journal, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = {"token_ids": array("i", list("hé".encode())), "logprobs": array("f", [-0.25, -3.0, -1.0])}
    turn = interaction([user("hi")], "hé", interaction_id="t", **sampled)
    add_turn(journal, turn)
    with StubEngine() as engine:
        monkeypatch.setenv("BURNISH_ENGINE__URLS", f'["{engine.url}"]')
        tokens = run("turns", "tokens", "t", "--json").json["tokens"]
        assert "-0.25  'h'" in run("turns", "tokens", "t").out
        assert "no turn 'x'" in run("turns", "tokens", "x").error
    assert [(each["text"], each["logprob"]) for each in tokens] == [("h", -0.25), ("\ufffd", -3.0), ("\ufffd", -1.0)]
    assert "did not tell its tokens' text" in run("turns", "tokens", "t").error


def test_a_reply_is_rated_through_the_gateway(
    journal: Journal, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "`burnish up` makes it" in run("turns", "rate", "t", "--good").error
    (tmp_path / ".burnish" / "admin.key").write_text("sk-admin\n")
    with listening(202, {"feedback_id": "f-1"}) as (port, sent):
        monkeypatch.setenv("BURNISH_GATEWAY__PORT", port)
        assert run("turns", "rate", "t", "--bad", "--comment", "too long").out == (
            "recorded; it counts once there is a reply t\n"
        )
        add_turn(journal, interaction([user("hi")], interaction_id="t"))
        told = run("turns", "rate", "t", "--correction", "Yes.", "--json").json
        assert told == {"status": "recorded; it counts within seconds", "feedback_id": "f-1"}
    assert sent == [
        ("/v1/feedback", "Bearer sk-admin", {"target": "t", "rating": -1.0, "comment": "too long"}),
        ("/v1/feedback", "Bearer sk-admin", {"target": "t", "correction": "Yes."}),
    ]
    assert "does not answer; is `burnish up` running?" in run("turns", "rate", "t", "--good").error
    with listening(400, {"error": {"message": "nothing said"}}) as (port, _):
        monkeypatch.setenv("BURNISH_GATEWAY__PORT", port)
        done = run("turns", "rate", "t")
    assert done.status == 1 and "nothing said" in done.error
