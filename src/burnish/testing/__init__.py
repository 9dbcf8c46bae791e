"""Fakes that ship: a stand-in for vLLM for tests, and for trying a set-up without a model.

`StubEngine` replies from a list or a function. `ScriptedEngine` plays scenes to real clients and records what really
happened, so that a journal can be compared with the truth. `python -m burnish.testing` runs either as a process.
"""

from burnish.testing.scenes import Outcome, Part, Scene, Script, Side, Step, Truth
from burnish.testing.scripted_engine import ScriptedEngine
from burnish.testing.stub_engine import Failure, StubEngine
from burnish.testing.stub_reply import EOS, FULL, TOO_LONG, Refusal, Scripted, logprob_of, prompt_ids

__all__ = [
    "EOS",
    "FULL",
    "TOO_LONG",
    "Failure",
    "Outcome",
    "Part",
    "Refusal",
    "Scene",
    "Script",
    "Scripted",
    "ScriptedEngine",
    "Side",
    "Step",
    "StubEngine",
    "Truth",
    "logprob_of",
    "prompt_ids",
]
