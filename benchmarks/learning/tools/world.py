"""The world of the tool agent, frozen: the requests, the tools that work, their outputs, and a session's success.

`FILES` are hashed together (`benchmarks/learning/frozen.py`), this one first. The report prints the hash and a test
compares it. A change to one of them makes a new world without measurements.

All users are simulated. A session has `N_STEPS` steps. In each step the user wants a value that only a tool knows.
Three tools of one of the `TOOLSETS` are offered, and exactly one of that set works in this deployment (drawn by the
run's seed). Nothing that the agent reads says which one. The agent calls a tool (one turn), reads the runner's output
with its exit code, and answers the user (the next turn). A step starts with a fresh context, like a sub-task of a
harness. The session's name holds the steps together. The base was never taught to call after a tool has answered (in no
tried form was a whole call among the most frequent replies), so a step has no second try.

A program computes the score: the share of held-out sessions in which all three calls worked. A base that chooses evenly
succeeds in (1/3)³ ≈ 0.04. The runner's two forms of output are those that the base reads correctly: it takes the digit
of "exit code 0" for the value.
"""

import json
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.sandbox import DATA, MODEL
from burnish.sandbox.world import prompt_sets, tool_task

N_SESSIONS = 320
MILESTONES = (0, 80, 160, 240, 320)
"""The numbers of sessions after which the score is taken."""
ROUND = 8
"""Sessions of one update. They run side by side, and the next ones begin after the decision on the update."""
N_STEPS = 3
N_TURNS = 2 * N_STEPS
TEMPERATURE = 1.0
MAX_TOKENS = 64
N_EXAM = 100
RETENTION, N_RETENTION = "proof", 96

TOOLSETS = (
    ("lookup", "search", "find"),
    ("fetch", "query", "get_value"),
    ("lookup", "fetch", "query"),
    ("search", "find", "get_value"),
)
"""Each name is in two toolsets, so that the working tool has to be learned by set."""
HELD_OUT = tool_task.KEYS[::4]
"""Keys that only the exam uses."""
RUNNER = "runner"
"""The name under which the harness answers a reply that calls no offered tool."""
PROGRAMS = (*tool_task.NAMES, RUNNER)
"""All programs that print an exit code."""
_LEAST, _LARGEST = 13, 99

_SANDBOX = Path(tool_task.__file__).parent
FILES: tuple[Path, ...] = (
    Path(__file__),
    *(_SANDBOX / f"{name}.py" for name in ("tool_task", "prompt_sets")),
    *(DATA / name for name in (prompt_sets.GATE_FILE, prompt_sets.ANCHORS_FILE)),
    *(MODEL / name for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")),
)
_CALL = re.compile(r'<tool_call>\n\{"name": "(?P<name>\w+)", "arguments": (?P<arguments>\{.*\})\}\n</tool_call>')


@dataclass(frozen=True, slots=True)
class Step:
    """One request: the toolset, its tools in the order of the offer, the key, the words, and the correct value."""

    toolset: int
    names: tuple[str, ...]
    key: str
    text: str
    value: int


@dataclass(frozen=True, slots=True)
class Printed:
    """The runner's answer to a reply: its program, its exit code (0: it worked), and its output."""

    name: str
    exit_code: int
    output: str


Truth = Mapping[int, str]
"""By toolset, the one tool that works."""


def truth(seed: int) -> Truth:
    """The working tools in the deployment of this seed."""
    rng = random.Random(f"what works {seed}")
    return {i: rng.choice(names) for i, names in enumerate(TOOLSETS)}


def sessions(seed: int, n: int, first: int = 0) -> list[list[Step]]:
    """`n` sessions of the run, from number `first` on, never with a held-out key."""
    keys = [key for key in tool_task.KEYS if key not in HELD_OUT]
    return [_session(random.Random(f"session {seed} {i}"), keys) for i in range(first, first + n)]


def exam() -> list[list[Step]]:
    """The sessions that are never trained on, the same for all runs."""
    return [_session(random.Random(f"exam {i}"), HELD_OUT) for i in range(N_EXAM)]


def run(step: Step, reply: str, works: Truth) -> Printed:
    """The runner's answer to the reply. Only one whole call of the working tool with the key ends with 0."""
    call = _CALL.fullmatch(reply.strip())
    try:
        arguments: Any = json.loads(call["arguments"]) if call else None
    except ValueError:
        arguments = None
    name = call["name"] if call and call["name"] in step.names else RUNNER
    if name == works[step.toolset] and arguments == {"key": step.key}:
        return Printed(name, 0, f"exit:0 value: {step.value}")
    return Printed(name, 1, "failed: exit code 1")


def tells(step: Step, printed: Printed, reply: str) -> bool:
    """Whether the agent's answer on a step is true: the value, or that there is none."""
    return reply == (tool_task.failure(step.key) if printed.exit_code else tool_task.answer(step.key, str(step.value)))


def _session(rng: random.Random, keys: Collection[str]) -> list[Step]:
    return [_step(rng, key) for key in rng.sample(sorted(keys), N_STEPS)]


def _step(rng: random.Random, key: str) -> Step:
    toolset = rng.randrange(len(TOOLSETS))
    names: Sequence[str] = rng.sample(TOOLSETS[toolset], 3)
    return Step(toolset, tuple(names), key, tool_task.ask(key, rng), rng.randint(_LEAST, _LARGEST))
