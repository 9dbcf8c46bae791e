"""vLLM's PyTorch operations for adapters, mended: slot -1 is no adapter, whatever lies in the last slot."""

import pytest
import torch

pytestmark = pytest.mark.engine


def shrunk(indices: list[int]) -> torch.Tensor:
    """x · A of each token's slot, as vLLM's prefill and decode have it; the output is full of what was there before."""
    mend = pytest.importorskip("burnish.vllm_mend")
    weights = torch.stack([torch.full((1, 2, 3), 1.0), torch.full((1, 2, 3), 10.0)])  # [slots, 1, rank, hidden]
    output = torch.full((len(indices), 2), 7.0)
    mend.punica_cpu.bgmv_shrink(torch.ones(len(indices), 3), weights, output, torch.tensor(indices), 1.0)
    again = torch.full((len(indices), 2), 7.0)
    lengths = torch.ones(len(indices), dtype=torch.long)
    mend.lora_ops.sgmv_shrink(
        torch.ones(len(indices), 3), weights, again, lengths, lengths, torch.tensor(indices), len(indices), 1, len(indices), 1.0
    )
    assert torch.equal(output, again)
    return output


def test_a_token_without_an_adapter_gets_none() -> None:
    assert shrunk([0, -1, 1, -1]).tolist() == [[3.0, 3.0], [0.0, 0.0], [30.0, 30.0], [0.0, 0.0]]


def test_tokens_with_adapters_are_as_before() -> None:
    assert shrunk([1, 1, 0]).tolist() == [[30.0, 30.0], [30.0, 30.0], [3.0, 3.0]]
