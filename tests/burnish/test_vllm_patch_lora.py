"""The patch of vLLM's adapter operations: slot -1 is no adapter, all else equals vLLM's own, token by token."""

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.engine
N_SLOTS, RANK, HIDDEN, OUTPUTS = 3, 4, 16, (8, 12)


@pytest.fixture
def mend() -> Any:
    return pytest.importorskip("burnish.vllm_patches.lora")


def wrapper(mend: Any, slots: list[int]) -> Any:
    """vLLM's own metadata of a step whose tokens have these slots."""
    from vllm.lora.layers import LoRAMapping

    made = mend.PunicaWrapperCPU(128, 128, "cpu")
    ids = tuple(slot + 1 for slot in slots)  # adapters' ids begin at 1; 0 means none
    made.update_metadata(LoRAMapping(ids, ids, is_prefill=True), [1, 2, 3], N_SLOTS, 100)
    return made


def one_by_one(slots: list[int], x: torch.Tensor, y: torch.Tensor, a: Any, b: Any, scale: float) -> torch.Tensor:
    """The formula, for each token alone."""
    found, begin = y.clone(), 0
    for left, right in zip(a, b, strict=True):
        width = right.shape[2]
        for row, slot in enumerate(slots):
            if slot >= 0:
                found[row, begin : begin + width] += scale * (right[slot, 0] @ (left[slot, 0] @ x[row]))
        begin += width
    return found


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize(
    "slots",
    [[0] * 5, [0, 1, 0, -1, 2, 1], [-1, -1], [2], [0, 0, 1, 1, 1, -1, 0], [-1, 1, 1], [2, 0, -1] * 40, [1] * 100],
    ids=lambda slots: f"{slots[:7]} of {len(slots)}",
)
def test_each_token_gets_its_own_adapter_and_nothing_else(mend: Any, slots: list[int], scale: float) -> None:
    torch.manual_seed(0)
    a = tuple(torch.randn(N_SLOTS, 1, RANK, HIDDEN) for _ in OUTPUTS)
    b = tuple(torch.randn(N_SLOTS, 1, width, RANK) for width in OUTPUTS)
    x, y = torch.randn(len(slots), HIDDEN), torch.randn(len(slots), sum(OUTPUTS))
    expected, before = one_by_one(slots, x, y, a, b, scale), y.clone()
    wrapper(mend, slots).add_lora_linear(y, x, a, b, scale, OUTPUTS)
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-5)
    without = [row for row, slot in enumerate(slots) if slot < 0]
    assert torch.equal(y[without], before[without])


@pytest.mark.parametrize("n_times", [1, 20], ids=["few tokens", "many tokens"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_adds_what_vllms_own_operations_add(mend: Any, dtype: torch.dtype, n_times: int) -> None:
    """vLLM's own are correct if every token has an adapter, so they are the reference. Each keeps the middle in
    fp32."""
    torch.manual_seed(0)
    slots = [0, 1, 1, 2, 0] * n_times
    a = tuple(torch.randn(N_SLOTS, 1, RANK, HIDDEN).to(dtype) for _ in OUTPUTS)
    b = tuple(torch.randn(N_SLOTS, 1, width, RANK).to(dtype) for width in OUTPUTS)
    x, y = torch.randn(len(slots), HIDDEN).to(dtype), torch.randn(len(slots), sum(OUTPUTS)).to(dtype)
    made, theirs = wrapper(mend, slots), y.clone()
    middle = tuple(torch.zeros(len(slots), RANK) for _ in OUTPUTS)
    made.add_shrink(middle, x, a, 0.5)
    made.add_expand(theirs, middle, b, OUTPUTS)
    made.add_lora_linear(y, x, a, b, 0.5, OUTPUTS)
    # theirs rounds what is added to bf16 before it adds it
    within = {"atol": 1e-5, "rtol": 1e-5} if dtype is torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    torch.testing.assert_close(y, theirs, **within)


def test_rows_that_are_only_padding_stay_as_they_are(mend: Any) -> None:
    a, b = (torch.ones(N_SLOTS, 1, RANK, HIDDEN),), (torch.ones(N_SLOTS, 1, 8, RANK),)
    y = torch.zeros(5, 8)
    wrapper(mend, [0, 1]).add_lora_linear(y, torch.ones(5, HIDDEN), a, b, 1.0, (8,))
    assert torch.equal(y[2:], torch.zeros(3, 8)) and bool((y[:2] == RANK * HIDDEN).all())


def test_a_small_step_is_one_part_and_a_large_one_has_a_part_for_each_slot(mend: Any) -> None:
    (small,) = mend.parts([-1, 2, -1, 1])
    assert (small.slots, small.rows) == (slice(1, 3), slice(1, 4))
    assert small.others(2).tolist() == [[True, True, False, False], [True] * 4, [False, False, True, True]]
    half = mend.FEW // 2
    first, second = mend.parts([2] * half + [-1] + [0] * half + [2])
    assert (first.slots, first.rows) == (slice(0, 1), slice(half + 1, 2 * half + 1))
    assert first.others(2) is None  # no other token between them, so nothing to leave out
    assert (second.slots, second.rows) == (slice(2, 3), slice(0, 2 * half + 2)) and second.others(1).sum() == half + 1
    assert mend.parts([-1, -1]) == mend.parts([]) == []


def test_what_another_adapter_makes_infinite_touches_nobody_else(mend: Any) -> None:
    a, b = (torch.ones(N_SLOTS, 1, RANK, HIDDEN),), (torch.ones(N_SLOTS, 1, 8, RANK),)
    a[0][1] = 3e38
    y = torch.zeros(3, 8)
    wrapper(mend, [0, 1, -1]).add_lora_linear(y, torch.ones(3, HIDDEN), a, b, 1.0, (8,))
    assert bool((y[0] == RANK * HIDDEN).all()) and bool(y[1].isinf().all()) and not y[2].any()


@pytest.mark.parametrize("widths", [OUTPUTS, (8,)], ids=str)
def test_a_layers_own_matrices_are_set_and_taken_away_in_one_piece(mend: Any, widths: tuple[int, ...]) -> None:
    """As in vLLM: by slot, into the corner of a larger rank, and to zero again."""
    torch.manual_seed(0)

    class Layer:
        lora_a_stacked: Any
        lora_b_stacked: Any

        def create_lora_weights(self) -> None:
            self.lora_a_stacked = tuple(torch.zeros(N_SLOTS, 1, RANK, HIDDEN) for _ in widths)
            self.lora_b_stacked = tuple(torch.zeros(N_SLOTS, 1, width, RANK) for width in widths)

    mend.joining(Layer.create_lora_weights)(layer := Layer())
    a, b = layer.lora_a_stacked, layer.lora_b_stacked
    for slot in range(N_SLOTS):
        for left, right in zip(a, b, strict=True):
            left[slot, 0, : RANK - 1].copy_(torch.randn(RANK - 1, HIDDEN))
            right[slot, 0, :, : RANK - 1].copy_(torch.randn(right.shape[2], RANK - 1))
    for each in (*a, *b):
        each[1] = 0
    slots = [0, 2, 1, -1]
    x, y = torch.randn(len(slots), HIDDEN), torch.randn(len(slots), sum(widths))
    expected, before = one_by_one(slots, x, y, a, b, 1.0), y.clone()
    wrapper(mend, slots).add_lora_linear(y, x, a, b, 1.0, widths)
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(y[2:], before[2:]) and not torch.equal(y[:2], before[:2])


def shrunk(mend: Any, indices: list[int]) -> torch.Tensor:
    """x · A of each token's slot, as in vLLM's prefill and decode. The output holds old values before."""
    weights = torch.stack([torch.full((1, 2, 3), 1.0), torch.full((1, 2, 3), 10.0)])  # [slots, 1, rank, hidden]
    output = torch.full((len(indices), 2), 7.0)
    mend.punica_cpu.bgmv_shrink(torch.ones(len(indices), 3), weights, output, torch.tensor(indices), 1.0)
    again = torch.full((len(indices), 2), 7.0)
    lengths = torch.ones(len(indices), dtype=torch.long)
    mend.lora_ops.sgmv_shrink(
        torch.ones(len(indices), 3),
        weights,
        again,
        lengths,
        lengths,
        torch.tensor(indices),
        len(indices),
        1,
        len(indices),
        1.0,
    )
    assert torch.equal(output, again)
    return output


def test_a_layer_whose_rank_is_shared_among_workers_is_left_as_it_is(mend: Any) -> None:
    class Layer:
        lora_a_stacked: Any
        lora_b_stacked: Any

        def create_lora_weights(self) -> None:
            self.lora_a_stacked = (torch.zeros(N_SLOTS, 1, RANK // 2, HIDDEN),)
            self.lora_b_stacked = (torch.zeros(N_SLOTS, 1, 8, RANK),)

    mend.joining(Layer.create_lora_weights)(layer := Layer())
    assert type(layer.lora_a_stacked) is tuple and layer.lora_a_stacked[0].shape[2] == RANK // 2


def test_a_token_without_an_adapter_gets_none_of_the_heads_either(mend: Any) -> None:
    assert shrunk(mend, [0, -1, 1, -1]).tolist() == [[3.0, 3.0], [0.0, 0.0], [30.0, 30.0], [0.0, 0.0]]


def test_tokens_with_adapters_are_as_before(mend: Any) -> None:
    assert shrunk(mend, [1, 1, 0]).tolist() == [[30.0, 30.0], [30.0, 30.0], [3.0, 3.0]]


@pytest.mark.parametrize("kind", ["head", "embedding"])
def test_the_head_and_the_embedding_cost_nothing_without_an_adapter_for_them(mend: Any, kind: str) -> None:
    class Layer:
        lora_b_stacked: Any

        def create_lora_weights(self) -> None:
            self.lora_b_stacked = torch.zeros(N_SLOTS, 1, 8, RANK)

        def set_lora(self, index: int, b: torch.Tensor) -> None:
            self.reset_lora(index)
            self.lora_b_stacked[index, 0] = b

        def reset_lora(self, index: int) -> None:
            self.lora_b_stacked[index] = 0

    mend.noting(Layer)
    layer, made, a = Layer(), wrapper(mend, [0, 1]), torch.ones(N_SLOTS, 1, RANK, HIDDEN)
    layer.create_lora_weights()

    def added() -> list[float]:
        y = torch.zeros(2, 8)
        if kind == "head":
            made.add_lora_logits(y, torch.ones(2, HIDDEN), a, layer.lora_b_stacked, 1.0)
        else:
            made.add_lora_embedding(y, torch.ones(2, RANK), layer.lora_b_stacked)
        return y[:, 0].tolist()

    each = RANK * HIDDEN if kind == "head" else RANK
    layer.lora_b_stacked[1] = 1.0  # not by `set_lora`: were it read, it would be seen
    assert added() == [0.0, 0.0]
    layer.set_lora(2, torch.ones(8, RANK))
    assert added() == [0.0, 0.0]  # no token of this step has that slot
    layer.set_lora(1, torch.ones(8, RANK))
    assert added() == [0.0, each]
    layer.reset_lora(1)
    assert added() == [0.0, 0.0]
