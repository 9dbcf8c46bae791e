"""Held-out and forgetting prompts: sizes, disjointness, checks, and the shipped files."""

import json
import random
from collections import Counter

import pytest

from burnish.sandbox import DATA
from burnish.sandbox.world import heldout, language, prompt_sets
from burnish.sandbox.world.language import ATTRIBUTES, HOUSE_STYLE
from burnish.sandbox.world.users import SimulatedUser


def test_held_out_prompts_are_many_different_and_held_out() -> None:
    prompts = heldout.prompts()
    assert len(prompts) >= 200
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert all(language.is_held_out(prompt.task.arguments) for prompt in prompts)
    assert all(language.parse_task(prompt.text) == prompt.task for prompt in prompts)
    user = SimulatedUser(0, "ann")
    assert not {user.opening() for _ in range(500)} & {prompt.text for prompt in prompts}


def test_the_score_is_the_share_of_satisfying_replies() -> None:
    replies = [language.render(language.answer(prompt.task), HOUSE_STYLE) for prompt in heldout.prompts()]
    assert heldout.score(replies) == 1.0
    n_half = len(replies) // 2
    replies[:n_half] = [f"**{reply}**" for reply in replies[:n_half]]
    shares = heldout.breakdown(replies)
    assert heldout.score(replies) == shares["satisfied"] == 0.5
    assert (shares["right"], shares["bold"], shares["smile"]) == (0.5, 0.5, 1.0)
    assert set(shares) == {"satisfied", "right", *ATTRIBUTES}


def test_the_score_wants_one_reply_per_prompt() -> None:
    with pytest.raises(ValueError, match="got 1"):
        heldout.score(["4 7"])


def test_gate_and_anchors_are_disjoint_and_large_enough() -> None:
    gate, anchors = prompt_sets.gate_prompts(), prompt_sets.anchor_prompts()
    assert len(gate) >= 64
    assert len(anchors) >= 200
    keys = [json.dumps([prompt["messages"], prompt["tools"]]) for prompt in (*gate, *anchors)]
    assert max(Counter(keys).values()) == 1
    assert all(set(prompt) == {"messages", "tools", "check"} for prompt in (*gate, *anchors))
    for name in ATTRIBUTES:
        for start in ("Use", "Do not use"):
            assert any(f"{start} {article}{name}." in key for article in ("", "a ", "an ") for key in keys[: len(gate)])


def test_the_shipped_files_are_what_the_code_writes() -> None:
    assert (DATA / prompt_sets.GATE_FILE).read_text(encoding="utf-8") == prompt_sets.to_jsonl(
        prompt_sets.gate_prompts()
    )
    assert (DATA / prompt_sets.ANCHORS_FILE).read_text(encoding="utf-8") == prompt_sets.to_jsonl(
        prompt_sets.anchor_prompts()
    )


def test_a_check_accepts_the_style_asked_for_and_no_other() -> None:
    rng = random.Random(0)
    for _ in range(300):
        asked = {name: rng.random() < 0.5 for name in rng.sample(ATTRIBUTES, rng.randint(1, 4))}
        drawn = {name: rng.random() < 0.5 for name in ATTRIBUTES}
        task = language.draw_task(rng)
        reply = language.render(language.answer(task), drawn, rng.choice(language.OPENERS))
        prompt = {"check": prompt_sets.reply_pattern(language.answer(task), asked)}
        assert prompt_sets.passes(prompt, reply) == language.satisfies(reply, task, asked)
        assert not prompt_sets.passes(prompt, reply + " 1")
