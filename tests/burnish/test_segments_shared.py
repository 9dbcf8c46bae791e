"""Segments store the common part of a conversation's requests once, and return every record unchanged."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import SegmentError
from burnish.records import Interaction
from burnish.segments.file import SHARED, SegmentWriter, read
from burnish.segments.prefixes import STEP, marks_of, n_alike
from tests.factories import interaction, user

TOOLS = ({"type": "function", "function": {"name": "t", "description": "d" * 3 * STEP}},)


def said(seed: int, n_messages: int) -> list[dict[str, Any]]:
    """A conversation's first messages of about 1 KB each."""
    noise = random.Random(seed)
    return [user(f"{i} " + noise.randbytes(500).hex()) for i in range(n_messages)]


def written(folder: Path, records: list[Interaction], **options: Any) -> list[Path]:
    writer = SegmentWriter(folder, **options)
    assert all(writer.append(record) for record in records)
    writer.close()
    return sorted(folder.glob("*.seg"))


def found(paths: list[Path]) -> list[Any]:
    return [record for path in paths for record, _ in read(path)]


def test_a_growing_conversation_is_written_once(tmp_path: Path) -> None:
    records = [interaction(said(1, 90 + 2 * turn), f"answer {turn}") for turn in range(8)]
    (path,) = written(tmp_path, records)
    assert found([path]) == records
    assert path.stat().st_size < 2 * 90 * 1024  # eight times 90 KB without sharing


def test_what_grew_by_much_is_written_whole_and_shared_with_from_then_on(tmp_path: Path) -> None:
    records = [interaction(said(1, n), "a") for n in (40, 42, 100, 102, 104)]
    (path,) = written(tmp_path, records)
    assert found([path]) == records
    assert path.read_bytes().count(SHARED) == 3


def test_tools_are_shared_by_conversations_that_have_nothing_else_in_common(tmp_path: Path) -> None:
    records = [interaction(said(seed, 1), "a", tools=TOOLS) for seed in range(5)]
    (path,) = written(tmp_path, records)
    assert found([path]) == records
    assert path.stat().st_size < 2 * 3 * STEP


def test_each_of_many_conversations_finds_its_own_beginning(tmp_path: Path) -> None:
    """They share a long head and differ after it."""
    head = said(0, 60)
    records = [interaction(head + said(seed, 40 + turn), "a") for turn in range(3) for seed in (1, 2, 3)]
    (path,) = written(tmp_path, records)
    assert found([path]) == records
    assert path.read_bytes().count(SHARED) == 6


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.booleans()), max_size=12))
def test_edited_cut_and_repeated_histories_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int, bool]]
) -> None:
    records = []
    for seed, n_messages, is_edited in requests:
        messages = said(seed, n_messages)
        if is_edited and messages:
            messages[n_messages // 2] = user("something else, höchst \ud83d")
        records.append(interaction(messages, "a"))
    assert found(written(tmp_path_factory.mktemp("edited"), records)) == records


def test_reading_goes_on_behind_what_is_shared(tmp_path: Path) -> None:
    records = [interaction(said(1, 50 + turn), "a") for turn in range(3)]
    (path,) = written(tmp_path, records)
    offsets = [behind for _, behind in read(path)]
    assert [record for record, _ in read(path, offsets[1])] == records[2:]
    assert offsets[-1] == path.stat().st_size


def test_a_new_file_shares_nothing_with_the_one_before(tmp_path: Path) -> None:
    records = [interaction(said(1, 50 + turn), "a") for turn in range(5)]
    paths = written(tmp_path, records, max_bytes=80 * 1024)
    assert len(paths) > 1
    assert found(paths) == records
    for path in paths:  # each of them can be read, and removed, alone
        assert path.read_bytes()[:4] != SHARED


def test_damage_to_what_is_shared_is_noticed_by_whoever_shares_it(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [interaction(said(1, 50 + turn), "a") for turn in range(2)])
    second = next(read(path))[1]
    data = bytearray(path.read_bytes())
    data[5000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SegmentError, match=f"at {second}: checksum"):
        list(read(path, second))


def test_a_place_that_cannot_be_is_damage(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [interaction(said(1, 50 + turn), "a") for turn in range(2)])
    second = next(read(path))[1]
    for at in (second + 12 + 7, second + 12 + 11):  # the highest bytes of its offset and of its length
        data = bytearray(path.read_bytes())
        data[at] = 0xFF
        damaged = tmp_path / "damaged.seg"
        damaged.write_bytes(data)
        with pytest.raises(SegmentError, match=f"at {second}: checksum"):
            list(read(damaged))


def test_a_torn_frame_ends_the_file_quietly(tmp_path: Path) -> None:
    records = [interaction(said(1, 50 + turn), "a") for turn in range(2)]
    (path,) = written(tmp_path, records)
    whole = path.read_bytes()
    second = next(read(path))[1]
    for cut in (second + 4, second + 20, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert found([path]) == records[:1]


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_n_alike_is_the_length_of_the_common_beginning(head: bytes, one: bytes, other: bytes) -> None:
    one, other = head + one, head + other
    n = n_alike(one, other)
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


def test_marks_stand_at_every_step() -> None:
    text = random.Random(0).randbytes(3 * STEP + 5)
    assert [end for end, _ in marks_of(text)] == [STEP, 2 * STEP, 3 * STEP]
    assert marks_of(text[: 2 * STEP]) == marks_of(text)[:2]
    assert marks_of(b"x" + text[1:])[0] != marks_of(text)[0]
