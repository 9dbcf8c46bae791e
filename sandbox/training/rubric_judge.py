"""The sandbox's rubric judge: `python -m burnish.sandbox.training.rubric_judge --out DIR` trains the base to grade
replies.

The shipped base has learned to judge by the reaction, and grades nothing. This is a LoRA adapter on it that answers
`judges/comparison/rubric.py`'s own prompt. Guarantees: the grade follows from the reply, the task and the hint alone
(`grade_of`). Arguments come from the conversation side of the split only. The adapter appears in `--out` only when
complete.
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.judges.comparison import rubric
from burnish.sandbox import MODEL
from burnish.sandbox.training import corpus
from burnish.sandbox.training.corpus import Row
from burnish.sandbox.training.suggestible import build
from burnish.sandbox.world import language, persona, style_hints
from burnish.sandbox.world.language import Style, Task

STEPS = 320
_WRONG = 0.15
"""Share of the replies that answer a different task."""


@dataclass(frozen=True, slots=True)
class Group:
    """Replies to one conversation and the hint that they are graded on, with the right grades."""

    conversation: list[dict[str, Any]]
    wish: str
    replies: list[str]
    grades: list[int]
    nonce: str


def grade_of(reply: str, task: Task, wishes: Style) -> int:
    """10 for a right answer that follows the hint, else 0."""
    return rubric.BEST if language.satisfies(reply, task, wishes) else rubric.WORST


def draw_group(rng: random.Random, n: int | None = None) -> Group:
    """A conversation that ends with a task, a hint, and `n` replies in any style, some of them wrong."""
    while True:
        conversation = corpus.draw_chat(rng, rng.choices((1, 2, 3, 4), (50, 25, 15, 10))[0])[:-1]
        task = language.parse_task(str(conversation[-1]["content"]))
        if task is not None:
            break
    names = rng.sample(language.ATTRIBUTES, 1 if rng.random() < 0.85 else 2)
    wishes = {name: rng.random() < 0.5 for name in names}
    count = n or rng.choices((1, 2, 3, 4, 5), (35, 15, 10, 30, 10))[0]
    replies = [_reply(rng, task) for _ in range(count)]
    grades = [grade_of(reply, task, wishes) for reply in replies]
    return Group(conversation, style_hints.canonical(wishes), replies, grades, rng.randbytes(4).hex())


def group_messages(group: Group) -> list[dict[str, str]]:
    """The judge's prompt for the group, as production sends it."""
    replies = [{"role": "assistant", "content": reply} for reply in group.replies]
    return rubric.messages(group.conversation, group.wish, replies, nonce=group.nonce)


def draw_row(rng: random.Random) -> Row:
    """A group as a training row."""
    group = draw_group(rng)
    return Row([*group_messages(group), {"role": "assistant", "content": rubric.answer(group.grades)}])


@dataclass(frozen=True, slots=True)
class Measured:
    """A grader's results on groups with known grades: answers that parse, grades given, grades right, and the share
    that the most common grade alone would get right.
    """

    n_groups: int
    n_read: int
    n_grades: int
    n_right: int
    n_commonest: int


def measure(
    folder: Path | None, base: Path = MODEL, n_groups: int = 60, n: int = 4, seed: int = 0, n_threads: int = 2
) -> Measured:
    """Grade groups of `n` with the adapter in `folder` (None: the base alone), greedily."""
    torch.set_num_threads(n_threads)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, folder) if folder else model
    rng, wanted, actual, n_read = random.Random(f"grader {seed}"), [], [], 0
    for _ in range(n_groups):
        group = draw_group(rng, n)
        options = {"tokenize": True, "add_generation_prompt": True, "return_tensors": "pt", "return_dict": False}
        ids = tokenizer.apply_chat_template(group_messages(group), **options)
        written = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=16 * n, do_sample=False, pad_token_id=0
        )
        try:
            grades = rubric.parse(tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True), n)
        except rubric.UnreadableGrades:
            continue
        n_read += 1
        actual += grades
        wanted += group.grades
    n_commonest = max((wanted.count(grade) for grade in set(wanted)), default=0)
    n_right = sum(each == other for each, other in zip(actual, wanted, strict=True))
    return Measured(n_groups, n_read, len(actual), n_right, n_commonest)


def _reply(rng: random.Random, task: Task) -> str:
    asked = task if rng.random() > _WRONG else _other(rng, task)
    style = {name: rng.random() < 0.5 for name in language.ATTRIBUTES}
    return language.render(language.answer(asked), style, persona.draw_opener(rng))


def _other(rng: random.Random, task: Task) -> Task:
    """Another task, mostly on the same numbers: what a model that errs would answer."""
    return (
        Task(rng.choice(list(language.OPERATIONS)), task.arguments) if rng.random() < 0.6 else language.draw_task(rng)
    )


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(
        prog="python -m burnish.sandbox.training.rubric_judge", description=(__doc__ or "").splitlines()[0]
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--out", type=Path, help="folder to write the adapter to; replaced if it exists")
    action.add_argument(
        "--measure", type=Path, metavar="DIR", help="grade groups with known grades by the adapter in DIR instead"
    )
    parser.add_argument("--base", type=Path, default=MODEL, help="folder of the base model; the shipped one by default")
    parser.add_argument("--further", type=Path, help="folder of an adapter to take one more round from")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and rows")
    parser.add_argument("--threads", type=int, default=2, help="torch threads")
    given = parser.parse_args()
    if not (given.base / "model.safetensors").exists():
        parser.error(f"--base: there is no model.safetensors in {given.base}; give the folder of a base model")
    if given.measure:
        found = measure(given.measure, given.base, seed=given.seed, n_threads=given.threads)
        print(
            f"{given.measure}: {found.n_read} of {found.n_groups} answers parsed, "
            f"{found.n_right} of {found.n_grades} grades right ({found.n_commonest} with the most common grade alone)"
        )
        return
    given.out.parent.mkdir(parents=True, exist_ok=True)
    losses = build(given.out, given.base, given.steps, given.seed, given.threads, given.further, draw_row)
    print(f"{given.out}: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")


if __name__ == "__main__":
    main()
