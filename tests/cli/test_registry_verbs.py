"""`burnish agents`, `versions`, `promote`, `rollback`, `turns`, `export`, `audit`: for people and for programs."""

import io
import json
import re
from pathlib import Path

import pytest

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents, lifecycle
from burnish.journal import Journal
from burnish.journal.tables import LoadJob, VersionRow
from tests.adapters.files.test_store import FACTS, fill
from tests.cli.conftest import Run, listening
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn

FORGOT = {"retention": {"n": 64, "n_lost": 9, "lost": [{"prompt": "Is ice cold?", "reply": "No, it is [not]."}]}}

OF_VERSION = (("versions", "show"), ("versions", "lineage"), ("learner", "show"), ("versions", "pin"))


@pytest.fixture
def journal(state: Path, tmp_path: Path) -> Journal:
    """Versions 1 to 3 with real files (3 live, 2 previous, 1 retired), a refused 4, and one rewarded turn."""
    opened = Journal.open(f"sqlite:///{state / 'journal.db'}")
    store = AdapterStore(state / "adapters")
    for number in (1, 2, 3, 4):
        with store.aside("agent", number) as directory:
            fill(directory)
            store.publish("agent", number, directory, FACTS)
        with opened.write() as session:
            lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest="d")
            session.flush()
            session.get_one(LoadJob, f"agent@v{number}").state = "done"
        with opened.write() as session:
            if number < 4:
                lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate", reason="passed")
            else:
                lifecycle.refuse(session, "agent", number, reason="unlearned 9 of 64", evidence=FORGOT)
    add_turn(opened, interaction([user("hi")], "hello", interaction_id="t"), is_ready=True)
    add_feedback(opened, "t", 1.0)
    return opened


def test_agents_are_made_listed_and_set(run: Run, journal: Journal) -> None:
    made = run("agents", "create", "acme~support", "--tenant", "acme", "--set", "learner.min_rows=8", "--json").json
    assert (made["tenant"], made["settings"]) == ("acme", {"learner.min_rows": 8})
    assert (
        "agent acme~support of tenant acme exists"
        in run("agents", "create", "acme~support", "--tenant", "acme", "--set", "learner.min_rows=8").out
    )
    assert run("agents", "create", "third").out == "agent third of tenant default is created\n"
    assert run("agents", "create", "third").out == "agent third of tenant default exists already\n"
    assert [row["name"] for row in run("agents", "list", "--json").json["agents"]] == ["acme~support", "agent", "third"]
    assert [row["name"] for row in run("agents", "list", "--tenant", "acme", "--json").json["agents"]] == [
        "acme~support"
    ]
    shown = run("agents", "list").out
    assert "learner.min_rows=8" in shown and "acme" in shown and "v3" in shown
    assert "learner.rank=4" in run("agents", "set", "acme~support", "--set", "learner.rank=4").out
    assert run("agents", "show", "acme~support", "--json").json["settings"] == {"learner.rank": 4}
    assert "tenant" in run("agents", "show", "acme~support").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["agents", "create", "a/b"], "expected letters, digits"),
        (["agents", "create", "base"], "is taken or reserved"),
        (["agents", "create", "agent", "--tenant", "acme"], "try 'acme~agent'"),
        (["agents", "create", "x", "--set", "learner.min_row=8"], "did you mean 'learner.min_rows'?"),
        (["agents", "create", "x", "--set", "gateway.port=1"], "cannot be set for one agent"),
        (["agents", "create", "x", "--set", "rank"], "--set: expected KEY=VALUE"),
        (["agents", "show", "nobody"], "no agent 'nobody'"),
        (["promote", "9", "--yes"], "no version agent@v9; `burnish versions list` shows what exists"),
        (["promote", "4", "--yes"], "agent@v4 was refused: unlearned 9 of 64"),
        (["promote", "1", "--expected", "2", "--yes"], "expected v2 to be live, found v3"),
        (["rollback", "--to", "4", "--yes"], "agent@v4 was refused"),
        (["versions", "pin", "9"], "no version agent@v9"),
        (["versions", "lineage", "9"], "no version agent@v9"),
        (["versions", "export", "9", "out"], "no version agent@v9"),
        (["versions", "export", "3", "."], "exists already; name a new directory"),
        (["versions", "gc", "--agent", "nobody"], "no agent 'nobody'"),
        (["versions", "import", "nowhere"], "nowhere is no directory"),
        (["agents", "end-hold", "--agent", "nobody"], "no agent 'nobody'"),
        (["turns", "show", "nobody"], "there is no turn 'nobody'"),
        (["export", "--format", "sft", "--since", "yesterday"], "got 'yesterday'"),
        (["audit", "--since", "x"], "got 'x'"),
        (
            ["export", "-o", "nope/x"],
            "--output: cannot write nope/x: No such file or directory; name a file in a folder",
        ),
        (["turns", "session", "nope"], "agent 'agent' has no session 'nope'; `burnish turns show` tells"),
        *(([*verb, "0"], "v0 is the frozen base: no step made it, and it has no files") for verb in OF_VERSION),
    ],
)
def test_an_expected_mistake_is_one_line(run: Run, journal: Journal, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.status == 1 and said in done.error, done
    assert done.error.count("\n") == 1
    assert run("versions", "list", "--json").json["live"] == 3


def test_what_is_live_is_said_and_moved(run: Run, journal: Journal) -> None:
    assert run("promote", "3", "--yes", "--json").json == {
        "status": "agent@v3 is live already",
        "agent": "agent",
        "live": 3,
    }
    assert "is being loaded" in run("promote", "1", "--expected", "3", "--yes").out  # no engine has loaded it
    assert run("rollback", "--to", "0", "--yes", "--json").json["live"] == 0
    listed = run("versions", "list").out
    assert "refused" in listed and "unlearned 9 of 64" in listed and "previous" in listed


def test_a_hold_is_shown_and_ended_after_a_question(
    run: Run, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("agents", "end-hold").out == "agent was not held\n"
    with journal.write() as session:
        agents.hold(session, "agent", "v3 was rolled back", actor="watch")
    assert "v3 was rolled back" in run("agents", "list").out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    done = run("agents", "end-hold")
    assert done.status == 1 and done.error.splitlines()[1:] == ["Aborted."]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("agents", "end-hold").error.endswith(
        "\nburnish: expected y or n, got no answer; use --yes to skip the question\n"
    )
    assert run("agents", "end-hold", "--yes", "--reason", "seen", "--json").json["was_held"] == "v3 was rolled back"
    last = run("audit", "--action", "end-hold", "--json").json["entries"]
    assert [(row["actor"], row["reason"]) for row in last] == [("cli", "seen")]


def test_pins_and_retention(run: Run, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "burnish.toml").write_text("[versions]\nkeep_live = 0\nkeep_refused_days = 0.0\n")
    run("rollback", "--to", "0", "--yes")
    assert run("versions", "pin", "4", "--reason", "to look at").out == "agent@v4 is pinned\n"
    assert run("versions", "pin", "4", "--json").json["status"] == "agent@v4 is pinned already"
    dry = run("versions", "gc", "--dry-run", "--json").json
    assert (sorted(dry["removed"]), dry["dry_run"]) == (["1"], True)  # 2 and 3 are still in the serving table
    assert "would be removed" in run("versions", "gc", "--dry-run").out
    assert sorted(run("versions", "gc", "--yes", "--json").json["removed"]) == ["1"]
    left = tmp_path / ".burnish" / "adapters" / "quarantine" / "agent@v000009-20260101T000000.000000000Z"
    left.mkdir(parents=True)
    assert left.name[:13] in run("versions", "gc", "--dry-run").out and left.exists()
    assert run("versions", "gc", "--yes", "--json").json["quarantined"] == [left.name]
    assert not left.exists()
    assert "removed" in run("versions", "list").out
    assert run("versions", "show", "1", "--json").json["manifest"] == {}
    assert "only its record is left" in run("promote", "1", "--yes").error
    assert run("versions", "unpin", "4").out == "agent@v4 is not pinned\n"


def test_a_version_is_exported_and_tells_its_story(run: Run, journal: Journal, tmp_path: Path) -> None:
    assert run("versions", "export", "3", "out/v3").out == "agent@v3 is in out/v3\n"
    assert sorted(file.name for file in (tmp_path / "out" / "v3").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
    ]
    told = run("versions", "lineage", "3", "--json").json
    assert (told["ancestors"], told["aliases"]) == (["agent@v2", "agent@v1", "agent@v0"], ["live"])
    shown = run("versions", "lineage", "3").out
    assert "agent@v3 ← agent@v2 ← agent@v1 ← agent@v0" in shown and "until now" in shown and "history" in shown
    refused = run("versions", "lineage", "4").out
    assert "n 64, n lost 9" in refused and "Is ice cold?" in refused and "No, it is [not]." in refused


def test_facts_are_shown_without_python(run: Run, journal: Journal) -> None:
    evidence = {"pairs": {"n": 3, "by_turn": [{"p": 0.5}] * 40}, "is_exact": False, "rate": 1 / 3, "none": None}
    with journal.write() as session:
        session.get_one(VersionRow, ("agent", 3)).evidence = evidence
    shown = [run("agents", "show", "agent").out, *(run("versions", verb, "3").out for verb in ("show", "lineage"))]
    for out in shown:
        assert not any(raw in out for raw in ("None", "False", "True", "{", "0.3333333"))
    assert re.search(r"created at *│ 2\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d", shown[0]) and "live 3, previous 2" in shown[0]
    assert re.search("is paused *│ no ", shown[0]) and re.search("held *│ – ", shown[0])
    assert all("n 3, by turn 40 values" in out and "0.333333" in out for out in shown[1:])


def test_rows_turns_and_the_audit_log(run: Run, journal: Journal, tmp_path: Path) -> None:
    (row,) = run("export", "--format", "kto").out.splitlines()
    assert json.loads(row)["label"] is True
    assert run("export", "--format", "sft", "-o", "rows.jsonl").out == "1 row in rows.jsonl\n"
    assert json.loads((tmp_path / "rows.jsonl").read_text())["id"] == "t"
    assert "expected a new file, but rows.jsonl exists" in run("export", "--format", "sft", "-o", "rows.jsonl").error
    assert run("export", "--format", "sft", "--agent", "nobody").out == ""
    assert run("export", "--format", "sft", "--until", "1970-01-01").out == ""
    assert json.loads(run("export", "--format", "rewards").out)["reward"] == 1.0
    assert run("turns", "show", "t", "--json").json["training_status"] == "ready for the learner"
    assert "ready for the learner" in run("turns", "show", "t").out
    assert [entry["action"] for entry in run("audit", "-n", "1", "--json").json["entries"]] == ["refuse"]
    assert "unlearned 9 of 64" in run("audit").out


def test_two_versions_are_compared_blind_and_the_vote_is_feedback(
    run: Run, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".burnish" / "admin.key").write_text("sk-admin\n")
    monkeypatch.setattr("random.shuffle", lambda chosen: chosen.reverse())
    told = [{"id": turn, "choices": [{"message": {"content": text}}]} for turn, text in (("a", "[No]."), ("b", "Yes."))]
    votes = {
        "1": [{"target": "b", "correction": "[No]."}],
        "2": [{"target": "a", "correction": "Yes."}],
        "t": [{"target": "a", "rating": 0.0}, {"target": "b", "rating": 0.0}],
        "n": [{"target": "a", "rating": -1.0}, {"target": "b", "rating": -1.0}],
        "s": None,
    }
    for vote, feedback in votes.items():
        monkeypatch.setattr("sys.stdin", io.StringIO(f"?\n{vote}\n"))
        with listening(200, *told, {}) as (port, sent):
            monkeypatch.setenv("BURNISH_GATEWAY__PORT", port)
            shown = run("versions", "compare", "Is ice cold?")
        assert "1  [No]." in shown.out and "1 was v2, 2 was v3" in shown.out
        assert shown.out.index("Yes.") < shown.out.index("v2")
        assert [body["model"] for _, _, body in sent[:2]] == ["agent@v2", "agent@v3"]
        assert [body for path, _, body in sent[2:]] == ([{"feedback": feedback}] if feedback else [])
    with listening(200, *told) as (port, _):
        monkeypatch.setenv("BURNISH_GATEWAY__PORT", port)
        found = run("versions", "compare", "Is ice cold?", "--one", "0", "--other", "1", "--json").json
        assert [(each["version"], each["turn"]) for each in found["replies"]] == [(1, "a"), (0, "b")]
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert "\nburnish: nobody voted" in run("versions", "compare", "Is ice cold?").error
    assert "expected two versions" in run("versions", "compare", "Is ice cold?", "--one", "2").error
