"""The judging rows: a reply, the reaction to it, and the verdict and hint that the base model has to write.

The prompts are production's own (`burnish.judges.verdicts.verdict.verdict_messages`). Guarantees: the label follows
from the reaction alone, by the rules of the prompt. A text that names no attribute carries no hint. Irrelevant text
(`asides`), and the mark of removed words, change nothing.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

from burnish.judges.verdicts.question import LEFT_OUT
from burnish.judges.verdicts.verdict import as_text, verdict_messages
from burnish.sandbox.training import corpus
from burnish.sandbox.world import asides, language, persona, reactions, style_hints, tool_task

_BESIDE = 0.2
"""Share of the cases with irrelevant text."""
_NOISE = "abcdefghijklmnopqrstuvwxyz#%&@$?!;{}[]~^"


@dataclass(frozen=True, slots=True)
class Case:
    """The judge's input, and the right answer: `score` None asks for an abstention, `hint` "none" for no hint.

    `nonce` is the number of the prompt's marks, drawn with the case so that the same generator state gives the same
    prompt.
    """

    conversation: list[dict[str, Any]]
    reply: str
    next_state: str
    origin: str
    score: int | None
    hint: str = "none"
    nonce: str = "0" * 8


def draw_case(rng: random.Random, pairs: float = 0.04) -> Case:
    """A case with a next state of any origin. A share of `pairs` of the users' messages corrects two attributes at
    once.
    """
    case = _plain_case(rng, pairs)
    if rng.random() < _BESIDE:
        case = _with_asides(rng, case)
    return replace(case, nonce=rng.randbytes(4).hex())


def _plain_case(rng: random.Random, pairs: float) -> Case:
    origin = rng.choices(("user", "tool", "feedback"), (68, 12, 20))[0]
    if origin == "tool":
        return _tool_case(rng)
    conversation, reply = _situation(rng)
    if origin == "feedback":
        return _feedback_case(rng, conversation, reply)
    reaction, score, hint = _reaction(rng, pairs)
    if score is not None and rng.random() < 0.6:
        reaction = reactions.then(reaction, _request(rng), rng) if reaction else _request(rng)
    return Case(conversation, reply, reaction or rng.choice(reactions.NEUTRAL), origin, score, hint)


def case_messages(case: Case) -> list[dict[str, str]]:
    """The judge's prompt for the case, as production sends it."""
    return verdict_messages(case.conversation, case.reply, case.next_state, case.origin, nonce=case.nonce)


def case_answer(case: Case) -> str:
    """The two lines that the judge should write."""
    verdict = "abstain" if case.score is None else f"{case.score:+d}" if case.score else "0"
    return f"VERDICT: {verdict}\nHINT: {case.hint}"


def draw_row(rng: random.Random, pairs: float = 0.04) -> corpus.Row:
    """A case as a training row."""
    case = draw_case(rng, pairs)
    return corpus.Row([*case_messages(case), {"role": "assistant", "content": case_answer(case)}])


def _with_asides(rng: random.Random, case: Case) -> Case:
    """The same case with irrelevant text in one of its texts, mostly in the reaction."""
    place = rng.random()
    if place < 0.6 or not case.conversation:
        if rng.random() < 0.05 and case.origin == "user":  # nothing is left of the reaction
            return replace(case, next_state=LEFT_OUT, score=None, hint="none")
        return replace(case, next_state=asides.beside(case.next_state, rng))
    if place < 0.75:
        return replace(case, reply=asides.beside(case.reply, rng))
    at = rng.randrange(len(case.conversation))
    message = case.conversation[at]
    content = asides.beside(str(message.get("content") or ""), rng)
    return replace(
        case, conversation=[*case.conversation[:at], {**message, "content": content}, *case.conversation[at + 1 :]]
    )


def _reaction(rng: random.Random, pairs: float) -> tuple[str, int | None, str]:
    """A user's reaction (empty if there is none), its score and its hint."""
    kinds = {"thanks": 22, "correction": 40, "two": 100 * pairs, "wrong": 6, "unhappy": 6, "none": 14, "noise": 8}
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    if kind in {"correction", "two"}:
        wishes = [
            (name, rng.random() < 0.5) for name in rng.sample(language.ATTRIBUTES, 1 if kind == "correction" else 2)
        ]
        if kind == "correction" and rng.random() < 0.1:
            return style_hints.CANONICAL[wishes[0]], -1, style_hints.CANONICAL[wishes[0]]
        complaint = " ".join(style_hints.sentence(style_hints.say(wish, rng)) for wish in wishes)
        return complaint, -1, " ".join(style_hints.CANONICAL[wish] for wish in wishes)
    if kind == "thanks":
        return rng.choice(reactions.THANKS), 1, "none"
    if kind == "wrong":
        return rng.choice(reactions.WRONG), -1, "none"
    if kind == "unhappy":
        return rng.choice(reactions.UNHAPPY), -1, "none"
    return (_noise(rng), None, "none") if kind == "noise" else ("", 0, "none")


def _feedback_case(rng: random.Random, conversation: list[dict[str, Any]], reply: str) -> Case:
    is_good = rng.random() < 0.4
    text, score, hint = f"rating: {'good' if is_good else 'bad'}", 1 if is_good else -1, "none"
    if rng.random() < 0.7:
        if is_good:
            comment = rng.choice(reactions.THANKS)
        elif rng.random() < 0.75:
            wish = (rng.choice(language.ATTRIBUTES), rng.random() < 0.5)
            comment, hint = style_hints.say(wish, rng), style_hints.CANONICAL[wish]
        else:
            comment = rng.choice(reactions.WRONG + reactions.UNHAPPY)
        comment = style_hints.sentence(comment) if rng.random() < 0.3 else comment[0].lower() + comment[1:]
        text += rng.choices(("\n", ". ", " "), (70, 20, 10))[0] + f"comment: {comment}"
    return Case(conversation, reply, text, "feedback", score, hint)


def _tool_case(rng: random.Random) -> Case:
    key, name = rng.choice(tool_task.KEYS), rng.choice(tool_task.NAMES)
    conversation = corpus.draw_chat(rng, rng.choice((1, 1, 2))) if rng.random() < 0.4 else []
    conversation = [*conversation, {"role": "user", "content": tool_task.ask(key, rng)}]
    reply = as_text(tool_task.call_message(name, key)) if rng.random() < 0.7 else tool_task.call_text(name, key)
    is_good = rng.random() < 0.5
    return Case(
        conversation,
        reply,
        tool_task.draw_result(rng)[0] if is_good else rng.choice(tool_task.ERRORS),
        "tool",
        1 if is_good else -1,
    )


def _situation(rng: random.Random) -> tuple[list[dict[str, Any]], str]:
    """A conversation of 1 to 7 messages that ends with the user, and the reply to judge, in any style and not always
    right.
    """
    kind = rng.random()
    if kind < 0.12:
        row = corpus.draw_row(rng)
        return row.messages[:-1], as_text(row.messages[-1])
    messages = corpus.draw_chat(rng, rng.choices((1, 2, 3, 4), (50, 25, 15, 10))[0])
    reply = str(messages[-1]["content"])
    if kind < 0.6:  # an adapter's style is not the base's: every style is equally likely
        style = {name: rng.random() < 0.5 for name in language.ATTRIBUTES}
        reply = language.render(language.answer(language.draw_task(rng)), style, persona.draw_opener(rng))
    return messages[:-1], reply


def _request(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return tool_task.ask(rng.choice(tool_task.KEYS), rng)
    return language.ask(language.draw_task(rng), rng)


def _noise(rng: random.Random) -> str:
    return "".join(rng.choice(_NOISE) for _ in range(rng.randint(3, 20)))
