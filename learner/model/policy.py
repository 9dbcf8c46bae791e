"""Policy: the base model with the adapter being trained, and the log-probs of given tokens under it, the teacher or the
base.

One model in memory serves three sets of weights: the current adapter, the teacher (a second, frozen adapter: the last
promoted one) and the base (adapters disabled). Guarantees: only completion positions pass the LM head. The other rows
of a batch do not change a row's values (up to rounding). Scoring under other weights leaves the current adapter
unchanged and trainable.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from burnish.errors import LearnerError
from burnish.learner.data.rows import Tokens
from burnish.learner.model import adapter_file
from burnish.learner.model.base_model import locate
from burnish.learner.model.forward import Forward
from burnish.learner.model.predictions import Predictions
from burnish.learner.model.ranks import Ranks

_CURRENT, _TEACHER = "default", "teacher"


class Weights(StrEnum):
    """The set of weights to score with."""

    CURRENT = "current"
    TEACHER = "teacher"
    BASE = "base"


class Compared(NamedTuple):
    """Log-probs of given ids [T, K] and of the completion's own tokens [T], and the mean share of the ids that is also
    in the top K of the weights that were asked.
    """

    top: Tensor
    sampled: Tensor
    overlap: float


class Policy:
    """A causal LM from a directory with LoRA on all its linear layers (dropout 0, B = 0: at first it is the base)."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: LoraConfig,
        base_dir: Path,
        score_tokens: int,
        is_checkpointed: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.base_dir = base_dir
        self.score_tokens = score_tokens
        self.rest: Callable[[float], None] = _no_rest
        self.has_teacher = False
        self._layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
        self._forward = Forward(model, is_checkpointed=is_checkpointed)
        self._ranks = Ranks()
        self._adapters: dict[str, dict[str, Tensor]] = {}
        self._initial = self.copy_adapter()

    @classmethod
    def load(
        cls,
        base_dir: Path | str,
        *,
        rank: int,
        alpha: int,
        seed: int = 0,
        device: str = "auto",
        threads: int = 1,
        score_tokens: int | None = None,
        is_checkpointed: bool = False,
        gpu_share: float = 0.0,
        is_bfloat16: bool = False,
    ) -> "Policy":
        """The base in `base_dir` (a directory or hub name) with a fresh fp32 adapter. The base is bf16 on a GPU, and
        fp32 on a CPU unless `is_bfloat16`.

        `score_tokens` bounds the tokens of one forward pass without gradient (default 1,024 on a CPU, 8,192 on a GPU).
        `is_checkpointed` trades time for memory in passes with gradient. On a GPU at most `gpu_share` of its memory is
        used (0: no cap). Beyond it torch raises its out-of-memory error.
        """
        base_dir = locate(base_dir)
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if where == "cpu":
            torch.set_num_threads(threads)
        elif gpu_share:
            torch.cuda.set_per_process_memory_fraction(gpu_share)
        transformers_logging.disable_progress_bar()  # it would break the supervisor's line prefixes
        dtype = torch.float32 if where == "cpu" and not is_bfloat16 else torch.bfloat16
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(base_dir))
            base = AutoModelForCausalLM.from_pretrained(str(base_dir), dtype=dtype).to(where)
        except (OSError, ValueError) as error:
            raise LearnerError(f"cannot load a causal language model from {base_dir}: {error}") from error
        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=rank,
            lora_alpha=alpha,
            lora_dropout=0.0,
            target_modules=_linear_names(base),
            base_model_name_or_path=str(base_dir),
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = get_peft_model(base, config, adapter_name=_CURRENT)
        model.eval()  # no dropout anywhere: training and scoring run the same network
        return cls(
            model, tokenizer, config, base_dir, score_tokens or (1024 if where == "cpu" else 8192), is_checkpointed
        )

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters().values())).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the base's weights. The adapter is fp32."""
        return self._forward.dtype

    @property
    def targets(self) -> list[str]:
        """Names of the layers that carry the adapter."""
        return sorted(self.config.target_modules)

    def parameters(self) -> dict[str, Tensor]:
        """The trained tensors by the names that vLLM reads (`base_model.model.….lora_A.weight`), in a fixed order."""
        return self._adapter(_CURRENT)

    def copy_adapter(self) -> dict[str, Tensor]:
        """The current adapter as copies on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self.parameters().items()}

    def load_adapter(self, directory: Path) -> None:
        """Load the current adapter's weights from a version directory, bit for bit."""
        adapter_file.fill(self._adapter(_CURRENT), directory)

    def reset(self) -> None:
        """Make the current adapter the fresh one again, bit for bit. The policy is then the base."""
        adapter_file.copy(self._initial, self.parameters(), "the fresh adapter")

    def set_teacher(self, directory: Path | None) -> None:
        """Use the adapter in `directory` as the teacher, or the base if it is None."""
        self.has_teacher = directory is not None
        if directory is None:
            return
        self._make_teacher()
        adapter_file.fill(self._adapter(_TEACHER), directory)

    def take_adapter(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the current adapter's weights from copies, bit for bit."""
        adapter_file.copy(dict(tensors), self.parameters(), "the adapter that was sent")

    def shrink(self, factor: float) -> None:
        """Shrink the current adapter towards the base: W = W₀ + `factor`·BA (WiSE-FT, arXiv 2109.01903)."""
        with torch.no_grad():
            for name, tensor in self.parameters().items():
                if ".lora_B." in name:
                    tensor.mul_(factor)

    def copy_teacher(self) -> dict[str, Tensor] | None:
        """The teacher's adapter as copies on the CPU. None if the base is the teacher."""
        if not self.has_teacher:
            return None
        return {
            name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self._adapter(_TEACHER).items()
        }

    def take_teacher(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Use the adapter in `tensors` as the teacher, or the base if they are None."""
        self.has_teacher = tensors is not None
        if tensors is not None:
            self._make_teacher()
            adapter_file.copy(dict(tensors), self._adapter(_TEACHER), "the teacher that was sent")

    @contextmanager
    def using(self, weights: Weights) -> Iterator[None]:
        """Use `weights` inside the block."""
        if weights is Weights.CURRENT:
            yield
        elif weights is Weights.BASE or not self.has_teacher:
            with self._without_adapter():
                yield
        else:
            self.model.set_adapter(_TEACHER, inference_mode=True)
            try:
                yield
            finally:
                self.model.set_adapter(_CURRENT)

    @contextmanager
    def _without_adapter(self) -> Iterator[None]:
        """No adapter inside the block. `PeftModel.disable_adapter` first asks for the state of every layer, which takes
        a tenth of a second for 36 layers.
        """
        for layer in self._layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in self._layers:
                layer.enable_adapters(True)

    @contextmanager
    def folded(self) -> Iterator[None]:
        """Inside the block the current adapter is folded into the base's matrices, W + s·B·A: scoring without gradient
        takes a sixth less.

        Values equal the unfolded ones up to rounding. Nothing may be trained or switched meanwhile. Afterwards the base
        is bit for bit what it was. A base that is not fp32 would lose digits, so it is not folded.
        """
        weights = [layer.get_base_layer().weight for layer in self._layers]
        if not all(weight.dtype == torch.float32 for weight in weights):
            yield
            return
        before = [weight.data for weight in weights]
        try:
            for layer, weight in zip(self._layers, weights, strict=True):
                weight.data = weight.data + layer.get_delta_weight(_CURRENT)
            with self._without_adapter():
                yield
        finally:
            for weight, data in zip(weights, before, strict=True):
                weight.data = data

    def predictions(self, rows: Sequence[Tokens]) -> Predictions:
        """The current adapter's predictions at each row's sampled tokens, rows concatenated.

        One forward pass, with gradient if it is enabled. No tensor of tokens × vocabulary is made.
        """
        return self._forward.predictions(rows)

    def batches(self, rows: Sequence[Tokens], budget: int) -> list[list[int]]:
        """Indices of `rows` in micro-batches of at most `budget` tokens each (one row may exceed it alone)."""
        return self._forward.batches(rows, budget)

    def distributions(self, rows: Sequence[Tokens]) -> Tensor:
        """Log-softmax [N, V] of `predictions(rows)`, for tests and small vocabularies."""
        return self.predictions(rows).dense()

    def logprobs(self, rows: Sequence[Tokens], weights: Weights = Weights.CURRENT) -> list[Tensor]:
        """Log-probs of each row's completion ids [T], without gradient, on the CPU."""
        targets = [torch.tensor(list(row.completion_ids))[:, None] for row in rows]
        return [found.squeeze(1) for found in self.logprobs_at(rows, targets, weights)]

    def logprobs_at(
        self, rows: Sequence[Tokens], ids: Sequence[Tensor], weights: Weights = Weights.CURRENT
    ) -> list[Tensor]:
        """Log-probs of the given ids [T, K] at each completion position of each row, without gradient, on the CPU."""
        found: dict[int, Tensor] = {}
        for i, predictions, places in self._scored(rows, weights):
            found[i] = predictions.at_ids(ids[i].to(places.device), places).cpu()
        return self._ranks.merged(found)

    def top(self, rows: Sequence[Tokens], k: int) -> list[Tensor]:
        """Ids [T, K] of the current adapter's K likeliest tokens at each completion position, on the CPU."""
        found: dict[int, Tensor] = {}
        for i, predictions, places in self._scored(rows, Weights.CURRENT):
            found[i] = predictions.top(k)[places].cpu()
        return self._ranks.merged(found)

    def likeliest(
        self, rows: Sequence[Tokens], k: int, weights: Weights = Weights.CURRENT
    ) -> list[tuple[Tensor, Tensor]]:
        """Ids and log-probs [T, K] of the K tokens that `weights` find likeliest at each completion position, in one
        pass, on the CPU."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for i, predictions, places in self._scored(rows, weights):
            ids = predictions.top(k)[places]
            found[i] = (ids.cpu(), predictions.at_ids(ids, places).cpu())
        return self._ranks.merged(found)

    def compared(self, rows: Sequence[Tokens], ids: Sequence[Tensor], weights: Weights) -> list["Compared"]:
        """What `weights` say of the given ids [T, K] and of the completion itself, for each row, in one pass."""
        found: dict[int, Compared] = {}
        for i, predictions, places in self._scored(rows, weights):
            asked = ids[i].to(places.device)
            sampled = torch.tensor(list(rows[i].completion_ids), device=places.device)[:, None]
            values = predictions.at_ids(torch.cat([asked, sampled], 1), places).cpu()
            own = predictions.top(asked.shape[1])[places]
            share = (asked[:, :, None] == own[:, None, :]).any(-1).float().mean().item()
            found[i] = Compared(values[:, :-1], values[:, -1], share)
        return self._ranks.merged(found)

    def _scored(self, rows: Sequence[Tokens], weights: Weights) -> Iterator[tuple[int, Predictions, Tensor]]:
        """Each row's index with the predictions of its batch and its places in them."""
        for batch in self._ranks.share(self.batches(rows, self._ranks.budget(rows, self.score_tokens)), rows):
            began = time.perf_counter()
            # not around the yield, so that the caller's code keeps its own grad mode
            with self.using(weights), torch.no_grad():
                predictions = self.predictions([rows[i] for i in batch])
            start = 0
            for i in batch:
                n = len(rows[i].completion_ids)
                yield i, predictions, torch.arange(start, start + n, device=predictions.device)
                start += n
            self.rest(time.perf_counter() - began)

    @contextmanager
    def shared_among(self, ranks: Ranks) -> Iterator[None]:
        """Inside the block each of `ranks` scores its share of the rows and all get all. Every rank must ask for the
        same.
        """
        before, self._ranks = self._ranks, ranks
        try:
            yield
        finally:
            self._ranks = before

    def _make_teacher(self) -> None:
        if _TEACHER not in self.model.peft_config:
            with torch.random.fork_rng():
                self.model.add_adapter(_TEACHER, self.config)
            self.model.set_adapter(_CURRENT)

    def _adapter(self, name: str) -> dict[str, Tensor]:
        """An adapter's tensors. They are looked up once, because the search through a large model takes 25 ms."""
        if name not in self._adapters:
            mark = f".{name}."
            self._adapters[name] = {
                key.replace(mark, "."): tensor
                for key, tensor in sorted(self.model.named_parameters())
                if "lora_" in key and mark in key
            }
        return dict(self._adapters[name])


def _no_rest(worked: float) -> None:
    """The default: no rest between batches."""


def _linear_names(base: Any) -> list[str]:
    """Last names of all linear layers but the head. PEFT's "all-linear" would write out every layer's full name."""
    head = base.get_output_embeddings()
    linear = (
        name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear) and module is not head
    )
    return sorted({name.rpartition(".")[2] for name in linear})
