"""The `burnish` command: every verb has a help text, and every expected mistake is one readable line, not a
traceback."""

import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from burnish import __version__, config, keys, serving_table
from burnish.adapters.base_model import revision
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import note_model
from burnish.cli import doctor
from burnish.cli.common import load_settings
from burnish.journal import Journal
from burnish.journal.tables import AuditRow, KeyRow, VersionRow
from burnish.judges import permits
from burnish.learner import known_models
from burnish.processes.parts import DESCRIPTIONS
from burnish.records import Fitness, digest_of_voice
from burnish.segments.file import SegmentWriter
from burnish.server.ingest.ingester import Ingester
from tests.cli.conftest import Run
from tests.factories import interaction, user
from tests.model_dirs import model_dir
from tests.turns import add_feedback, add_turn


@pytest.fixture
def journal(state: Path) -> Journal:
    """The journal of the state directory `.burnish`."""
    return Journal.open(f"sqlite:///{state / 'journal.db'}")


def test_help_names_every_verb(run: Run) -> None:
    done = run("--help")
    assert done.status == 0
    for verb in ("up", "status", "doctor", "config", "demo", "agents", "versions", "keys", "run"):
        assert verb in done.out.split()
    for group, verbs in {
        "versions": ("list", "show", "lineage", "pin"),
        "keys": ("create", "list", "revoke"),
        "run": tuple(DESCRIPTIONS),
    }.items():
        assert set(verbs) <= set(run(group, "--help").out.split())
    assert run("--version").out == f"burnish {__version__}\n"


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "burnish", "config", "--set", "learner.min_row=3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "burnish: unknown setting 'learner.min_row'; did you mean 'learner.min_rows'?\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["config", "--set", "learner.min_row=3"],
            "unknown setting 'learner.min_row'; did you mean 'learner.min_rows'?",
        ),
        (["config", "--set", "learner.min_rows=many"], "setting 'learner.min_rows'"),
        (["config", "--set", "learner"], "--set: expected KEY=VALUE, got 'learner'"),
        (["config", "--set", "learner.min_rows.x=1"], "learner.min_rows"),
        (["config", "--set", "state_dir.x=1"], "state_dir"),
        (["config", "--set", "learner=7"], "learner"),
        (["config", "--config", "absent.toml"], "cannot read the configuration file absent.toml"),
        (["config", "--config", "broken.toml"], "broken.toml is not valid TOML"),
        (["run", "engine", "--set", "engine.model=./absent"], "engine.model: no model in absent"),
        (["versions", "show", "7"], "no version agent@v7"),
        (["versions", "list", "--agent", "nobody"], "no agent 'nobody'"),
        (["promote", "7", "--yes"], "no version agent@v7"),
        (["rollback", "--yes"], "no previous version to roll back to; name one with --to"),
        (["keys", "revoke", "sk-burnish-none"], "no key 'sk-burnish-none'"),
        (["keys", "revoke"], "expected either a key's id or --user"),
        (["keys", "revoke", "sk-burnish-none", "--user", "ann"], "expected either a key's id or --user"),
        (["keys", "create", "--scope", "admin", "--state", "file"], "state_dir: cannot write to"),
        (["status", "--state", "other"], "no journal"),
    ],
)
def test_an_expected_mistake_is_one_line(run: Run, state: Path, arguments: list[str], said: str) -> None:
    (state.parent / "broken.toml").write_text("learner = [")
    (state.parent / "file").write_text("in the way")
    done = run(*arguments)
    assert done.status == 1
    assert said in done.error
    assert done.error.startswith("burnish: ") and done.error.count("\n") == 1
    assert done.out == ""


def test_settings_are_shown_with_their_sentences_and_without_secrets(run: Run) -> None:
    shown = run("config", "--set", "judge.api_key=secret-1", "--set", "learner.min_rows=7")
    assert shown.status == 0
    assert "learner.min_rows" in shown.out and "A step begins when this many rows are ready" in shown.out
    assert "secret-1" not in shown.out
    assert run("config", "--json", "--set", "learner.min_rows=7").json["learner.min_rows"] == 7


@pytest.mark.parametrize(
    "arguments",
    [
        *(["versions", verb, "1"] for verb in ("show", "lineage", "pairs", "pin", "unpin")),
        *(["versions", *more] for more in (["list"], ["import", "x"], ["export", "1", "x"], ["gc", "--yes"])),
        *(["agents", *more] for more in (["list"], ["show", "agent"], ["create", "x"], ["set", "agent"], ["end-hold"])),
        *(["keys", *more] for more in (["list"], ["revoke", "x"])),
        *(["canary", *more] for more in (["status"], ["start", "1", "--yes"], ["stop", "--yes"])),
        *(["promote", "1", "--yes"], ["rollback", "--yes"], ["turns", "list"], ["learner", "status"]),
        *(["export"], ["audit"], ["ui", "--link"], ["journal", "vacuum"], ["journal", "check"], ["judges", "queue"]),
    ],
)
def test_a_wrong_state_directory_is_named_and_not_made(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    done = run(*arguments, "--state", "nothere")
    assert (done.status, done.out) == (1, "") and done.error.count("\n") == 1
    assert f"no journal in {tmp_path / 'nothere'}; name the server's directory with --state, or start" in done.error
    assert f"`burnish up --state {tmp_path / 'nothere'}`" in done.error
    assert not (tmp_path / "nothere").exists()


def test_the_first_key_says_that_it_made_a_state_directory(run: Run, tmp_path: Path) -> None:
    first, second = (run("keys", "create", "--scope", "inference") for _ in range(2))
    assert first.out.count("\n") == 1 and f"{tmp_path / '.burnish'} is a new state directory" in first.error
    assert (first.status, second.status, second.error) == (0, 0, "")


def test_an_empty_journal_lists_the_base(run: Run, state: Path) -> None:
    done = run("versions", "list")
    assert done.status == 0
    assert "the frozen base" in done.out and "live" in done.out
    assert run("versions", "list", "--json").json == {"agent": "agent", "live": 0, "previous": None, "versions": []}


def test_versions_are_listed_and_moved(run: Run, journal: Journal) -> None:
    with journal.write() as session:
        for number in (1, 2, 3):
            lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate", reason="passed")
    listed = run("versions", "list", "--json").json
    assert (listed["live"], listed["previous"]) == (3, 2)
    assert [(row["version"], row["state"]) for row in listed["versions"]] == [
        (1, "retired"),
        (2, "retired"),
        (3, "live"),
    ]
    assert "is live (was v3)" in run("rollback", "--to", "0", "--yes", "--reason", "worse").out
    assert run("versions", "list", "--json").json["live"] == 0
    with journal.read() as session:
        last = session.query(AuditRow).order_by("audit_id").all()[-1]
        assert (last.actor, last.before, last.after, last.reason) == ("cli", "3", "0", "worse")
    assert "cannot be served: adapter agent@v1 does not exist" in run("promote", "1", "--yes").error


def test_a_question_that_is_not_answered_changes_nothing(
    run: Run, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal.write() as session:
        lifecycle.announce(session, "agent", 1, parent=0, step_id=None, digest="d")
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("rollback").status == 1
    assert run("versions", "list", "--json").json["live"] == 1


def test_a_key_is_made_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    made = run(
        "keys",
        "create",
        "--scope",
        "inference",
        "--scope",
        "feedback",
        "--name",
        "laptop",
        "--agent",
        "agent",
        "--json",
    ).json
    assert made["secret"].startswith(keys.PREFIX)
    assert made["scopes"] == ["feedback", "inference"]
    (listed,) = run("keys", "list", "--json").json
    assert (listed["key_id"], listed["name"], listed["agents"], listed["revoked_at"]) == (
        made["key_id"],
        "laptop",
        ["agent"],
        None,
    )
    shown = run("keys", "list")
    assert "laptop" in shown.out and "active" in shown.out
    assert made["secret"] not in shown.out + json.dumps(listed)
    table = serving_table.watch(tmp_path / ".burnish" / "run" / "routes.json")
    assert keys.digest(made["secret"]) in table.current().keys
    assert run("keys", "revoke", made["key_id"]).out == f"revoked {made['key_id']}\n"
    assert keys.digest(made["secret"]) not in table.current().keys
    assert "revoked" in run("keys", "list").out
    told = run("audit", "--json").json["entries"][:2]
    assert [(row["actor"], row["action"], row["object"]) for row in told] == [
        ("cli", "revoke-key", made["key_id"]),
        ("cli", "create-key", made["key_id"]),
    ]
    with Journal.open(f"sqlite:///{tmp_path / '.burnish' / 'journal.db'}").read() as session:
        (row,) = session.query(KeyRow).all()
        assert row.digest == keys.digest(made["secret"])


def test_all_keys_and_tokens_of_a_user_are_revoked(run: Run, tmp_path: Path) -> None:
    hers, his = (
        run("keys", "create", "--scope", "inference", "--user", user, "--json").json for user in ("ann", "bob")
    )
    assert run("keys", "revoke", "--user", "ann").out == "revoked 1 key and all tokens of the user 'ann'\n"
    table = serving_table.watch(tmp_path / ".burnish" / "run" / "routes.json").current()
    assert keys.digest(hers["secret"]) not in table.keys and keys.digest(his["secret"]) in table.keys
    assert set(table.revoked) == {digest_of_voice(("default", "user", "ann"))}
    assert run("audit", "--json").json["entries"][0]["action"] == "revoke-user"


def test_a_key_is_made_for_a_user(run: Run, tmp_path: Path) -> None:
    made = run("keys", "create", "--scope", "inference", "--user", "ann", "--json").json
    assert made["user"] == "ann"
    assert "ann" in run("keys", "list").out
    table = serving_table.watch(tmp_path / ".burnish" / "run" / "routes.json").current()
    assert table.keys[keys.digest(made["secret"])].user == "ann"
    refused = run("keys", "create", "--scope", "users", "--user", "ann")
    assert "a key for a user has inference, feedback or both, not users" in refused.error
    assert len(run("keys", "list", "--json").json) == 1


def test_a_secret_alone_is_printed_for_scripts(run: Run) -> None:
    done = run("keys", "create", "--scope", "admin")
    assert done.out.startswith(keys.PREFIX) and done.out.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["keys", "create"], ["keys", "create", "--scope", "root"], ["versions", "show", "x"], ["fly"]]
)
def test_wrong_usage_is_explained(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert "Usage: burnish" in done.error


def test_status_shows_the_figures(run: Run, journal: Journal) -> None:
    figures = run("status", "--json").json
    assert figures["interactions"] == 0
    assert figures["aliases"] == {"live": 0}
    assert "judge jobs" in run("status").out


class _Ready(BaseHTTPRequestHandler):
    """A gateway that says whether it is ready."""

    status, tree = 200, {"status": "ready", "warnings": list[str]()}

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.tree).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_status_says_that_nobody_is_answered(run: Run, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ready) as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        flags = ("--set", f"gateway.port={gateway.server_port}")
        assert run("status", "--json", *flags).json["serving"] == "ready"
        monkeypatch.setattr(_Ready, "status", 503)
        monkeypatch.setattr(_Ready, "tree", {"status": "not ready", "warnings": ["no engine answers"]})
        assert "is not ready: no engine answers\n" in run("status", *flags).out
        monkeypatch.setattr(_Ready, "tree", {"error": "a program that is no gateway"})
        assert "see gateway.port\n" in run("status", *flags).out
        gateway.shutdown()
    assert run("status", *flags).out.startswith(f"no gateway answers at http://127.0.0.1:{gateway.server_port}; is")


def test_status_says_whether_the_agent_got_better_and_where_it_is_worst(run: Run, journal: Journal) -> None:
    shown = run("status", "--json").json
    assert (shown["progress"], shown["worst_slice"]) == (None, None)
    for version, rating in ((0, -1.0), (1, 1.0)):
        for number in range(30):
            turn = interaction([user("hi")], version=version, interaction_id=f"t{version}-{number}")
            add_turn(journal, turn, is_ready=True)
            add_feedback(journal, turn.interaction_id, rating)
    lost = {"slices": {"worst": "tool: ls", "by_slice": []}}
    with journal.write() as session:
        lifecycle.announce(session, "agent", 1, parent=0, step_id=None, digest="d")
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate", reason="passed")
        session.get_one(VersionRow, ("agent", 1)).evidence = lost
    shown = run("status", "--json").json
    assert shown["progress"].startswith("Yes: 100% of v1's rated replies were good, and 0% of v0's")
    assert shown["worst_slice"] == "tool: ls"


def test_a_second_supervisor_on_a_state_directory_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnish.files import hold

    (tmp_path / ".burnish" / "run").mkdir(parents=True)
    lock = hold(tmp_path / ".burnish" / "run" / "up.lock")
    started: list[str] = []

    async def supervise(settings: config.Settings) -> None:
        started.append("up")

    monkeypatch.setattr(sys.modules["burnish.cli.up"], "_up", supervise)
    ports = ("--set", "gateway.port=0", "--set", "engine.port=0")
    done = run("up", *ports)
    assert (done.status, started) == (1, [])
    assert "runs on" in done.error and "already; stop it, or name another directory with --state" in done.error
    assert run("up", *ports, "--state", "other").status == 0
    os.close(lock)  # the first one has ended, however it did
    assert run("up", *ports).status == 0 and started == ["up", "up"]


def test_what_the_ingester_could_not_read_is_counted_and_removed_by_a_command(
    run: Run, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = tmp_path / ".burnish" / "segments" / "aside"
    aside.mkdir(parents=True)
    for name in ("a.seg", "records-b.seg", "notes.txt"):
        (aside / name).write_text("?")
    assert run("status", "--json").json["set_aside"] == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("journal", "vacuum").status == 1 and len(list(aside.iterdir())) == 3
    assert run("journal", "vacuum", "--yes", "--json").json["removed"] == ["a.seg", "records-b.seg"]
    assert [path.name for path in aside.iterdir()] == ["notes.txt"]
    assert run("journal", "vacuum").out == "removed 0 files, freed 0.0 MB\n"


def test_status_says_that_the_disk_is_low(run: Run, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.files.LEAST_FREE", 0)
    assert run("status", "--json").json["low_disk_gb"] is None
    monkeypatch.setattr("burnish.files.LEAST_FREE", 1e18)
    assert run("status", "--json").json["low_disk_gb"] > 0.0
    assert "GB are free below the state directory" in run("status").out


def test_status_says_how_long_recorded_turns_wait_for_the_journal(run: Run, journal: Journal, tmp_path: Path) -> None:
    segments = tmp_path / ".burnish" / "segments"
    assert run("status", "--json").json["ingest_lag"] == 0.0
    writer = SegmentWriter(segments)
    for seconds in (100.0, 5.0):
        writer.append(interaction([user("hi")], ended_at=time.time() - seconds))
    shown = run("status", "--json").json
    assert 100.0 <= shown["ingest_lag"] < 160.0 and shown["ingest_alarm"] is True
    assert "s for the journal; is the ingester running?" in run("status").out
    Ingester(journal, segments, session_timeout=1e9).run_once()
    shown = run("status", "--json").json
    assert (shown["ingest_lag"], shown["ingest_alarm"]) == (0.0, False)
    (segments / "damaged.seg").write_bytes(b"no frame at all, and long enough for a header")
    assert run("status", "--json").json["ingest_lag"] == 0.0
    writer.close()


def test_commands_speak_of_the_model_that_up_was_told(run: Run, journal: Journal, tmp_path: Path) -> None:
    model = model_dir(tmp_path / "model", template="")
    assert "template" not in run("status").out
    note_model(config.load(flags={"engine.model": str(model)}))
    shown = run("status")
    assert "\nthe model has no chat template, so chat requests are refused and nothing is learned;" in shown.out
    assert run("status", "--json").json["learning_alarm"] is True
    assert load_settings(None).engine.model == str(model)
    other = load_settings(None, ["engine.model=acme/model-7b"])
    assert other.engine.model == "acme/model-7b"
    note_model(config.load())
    assert load_settings(None).uses_sandbox


def test_a_known_model_is_named_by_its_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    refused = run("status", "--set", "engine.model=smollm2")
    assert refused.status == 1 and "`burnish models fetch smollm2` gets it" in refused.error
    monkeypatch.setattr(known_models, "directory", known_models.place)
    folder = tmp_path / "burnish" / "models" / "smollm2-135m-instruct"
    assert load_settings(None, ["engine.model=smollm2"]).engine.model == str(folder)
    assert load_settings(None, ["engine.model=nobody"]).engine.model == "nobody"


# doctor


def findings(run: Run, *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and level by finding (its text with the remedy)."""
    done = run("doctor", "--json", "--set", "gateway.port=0", "--set", "engine.port=0", *arguments)
    return done.status, {f"{found['what']}. {found['remedy']}": found["level"] for found in done.json}


def level_of(found: dict[str, str], text: str) -> str:
    (level,) = [level for said, level in found.items() if text in said]
    return level


def test_doctor_is_content_with_the_sandbox(run: Run) -> None:
    status, found = findings(run)
    assert status == 0
    assert "fault" not in found.values()
    for text in (
        "Python 3.",
        "the model has a chat template",
        "LoRA targets: ",
        "port 0 is free",
    ):
        assert any(text in said for said in found)
    shown = run("doctor", "--set", "gateway.port=0", "--set", "engine.port=0")
    assert shown.status == 0 and "✓ packages that serve and train are installed" in shown.out


@pytest.mark.parametrize(
    ("options", "prefix", "level"),
    [
        ("'--enable-shared'", "/home/ada/.pyenv/versions/3.11.7", "warning"),
        ("'--enable-optimizations' '--with-lto'", "/home/ada/.local/share/uv/python", "ok"),
        ("'--enable-shared' '--prefix=/usr'", "/usr", "ok"),
        (None, "C:\\Python", "ok"),
    ],
)
def test_doctor_warns_of_a_slow_python(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: str | None, prefix: str, level: str
) -> None:
    monkeypatch.setattr(doctor.machine.sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    monkeypatch.setattr(doctor.machine.sys, "base_prefix", prefix)
    _, found = findings(run)
    assert level_of(found, "Python 3.") == level


def test_doctor_says_who_needs_no_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = findings(run)
    assert level_of(found, "programs of the user") == "ok"
    monkeypatch.setattr(doctor.peer, "owner_of", lambda *_: None)
    _, found = findings(run)
    assert level_of(found, "this system does not tell whose a connection is") == "warning"
    _, found = findings(run, "--set", "gateway.open_inference=false")
    assert not any("whose a connection is" in said or "programs of the user" in said for said in found)


def test_doctor_refuses_versions_of_another_model(run: Run, tmp_path: Path) -> None:
    ours, theirs = model_dir(tmp_path / "ours"), model_dir(tmp_path / "theirs")
    (theirs / "generation_config.json").write_text('{"temperature": 0.5}')
    for number, manifest in ((2, {"base": "damaged"}), (3, {"base": {"revision": revision(ours)}})):
        (version := tmp_path / ".burnish" / "adapters" / "agent" / f"v{number:06d}").mkdir(parents=True)
        (version / "manifest.json").write_text(json.dumps(manifest))
    assert findings(run, "--set", f"engine.model={ours}")[0] == 0
    status, found = findings(run, "--set", f"engine.model={theirs}")
    said = f".burnish has learned with another model than {theirs}: agent@v3. Give each model a state directory"
    assert (status, level_of(found, said)) == (1, "fault")
    refused = run("up", "--set", f"engine.model={theirs}", "--set", "gateway.port=0", "--set", "engine.port=0")
    assert refused.status == 1 and said in refused.out + refused.error
    shutil.rmtree(version)
    assert findings(run, "--set", f"engine.model={theirs}")[0] == 0, "a version whose manifest names no model"


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: shutil.rmtree(folder), "config.json is missing. Set engine.model to the directory"),
        (remove("config.json"), "config.json is missing"),
        (write("config.json", b"{"), "/config.json cannot be read"),
        (write("config.json", b"[]"), "/config.json cannot be read"),
        (write("tokenizer_config.json", b"{"), "tokenizer_config.json cannot be read"),
        (remove("model.safetensors"), "no *.safetensors weights"),
        (write("model.safetensors", b""), "model.safetensors cannot be read"),
        (write("model.safetensors", b"\xff" * 64), "model.safetensors cannot be read"),
        (write("model.safetensors", struct.pack("<Q", 4) + b"[1]x"), "model.safetensors cannot be read"),
    ],
)
def test_doctor_names_what_is_wrong_with_a_model(
    run: Run, tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    folder = model_dir(tmp_path / "model")
    status, found = findings(run, "--set", f"engine.model={folder}")
    assert (status, level_of(found, "LoRA targets: q_proj")) == (0, "ok")
    change(folder)
    status, found = findings(run, "--set", f"engine.model={folder}")
    assert (status, level_of(found, said)) == (1, "fault")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            remove("tokenizer_config.json"),
            "no chat template, so chat requests are refused and nothing is learned. Add chat_template.jinja to its",
        ),
        (write("tokenizer_config.json", b"{}"), "no chat template"),
        (
            write("model.safetensors", struct.pack("<Q", 11) + b'{"a.b": {}} '),
            "no linear layer that LoRA can adapt was found, so the base answers and nothing is learned. Take a model",
        ),
        (
            write("config.json", b'{"architectures": ["GPT2LMHeadModel"]}'),
            "vLLM serves GPT2LMHeadModel without LoRA adapters, so the base answers and nothing is learned. Take a",
        ),
        (
            write("config.json", b'{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 128}'),
            "a context of 128 tokens is short: longer prompts and most of a judge's questions are refused. Take a",
        ),
    ],
)
def test_a_model_that_is_served_without_learning_from_all_is_a_warning(
    run: Run, tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    """`burnish up` says the same line before it starts."""
    folder = model_dir(tmp_path / "model")
    change(folder)
    status, found = findings(run, "--set", f"engine.model={folder}")
    assert (status, level_of(found, said)) == (0, "warning")
    settings = config.load(flags={"engine.model": str(folder)})
    assert [line for line in doctor.warnings_of_model(settings) if said in line]


def test_doctor_says_what_the_gate_lacks_from_the_base(run: Run, tmp_path: Path) -> None:
    arguments = ("--set", f"engine.model={model_dir(tmp_path / 'model')}")
    record = BaseRecord.of(config.load(flags={"engine.model": str(tmp_path / "model")}))
    assert not any("forgetting prompts" in said for said in findings(run, *arguments)[1]), "it was not asked yet"
    record.write([3] * 96, 495)
    assert level_of(findings(run, *arguments)[1], "the base passes enough forgetting prompts") == "ok"
    record.write([3] * 5 + [None] * 490, 495, 96)
    said = "the base passes only 5 of 495 forgetting prompts (64 are needed), so the gate compares predictions with the"
    assert level_of(findings(run, *arguments)[1], said) == "warning"
    status, found = findings(run, *arguments, "--set", "gate.forgetting_prompts=nowhere.jsonl")
    assert (status, level_of(found, "cannot read nowhere.jsonl: No such file")) == (1, "fault")


def test_doctor_accepts_a_template_file(run: Run, tmp_path: Path) -> None:
    folder = model_dir(tmp_path / "model", template="")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert findings(run, "--set", f"engine.model={folder}")[0] == 0


def test_doctor_names_a_port_in_use_and_up_does_not_start(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, found = findings(run, "--set", f"gateway.port={port}")
        assert (status, level_of(found, f"port {port} for the gateway cannot be used")) == (1, "fault")
        started = run("up", "--set", f"gateway.port={port}", "--set", "engine.port=0")
        assert started.status == 1
        assert f"port {port} for the gateway cannot be used" in started.error and started.error.count("\n") == 1
        # remote engines need no port on this machine
        status, found = findings(run, "--set", f"engine.port={port}", "--set", 'engine.urls=["http://127.0.0.1:1"]')
        assert status == 0


def test_doctor_warns_of_an_open_door_and_of_a_model_by_name(run: Run) -> None:
    status, found = findings(run, "--set", "gateway.host=0.0.0.0", "--set", "engine.model=acme/model-7b")
    assert status == 0
    assert level_of(found, "every request needs a key") == "warning"
    assert level_of(found, "acme/model-7b is not a directory here") == "warning"


def test_doctor_warns_of_a_judge_that_may_not_speak(run: Run, tmp_path: Path) -> None:
    assert level_of(findings(run)[1], "the judge base is fit to speak") == "ok"
    arguments = ("--set", f"engine.model={model_dir(tmp_path / 'model')}")
    status, found = findings(run, *arguments)
    assert status == 0
    assert level_of(found, "the judge base (model) has not been checked yet") == "warning"
    settings = config.load(flags={"engine.model": str(tmp_path / "model")})
    with Journal.open(settings.journal_url).write() as session:
        permits.file(session, settings, "base")
        permits.conclude(session, settings, "base", Fitness.UNFIT, "its κ is 0.02", {})
    status, found = findings(run, *arguments)
    assert status == 0
    said = (
        "the judge base (model) is unfit: its κ is 0.02. Turns without a user's or verifier's word are not judged; set"
    )
    assert level_of(found, said) == "warning"


def test_every_default_can_be_given_as_a_flag(run: Run) -> None:
    """The output of `config --json` is valid input for `--set`."""
    shown = run("config", "--json").json
    flags = [
        part for key, value in shown.items() if value is not None for part in ("--set", f"{key}={json.dumps(value)}")
    ]
    assert run("config", "--json", *flags).json == shown
    assert set(shown) == set(config.described())
