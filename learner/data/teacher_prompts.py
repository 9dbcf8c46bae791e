"""The teacher's prompt: the engine's own prompt ids with a hint inserted and nothing else changed.

The chat template is rendered twice, without and with the hint. The ids before the first difference are the engine's,
and only the rest comes from the rendered text. If the engine's prompt does not end like our rendering (other template
arguments, a template that drops the hint), there is no teacher's prompt, because distilling from it would teach the
template.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish.records import IntArray, Message

_BLOCK = "\n\n(Hint: {hint})"
_NEUTRAL = (
    "answer",
    "this",
    "message",
    "just",
    "as",
    "you",
    "would",
    "answer",
    "any",
    "other",
    "message",
    "of",
    "this",
    "kind",
)


def with_hint(messages: Sequence[Mapping[str, Any]], hint: str) -> list[dict[str, Any]]:
    """A copy of `messages` with `hint` at the end of the last user message.

    Content may be a string or a list of parts (a text part is appended). Raises ValueError if there is no user message.
    """
    extended = [dict(message) for message in messages]
    block = _BLOCK.format(hint=hint)
    for message in reversed(extended):
        if message.get("role") == "user":
            content = message.get("content") or ""
            message["content"] = (
                [*content, {"type": "text", "text": block}] if isinstance(content, list) else content + block
            )
            return extended
    raise ValueError("a hint must follow a user message, but the conversation has none")


def neutral(hint: str) -> str:
    """A neutral hint with as many words as `hint`. It shows what any hint at all changes."""
    n_words = max(1, len(hint.split()))
    words = " ".join(_NEUTRAL[i % len(_NEUTRAL)] for i in range(n_words))
    return words[0].upper() + words[1:] + "."


_CONTEXT = 16
"""Ids before the change that must agree with the engine's too."""
_MAX_REPLY = 4096


def hinted_prompt(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    hint: str,
    prompt_ids: Sequence[int],
) -> "IntArray | None":
    """`prompt_ids` with `hint` after the last user message. None if it cannot be inserted faithfully."""
    try:
        changed = with_hint(messages, hint)
    except ValueError:
        return None
    return changed_prompt(tokenizer, messages, changed, tools, prompt_ids)


def changed_prompt(
    tokenizer: Any,
    messages: Sequence[Message],
    changed: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    prompt_ids: Sequence[int],
) -> "IntArray | None":
    """`prompt_ids` of `messages` as they would be for `changed`. None if that cannot be made faithfully."""
    try:
        plain = render(tokenizer, messages, tools)
        other = render(tokenizer, changed, tools)
    except Exception:  # a template may raise anything of its own (Jinja), and a row is not worth a step
        return None
    change = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), None)
    if change is None or not _ends_alike(prompt_ids, plain, change):
        return None
    return array("i", [*prompt_ids[: len(prompt_ids) - (len(plain) - change)], *other[change:]])


def right_reply(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    text: str,
    prompt_ids: Sequence[int],
) -> "IntArray | None":
    """Ids of `text` as the reply to `messages`, with the token that ends a reply. None if the template does not allow
    it.

    The prompt has to match the engine's, and the reply has to end as replies end. None for a reply of more than 4,096
    tokens.
    """
    try:
        plain = render(tokenizer, messages, tools)
        whole = render(tokenizer, [*messages, {"role": "assistant", "content": text}], tools, is_open=False)
    except Exception:  # as above: an error in a template is not worth a step
        return None
    begins = len(plain)
    if whole[:begins] != plain or not _ends_alike(prompt_ids, plain, begins):
        return None
    ends = reply_ends(tokenizer)
    end = next((i for i in range(begins, len(whole)) if whole[i] in ends), None)
    # an end token first is an empty reply: nothing to learn from
    return array("i", whole[begins : end + 1]) if end is not None and begins < end <= begins + _MAX_REPLY else None


def reply_ends(tokenizer: Any) -> frozenset[int]:
    """Ids at which vLLM ends a reply: the tokenizer's end token, and those of the model's generation_config.json.

    Gemma's tokenizer, for example, names the end of a document, and its replies end with another token.
    """
    own = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    return frozenset((*own, *_configured_ends(str(tokenizer.name_or_path))))


@lru_cache(maxsize=64)
def _configured_ends(directory: str) -> tuple[int, ...]:
    try:
        found = json.loads((Path(directory) / "generation_config.json").read_bytes()).get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return ()
    return tuple(i for i in (found if isinstance(found, list) else [found]) if isinstance(i, int))


def learns_right_replies(tokenizer: Any) -> bool:
    """False if the chat template ends a reply with a token at which the engine would go on."""
    question: list[Message] = [{"role": "user", "content": "1"}]
    try:
        ids = render(tokenizer, question, ())
    except Exception:  # as above
        return False
    return right_reply(tokenizer, question, (), "1", ids) is not None


def _ends_alike(prompt_ids: Sequence[int], plain: Sequence[int], change: int) -> bool:
    """True if the engine's prompt ends like our rendering `plain`, from a little before the `change` on."""
    tail = list(plain[max(0, change - _CONTEXT) :])
    return list(prompt_ids[-len(tail) :]) == tail


def render(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, is_open: bool = True
) -> list[int]:
    """Ids of the conversation, as vLLM's chat route makes them. `is_open`: up to where the assistant begins to
    answer."""
    ids = tokenizer.apply_chat_template(
        [_plain(message) for message in messages],
        tools=[dict(tool) for tool in tools] or None,
        add_generation_prompt=is_open,
        tokenize=True,
        return_dict=False,
    )
    return [int(token) for token in ids]


def _plain(message: Message) -> dict[str, Any]:
    """A message as templates expect it: text parts joined by line breaks, tool arguments parsed, as in vLLM."""
    flat = {key: value for key, value in message.items() if value is not None}
    content = flat.get("content")
    if isinstance(content, (list, tuple)):
        flat["content"] = "\n".join(str(part["text"]) for part in content if part.get("type") in ("text", "input_text"))
    elif content is None:
        flat["content"] = ""
    if calls := flat.get("tool_calls"):
        flat["tool_calls"] = [_parsed(call) for call in calls]
    return flat


def _parsed(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}
