"""Help pages: every command and group is in one panel and has examples that its own parser accepts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from burnish import config
from burnish.cli import PANELS, app

Words = tuple[str, ...]
ROOT: Any = get_command(app)
HOME = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((HOME / "docs").rglob("*.md")),
    *(HOME / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
]


def commands(command: Any = ROOT, words: Words = ()) -> Iterator[tuple[Words, Any]]:
    """The command and all commands below it, hidden ones too."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


EVERY = dict(commands())


def help_of(words: Words) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


def examples(page: str) -> list[str]:
    """The commands after `Example:`."""
    _, _, end = page.partition("Example:")
    return [line.strip().removeprefix("$ ") for line in end.splitlines() if line.strip().startswith("$ burnish ")]


@pytest.mark.parametrize("words", EVERY, ids=lambda words: " ".join(words) or "burnish")
def test_a_help_page_has_examples_that_parse(words: Words) -> None:
    found = examples(help_of(words))
    assert found
    for line in found:
        name, *rest = shlex.split(line)
        assert name == "burnish" and tuple(rest[: len(words)]) == words, line
        context = command = None
        here: Any = ROOT
        while here is not None:  # raises UsageError for an unknown command, option, argument or value
            command = here
            context = command.make_context(name, rest, parent=context)
            assert context is not None
            here = None
            if hasattr(command, "commands"):
                name, here, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert not hasattr(command, "commands"), f"{line} names a group, not a command"
        for setting in re.findall(r"--set (\S+)=", line):
            assert setting in config.described(), line


@pytest.mark.parametrize("words", EVERY, ids=lambda words: " ".join(words) or "burnish")
def test_each_command_option_and_argument_has_a_sentence(words: Words) -> None:
    command = EVERY[words]
    assert re.match(r"[A-Z].*\.", command.help), command.help
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} of {' '.join(words)}"


def test_the_top_level_holds_the_panels_in_order_and_nothing_else() -> None:
    names = [name for panel in PANELS.values() for name in panel]
    assert sorted(names) == sorted(ROOT.commands)
    page = help_of(())
    heads = re.findall(r"╭─ (\w+) ─", page)
    assert heads == ["Options", "Start", "Use", "Learn", "Release", "Operate"]
    listed = [line.split()[1] for line in page.splitlines() if re.match(r"│ [a-z]", line)]
    assert listed == names


def test_one_thing_has_one_name() -> None:
    """No function has two names, and a short option means the same long one everywhere."""
    functions = [command.callback for command in EVERY.values() if not hasattr(command, "commands")]
    assert len(functions) == len(set(functions))
    long_of: dict[str, set[str]] = {}
    for command in EVERY.values():
        for parameter in command.params:
            long = [name for name in parameter.opts if name.startswith("--")]
            for short in [name for name in parameter.opts if re.fullmatch("-[a-z]", name)]:
                long_of.setdefault(short, set()).update(long)
    assert long_of == {"-c": {"--config"}, "-n": {"--limit"}, "-o": {"--output"}, "-s": {"--set"}, "-y": {"--yes"}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_commands_that_exist(page: Path) -> None:
    for words in re.findall(r"(?:\$ |/|`)burnish((?:\s+[a-z][a-z-]*)+)", page.read_text()):
        first, *rest = words.split()
        assert first in ROOT.commands, f"burnish {first}"
        below = getattr(ROOT.commands[first], "commands", None)
        if below is not None and rest:
            assert rest[0] in below, f"burnish {first} {rest[0]}"
