"""Images, sound and other media in messages: their data only, never the address of a server.

An engine, and litellm for some providers, would fetch an address from inside the operator's network: a router's page,
a cloud's metadata service. So nothing is fetched for a client, whatever the engine could do.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.chat_fields import check

ABSENT = msgspec.Raw(b"")
MAX_DEPTH = 8
MAX_VALUES = 10_000
_ADDRESS_GIVEN = "got an address, expected `data:…`; nothing is fetched here, send the data itself"
_ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Part(msgspec.Struct, gc=False):
    """A part of a message's content: the fields in which vLLM or litellm take an address, as JSON text."""

    image_url: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    file: msgspec.Raw = ABSENT
    source: msgspec.Raw = ABSENT


def check_parts(parts: Iterable[Part | str], place: str, seen: Iterator[int]) -> None:
    """Raises RequestError for an address in one of the `parts`. `seen` counts the values in a request's media."""
    for at, part in enumerate(parts):
        if part == _PLAIN or isinstance(part, str):
            continue
        for name in part.__struct_fields__:
            if (text := getattr(part, name)) != ABSENT:
                param = f"{place}[{at}].{name}"
                fault = _fault(check(param, text, _any), _is_address(name), 0, seen)
                if fault is not None:
                    param += fault[0]
                    raise RequestError(f"{param}: {fault[1]}", param=param, code=fault[2])


def check_address(address: str, place: str) -> None:
    """Raises RequestError unless `address` holds the data itself."""
    if not _holds_data(address):
        raise RequestError(f"{place}: {_ADDRESS_GIVEN}", param=place, code="unsupported")


def _fault(value: Any, is_address: bool, depth: int, seen: Iterator[int]) -> tuple[str, str, str] | None:
    """What is wrong with a value of a part: the place in it, the reason, and the code. None if nothing is."""
    if next(seen) >= MAX_VALUES:
        return "", f"a request's media hold more than {MAX_VALUES:,} values", "invalid_value"
    if isinstance(value, str):
        is_fetched = (is_address or _ADDRESS.match(value)) and not _holds_data(value)
        return ("", _ADDRESS_GIVEN, "unsupported") if is_fetched else None
    if not isinstance(value, dict | list):
        return None
    if depth == MAX_DEPTH:
        return "", "nested too deeply", "invalid_value"
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    for at, each in inner:
        is_name = isinstance(at, str)
        fault = _fault(each, _is_address(at) if is_name else is_address, depth + 1, seen)
        if fault is not None:
            return f".{at}{fault[0]}" if is_name else f"[{at}]{fault[0]}", fault[1], fault[2]
    return None


def _holds_data(address: str) -> bool:
    return address[:5].lower() == "data:"


def _is_address(name: str) -> bool:
    return name == "url" or name.endswith("_url")


_PLAIN = Part()
_any = msgspec.json.Decoder(Any)
