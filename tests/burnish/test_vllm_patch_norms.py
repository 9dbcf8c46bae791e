"""The patch of vLLM's norm: the same numbers as PyTorch's operations, and those where the kernel cannot read."""

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.engine
ROWS, HIDDEN = 5, 64


@pytest.fixture
def norm() -> Any:
    """A norm with weights of its own."""
    pytest.importorskip("burnish.vllm_patches.norms")
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.layernorm import RMSNorm

    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        made = RMSNorm(HIDDEN, eps=1e-5, dtype=torch.bfloat16)
    made.weight.data.copy_(torch.randn(HIDDEN))
    return made


def rows(n: int = ROWS) -> torch.Tensor:
    return (3.0 * torch.randn(n, HIDDEN)).to(torch.bfloat16)


def test_the_kernel_norms_as_pytorch_does(norm: Any) -> None:
    x, residual = rows(), rows()
    close = {"atol": 0.0, "rtol": 2e-2}  # two roundings to bf16
    torch.testing.assert_close(norm.forward_cpu(x), norm.forward_native(x), **close)
    expected = norm.forward_native(x.clone(), residual.clone())
    for found, wanted in zip(norm.forward_cpu(x, residual), expected, strict=True):
        torch.testing.assert_close(found, wanted, **close)


@pytest.mark.parametrize("fault", ["strided", "other type"])
def test_what_the_kernel_cannot_read_is_left_to_pytorch(norm: Any, fault: str) -> None:
    x = rows(2 * ROWS)[::2] if fault == "strided" else rows().float()
    assert torch.equal(norm.forward_cpu(x), norm.forward_native(x))
