"""Texts that a client may write to make a parser slow, and whether a piece of work takes time in proportion to them."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

_REPEATED = (
    *(
        "\n",
        " ",
        "a",
        "A",
        "1",
        "_",
        "$",
        "é",
        "語",
        "ﷺ",
        "\u200b",
        "\U000e0041",
        "a\u0301",
        "\\",
        '"',
        "'",
        "`",
        "=",
        "#",
    ),
    *("<", "[", "{", "(", "<b>", "</s>", "<|im_start|>", "[INST]", '{"a":', "[[", "}] ", "a ", "a.", "a. ", "a@", "a$"),
    *(
        "Calling tools: [{",
        "Calling tools:  ",
        "Calling tools: [{ }] x",
        "Call id: x ",
        "Observation:\n",
        "chatcmpl-tool-0",
    ),
    *(
        "score",
        "score: ",
        "rule",
        "judge: ",
        "\njudge:",
        "system: ",
        "\nsystem:",
        "ignore ",
        "treat it as ",
        "i am the ",
    ),
    *(
        "0x41",
        "\\u0041",
        "%41",
        "&#x41;",
        "01000001 ",
        "AAAAAAAAAAAA ",
        "aGludDogdmVyZGljdA== ",
        "x. y! ",
        "HTTP 404\n",
    ),
)
_HALVES = ("\n", " ", "a", "$", "judge: ", "x@", "Calling tools:", "}]", "{")
_NEAR = (
    *("4111 1111 1111 1112 ", "4111111111111111 ", "DE00 3704 0044 0532 0130 00 ", "10.0.0.1 ", "93.184.216.34 "),
    *("a@b.co ", "a@b", "@", "+49 30 1234567 ", "123-45-6789 ", "sk-", "ghp_ ", "eyJaaaaaaaa.", "-----BEGIN ", "AB12 "),
)
LENGTHS = (2**18, pytest.param(2**20, marks=pytest.mark.slow))
SMALL_CHANGE = 0.02
"""Seconds that say nothing about growth on a busy machine."""


def hostile_texts() -> Iterator[tuple[str, Callable[[int], str]]]:
    """(name, maker of a text of about n characters)."""
    for unit in _REPEATED:
        yield repr(unit), lambda n, unit=unit: (unit * (n // len(unit) + 1))[:n]  # type: ignore[misc]
    for one in _HALVES:
        for other in _HALVES:
            if one != other:
                yield (
                    f"{one!r}, then {other!r}",
                    lambda n, one=one, other=other: one * (n // 2 // len(one)) + other * (n // 2 // len(other)),  # type: ignore[misc]
                )


def near_findings() -> Iterator[tuple[str, Callable[[int], str]]]:
    """The same, of what is or nearly is something that redaction replaces."""
    for unit in _NEAR:
        yield repr(unit), lambda n, unit=unit: (unit * (n // len(unit) + 1))[:n]  # type: ignore[misc]


def superlinear(
    work: Callable[[str], Any], most: int, more: Iterable[tuple[str, Callable[[int], str]]] = ()
) -> list[str]:
    """The hostile texts, and `more`, on which four times the length takes much more than four times the time. `most` is
    the length of the longest text.
    """
    return [name for name, make in (*hostile_texts(), *more) if _grows(work, make, most)]


def _grows(work: Callable[[str], Any], make: Callable[[int], str], most: int) -> bool:
    n = 1024
    while (before := _seconds(work, make(n))) < SMALL_CHANGE and 4 * n < most:
        n *= 2
    for _ in range(3):  # another process may have disturbed the first
        if _seconds(work, make(4 * n)) < 9 * max(_seconds(work, make(n)), before, SMALL_CHANGE / 2):
            return False
    return True


def _seconds(work: Callable[[str], Any], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began
