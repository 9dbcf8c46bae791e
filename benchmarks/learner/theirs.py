"""`python benchmarks/learner/theirs.py FOLDER THREADS MICRO_BATCH [default] [compact]`: TRL's GRPO step.

Runs in TRL's environment, with TRL's own code throughout: padding as in `_generate_and_score_completions`, reference
log-probs by `_get_per_token_logps_and_entropies` with the adapter off, `split_tensor_dict`, `_compute_loss`, its
optimiser. `default` leaves gradient checkpointing as TRL has it (on). `compact` lets its head skip all tokens outside
the completion, as on a GPU. On a CPU it scores every token.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from peft import LoraConfig, set_peft_model_state_dict
from peft.utils.save_and_load import load_peft_weights
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils
from trl.trainer.utils import pad, split_tensor_dict, use_adapter

from benchmarks.learner.meter import serve

LORA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main() -> None:
    """Load, then take a step for each line of stdin."""
    folder, threads, micro, flags = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(threads)
    given = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    settings, rows = given["settings"], given["rows"]
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    checkpointing: dict[str, Any] = {} if "default" in flags else {"gradient_checkpointing": False}
    if "compact" in flags:
        utils._use_triton = lambda device: True
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    trainer = trainer_for(model, tokenizer, rows, settings, micro, bf16=False, use_cpu=True, **checkpointing)
    set_peft_model_state_dict(trainer.model, load_peft_weights(str(folder / "adapter"), device="cpu"))
    for parameter in trainer.model.parameters():
        parameter.detach().sum()
    batch = padded(rows)
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    serve(lambda: step(trainer, batch, micro, len(rows) // micro, trained))


def trainer_for(
    model: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], micro: int, **more: Any
) -> GRPOTrainer:
    """TRL's trainer around a base with a fresh adapter, ready to step. `more` are arguments of its config."""
    n_micro = len(rows) // micro
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=n_micro,
        steps_per_generation=n_micro,
        num_generations=len(rows),
        max_completion_length=max(len(row["completion_ids"]) for row in rows),
        beta=settings["beta"],
        epsilon=settings["clip"],
        learning_rate=settings["learning_rate"],
        max_grad_norm=settings["max_grad_norm"],
        adam_beta2=0.98,
        weight_decay=0.0,
        loss_type="dapo",
        temperature=1.0,
        report_to=[],
        **more,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": ["w2"] * len(rows)}), fingerprint="rows"),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            task_type="CAUSAL_LM",
            r=settings["rank"],
            lora_alpha=settings["alpha"],
            lora_dropout=0.0,
            target_modules=LORA,
        ),
    )
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = n_micro
    trainer.model.train()
    return trainer


def padded(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Prompts padded on the left, completions on the right, to the longest of the whole batch."""
    prompts = [torch.tensor(row["prompt_ids"]) for row in rows]
    completions = [torch.tensor(row["completion_ids"]) for row in rows]
    return {
        "prompt_ids": pad(prompts, padding_value=0, padding_side="left"),
        "prompt_mask": pad([torch.ones_like(p) for p in prompts], padding_value=0, padding_side="left"),
        "completion_ids": pad(completions, padding_value=0, padding_side="right"),
        "completion_mask": pad([torch.ones_like(c) for c in completions], padding_value=0, padding_side="right"),
        "old_per_token_logps": pad([torch.tensor(row["behaviour"]) for row in rows], padding_value=0.0),
        "advantages": torch.tensor([row["advantage"] for row in rows]),
        "num_items_in_batch": torch.tensor(float(sum(len(c) for c in completions))),
    }


def step(trainer: GRPOTrainer, batch: dict[str, Any], micro: int, n_micro: int, trained: list[Any]) -> float:
    """One step in `n_micro` micro-batches. Returns the loss."""
    reference = reference_logprobs(trainer, batch, micro)
    loss = 0.0
    for part in split_tensor_dict({**batch, "ref_per_token_logps": reference}, n_micro):
        share = trainer._compute_loss(trainer.model, part)
        trainer.accelerator.backward(share)
        loss += share.item()
    torch.nn.utils.clip_grad_norm_(trained, trainer.args.max_grad_norm)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    return loss


def reference_logprobs(trainer: GRPOTrainer, batch: Mapping[str, Any], micro: int) -> Any:
    """The base's log-probs of the completions."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad(), use_adapter(trainer.model, adapter_name=None):
        found, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, batch["completion_ids"].size(1), batch_size=micro
        )
    return found


if __name__ == "__main__":
    main()
