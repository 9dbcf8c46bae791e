"""Stored texts: the digest of a message is the same whichever way its text was made."""

import hashlib
import json
import math

import pytest

from burnish.journal.blobs import text_of
from burnish.segments.texts import READ

TEXTS = ("", "plain", 'quo"te \\ / \n\t\x00', "Größe 漢字 \U0001f600", "half \ud800", "\u2028")


@pytest.mark.parametrize("content", [*TEXTS, None, [{"type": "text", "text": "a"}], {"b": 1, "a": 2}])
@pytest.mark.parametrize("also", [{}, {"name": "ann"}, {"tool_calls": []}])
def test_a_message_is_stored_as_sorted_ascii_json(content: object, also: dict[str, object]) -> None:
    message = {"role": "user", "content": content, **also}
    body = json.dumps(message, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    assert text_of(message) == (hashlib.sha256(body.encode()).hexdigest(), body)


@pytest.mark.parametrize("value", [{"role": "user", "parts": 1}, {"content": "a", "role": None}, [], ["ab", "cd"], {}])
def test_other_values_are_stored_alike(value: object) -> None:
    assert text_of(value)[1] == json.dumps(value, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [*(json.dumps({"content": each, "role": "user"}) for each in TEXTS), '{"a": 1e400}', "[1, 2.50, -0, 1E5]"],
)
def test_a_text_is_parsed_as_json_says(text: str) -> None:
    found = READ.of(text.encode())
    assert json.dumps(found) == json.dumps(json.loads(text))


def test_a_number_that_is_none_is_kept() -> None:
    assert math.isnan(READ.of(b'{"a": NaN}')["a"])


@pytest.mark.parametrize("text", [b"{", b'"\xff"', b""])
def test_a_text_that_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        READ.of(text)
