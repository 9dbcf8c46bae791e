"""Fakes that ship: a stand-in for vLLM for tests, and for trying a set-up without a model.

`StubEngine` replies from a list or a function; `ScriptedEngine` plays scenes to real clients and notes what really happened,
so that a journal can be compared with the truth. `python -m burnish.testing` runs either as a process of its own.
"""

from burnish.testing.engine import Failure, StubEngine
from burnish.testing.reply import EOS, Refusal, Scripted, logprob_of, prompt_ids

__all__ = ["EOS", "Failure", "Refusal", "Scripted", "StubEngine", "logprob_of", "prompt_ids"]
