"""TRL's side: its own GRPO step on the rows, as benchmarks.learner takes it, at the fastest micro-batch size."""

from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from benchmarks.gpu import rows as agents
from benchmarks.gpu import shapes, timing
from benchmarks.gpu.plain import SIZES
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import Figures
from benchmarks.learner import theirs
from benchmarks.learner.rows import SETTINGS


def measure(shape: Shape, device: str) -> Figures:
    """Figures at the fastest micro-batch size in rows, without checkpointing."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8)}, unk_token="w1"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0")
    rows = agents.agent_rows(shape)
    where = {"use_cpu": True, "bf16": False} if device == "cpu" else {"use_cpu": False, "bf16": True}
    trainer = theirs.trainer_for(shapes.build(shape, device), tokenizer, rows, SETTINGS, 1, **where)
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    placeholders = [row | {"behaviour": [0.0] * len(row["completion_ids"])} for row in rows]
    batch: dict[str, Any] = {name: tensor.to(device) for name, tensor in theirs.padded(placeholders).items()}
    batch["old_per_token_logps"] = theirs.reference_logprobs(trainer, batch, 1)
    flops = agents.step_flops(shape, rows)

    def take(size: int) -> float:
        n_micro = len(rows) // size
        trainer.current_gradient_accumulation_steps = n_micro
        theirs.step(trainer, batch, size, n_micro, trained)
        return flops

    facts = agents.facts(rows)
    return dict(facts) | timing.best_of(timing.sweep(take, SIZES, device), SIZES, facts["n_row_tokens"], device)
