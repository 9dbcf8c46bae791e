"""Prompt ids in an engine's answer: read by parts, and the same as if they were read whole."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.wire.prompt_ids import PART, ids_in, n_ids_in
from burnish.wire.recurring import Recurring

IDS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20).flatmap(
    lambda few: st.integers(0, 200).map(lambda n: few * n)
)


@given(IDS, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_ids_are_read_by_parts_as_they_are_written(ids: list[int], separators: tuple[str, str]) -> None:
    text = json.dumps(ids, separators=separators).encode()
    assert list(ids_in(text)) == ids


def test_a_prompt_that_goes_on_is_read_alike() -> None:
    ids = list(range(100_000, 104_000))
    for one, other in pairwise((1000, 2000, 2001, 4000, 500)):
        assert list(ids_in(json.dumps(ids[:one]).encode())) == ids[:one]
        assert list(ids_in(json.dumps(ids[:other]).encode())) == ids[:other]


def test_what_was_read_is_not_changed_by_its_reader() -> None:
    text = json.dumps([7] * PART).encode()
    ids_in(text).extend([8, 9])
    assert list(ids_in(text)) == [7] * PART


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"[ ]"])
def test_no_ids(text: bytes) -> None:
    assert not ids_in(text)
    assert n_ids_in(text) == 0


@pytest.mark.parametrize(("text", "n"), [(b"[0]", 1), (b"[5,6]", 2), (b"[5, 6, 7]", 3), (b"[ 5, 6 ]", 2)])
def test_ids_are_counted(text: bytes, n: int) -> None:
    assert n_ids_in(text) == len(ids_in(text)) == n


LONG = b"1," * PART


@pytest.mark.parametrize(
    "text",
    [b"5", b"{}", b'{"a":[1]}', b"[1.5]", b'["1"]', b"[[1],2]", b"[" + LONG + b"[2],3]", b"[" + LONG + b"true]"],
)
def test_what_is_no_list_of_integers_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        ids_in(text)


@pytest.mark.parametrize("text", [b"[2147483648]", b"[" + LONG + b"-2147483649," + LONG + b"1]"])
def test_an_id_that_does_not_fit_is_refused(text: bytes) -> None:
    with pytest.raises(OverflowError):
        ids_in(text)


def test_what_recurs_is_read_once_and_memory_is_bounded() -> None:
    read: list[bytes] = []

    def note(text: bytes) -> int:
        read.append(text)
        return len(text)

    texts = Recurring(note, most_bytes=200)
    for n in range(100):
        assert texts.of(b"often" * 4) == 20
        assert texts.of(b"%015d" % n) == 15
    assert read.count(b"often" * 4) == 1  # it stays, because it is read again and again
    texts.of(b"%015d" % 0)
    assert read.count(b"%015d" % 0) == 2  # it was forgotten
