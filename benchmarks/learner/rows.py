"""Rows and model of the measurement: a folder with a random Qwen2, an adapter and `rows.json`. Both sides read it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

from burnish.learner.data.rows import Text
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy

N_VOCAB = 151_936
SETTINGS: dict[str, Any] = {
    "rank": 16,
    "alpha": 32,
    "beta": 0.04,
    "clip": 0.2,
    "learning_rate": 1e-5,
    "max_grad_norm": 1.0,
}


def prepare(folder: Path, *, n_rows: int, longest: int, threads: int, seed: int = 0) -> dict[str, float]:
    """Write the model, the adapter and the rows. Returns facts about the rows' lengths.

    The adapter is not fresh, so that KL and ratios are not trivial. Lengths of prompts and completions are log-normal
    (median longest/4, σ 0.8, at most `longest`), like those of replies: a few are long. No two rows share a prompt. μ
    is the policy's own log-prob with noise of 0.05, because an engine's differs.
    """
    torch.set_num_threads(threads)
    transformers_logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=N_VOCAB,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        initializer_range=0.05,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    words = {f"w{i}": i for i in range(256)}
    core = Tokenizer(models.WordLevel(words, unk_token="w1"))
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="w0", pad_token="w0").save_pretrained(folder / "model")

    policy = Policy.load(
        folder / "model", rank=SETTINGS["rank"], alpha=SETTINGS["alpha"], seed=seed, device="cpu", threads=threads
    )
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(torch.randn(tensor.shape) * 0.02)
    (folder / "adapter").mkdir()
    adapter_file.save(folder / "adapter", policy.copy_adapter(), policy.config)

    rng = random.Random(seed)

    def draw() -> list[int]:
        n = min(longest, max(2, round(rng.lognormvariate(0.0, 0.8) * longest / 4)))
        return [rng.randrange(1, N_VOCAB) for _ in range(n)]

    texts = [Text(draw(), draw()) for _ in range(n_rows)]
    noise = [torch.randn(len(text.completion_ids)) * 0.05 for text in texts]
    rows = [
        {
            "prompt_ids": text.prompt_ids,
            "completion_ids": text.completion_ids,
            "behaviour": (found + shift).clamp(max=0.0).tolist(),
            "advantage": rng.uniform(-1.0, 1.0),
        }
        for text, found, shift in zip(texts, policy.logprobs(texts), noise, strict=True)
    ]
    (folder / "rows.json").write_text(json.dumps({"settings": SETTINGS, "rows": rows}), encoding="utf-8")
    return _facts(texts)


def _facts(texts: Sequence[Text]) -> dict[str, float]:
    prompts, completions = (
        [len(ids) for ids in kind] for kind in zip(*((t.prompt_ids, t.completion_ids) for t in texts), strict=True)
    )
    return {
        "n_rows": len(texts),
        "n_prompt_tokens": sum(prompts),
        "n_completion_tokens": sum(completions),
        "n_padded_tokens": len(texts) * (max(prompts) + max(completions)),
    }
