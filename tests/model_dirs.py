"""Directories of base models: one with just the files that are looked at, and a tiny one that runs."""

import json
from pathlib import Path

from burnish.config import ABILITIES, ANCHORS

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
N_VOCAB = 4096


def model_dir(
    folder: Path,
    architecture: str = "LlamaForCausalLM",
    layer: str = "q_proj",
    template: str = "{{ messages }}",
    n_context: int | None = None,
) -> Path:
    """The smallest directory that is taken for a model. It has no tokenizer and no weights to speak of."""
    folder.mkdir()
    config = {"architectures": [architecture]} | ({"max_position_embeddings": n_context} if n_context else {})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template} if template else {}))
    weight = {f"model.layers.0.{layer}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    header = json.dumps(weight).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return folder


def tiny_llama(folder: Path, *, n_context: int = 2048, template: str = CHATML) -> Path:
    """A Llama with 1.4M random weights, a real tokenizer and a chat template. It says nothing sensible.

    Its head is five times as large as usual, so that it prefers some tokens to others. Its end token is six times as
    large again, so that most replies end within 40 tokens: a reply that its limit cuts is not trained on.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer(template)
    config = LlamaConfig(
        vocab_size=N_VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=n_context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(5.0)
        model.lm_head.weight[tokenizer.eos_token_id].mul_(6.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(template: str):  # type: ignore[no-untyped-def]
    """Byte-level BPE, trained on the prompts that ship."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    texts = [
        str(message["content"])
        for file in (ABILITIES, ANCHORS)
        for line in file.read_text(encoding="utf-8").splitlines()
        for message in json.loads(line)["messages"]
    ]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=N_VOCAB,
            special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|pad|>")
    tokenizer.chat_template = template or None
    return tokenizer
