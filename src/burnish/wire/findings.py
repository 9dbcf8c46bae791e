"""What in a text looks like personal data or a secret: where it is, and the word that takes its place.

Patterns find e-mail addresses, phone numbers with a country code, card numbers, IBANs, US social security numbers,
public IP addresses and secrets. Nothing finds names.

Guarantee: a text costs little, whatever stands in it. A pattern reads a window of the text only if a quick look at the
bytes of the text, and then at those of the window, says that it may find something there. What the patterns read is
bounded for each call (`BUDGET`). When that is used up, further windows in which something may be are replaced as a
whole. What is found depends on what comes before it and on nothing else, so a conversation that goes on is redacted as
before.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

WINDOW = 4096
"""Characters that one quick look covers."""
REACH = 128
"""Most characters of a finding, other than a secret or an address. A quick look goes so far beyond its window."""
LONGEST = 16_384
"""Most characters of a secret."""
BUDGET = 2**18
"""What patterns may read in one call: a character costs 1, each candidate `EACH`."""
EACH = 64
UNCHECKED = "unchecked"


class Finding(NamedTuple):
    """Characters from `start` to `end` of the text, and what they look like."""

    start: int
    end: int
    kind: str


class _View(NamedTuple):
    """A window's bytes, one for each character. `shape` has 0 for a digit, A for a capital, a for another letter, and x
    for the rest, apart from separators. `plain` is the shape without separators.
    """

    latin: bytes
    shape: bytes
    plain: bytes


class _Kind(NamedTuple):
    """A kind of finding. `look` says at how many places of a window the pattern may begin. `search` gives the findings
    that begin between two places of a text; a candidate that fails its check is (0, 0). `reads_all`: the pattern reads
    every character of the window.
    """

    name: str
    look: Callable[[_View], int]
    search: Callable[[str, int, int], Iterator[tuple[int, int]]]
    reads_all: bool = True


def findings(text: str) -> list[Finding]:
    """The findings in `text`, in their order. None overlaps another."""
    found: list[Finding] = []
    left = BUDGET
    latin = text.encode("latin-1", "replace")
    shape = latin.translate(_SHAPE)
    whole = _view(latin, shape)
    kinds = [kind for kind in _KINDS if kind.look(whole)]
    for start in range(0, len(text), WINDOW) if kinds else ():
        end = min(start + WINDOW, len(text))
        view = _view(latin[start : end + REACH], shape[start : end + REACH])
        for kind in kinds:
            n_places = kind.look(view)
            if not n_places:
                continue
            left -= end - start if kind.reads_all else _PLACE * n_places
            if left < 0:
                found.append(Finding(start, end, UNCHECKED))
                break
            here = list(kind.search(text, start, end))
            left -= EACH * len(here)
            found += [Finding(*place, kind.name) for place in here if place[1]]
    return _merged(found) if found else found


def _view(latin: bytes, shape: bytes) -> _View:
    return _View(latin, shape, shape.translate(None, _SEPARATORS))


def _merged(found: list[Finding]) -> list[Finding]:
    """In order. Of findings that overlap the first gives its name to all."""
    merged: list[Finding] = []
    for each in sorted(found, key=lambda finding: (finding.start, -finding.end)):
        if merged and each.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(each.end, merged[-1].end))
        else:
            merged.append(each)
    return merged


_PLACE = 8
_GITHUB, _ALIKE = b"ghp_", bytes.maketrans(b"ousr", b"pppp")
"""GitHub's tokens begin with gh, one of five letters, and _."""
_SEPARATORS = b" ./()-\\"
_CLASSES = {
    **dict.fromkeys(b"0123456789", "0"),
    **dict.fromkeys(range(65, 91), "A"),
    **dict.fromkeys(range(97, 123), "a"),
}
_SHAPE = bytes(
    ord(_CLASSES[code]) if code in _CLASSES else code if code in b"+" + _SEPARATORS else ord("x") for code in range(256)
)
_LOCAL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.%+-"
_DOMAIN = re.compile(r"@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,7}")


def _addresses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _DOMAIN.finditer(text, start, end + LONGEST):
        at = match.start()
        if at >= end:
            return
        before = text[max(0, at - 65) : at]
        n_local = len(before) - len(before.rstrip(_LOCAL))
        yield (at - n_local, match.end()) if 1 <= n_local <= 64 else (0, 0)


def _matching(
    pattern: str, is_meant: Callable[[str], bool] | None = None, reach: int = REACH
) -> Callable[[str, int, int], Iterator[tuple[int, int]]]:
    compiled = re.compile(pattern, re.ASCII)

    def search(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        for match in compiled.finditer(text, start, end + reach):
            if match.start() >= end:
                return
            yield match.span() if is_meant is None or is_meant(match[0]) else (0, 0)

    return search


def _beginning(literal: bytes, pattern: str) -> _Kind:
    """A secret that begins with `literal`, as `pattern` does."""

    def look(view: _View) -> int:
        return view.latin.count(literal) if literal != _GITHUB else view.latin.translate(_ALIKE).count(literal)

    return _Kind("secret", look, _matching(pattern, None, LONGEST), reads_all=False)


def _iban_like(view: _View) -> int:
    return b"AA00" in view.plain and b"0" * 12 in view.plain.replace(b"A", b"0")


def _phone_like(view: _View) -> int:
    return b"+00000000" in view.plain or (b"0" * 10 in view.plain and b"00" in view.latin)


def _ip_like(view: _View) -> int:
    return b"0.0" in view.shape and b"0.0.0.0" in view.shape.replace(b"000", b"0").replace(b"00", b"0")


def _is_card(text: str) -> bool:
    """Luhn's check."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = (2 * each - 9 * (each > 4) for each in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """ISO 13616's check."""
    plain = text.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1


def _is_phone(text: str) -> bool:
    return 8 <= sum(each.isdigit() for each in text) <= 17


def _is_public(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_global
    except ValueError:
        return False


_KINDS = (
    _Kind("email", lambda view: view.latin.count(b"@"), _addresses, reads_all=False),
    _beginning(b"sk-", r"sk-(?<![\w-]sk-)[\w-]{16,200}(?![\w-])"),
    _beginning(_GITHUB, r"gh(?<![\w-]gh)[pousr]_[A-Za-z0-9]{36,255}(?![\w-])"),
    _beginning(b"AKIA", r"AKIA(?<![\w-]AKIA)[A-Z0-9]{16}(?![\w-])"),
    _beginning(b"xox", r"xox(?<![\w-]xox)[abprs]-[A-Za-z0-9-]{10,200}(?![\w-])"),
    _beginning(b"eyJ", r"eyJ(?<![\w-]eyJ)[\w-]{8,2000}\.[\w-]{8,4000}\.[\w-]{8,1000}(?![\w-])"),
    _beginning(
        b"-----BEGIN",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s]{0,8000}(?:-----END [A-Z ]{0,30}KEY-----)?",
    ),
    _Kind(
        "iban",
        _iban_like,
        _matching(r"(?<![\w])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)", _is_iban),
    ),
    _Kind(
        "phone",
        _phone_like,
        _matching(r"(?<![\w+])(?:\+[1-9]\d{0,2}(?:[ ./-]?\(?\d{1,5}\)?){2,5}|00[1-9]\d{7,13})(?!\w)", _is_phone),
    ),
    _Kind(
        "card",
        lambda view: b"0" * 13 in view.plain,
        _matching(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])", _is_card),
    ),
    _Kind("ssn", lambda view: b"000-00-0000" in view.shape, _matching(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])")),
    _Kind("ip", _ip_like, _matching(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]\d)", _is_public)),
)
