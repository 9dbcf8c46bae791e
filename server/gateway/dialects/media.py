"""Images, sound and other media in messages: their data only, never the address of a server.

An engine, and litellm for some providers, would fetch an address from inside the operator's network: a router's page,
a cloud's metadata service. So nothing is fetched for a client, whatever the engine could do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from burnish.errors import RequestError

MAX_DEPTH = 8
_ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Part(msgspec.Struct, gc=False):
    """A part of a message's content: the fields in which vLLM or litellm take an address."""

    image_url: Any = None
    video_url: Any = None
    audio_url: Any = None
    input_audio: Any = None
    file: Any = None
    source: Any = None


def check_parts(parts: Iterable[Part | str], place: str) -> None:
    """Raises RequestError for an address in one of the `parts`."""
    for at, part in enumerate(parts):
        if part == _PLAIN or isinstance(part, str):
            continue
        for name in part.__struct_fields__:
            _check(getattr(part, name), f"{place}[{at}].{name}", _is_address(name), 0)


def check_address(address: str, place: str) -> None:
    """Raises RequestError unless `address` holds the data itself."""
    if address[:5].lower() != "data:":
        raise RequestError(
            f"{place}: got an address, expected `data:…`; nothing is fetched here, send the data itself",
            param=place,
            code="unsupported",
        )


def _check(value: Any, place: str, is_address: bool, depth: int) -> None:
    if isinstance(value, str):
        if is_address or _ADDRESS.match(value):
            check_address(value, place)
    elif depth == MAX_DEPTH:
        raise RequestError(f"{place}: nested too deeply", param=place, code="invalid_value")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _check(inner, f"{place}.{name}", _is_address(name), depth + 1)
    elif isinstance(value, Sequence):
        for at, inner in enumerate(value):
            _check(inner, f"{place}[{at}]", is_address, depth + 1)


def _is_address(name: str) -> bool:
    return name == "url" or name.endswith("_url")


_PLAIN = Part()
