"""Redaction: what looks like personal data or a secret is replaced in a record before it is stored.

Equal texts at equal places become equal texts, so conversations are still linked. A redacted turn keeps no tokens,
because they would spell out the text, and never trains.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from burnish.records import Feedback, Interaction, Message
from burnish.wire.findings import UNCHECKED, Finding, findings

REDACTED = "redacted"
_BREAK = "\x1f"
"""Between two texts of a record. No pattern reads across it."""
_IMAGE = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,80};base64,[A-Za-z0-9+/=_-]*", re.ASCII)
_UNSAID = {"role": "user", "content": f"[{UNCHECKED}]"}


def redact(text: str) -> str:
    """`text` with a word in brackets in place of each finding."""
    clean = _cleaned([text])
    return text if clean is None else str(clean[0])


def redacted_message(message: Message) -> Message:
    """`message` without findings. The same object if there is none. One that is too deep is not kept."""
    try:
        clean = _cleaned([message])
    except RecursionError:
        return _UNSAID | {"role": str(message.get("role", ""))}
    return message if clean is None else clean[0]


def redacted(record: Interaction | Feedback) -> Interaction | Feedback:
    """`record` without findings. The same object if there is none.

    A right reply with a finding is left out of feedback, because it would be learned word by word. A tree that is too
    deep to be looked through is not kept.
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
    comment = record.remark["comment"] if record.remark is not None else None
    n = len(record.messages)
    try:  # in the next request the reply follows the messages
        made = _cleaned([*record.messages, record.reply, *record.tools, comment])
    except RecursionError:
        return unsaid(record)
    if made is None:
        return record
    remark = record.remark if record.remark is None else {**record.remark, "comment": made[-1]}
    return _without_tokens(record, messages=made[:n], reply=made[n], tools=tuple(made[n + 1 : -1]), remark=remark)


def unsaid(record: Interaction) -> Interaction:
    """`record` without its messages and tools, which are too many to be looked through."""
    return _without_tokens(record, messages=[_UNSAID], tools=(), reply=(_cleaned([record.reply]) or [record.reply])[0])


def _without_tokens(record: Interaction, **changes: Any) -> Interaction:
    no_ids, no_logprobs = array("i"), array("f")
    tokens: dict[str, Any] = {"prompt_ids": no_ids, "token_ids": no_ids, "logprobs": no_logprobs}
    return replace(record, **{**changes, **tokens}, quarantine=record.quarantine or REDACTED)


def _cleaned(values: Sequence[Any]) -> list[Any] | None:
    """The values, those with a finding made anew without it. None if there is no finding."""
    texts: list[str] = []
    ends = [_collect(value, texts) for value in values]
    found = findings(_BREAK.join(texts))
    if not found:
        return None
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    found_ends = [finding.end for finding in found]

    def clean(place: int) -> str:
        first = bisect_right(found_ends, starts[place])
        return _replaced(texts[place], starts[place], found[first : bisect_right(found_ends, starts[place + 1]) + 1])

    made: list[Any] = []
    for value, first, last in zip(values, [0, *ends], ends, strict=False):
        some = bisect_right(found_ends, starts[first])
        is_found = first < last and some < len(found) and found[some].start < starts[last]
        made.append(_rebuilt(value, map(clean, range(first, last))) if is_found else value)
    return made


def _replaced(text: str, begin: int, found: Sequence[Finding]) -> str:
    """`text`, which begins at `begin`, with a word in place of each finding in it."""
    pieces: list[str] = []
    at, end = begin, begin + len(text)
    for each in found:
        if each.start < end and at < end:
            pieces += [text[at - begin : max(at, each.start) - begin], f"[{each.kind}]"]
            at = min(each.end, end)
    return "".join([*pieces, text[at - begin :]]) if pieces else text


def _collect(value: Any, texts: list[str]) -> int:
    """Add the texts in a tree to `texts`, in its order. Images are none. Returns how many there are now."""
    if isinstance(value, str):
        if not _is_image(value):
            texts.append(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            _collect(each, texts)
    elif isinstance(value, list | tuple):
        for each in value:
            _collect(each, texts)
    return len(texts)


def _rebuilt(value: Any, texts: Iterator[str]) -> Any:
    """The tree with other texts, in the order of `_collect`."""
    if isinstance(value, str):
        return value if _is_image(value) else next(texts)
    if isinstance(value, Mapping):
        return {name: _rebuilt(each, texts) for name, each in value.items()}
    return [_rebuilt(each, texts) for each in value] if isinstance(value, list | tuple) else value


def _is_image(text: str) -> bool:
    return text.startswith("data:") and _IMAGE.fullmatch(text) is not None
