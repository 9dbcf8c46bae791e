"""Scripts for real clients: scenes, and the truth about each request.

A client names its scene by a marker in its first words (`scene:parallel`, or `scene:parallel.7` to play it many times).
Every reply carries a mark of its own (`@mark` in its text or arguments becomes `parallel.7#2`). So the highest mark
that a request repeats says how far it has come, whatever the client has done to its history. The only state is how
often each step was asked for. The linker's view of the requests is not known here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from burnish.testing.stub_reply import Refusal, Scripted, Tree

MARK = "@mark"
RUN = "@run"


class Part(StrEnum):
    """The kind of a request in its conversation."""

    MAIN = "main"
    SIDE = "side"
    SUBAGENT = "subagent"


class Outcome(StrEnum):
    """The end of a request."""

    OPEN = "open"
    ANSWERED = "answered"
    REFUSED = "refused"
    LEFT = "left"  # the client did not wait for the end


@dataclass(frozen=True, slots=True)
class Step:
    """The answer at one point of a conversation.

    The first requests for it get the `refusals`, one each. The next ones get the `replies`, and the last of them again
    and again.
    """

    replies: Sequence[Scripted]
    refusals: Sequence[Refusal] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A conversation: its steps in order. A sub-agent's conversation is a scene of its own, which names its parent."""

    name: str
    steps: Sequence[Step]
    parent: str | None = None
    collides: bool = False  # all runs look alike at first: only the client knows which reply a request continues


@dataclass(frozen=True, slots=True)
class Side:
    """A request about a conversation that is no part of it. `pattern` matches its system prompt or last message."""

    name: str
    pattern: str
    reply: Scripted


@dataclass(frozen=True, slots=True)
class Script:
    """Scenes by name, and the side requests."""

    scenes: Sequence[Scene]
    sides: Sequence[Side] = ()

    def __post_init__(self) -> None:
        for scene in self.scenes:
            for step in scene.steps:
                for reply in step.replies:
                    if MARK not in reply.text:
                        raise ValueError(f"scene {scene.name!r}: a reply has no {MARK}: {reply.text[:60]!r}")

    @classmethod
    def load(cls, path: Path) -> "Script":
        """From a JSON file: {"scenes": [{"name", "steps": [{"replies": […], "refusals": […]}]}], "sides": [{…}]}."""
        tree = json.loads(path.read_text(encoding="utf-8"))
        scenes = [Scene(**scene | {"steps": [_step(step) for step in scene["steps"]]}) for scene in tree["scenes"]]
        sides = [Side(side["name"], side["pattern"], _reply(side["reply"])) for side in tree.get("sides", ())]
        return cls(scenes, sides)


@dataclass(slots=True)
class Truth:
    """The truth about one request of the gateway. `request_id` is the gateway's, so it joins with the journal.

    `family` is the run that a sub-agent works for. `continues` are the request id and the choice of the reply that it
    continues, None at a conversation's start. `is_rewritten`: the client has dropped that reply from its history.
    `collides`: it looks like other runs' requests. `token_ids`, `n_calls`: the sampled tokens and calls of each choice.
    `n_results`: the tool results after the last reply.
    """

    request_id: str
    ordinal: int
    model: str
    scene: str
    run: str
    step: int
    part: Part
    family: str | None = None
    side: str | None = None
    attempt: int = 1
    continues: tuple[str, int] | None = None
    is_rewritten: bool = False
    collides: bool = False
    outcome: Outcome = Outcome.OPEN
    token_ids: list[list[int]] = field(default_factory=list)
    n_calls: list[int] = field(default_factory=list)
    n_results: int = 0

    def to_json(self) -> Tree:
        return asdict(self)


class Play:
    """One performance of a script: it answers requests and keeps the truth about them in order."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._scenes = {scene.name: scene for scene in script.scenes}
        self._n_asked: dict[tuple[str, int], int] = {}
        self._answered: dict[tuple[str, int, int], tuple[str, int]] = {}
        self.truths: list[Truth] = []

    def answer(self, body: Tree, request_id: str, n: int) -> tuple[Truth, list[Scripted] | Refusal]:
        """The truth about a request, and its answer."""
        messages = _messages(body)
        whole = json.dumps(messages)
        scene, run = self._find(messages, whole)
        truth = Truth(
            request_id, len(self.truths), str(body.get("model")), scene.name if scene else "", run, 0, Part.SIDE
        )
        self.truths.append(truth)
        step, variant, is_rewritten = self._progress(messages, run)
        side = self._side(messages)
        if side is not None or scene is None:
            reply = side.reply if side is not None else Scripted("fine")
            truth.side = side.name if side is not None else "unscripted"
            return truth, [_told(reply, run, f"{run}#{step}")] * n
        truth.part = Part.SUBAGENT if scene.parent else Part.MAIN
        if scene.parent:
            truth.family = scene.parent + run.removeprefix(scene.name)
        truth.step, truth.is_rewritten = step + 1, is_rewritten
        truth.n_results = _n_results(messages)
        truth.collides = scene.collides
        truth.continues = None if scene.collides else self._answered.get((run, step, variant))
        truth.attempt = self._n_asked[run, step] = self._n_asked.get((run, step), 0) + 1
        return truth, self._replies(truth, scene.steps[min(step, len(scene.steps) - 1)], n)

    def settle(self, truth: Truth, outcome: Outcome) -> None:
        """Record the end of an answered request."""
        truth.outcome = outcome
        if outcome is Outcome.LEFT:  # no client has seen these; a later try may have taken their place
            for mark, answered in list(self._answered.items()):
                if answered[0] == truth.request_id:
                    del self._answered[mark]

    def _replies(self, truth: Truth, step: Step, n: int) -> list[Scripted] | Refusal:
        if truth.attempt <= len(step.refusals):
            return step.refusals[truth.attempt - 1]
        which = min(truth.attempt - len(step.refusals), len(step.replies)) - 1
        texts = [reply.text for reply in step.replies]
        first = texts.index(texts[which])  # replies with the same text cannot be distinguished
        marks = [(truth.run, truth.step, first + choice) for choice in range(n)]
        self._answered |= {mark: (truth.request_id, choice) for choice, mark in enumerate(marks)}
        return [
            _told(step.replies[which], truth.run, f"{run}#{number}" + (f".{variant}" if variant else ""))
            for run, number, variant in marks
        ]

    def _find(self, messages: Sequence[Tree], whole: str) -> tuple[Scene | None, str]:
        """The scene of a request, by the first marker in the user's words, else by the first one anywhere."""
        asked = json.dumps([message for message in messages if message.get("role") == "user"])
        found = _MARKER.search(asked) or _MARKER.search(whole)
        if found is None:
            return None, ""
        return self._scenes.get(found["scene"]), found["scene"] + (f".{found['run']}" if found["run"] else "")

    def _progress(self, messages: Sequence[Tree], run: str) -> tuple[int, int, bool]:
        """The last step that a request repeats, the variant of its reply, and whether that reply itself is gone.

        A summary that a client has put in place of its history repeats marks too, in the agent's own words.
        """
        pattern = re.compile(re.escape(run) + r"#(\d+)(?:\.(\d+))?")
        asides = {side.reply.content.replace(RUN, run).strip() for side in self._script.sides}
        replies = [message for message in messages if message.get("role") == "assistant"]
        own = json.dumps([m for m in replies if pattern.sub(MARK, _text(m)).strip() not in asides])
        marks = [(int(found[1]), int(found[2] or 0)) for found in pattern.finditer(json.dumps(messages))]
        step, variant = max(marks, default=(0, 0))
        is_there = any((int(found[1]), int(found[2] or 0)) == (step, variant) for found in pattern.finditer(own))
        return step, variant, step > 0 and not is_there

    def _side(self, messages: Sequence[Tree]) -> Side | None:
        heads = [message for message in messages[:2] if message.get("role") in ("system", "developer")]
        text = "\n".join(_text(message) for message in [*heads, *messages[-1:]])
        return next((side for side in self._script.sides if re.search(side.pattern, text)), None)


_MARKER = re.compile(r"scene:(?P<scene>[a-z][a-z0-9-]*)(?:\.(?P<run>[a-z0-9]+))?")


def _told(reply: Scripted, run: str, mark: str) -> Scripted:
    """`reply` with its mark filled in."""

    def fill(text: str) -> str:
        return text.replace(MARK, mark).replace(RUN, run)

    calls = [(name, fill(arguments)) for name, arguments in reply.tool_calls]
    return replace(reply, content=fill(reply.content), reasoning=fill(reply.reasoning), tool_calls=calls)


def _messages(body: Tree) -> list[Tree]:
    if "messages" in body:
        return list(body["messages"])
    return [{"role": "user", "content": body.get("prompt")}]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _n_results(messages: Sequence[Tree]) -> int:
    """The number of tool results after the last reply."""
    behind = 0
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        behind += message.get("role") == "tool"
    return behind


def _reply(tree: Tree | str) -> Scripted:
    if isinstance(tree, str):
        return Scripted(tree)
    return Scripted(
        **tree | {"tool_calls": [(name, _as_json(arguments)) for name, arguments in tree.get("tool_calls", ())]}
    )


def _as_json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _step(tree: Tree | str) -> Step:
    """A step. A step that always gets the same reply may be written as that reply."""
    if isinstance(tree, dict) and ("replies" in tree or "refusals" in tree):
        return Step(
            [_reply(reply) for reply in tree.get("replies", ())], [Refusal(**one) for one in tree.get("refusals", ())]
        )
    return Step([_reply(tree)])
