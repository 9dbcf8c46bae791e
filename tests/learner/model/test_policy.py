"""Scoring: padding changes nothing, the three sets of weights differ, and the adapter stays trainable."""

from pathlib import Path

import pytest
import torch
from peft.tuners.lora import LoraLayer
from tiny import perturb

from burnish.errors import AdapterError, LearnerError
from burnish.learner.data.rows import Text, pack
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.model.predictions import Projected

ROWS = [Text([5, 6, 7], [8, 9, 0]), Text([5], [40]), Text(list(range(20, 60)), list(range(60, 75)))]


def test_a_fresh_adapter_is_the_base(policy: Policy) -> None:
    for current, base in zip(policy.logprobs(ROWS), policy.logprobs(ROWS, Weights.BASE), strict=True):
        assert torch.equal(current, base)


def test_padding_changes_nothing(policy: Policy) -> None:
    perturb(policy)
    together = policy.logprobs(ROWS)
    for row, found in zip(ROWS, together, strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1]
        alone = torch.log_softmax(logits, -1)[range(len(row.completion_ids)), list(row.completion_ids)]
        assert torch.allclose(found, alone, atol=1e-5)


def test_gradient_does_not_depend_on_padding(policy: Policy) -> None:
    perturb(policy)

    def gradient(groups: list[list[Text]]) -> list[torch.Tensor]:
        policy.model.zero_grad()
        for group in groups:
            policy.distributions(group)[:, 7].sum().backward()
        return [tensor.grad.clone() for tensor in policy.parameters().values()]

    for padded, alone in zip(gradient([ROWS]), gradient([[row] for row in ROWS]), strict=True):
        assert torch.allclose(padded, alone, atol=1e-4, rtol=1e-4)


def test_only_completion_positions_reach_the_head(policy: Policy) -> None:
    predictions = policy.predictions(ROWS)
    assert isinstance(predictions, Projected)
    assert predictions.hidden.shape[0] == sum(len(row.completion_ids) for row in ROWS)


def test_teacher_is_another_adapter_and_the_current_one_stays_trainable(policy: Policy, tmp_path: Path) -> None:
    perturb(policy, seed=1)
    adapter_file.save(tmp_path, policy.copy_adapter(), policy.config)
    promoted = policy.logprobs(ROWS)
    perturb(policy, seed=2)
    current, before = policy.logprobs(ROWS), policy.copy_adapter()
    policy.set_teacher(tmp_path)
    teacher = policy.logprobs(ROWS, Weights.TEACHER)
    assert all(torch.equal(a, b) for a, b in zip(teacher, promoted, strict=True))
    assert not torch.allclose(teacher[2], current[2], atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(policy.logprobs(ROWS), current, strict=True))
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.parameters().items())
    assert all(tensor.requires_grad for tensor in policy.parameters().values())
    policy.set_teacher(None)
    base = policy.logprobs(ROWS, Weights.BASE)
    assert all(torch.equal(a, b) for a, b in zip(policy.logprobs(ROWS, Weights.TEACHER), base, strict=True))


def test_adapter_round_trip_is_bit_identical(policy: Policy, base_dir: Path, tmp_path: Path) -> None:
    perturb(policy)
    adapter_file.save(tmp_path, policy.copy_adapter(), policy.config)
    other = Policy.load(base_dir, rank=4, alpha=8, seed=9, device="cpu")
    other.load_adapter(tmp_path)
    assert all(torch.equal(tensor, other.parameters()[name]) for name, tensor in policy.parameters().items())


def test_adapter_of_another_rank_is_refused_and_changes_nothing(policy: Policy, base_dir: Path, tmp_path: Path) -> None:
    other = Policy.load(base_dir, rank=8, alpha=8, device="cpu")
    adapter_file.save(tmp_path, other.copy_adapter(), other.config)
    before = policy.copy_adapter()
    with pytest.raises(AdapterError, match="shape"):
        policy.load_adapter(tmp_path)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.parameters().items())


def test_top_holds_the_likeliest_ids(policy: Policy) -> None:
    [ids] = policy.top(ROWS[:1], 5)
    [values] = policy.logprobs_at(ROWS[:1], [ids])
    assert ids.shape == (3, 5)
    assert (values[:, :-1] >= values[:, 1:]).all()


def test_missing_model_is_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="cannot load"):
        Policy.load(tmp_path / "nowhere", rank=4, alpha=8)
    with pytest.raises(LearnerError, match="cannot load"):
        Policy.load(tmp_path, rank=4, alpha=8)  # a directory without a model


def test_packing_keeps_every_row_once_within_the_budget() -> None:
    rows = [Text([1] * (i % 7 + 1), [2] * (i % 5 + 1)) for i in range(40)]
    batches = pack(rows, 24)
    assert sorted(i for batch in batches for i in batch) == list(range(40))
    lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
    assert all(max(lengths[i] for i in batch) * len(batch) <= 24 for batch in batches)
    assert pack([Text([1] * 50, [2])], 24) == [[0]]


def test_folding_changes_no_value_and_afterwards_the_base_is_unchanged(policy: Policy) -> None:
    perturb(policy)
    weights = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    loose, base = policy.logprobs(ROWS), policy.logprobs(ROWS, Weights.BASE)
    with pytest.raises(RuntimeError, match="broken"), policy.folded():
        for one, other, frozen in zip(policy.logprobs(ROWS), loose, base, strict=True):
            assert torch.allclose(one, other, atol=1e-5) and not torch.allclose(one, frozen, atol=1e-2)
        raise RuntimeError("broken")
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    assert all(torch.equal(one, other) for one, other in zip(policy.logprobs(ROWS), loose, strict=True))


def test_a_bf16_base_computes_its_adapter_in_bf16_and_keeps_it_in_fp32(policy: Policy, base_dir: Path) -> None:
    rounded = Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu", is_bfloat16=True)
    perturb(policy)
    rounded.take_adapter(policy.copy_adapter())
    layer = next(module for module in rounded.model.modules() if isinstance(module, LoraLayer))
    types = set()
    layer.lora_A["default"].register_forward_hook(lambda module, given, made: types.add(made.dtype))

    def gradient(of: Policy) -> torch.Tensor:
        of.predictions(ROWS).dense().diagonal().sum().backward()
        return torch.cat([tensor.grad.flatten() for tensor in of.parameters().values()])

    def likeness(one: torch.Tensor, other: torch.Tensor) -> float:
        return float(torch.nn.functional.cosine_similarity(one, other, dim=0))

    found, exact = gradient(rounded), gradient(policy)
    assert types == {torch.bfloat16}
    assert found.dtype == torch.float32
    rounded.model.zero_grad()
    rounded._forward._type = torch.float32  # now only the base is rounded, and the adapter is computed in fp32
    assert likeness(found, exact) > likeness(gradient(rounded), exact) - 0.01
    rounded._forward._type = torch.bfloat16
    for some, others in zip(rounded.logprobs(ROWS), policy.logprobs(ROWS), strict=True):
        assert (some - others).abs().mean() < 0.1
    types.clear()
    rounded.model(input_ids=torch.tensor([[5, 6, 7]]))  # outside a pass PEFT casts as ever
    assert types == {torch.float32}
