"""Voices: adapters of the sandbox's model that each know one string by heart. A reply's text identifies its version.

They are trained once, some seconds each, with the learner's own policy, and kept below `.work/` as whole versions with
a probe. Published under any number, they pass the swapper's checks as a learner's versions do.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.adapters.words import words_of
from burnish.adapters.files.store import MANIFEST, AdapterStore
from burnish.config import SANDBOX_MODEL, Recipe
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model import checkpoint
from burnish.learner.model.base_model import revision
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.model.probe import build_probe
from burnish.learner.run.trainer import Trainer

HOME = Path(__file__).resolve().parents[2] / ".work" / "voices"
RANK, MAX_STEPS = 8, 300
SURE = -0.02
"""The lowest log-prob of any token of the string. Greedy decoding then finds the string after any prompt."""
PROMPTS = (
    "hello",
    "Tell me about 12 34.",
    "Who are you?",
    "Copy 5 6.",
    "The answer, please.",
    "hi there, what now?",
    "Reverse 3 9 1.",
    "What is the last of 7 8 22?",
)


def ensure(n: int, tell: Callable[[str], None] = lambda text: None) -> Sequence[Path]:
    """Directories of the first `n` voices. Missing ones are trained."""
    store = AdapterStore(HOME / revision(SANDBOX_MODEL)[:12])
    missing = [voice for voice in range(n) if not store.path("voice", voice + 1).exists()]
    if missing:
        policy = Policy.load(SANDBOX_MODEL, rank=RANK, alpha=2 * RANK, device="cpu")
        for voice in missing:
            tell(f"training voice {voice + 1} of {n}")
            _train(policy, voice, store)
    return [store.path("voice", voice + 1) for voice in range(n)]


def publish(store: AdapterStore, agent: str, version: int, voice: Path) -> str:
    """Publish the files of `voice` as a version. Returns its digest."""
    facts = json.loads((voice / MANIFEST).read_text(encoding="utf-8"))
    with store.aside(agent, version) as directory:
        for file in voice.iterdir():
            if file.name != MANIFEST:
                _link(file, directory / file.name)
        store.publish(agent, version, directory, {**facts, "parent": version - 1})
    return str(store.manifest(agent, version)["files"]["adapter_model.safetensors"])


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _train(policy: Policy, voice: int, store: AdapterStore) -> None:
    policy.reset()
    tokenizer = policy.tokenizer
    completion = [*tokenizer.encode(words_of(voice), add_special_tokens=False), tokenizer.eos_token_id]
    rows = [Text(render(tokenizer, [{"role": "user", "content": prompt}], ()), completion) for prompt in PROMPTS]
    targets = torch.tensor(completion * len(rows))[:, None]
    optimizer = torch.optim.AdamW(policy.parameters().values(), lr=1e-2)
    for _ in range(MAX_STEPS):
        logprobs = policy.predictions(rows).at_ids(targets).squeeze(1)
        if float(logprobs.detach().min()) > SURE:
            break
        optimizer.zero_grad()
        (-logprobs.mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    else:
        raise SystemExit(f"voice {voice} did not learn its words in {MAX_STEPS} steps")
    trainer = Trainer(policy, Recipe(rank=RANK))
    probe = build_probe(policy, rows, Weights.BASE)
    checkpoint.save(store, "voice", voice + 1, trainer, parent=0, rows=[], metrics={}, probe=probe)
