"""A patch for norms on a CPU: they take one operation of vLLM's C++ kernels instead of eight of PyTorch's.

vLLM has these kernels for a CPU and does not use them there.
"""

from typing import Any

import torch
from vllm import _custom_ops
from vllm.model_executor.layers.layernorm import RMSNorm


def forward_cpu(self: Any, x: Any, residual: Any = None) -> Any:
    """The norm of `x` [..., hidden]. With a `residual` of the same shape, the norm of the sum, and the sum. Both may be
    overwritten, as in vLLM's own.
    """
    weight = self.weight.data
    inputs = [x] if residual is None else [x, residual]
    is_plain = self.has_weight and self.variance_size_override is None
    # the kernels read the rows one behind another, in the weight's type
    if not (is_plain and all(each.is_contiguous() and each.dtype == weight.dtype for each in inputs)):
        return self.forward_native(x, residual)
    if residual is None:
        found = torch.empty_like(x)
        _custom_ops.rms_norm(found, x, weight, self.variance_epsilon)
        return found
    _custom_ops.fused_add_rms_norm(x, residual, weight, self.variance_epsilon)
    return x, residual


RMSNorm.forward_cpu = forward_cpu
