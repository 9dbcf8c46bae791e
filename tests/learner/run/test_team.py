"""`burnish run learner` under torchrun: two processes publish the version that one publishes."""

import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from burnish import config
from burnish.adapters.registry import lifecycle
from burnish.journal import Journal
from burnish.journal.tables import StepRow
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model.policy import Policy
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn

N = 8


def settings_in(folder: Path) -> config.Settings:
    flags = {
        "state_dir": str(folder),
        "learner.min_rows": N,
        "learner.max_rows": N,
        "learner.recipe": {"anchor_rows": 4},
    }
    return config.load(flags=flags)


def fill(settings: config.Settings, policy: Policy) -> None:
    """A journal with rated turns whose log-probs are the base's own."""
    for part in (settings.state_dir, settings.adapters_dir, settings.run_dir):
        part.mkdir(parents=True)
    journal = Journal.open(settings.journal_url)
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    tokenizer = policy.tokenizer
    for number in range(N):
        messages = [user(f"Please copy {number} {number + 2}.")]
        prompt = array("i", render(tokenizer, messages, ()))
        reply = array("i", tokenizer(f"{number} {number + 2}", add_special_tokens=False)["input_ids"])
        (logprobs,) = policy.logprobs([Text(prompt, reply)])
        turn = interaction(
            messages,
            interaction_id=f"t{number}",
            prompt_ids=prompt,
            token_ids=reply,
            logprobs=array("f", logprobs.clamp(max=-1e-4).tolist()),
            started_at=float(number),
            ended_at=number + 0.5,
        )
        add_turn(journal, turn, is_ready=True)
        add_feedback(
            journal, f"t{number}", 1.0 if number % 3 else -1.0, feedback_id=f"f{number}", created_at=50.0 + number
        )
    journal.close()


def learn(settings: config.Settings, n_ranks: int) -> dict[str, torch.Tensor]:
    """The weights of the version that `n_ranks` processes publish."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"] if n_ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "burnish", "run", "learner"]
    environment = {**os.environ, **config.to_environment(settings)}
    process = subprocess.Popen(command, env=environment, cwd=settings.state_dir)
    journal = Journal.open(settings.journal_url)
    try:
        deadline = time.monotonic() + 150.0
        while time.monotonic() < deadline and process.poll() is None:
            with journal.read() as session:
                if lifecycle.versions(session, "agent"):
                    break
            time.sleep(0.2)
        with journal.read() as session:
            (row,) = lifecycle.versions(session, "agent")
            assert session.query(StepRow).one().metrics["n_trained"] == N
    finally:
        journal.close()
        process.terminate()
        assert process.wait(60) in (0, -15, 1)  # torchrun reports the signal that ended it
    return load_file(settings.adapters_dir / "agent" / f"v{row.version:06d}" / "adapter_model.safetensors")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_publish_what_one_does(tmp_path: Path) -> None:
    policy = Policy.load(config.SANDBOX_MODEL, rank=16, alpha=32, device="cpu")
    found = []
    for n_ranks in (1, 2):
        settings = settings_in(tmp_path / str(n_ranks))
        fill(settings, policy)
        found.append(learn(settings, n_ranks))
    alone, together = found
    moved = max(float(tensor.abs().max()) for name, tensor in alone.items() if ".lora_B." in name)
    assert moved > 1e-4  # B begins at 0: something was learned
    for name, tensor in alone.items():
        # AdamW turns the rounding of a gradient near zero into a whole step, so single weights may differ
        assert float((tensor - together[name]).abs().mean()) < 0.01 * moved, name
