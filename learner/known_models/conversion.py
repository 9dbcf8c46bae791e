"""A GGUF file becomes a Transformers directory: weights, configuration, tokenizer and chat template.

The weights are the GGUF's own values, dequantised and not rounded again.
"""

import contextlib
import importlib.util
import io
from pathlib import Path

from burnish.errors import ModelError

CONVERSION = 1
"""Goes up when the directory that is written changes. Directories of an older number are made again."""


NEEDED = ("torch", "transformers", "gguf")


def require_packages() -> None:
    """Raises ModelError if a package that `convert` needs is missing. Imports none of them."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"converting a model needs {', '.join(missing)}. Run `make setup`, or install with the extra: "
            'pip install "burnish[cpu]".'
        )


def convert(source: Path, target: Path, *, splits_digits: bool) -> None:
    """Write the model of the GGUF file `source` into the new directory `target`. `splits_digits`: as KnownModel says.

    Raises ModelError if `source` has no chat template or if the weights cannot be written. Raises OSError if `target`
    cannot be written.
    """
    import torch
    from safetensors import SafetensorError
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    with contextlib.redirect_stderr(io.StringIO()):  # not all of Transformers' progress bars have a switch
        # float32, although it is the largest. A Q4_1 value is scale × level + offset, which has more bits than a 16-bit
        # float holds. Rounded to bfloat16, 79 % of SmolLM2's weights change and a logit by up to 0.28; to float16, 42 %
        # and 0.04. `engine.dtype` decides what engine and learner compute in.
        model = AutoModelForCausalLM.from_pretrained(
            source.parent,
            gguf_file=source.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),  # also drops this configuration before the model is saved
        )
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if tokenizer.chat_template is None:
        raise ModelError(f"{source.name} has no chat template")
    if splits_digits:  # Transformers does not take this step of the tokenizer from the file
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
        )
    config = model.config
    for name in ("bos_token", "eos_token", "pad_token"):  # some versions of Transformers give the tokenizer other ones
        token = getattr(config, f"{name}_id")
        setattr(tokenizer, name, None if token is None else tokenizer.convert_ids_to_tokens(token))
    tokenizer.model_max_length = config.max_position_embeddings
    config.rms_norm_eps = float(f"{config.rms_norm_eps:.6g}")  # the file holds 1e-5 as a 32-bit float
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    target.mkdir(parents=True)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
    except SafetensorError as error:
        raise ModelError(f"cannot write the weights to {target.parent}: {error}") from error
    for file in target.iterdir():
        file.chmod(0o644)  # safetensors writes weights that nobody else can read; an engine may run as another user
