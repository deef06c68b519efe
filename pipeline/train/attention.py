"""Attention over a batch that is one sequence without padding: each row attends to itself, and to nothing else.

PyTorch's kernel knows no borders between rows. It takes a mask over the whole batch and computes what the mask then
hides, at a cost of the batch's length squared. One call a row costs the sum of the rows' squares. Where FlashAttention
is installed its own kernel does the same.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ROW_BY_ROW = "row_by_row"


def attend_row_by_row(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each row; without row borders (padded batches, generation) as PyTorch does it.

    Args:
        query, key, value: (1, heads, tokens, size); keys and values may have fewer heads.
        cu_seq_lens_q: where rows begin, and the end of the last one.

    Returns:
        (1, tokens, heads, size).
    """
    if cu_seq_lens_q is None:
        attended: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **rest
        )
        return attended
    lengths = cu_seq_lens_q.diff().tolist()
    parts = [torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)]
    outputs = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ROW_BY_ROW, attend_row_by_row)
AttentionMaskInterface.register(ROW_BY_ROW, sdpa_mask)
