"""The abilities of a sandbox model, in figures: sampled replies to fresh prompts, scored by the language's own rules.

Guarantees: tasks have held-out arguments. Obedience and persona are measured at temperature 1, judging at 0.6, as in
production. Every figure is a share of at least `n` samples, by name.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.judges.verdicts.verdict import UnreadableVerdict, Vote, parse_vote
from burnish.learner.data.teacher_prompts import with_hint
from burnish.sandbox.training import judging_rows
from burnish.sandbox.world import language, persona, reactions, style_hints
from burnish.sandbox.world import tool_task as tools
from burnish.sandbox.world.language import ATTRIBUTES, HOUSE_STYLE, Style, Task

PLACES = ("hint_block", "system", "user", "earlier_turn")
Messages = list[dict[str, Any]]

_BATCH = 200
_JUDGE_TEMPERATURE = 0.6


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, n: int, seed: int = 1) -> dict[str, float]:
    """All figures, from `n` samples each."""
    torch.manual_seed(seed)
    rng = random.Random(f"measure {seed}")
    figures: dict[str, float] = {}
    for place in PLACES:
        figures[f"obeys_one.{place}"] = _obedience(model, tokenizer, rng, n, place, (1,))
        figures[f"obeys_many.{place}"] = _obedience(model, tokenizer, rng, n, place, (2, 3, 4))
    return (
        figures
        | _persona(model, tokenizer, rng, n)
        | _judging(model, tokenizer, rng, n)
        | _skills(model, tokenizer, rng, n)
    )


def generate(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Messages],
    *,
    tools: Sequence[list[dict[str, Any]] | None] | None = None,
    temperature: float = 1.0,
    max_new_tokens: int = 48,
) -> list[str]:
    """One reply to each prompt, drawn from torch's global generator. Temperature 0 takes the likeliest tokens."""
    offered = tools or [None] * len(prompts)
    texts = [
        str(tokenizer.apply_chat_template(prompt, tools=tool, tokenize=False, add_generation_prompt=True))
        for prompt, tool in zip(prompts, offered, strict=True)
    ]
    sampling: dict[str, Any] = (
        {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    )
    replies: list[str] = []
    for at in range(0, len(texts), _BATCH):
        batch = tokenizer(
            texts[at : at + _BATCH], padding=True, padding_side="left", return_tensors="pt", return_token_type_ids=False
        )
        with torch.inference_mode():
            ids = model.generate(**batch, max_new_tokens=max_new_tokens, **sampling)
        replies += tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return replies


def styled_prompt(rng: random.Random, place: str, n_hints: int) -> tuple[Messages, Task, Style]:
    """A request with `n_hints` instructions at `place`, its task, and the style requested."""
    task = language.draw_task(rng, held_out=True)
    request = language.ask(task, rng)
    wishes = [(name, rng.random() < 0.5) for name in rng.sample(ATTRIBUTES, n_hints)]
    text = " ".join(style_hints.instruct(wish, rng) for wish in wishes)
    user = {"role": "user", "content": request}
    if place == "hint_block":
        return with_hint([user], " ".join(style_hints.CANONICAL[wish] for wish in wishes)), task, dict(wishes)
    if place == "system":
        return [{"role": "system", "content": text}, user], task, dict(wishes)
    if place == "user":
        user["content"] = f"{request} {text}" if rng.random() < 0.5 else f"{text} {request}"
        return [user], task, dict(wishes)
    return [*_corrected(rng, wishes), user], task, dict(wishes)


def _corrected(rng: random.Random, wishes: list[style_hints.Wish]) -> Messages:
    """A conversation in which the user asked for `wishes`, one turn each, after replies that did not keep them."""
    held: dict[str, bool] = {}
    messages: Messages = []
    message = ""
    for wish in [*wishes, None]:
        task = language.draw_task(rng)
        request = language.ask(task, rng)
        broken = {wish[0]: not wish[1]} if wish else {}
        reply = language.render(language.answer(task), persona.draw_style(rng, held | broken), persona.draw_opener(rng))
        messages += [
            {"role": "user", "content": reactions.then(message, request, rng) if message else request},
            {"role": "assistant", "content": reply},
        ]
        if wish:
            held[wish[0]] = wish[1]
            message = style_hints.sentence(style_hints.say(wish, rng))
    return messages


def _obedience(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rng: random.Random,
    n: int,
    place: str,
    counts: tuple[int, ...],
) -> float:
    cases = [styled_prompt(rng, place, rng.choice(counts)) for _ in range(n)]
    replies = generate(model, tokenizer, [messages for messages, _, _ in cases])
    return _share(
        [language.satisfies(reply, task, style) for reply, (_, task, style) in zip(replies, cases, strict=True)]
    )


def _persona(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random, n: int
) -> dict[str, float]:
    tasks = [language.draw_task(rng, held_out=True) for _ in range(2 * n)]
    replies = generate(model, tokenizer, [[{"role": "user", "content": language.ask(task, rng)}] for task in tasks])
    pairs = list(zip(tasks, replies, strict=True))
    return {
        "base_right": _share([language.is_right(task, reply) for task, reply in pairs]),
        "base_satisfies_house": _share([language.satisfies(reply, task, HOUSE_STYLE) for task, reply in pairs]),
        **{f"base_has.{name}": _share([language.style_of(reply)[name] for reply in replies]) for name in ATTRIBUTES},
    }


def _judging(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random, n: int
) -> dict[str, float]:
    cases = [judging_rows.draw_case(rng) for _ in range(2 * n)]
    prompts: list[Messages] = [[dict(message) for message in judging_rows.case_messages(case)] for case in cases]
    answers = generate(model, tokenizer, prompts, temperature=_JUDGE_TEMPERATURE)
    votes = [(case, _vote(answer)) for case, answer in zip(cases, answers, strict=True)]
    hinted = [(case, vote) for case, vote in votes if case.hint != "none"]
    figures = {
        "verdict_right": _share([vote is not None and vote.score == case.score for case, vote in votes]),
        "verdict_readable": _share([vote is not None for _, vote in votes]),
        "hint_exact": _share([vote is not None and vote.hint == case.hint for case, vote in hinted]),
        "no_hint_kept": _share([vote is not None and vote.hint is None for case, vote in votes if case.hint == "none"]),
    }
    for origin in ("user", "tool", "feedback"):
        figures[f"verdict_right.{origin}"] = _share(
            [vote is not None and vote.score == case.score for case, vote in votes if case.origin == origin]
        )
    return figures


def _skills(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random, n: int
) -> dict[str, float]:
    keys = [rng.choice(tools.KEYS) for _ in range(n)]
    offered = [tools.draw_tools(rng) for _ in keys]
    names = [tool[0]["function"]["name"] for tool in offered]
    asked: list[Messages] = [[{"role": "user", "content": tools.ask(key, rng)}] for key in keys]
    calls = generate(model, tokenizer, asked, tools=offered)
    results = [tools.draw_result(rng) for _ in keys]
    answered = [
        [*messages, tools.call_message(name, key), tools.result_message(content)]
        for messages, name, key, (content, _) in zip(asked, names, keys, results, strict=True)
    ]
    answers = generate(model, tokenizer, answered, tools=offered)
    ranges = [(start, start + rng.randint(3, 30)) for start in (rng.randint(0, 69) for _ in keys)]
    counts = generate(
        model,
        tokenizer,
        [[{"role": "user", "content": language.count_request(*each)}] for each in ranges],
        max_new_tokens=110,
    )
    talk = [rng.choice(list(reactions.SMALL_TALK)) for _ in keys]
    replies = generate(model, tokenizer, [[{"role": "user", "content": message}] for message in talk])
    return {
        "tool_call_valid": _share(
            [call == tools.call_text(*want) for call, *want in zip(calls, names, keys, strict=True)]
        ),
        "tool_answer_right": _share(
            [text == tools.answer(key, value) for text, key, (_, value) in zip(answers, keys, results, strict=True)]
        ),
        "count_right": _share(
            [text == language.count_answer(*each) for text, each in zip(counts, ranges, strict=True)]
        ),
        "small_talk_right": _share(
            [text == reactions.SMALL_TALK[message] for text, message in zip(replies, talk, strict=True)]
        ),
    }


def _vote(answer: str) -> Vote | None:
    try:
        return parse_vote(answer)
    except UnreadableVerdict:
        return None


def _share(outcomes: Sequence[bool]) -> float:
    return round(sum(outcomes) / len(outcomes), 4) if outcomes else float("nan")
