"""vLLM's JSON for text completions, whole and streamed, and for the scoring of a prompt."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from burnish.testing.chat_wire import FINGERPRINT, TAIL, n_prompt, n_sampled, usage, whole_usage
from burnish.testing.stub_reply import Played, Tree, word_of


def prompts_of(prompt: Any) -> list[list[int]]:
    """The token ids of each prompt of a request: a text, a list of texts, ids, or a list of those."""
    many = prompt if isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt) else [prompt]
    return [list(one.encode()) if isinstance(one, str) else list(one) for one in many]


def whole(body: Tree, head: Tree, prompts: Sequence[Sequence[int]], replies: Sequence[Played]) -> Tree:
    """A text completion that is not streamed. `replies` are those of the first prompt, then of the second, and so
    on."""
    wants_ids = bool(body.get("return_token_ids"))
    choices = [
        {
            "index": index,
            "text": _text(reply),
            "logprobs": _logprobs(body, reply, 0, len(reply.token_ids)) if body.get("logprobs") is not None else None,
            "finish_reason": reply.finish_reason,
            "stop_reason": reply.stop_reason,
            "token_ids": reply.token_ids if wants_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(_prompt_of(index, prompts, replies)) if wants_ids else None,
            "routed_experts": None,
        }
        for index, reply in enumerate(replies)
    ]
    ids = [token for prompt in prompts for token in prompt]
    tree = head | {"object": "text_completion", "choices": choices}
    return tree | {"usage": whole_usage(n_prompt(ids, replies), n_sampled(replies)), **TAIL}


def scored(choice: Tree, prompt: Sequence[int], values: Sequence[float]) -> Tree:
    """`choice` with the log-probs of its prompt."""
    entries = [
        {str(token): {"logprob": float(value), "rank": 1, "decoded_token": word_of(token)}}
        for token, value in zip(prompt, values, strict=True)
    ]
    return choice | {"prompt_logprobs": [None, *entries[1:]]}


async def chunks(
    body: Tree, head: Tree, prompts: Sequence[Sequence[int]], replies: Sequence[Played], delay: float
) -> AsyncIterator[Tree]:
    """A stream's chunks: one token of each choice in turn. A choice's first chunk holds the prompt's ids."""
    head = head | {"object": "text_completion"}
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    wants_ids = bool(body.get("return_token_ids"))
    for position in range(max(len(reply.token_ids) for reply in replies)):
        await asyncio.sleep(delay)
        for index, reply in enumerate(replies):
            if position >= len(reply.token_ids):
                continue
            is_last = position == len(reply.token_ids) - 1
            prompt = _prompt_of(index, prompts, replies)
            choice = {
                "index": index,
                "text": reply.deltas[position].get("content") or "",
                "logprobs": _logprobs(body, reply, position, position + 1)
                if body.get("logprobs") is not None
                else None,
                "finish_reason": reply.finish_reason if is_last else None,
                "stop_reason": reply.stop_reason if is_last else None,
                "prompt_token_ids": list(prompt) if wants_ids and position == 0 else None,
                "token_ids": [reply.token_ids[position]] if wants_ids else None,
            }
            yield head | {"choices": [choice]} | (FINGERPRINT if is_last and not wants_usage else {})
    if wants_usage:
        ids = [token for prompt in prompts for token in prompt]
        yield head | {"choices": [], "usage": usage(n_prompt(ids, replies), n_sampled(replies))} | FINGERPRINT


def _text(reply: Played) -> str:
    return "".join(delta.get("content") or "" for delta in reply.deltas)


def _prompt_of(index: int, prompts: Sequence[Sequence[int]], replies: Sequence[Played]) -> Sequence[int]:
    return prompts[index * len(prompts) // len(replies)]


def _logprobs(body: Tree, reply: Played, start: int, end: int) -> Tree:
    """Tokens `start` to `end`. Offsets count the characters of the tokens before them, as in vLLM."""
    as_ids = bool(body.get("return_tokens_as_token_ids"))
    words = [f"token_id:{token}" if as_ids else word_of(token) for token in reply.token_ids[:end]]
    offsets = [sum(map(len, words[:position])) for position in range(start, end)]
    values = reply.logprobs[start:end]
    return {
        "text_offset": offsets,
        "token_logprobs": list(values),
        "tokens": words[start:],
        "top_logprobs": [{word: value} for word, value in zip(words[start:], values, strict=True)],
    }
