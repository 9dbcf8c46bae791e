"""Segments go when they are filed; what cannot be read is set aside; clocks and file limits stop nobody."""

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from isal.isal_zlib import crc32

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, SegmentRow
from burnish.records import Interaction
from burnish.segments.file import SegmentWriter, read
from burnish.segments.frames import COUNTS, HEADER, encode
from burnish.server.ingest.ingester import Ingester
from tests.factories import interaction, user
from tests.server.ingest.pen import FOREVER, Pen, follow, ingest, parents

HOUR = 3600.0


def turn(name: str, **changes: Any) -> Interaction:
    return interaction([user(f"{name}?")], interaction_id=name, started_at=999.0, ended_at=1000.0, **changes)


def filed(journal: Journal) -> list[str]:
    with journal.read() as session:
        return sorted(row.interaction_id for row in session.query(InteractionRow).all())


def rows(journal: Journal) -> list[str]:
    with journal.read() as session:
        return sorted(row.name for row in session.query(SegmentRow).all())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.seg"))


def make_old(folder: Path) -> None:
    for path in folder.glob("*.seg"):
        os.utime(path, (time.time() - 2 * HOUR,) * 2)


def look(ingester: Ingester) -> int:
    """A look with a sweep, which is otherwise due once a minute."""
    ingester._next_sweep = 0.0
    return ingester.run_once()


def unknown_field(name: str) -> bytes:
    """A whole frame as a later Burnish may write it."""
    payload = encode(turn(name))[HEADER.size :]
    n_head, *counts = COUNTS.unpack_from(payload)
    head = json.loads(payload[COUNTS.size : COUNTS.size + n_head]) | {"mood": "good"}
    text = json.dumps(head).encode()
    payload = COUNTS.pack(len(text), *counts) + text + payload[COUNTS.size + n_head :]
    return HEADER.pack(b"BRN1", len(payload), crc32(payload)) + payload


@pytest.fixture
def ingester(any_journal: Journal, pen: Pen) -> Ingester:
    return Ingester(any_journal, pen.folder, session_timeout=FOREVER)


def test_a_filed_segment_goes_after_its_grace_time_but_never_under_its_writer(
    any_journal: Journal, pen: Pen, ingester: Ingester
) -> None:
    writer = SegmentWriter(pen.folder, max_bytes=1)
    for name in ("a", "b", "c"):
        writer.append(turn(name))
    before = names(pen.folder)
    assert (look(ingester), names(pen.folder), len(before)) == (3, before, 3)
    make_old(pen.folder)
    look(ingester)
    assert names(pen.folder) == rows(any_journal) == before[2:]
    writer._max_bytes = 2**20
    writer.append(turn("d"))
    make_old(pen.folder)
    assert (look(ingester), names(pen.folder)) == (1, before[2:])
    writer.close()
    look(ingester)
    assert (names(pen.folder), rows(any_journal), filed(any_journal)) == ([], [], ["a", "b", "c", "d"])
    assert not (pen.folder / "aside").exists()


def test_records_are_on_the_disk_before_their_segment_goes(
    any_journal: Journal, pen: Pen, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pen.write(turn("a"))
    look(ingester)
    make_old(pen.folder)

    def power_fails() -> None:
        raise OSError("no power")

    monkeypatch.setattr(any_journal, "sync", power_fails)
    with pytest.raises(OSError, match="no power"):
        look(ingester)
    assert names(pen.folder) == ["a.seg"]
    monkeypatch.undo()
    look(ingester)
    assert names(pen.folder) == []


def test_a_segment_that_is_not_read_yet_stays(
    any_journal: Journal, pen: Pen, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pen.write(turn("a"))
    make_old(pen.folder)
    ingester._folder.remove_filed()
    assert names(pen.folder) == ["a.seg"]
    look(ingester)
    assert (names(pen.folder), filed(any_journal)) == ([], ["a"])


def test_a_record_that_nobody_can_read_is_set_aside_and_can_be_put_back(
    any_journal: Journal, pen: Pen, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of a later Burnish after a return to this one."""
    (pen.folder / "a.seg").write_bytes(encode(turn("a")) + unknown_field("b") + encode(turn("c")))
    look(ingester)
    assert filed(any_journal) == ["a", "c"]
    make_old(pen.folder)
    look(ingester)
    aside = pen.folder / "aside" / "records-a.seg"
    assert (names(pen.folder), [record for record, _ in read(aside)]) == ([], [None])
    monkeypatch.setattr("burnish.segments.file.decode", lambda _: turn("b"))  # the later Burnish again
    aside.rename(pen.folder / "again.seg")
    look(ingester)
    assert filed(any_journal) == ["a", "b", "c"]


def test_a_record_that_cannot_be_stored_is_set_aside_as_it_was_written(
    any_journal: Journal, pen: Pen, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = turn("a", tools=({"type": "function", "description": "x" * 40_000},))
    writer = SegmentWriter(pen.folder)
    for each in (first, turn("b", tools=first.tools)):  # the second one shares the first one's beginning
        writer.append(each)
    writer.close()
    take = ingester._filing.take_interaction

    def fails_for_b(session: Any, given: Any) -> None:
        if given.turn.interaction_id == "b":
            raise ValueError("no")
        take(session, given)

    monkeypatch.setattr(ingester._filing, "take_interaction", fails_for_b)
    look(ingester)
    (aside,) = (pen.folder / "aside").iterdir()
    (kept,) = [record for record, _ in read(aside)]
    assert isinstance(kept, Interaction)
    assert (kept.interaction_id, list(kept.tools)) == ("b", list(first.tools))


@pytest.mark.parametrize("tail", [b"BRN1 and no frame", encode(turn("x"))[:-3]])
def test_a_segment_with_something_else_at_its_end_is_set_aside_whole(
    any_journal: Journal, pen: Pen, ingester: Ingester, tail: bytes
) -> None:
    whole = encode(turn("a")) + tail
    (pen.folder / "a.seg").write_bytes(whole)
    look(ingester)
    assert names(pen.folder) == ["a.seg"]  # its writer may be at it
    make_old(pen.folder)
    look(ingester)
    assert (names(pen.folder), rows(any_journal), filed(any_journal)) == ([], [], ["a"])
    assert (pen.folder / "aside" / "a.seg").read_bytes() == whole


def test_a_look_at_nothing_new_asks_the_journal_nothing(
    journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingester = Ingester(journal, pen.folder, session_timeout=FOREVER)
    pen.write(turn("a"))
    assert ingester.run_once() == 1
    monkeypatch.setattr(Journal, "read", None)
    monkeypatch.setattr(Journal, "write", None)
    assert ingester.run_once() == 0
    monkeypatch.undo()
    pen.write(turn("b"), gateway="b")
    assert ingester.run_once() == 1


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 150, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("stamp", ["gateway{:03d}", "{:020d}-7-0"])
def test_more_segments_than_a_process_may_open(journal: Journal, pen: Pen, stamp: str) -> None:
    """One conversation, each turn in a segment of its own, as a gateway that keeps dying leaves them."""
    said = pen.say([user("0?")], "0", interaction_id="turn-000", gateway=stamp.format(0))
    for i in range(1, 300):
        name = stamp.format(int((1000.0 + i) * 1e9) if "020" in stamp else i)
        said = pen.say(follow(said, user(f"{i}?")), f"{i}", interaction_id=f"turn-{i:03d}", gateway=name)
    assert ingest(journal, pen) == 300
    expected: list[str | None] = [None, *(f"turn-{i:03d}" for i in range(299))]
    assert [parent for _, parent in sorted(parents(journal).items())] == expected


def test_a_record_of_a_clock_that_was_ahead_stops_nobody(any_journal: Journal, pen: Pen) -> None:
    said = pen.say([user("hi")], "hello", interaction_id="a", ended_at=time.time() + HOUR)
    pen.say(follow(said, user("more")), "and more", interaction_id="b")
    assert ingest(any_journal, pen) == 2
    assert parents(any_journal) == {"a": None, "b": "a"}
