"""Redaction: what looks like personal data or a secret is replaced in a record before it is stored.

Patterns find e-mail addresses, phone numbers with a country code, card numbers, IBANs, US social security numbers,
public IP addresses and secrets. Nothing finds names. Each pattern is linear in the length of the text: its parts are
bounded, and it begins only where a word does. Equal texts become equal texts, so conversations are still linked.

A redacted turn keeps no tokens, because they would spell out the text, and never trains.
"""

import ipaddress
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from burnish.records import Feedback, Interaction

REDACTED = "redacted"
_PLACES = [
    ("email", r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    (
        "secret",
        r"(?<![\w-])(?:sk-[\w-]{16,200}|gh[pousr]_[A-Za-z0-9]{36,255}|AKIA[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9-]{10,200}"
        r"|eyJ[\w-]{8,2000}\.[\w-]{8,4000}\.[\w-]{8,1000})(?![\w-])",
    ),
    ("secret", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s]{0,8000}(?:-----END [A-Z ]{0,30}KEY-----)?"),
    ("iban", r"(?<![\w])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"),
    ("phone", r"(?<![\w+])(?:\+[1-9]\d{0,2}(?:[ ./-]?\(?\d{1,5}\)?){2,5}|00[1-9]\d{7,13})(?!\w)"),
    ("card", r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"),
    ("ssn", r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"),
    ("ip", r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]\d)"),
]
_PATTERNS = [(name, re.compile(pattern, re.ASCII)) for name, pattern in _PLACES]
_DIGIT, _HINTS = re.compile(r"\d"), ("@", "sk-", "gh", "AKIA", "xox", "eyJ", "-----BEGIN")


def redact(text: str) -> str:
    """`text` with a word in brackets in place of each finding."""
    if not (_DIGIT.search(text) or any(hint in text for hint in _HINTS)) or text.startswith("data:"):
        return text
    for name, pattern in _PATTERNS:
        text = pattern.sub(_replacing(name), text)
    return text


def redacted(record: Interaction | Feedback) -> Interaction | Feedback:
    """`record` without findings. The same object if there is none.

    A right reply with a finding is left out of feedback, because it would be learned word by word.
    """
    if isinstance(record, Feedback):
        changed: dict[str, Any] = {
            name: clean
            for name in ("comment", "label")
            if (text := getattr(record, name)) and (clean := redact(text)) != text
        }
        for name in ("correction", "demonstration"):
            if (text := getattr(record, name)) and redact(text) != text:
                changed[name] = None
        return replace(record, **changed) if changed else record
    texts: dict[str, Any] = {name: getattr(record, name) for name in ("messages", "tools", "reply")}
    replaced: dict[str, Any] = {name: _walk(value) for name, value in texts.items()}
    if record.remark is not None and (comment := record.remark["comment"]):
        texts["remark"], replaced["remark"] = record.remark, {**record.remark, "comment": redact(comment)}
    if replaced == texts:
        return record
    no_ids, no_logprobs = array("i"), array("f")
    tokens: dict[str, Any] = {"prompt_ids": no_ids, "token_ids": no_ids, "logprobs": no_logprobs}
    return replace(record, **replaced, **tokens, quarantine=record.quarantine or REDACTED)


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _walk(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_walk, value))
    return list(map(_walk, value)) if isinstance(value, list) else value


def _replacing(name: str) -> Callable[[re.Match[str]], str]:
    is_meant = _CHECKS.get(name)
    return lambda match: match[0] if is_meant is not None and not is_meant(match[0]) else f"[{name}]"


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


_CHECKS: dict[str, Callable[[str], bool]] = {
    "card": _is_card,
    "iban": _is_iban,
    "phone": _is_phone,
    "ip": _is_public,
}
