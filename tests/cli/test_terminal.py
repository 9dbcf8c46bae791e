"""What anybody said cannot control the terminal of whoever reads it."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from burnish.cli.common import Terminal
from burnish.cli.tables import Listing
from burnish.cli.tables.turns import message_panel

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x9b2Jhello\r\x08\x7f\tthere\nagain"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_control_character_of_a_message_is_printed(is_terminal: bool) -> None:
    stream = io.StringIO()
    shown = Terminal(file=stream, force_terminal=is_terminal, width=80, color_system="truecolor")
    table = Table("words", title=EVIL)
    table.add_row(EVIL)
    for each in (EVIL, Text(EVIL), table, message_panel({"role": EVIL, "content": EVIL}, EVIL)):
        shown.print(each)
    printed = stream.getvalue()
    assert "hello" in printed and "again" in printed
    assert not any(
        letter in printed for letter in ("\x07", "\x9b", "\x08", "\x7f", "\r", "\x1b]", "\x1b[2J", "\x1b[1;1H")
    )


def test_colours_and_moves_of_our_own_are_printed() -> None:
    stream = io.StringIO()
    shown = Terminal(file=stream, force_terminal=True, color_system="standard")
    shown.print("[red]hello[/]")
    shown.clear()
    assert "\x1b[31mhello" in stream.getvalue() and "\x1b[2J" in stream.getvalue()


def test_no_identifier_is_cut_and_columns_that_find_no_room_are_named() -> None:
    name = f"chatcmpl-{'0123456789abcdef' * 2}"
    table = Listing("turn", "kind", "figure", "words", least=("kind",))
    table.add_row(name, "main turn", "4", "some words and a longword_" + "x" * 40)
    for width in (200, 80, 60, 40):
        stream = io.StringIO()
        Terminal(file=stream, force_terminal=True, color_system=None, width=width).print(table)
        lines = stream.getvalue().splitlines()
        assert all(len(line) <= width for line in lines) and "…" not in stream.getvalue()
        assert any(name in line for line in lines) is (width >= 80)
        assert ("too narrow for: kind" in stream.getvalue()) is (width < 80)
        cells = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
        assert "".join(cells) == name


def test_what_is_no_terminal_has_room_for_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = io.StringIO()
    Terminal(file=stream).print("word " * 100)
    assert stream.getvalue().count("\n") == 1
    stream.truncate(0)
    monkeypatch.setenv("COLUMNS", "80")
    Terminal(file=stream).print("word " * 100)
    assert stream.getvalue().count("\n") > 1
