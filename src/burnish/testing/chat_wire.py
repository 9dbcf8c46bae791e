"""vLLM's JSON for chat completions, whole and streamed. tests/contracts/test_engine_wire.py compares it with the real
one.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from burnish.testing.stub_reply import Played, Tree, prompt_ids, word_of

FINGERPRINT = {"system_fingerprint": "vllm-stub"}
TAIL: Tree = FINGERPRINT | {
    "service_tier": None,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "metrics": None,
}


def whole(body: Tree, head: Tree, replies: Sequence[Played]) -> Tree:
    """A chat completion that is not streamed."""
    ids = prompt_ids(body)
    tree: Tree = head | {"object": "chat.completion", "choices": _choices(body, replies), **TAIL}
    tree["usage"] = whole_usage(n_prompt(ids, replies), n_sampled(replies))
    return tree | {
        "prompt_logprobs": None,
        "prompt_text": None,
        "prompt_token_ids": ids if body.get("return_token_ids") else None,
    }


def _choices(body: Tree, replies: Sequence[Played]) -> list[Tree]:
    choices = []
    for index, reply in enumerate(replies):
        nothing = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
        calls = reply.message["tool_calls"]
        message: Tree = {"role": "assistant", "content": reply.message["content"] or (None if calls else ""), **nothing}
        if calls:
            message["tool_calls"] = calls
        entries = [_entry(body, reply, position) for position in range(len(reply.token_ids))]
        choices.append(
            {
                "index": index,
                "message": message | {"reasoning": reply.message["reasoning"]},
                "logprobs": {"content": entries} if body.get("logprobs") else None,
                "finish_reason": reply.finish_reason,
                "stop_reason": reply.stop_reason,
                "token_ids": reply.token_ids if body.get("return_token_ids") else None,
                "routed_experts": None,
            }
        )
    return choices


async def chunks(body: Tree, head: Tree, replies: Sequence[Played], delay: float) -> AsyncIterator[Tree]:
    """A stream's chunks: roles first, then one token of each choice in turn. A choice ends with its last token."""
    head = head | {"object": "chat.completion.chunk"}
    ids = prompt_ids(body)
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    wants_ids, wants_logprobs = bool(body.get("return_token_ids")), bool(body.get("logprobs"))
    for index in range(len(replies)):
        opening = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        yield head | {"choices": [opening], "prompt_token_ids": ids if wants_ids else None, "prompt_text": None}
    for position in range(max(len(reply.deltas) for reply in replies)):
        await asyncio.sleep(delay)
        for index, reply in enumerate(replies):
            if position >= len(reply.deltas):
                continue
            is_last = position == len(reply.deltas) - 1
            if not (reply.deltas[position] or is_last or wants_ids or wants_logprobs):
                continue
            choice: Tree = {"index": index, "delta": reply.deltas[position], "logprobs": None, "finish_reason": None}
            if wants_logprobs:
                choice["logprobs"] = {"content": [_entry(body, reply, position)]}
            if is_last:
                choice |= {"finish_reason": reply.finish_reason, "stop_reason": reply.stop_reason}
            choice["token_ids"] = [reply.token_ids[position]] if wants_ids else None
            ends_here = is_last and not wants_usage
            yield head | {"choices": [choice]} | (FINGERPRINT if ends_here else {})
    if wants_usage:
        yield head | {"choices": [], "usage": usage(n_prompt(ids, replies), n_sampled(replies))} | FINGERPRINT


def _entry(body: Tree, reply: Played, position: int) -> Tree:
    """One sampled token's element of `logprobs.content`."""
    text, value = word_of(reply.token_ids[position]), reply.logprobs[position]
    word = {"token": text, "logprob": value, "bytes": list(text.encode())}
    if value is None:
        del word["logprob"]
    return word | {"top_logprobs": [dict(word)] * (body.get("top_logprobs") or 0)}


def n_prompt(ids: Sequence[int], replies: Sequence[Played]) -> int:
    """The prompt's length as the engine reports it."""
    counted = [reply.n_prompt for reply in replies if reply.n_prompt is not None]
    return counted[0] if counted else len(ids)


def n_sampled(replies: Sequence[Played]) -> int:
    return sum(len(reply.token_ids) for reply in replies)


def usage(n_prompt: int, n_sampled: int) -> Tree:
    return {"prompt_tokens": n_prompt, "total_tokens": n_prompt + n_sampled, "completion_tokens": n_sampled}


def whole_usage(n_prompt: int, n_sampled: int) -> Tree:
    return usage(n_prompt, n_sampled) | {"prompt_tokens_details": None, "completion_tokens_details": None}
