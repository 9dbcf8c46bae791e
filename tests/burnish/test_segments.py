"""Segments: round trips, torn tails, damage, full disks."""

import json
import os
import struct
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.errors import SegmentError
from burnish.records import Interaction
from burnish.segments.file import SegmentWriter, read
from burnish.segments.frames import Begun, decode, encode
from tests.factories import feedback, interaction, user

HEADER = 12
RESULT = {"interaction_id", "reply", "ended_at", "finish_reason", "choice", "is_aborted", "quarantine", "stop"}
BEGUN = set(Interaction.__dataclass_fields__) - RESULT - {"prompt_ids", "token_ids", "logprobs", "remark"}


def test_records_come_back_equal(tmp_path: Path) -> None:
    records = [
        interaction([user("hé \ud83d")], "ok", user="ana", quarantine="ids", tools=({"type": "function"},)),
        feedback("chatcmpl-1", -1.0, comment="no bold"),
        interaction([], "", prompt_ids=array("i"), token_ids=array("i"), logprobs=array("f")),
        interaction([user("a")], traceparent=f"00-{'a' * 32}-{'b' * 16}-01"),
    ]
    writer = SegmentWriter(tmp_path)
    assert all(writer.append(record) for record in records)
    writer.close()
    (path,) = tmp_path.glob("*.seg")
    assert [record for record, _ in read(path)] == records


def test_a_name_in_a_record_of_before_is_the_clients_word() -> None:
    payload = encode(interaction([user("hi")], "ok", user="ana"))[HEADER:]
    head, *counts = struct.unpack_from("<IIII", payload)
    tree = json.loads(payload[16 : 16 + head])
    del tree["quoted_user"]
    text = json.dumps(tree).encode()
    read_back = decode(struct.pack("<IIII", len(text), *counts) + text + payload[16 + head :])
    assert isinstance(read_back, Interaction)
    assert (read_back.user, read_back.quoted_user) == (None, "ana")


@pytest.mark.parametrize("is_indented", [False, True])
def test_a_record_of_before_traces_has_no_traceparent(is_indented: bool) -> None:
    """In both ways of reading a head: the quick one, and the one for what it cannot read."""
    record = interaction([user("hi")], "ok", traceparent="00-1")
    payload = encode(record)[HEADER:]
    head, *counts = struct.unpack_from("<IIII", payload)
    tree = json.loads(payload[16 : 16 + head])
    assert tree.pop("traceparent") == "00-1"
    text = json.dumps(tree, indent=1 if is_indented else None).encode()
    assert decode(struct.pack("<IIII", len(text), *counts) + text + payload[16 + head :]) == replace(
        record, traceparent=None
    )


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50), st.lists(st.floats(-50, 0, width=32), max_size=50), st.text())
def test_any_tokens_and_text_survive(ids: list[int], logprobs: list[float], text: str) -> None:
    record = interaction([user(text)], text, token_ids=array("i", ids), logprobs=array("f", logprobs))
    assert decode(encode(record)[HEADER:]) == record


ANSWER = {
    "id": "chatcmpl-1",
    "prompt_token_ids": [5, 6],
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hé", "tool_calls": []},
            "finish_reason": "stop",
            "stop_reason": "###",
            "token_ids": [7, 8],
            "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.0}]},
        }
    ],
}


def answered(answer: dict[str, Any], **fields: Any) -> Interaction:
    """The record as read back if it holds an engine's whole answer unchanged."""
    begun = Begun({name: getattr(interaction([user("a")], **fields), name) for name in BEGUN})
    record = decode(b"".join(begun.answered("chatcmpl-1", 2.0, json.dumps(answer).encode()))[HEADER:])
    assert isinstance(record, Interaction)
    return record


def test_an_answer_kept_as_it_stands_is_taken_apart_when_read() -> None:
    row = answered(ANSWER)
    assert (row.interaction_id, row.reply["content"], row.finish_reason, row.stop) == (
        "chatcmpl-1",
        "hé",
        "stop",
        "###",
    )
    assert (list(row.prompt_ids), list(row.token_ids), list(row.logprobs)) == ([5, 6], [7, 8], [-0.5, -1.0])
    assert (row.quarantine, row.is_aborted, row.ended_at) == (None, False, 2.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token_ids": [7]}, "1 token ids but 2 log-probs"),
        ({"token_ids": ["7", "8"]}, "unreadable answer"),
        ({"token_ids": [7, 2**40]}, "out of range"),
        ({"prompt_token_ids": ["5"]}, "unreadable prompt ids"),
        ({"prompt_token_ids": [2**40]}, "unreadable prompt ids"),
        ({"logprobs": {"content": "?"}}, "unreadable answer"),
        ({"logprobs": None}, "2 token ids but 0 log-probs"),
        ({"message": {"role": "assistant", "content": 3}}, "unreadable answer"),
    ],
)
def test_ids_that_nobody_can_read_quarantine_a_reply_and_stop_nobody(changes: dict[str, Any], reason: str) -> None:
    row = answered(ANSWER | {"choices": [ANSWER["choices"][0] | changes]})
    assert reason in (row.quarantine or "")
    assert row.reply["content"] == ("" if "message" in changes else "hé")


def test_an_answer_from_elsewhere_needs_no_ids() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "afar"}, "finish_reason": None}
    row = answered({"id": "x", "choices": [choice]}, upstream="large")
    assert (row.reply["content"], row.quarantine, row.is_aborted) == ("afar", None, True)


def test_a_torn_tail_hides_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.seg"
    whole, torn = encode(interaction([user("a")])), encode(interaction([user("b")]))
    for cut in (1, HEADER - 1, HEADER, len(torn) - 1):
        path.write_bytes(whole + torn[:cut])
        found = list(read(path))
        assert len(found) == 1
        assert found[0][1] == len(whole)


def test_reading_goes_on_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "a.seg"
    first, second = interaction([user("a")]), interaction([user("b")])
    path.write_bytes(encode(first) + encode(second))
    offset = next(read(path))[1]
    assert [record for record, _ in read(path, offset)] == [second]


@pytest.mark.parametrize("position", [0, HEADER + 20])
def test_a_flipped_byte_is_an_error_that_names_the_place(tmp_path: Path, position: int) -> None:
    data = bytearray(encode(interaction([user("a")])))
    data[position] ^= 0xFF
    path = tmp_path / "a.seg"
    path.write_bytes(data)
    with pytest.raises(SegmentError, match=r"a\.seg at 0"):
        list(read(path))


def test_a_new_file_begins_at_the_size_limit(tmp_path: Path) -> None:
    frame = len(encode(interaction([user("a")])))
    writer = SegmentWriter(tmp_path, max_bytes=2 * frame + 50)
    for _ in range(5):
        writer.append(interaction([user("a")]))
    writer.close()
    sizes = [len(list(read(path))) for path in sorted(tmp_path.glob("*.seg"))]
    assert sum(sizes) == 5
    assert len(sizes) == 3


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from burnish.segments.file import SegmentWriter
from tests.factories import interaction, user
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = SegmentWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
results = [writer.append(interaction([user("x" * 500)])) for _ in range(6)]
print(results, writer.n_lost)
"""


def test_a_full_disk_loses_only_what_does_not_fit(tmp_path: Path) -> None:
    """A file-size limit replaces the disk: write() fails half-way through a frame in the same way."""
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True)
    (path,) = tmp_path.glob("*.seg")
    n_kept = len(list(read(path)))
    assert 0 < n_kept < 6
    assert done.stdout.strip() == f"{[True] * n_kept + [False] * (6 - n_kept)} {6 - n_kept}"


def test_the_reserve_is_given_up_before_a_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, reserve_bytes=4096)
    (reserve,) = tmp_path.glob(".reserve-*")
    assert reserve.stat().st_size == 4096
    real_write = os.writev

    def full_until_released(handle: int, data: list[bytes]) -> int:
        if reserve.exists():
            raise OSError(28, "No space left on device")
        return real_write(handle, data)

    monkeypatch.setattr(os, "writev", full_until_released)
    assert writer.append(interaction([user("a")]))
    assert not reserve.exists()
    assert writer.n_lost == 0


def test_two_containers_with_the_same_process_id_have_a_reserve_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    writers = []
    for _ in range(2):
        writers.append(SegmentWriter(tmp_path, reserve_bytes=4096))
    assert len(list(tmp_path.glob(".reserve-*"))) == 2
    for writer in writers:
        writer.close()
    assert list(tmp_path.glob(".reserve-*")) == []


def test_a_killed_process_leaves_its_reserve_to_nobody_for_long(tmp_path: Path) -> None:
    (tmp_path / ".reserve-1-dead").write_bytes(b"\0" * 4096)
    os.utime(tmp_path / ".reserve-1-dead", (0, 0))
    writer = SegmentWriter(tmp_path, reserve_bytes=4096)
    (reserve,) = tmp_path.glob(".reserve-*")
    assert reserve.name != ".reserve-1-dead"
    writer.close()
