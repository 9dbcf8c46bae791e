"""The time for a reply that comes in many pieces grows with their number."""

import time
from collections.abc import Callable

import pytest

from burnish.server.gateway.dialects.responses.custom_tools import Freeform
from burnish.wire.chunks import CallPiece, Function
from burnish.wire.draft import Draft


def call(n: int) -> None:
    draft = Draft(0)
    for _ in range(n):
        draft._add_call(0, CallPiece(0, None, Function(None, "abcd")))
    assert len(draft.message["tool_calls"][0]["function"]["arguments"]) == 4 * n


def blanks(n: int) -> None:
    freeform = Freeform()
    assert not any(freeform.feed("    ") for _ in range(n))
    assert freeform.end() == " " * 4 * n


@pytest.mark.parametrize(("work", "n_pieces"), [(call, 40_000), (blanks, 40_000)])
def test_the_time_for_a_reply_grows_with_its_pieces(work: Callable[[int], None], n_pieces: int) -> None:
    def seconds(n: int) -> float:
        began = time.process_time()
        work(n)
        return time.process_time() - began

    ratios = [seconds(4 * n_pieces) / max(seconds(n_pieces), 0.005) for _ in range(3)]
    assert min(ratios) < 9


def test_an_opening_is_found_in_any_pieces_and_a_late_one_at_the_end() -> None:
    text = ' \n{ "input" : "ls -l"}'
    for size in (1, 2, 5, 100):
        freeform = Freeform()
        fed = "".join(freeform.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert fed + freeform.end() == "ls -l"
    late = Freeform()
    assert "".join(late.feed(piece) for piece in (" " * 400, text[:9], text[9:])) + late.end() == "ls -l"
