"""A tiny random Llama with a tokenizer and a chat template, and one reply: the learner's test subject, from a seed."""

from array import array
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.learner.data.teacher_prompts import render
from burnish.learner.model.policy import Policy
from burnish.records import Interaction, Sampling

TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for call in m.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]


def build_model(directory: Path) -> Path:
    """A byte-level Llama of 2 layers, hidden 64, head_dim 32 (vLLM's kernels want 32 or more)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>", extra_special_tokens=SPECIAL[1:]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
        initializer_range=0.15,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def perturb(policy: Policy, scale: float = 0.2, seed: int = 5) -> None:
    """Make the current adapter a non-trivial one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * scale)


def interaction(tokenizer: object, text: str = "copy 1 2", **changes: object) -> Interaction:
    """A finished reply "1 2" to `text`, with plausible log-probs."""
    messages = [{"role": "user", "content": text}]
    made = Interaction(
        interaction_id="chatcmpl-1",
        request_id="r1",
        agent="agent",
        version=1,
        tenant="default",
        key_id="k",
        messages=messages,
        reply={"role": "assistant", "content": "1 2"},
        started_at=0.0,
        ended_at=1.0,
        finish_reason="stop",
        sampling=Sampling(temperature=1.0),
        prompt_ids=array("i", render(tokenizer, messages, ())),
        token_ids=array("i", [10, 11, 12, 0]),
        logprobs=array("f", [-1.0, -2.0, -0.5, -0.1]),
    )
    return replace(made, **changes)
