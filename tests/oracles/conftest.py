"""Set up the oracles: independent implementations from installed packages, built small and at random, offline."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def recorded() -> Iterator[list[dict[str, Any]]]:
    """Let `attn_implementation="record"` compute attention step by step, and keep all that it gets and returns."""
    from transformers import AttentionInterface

    calls: list[dict[str, Any]] = []

    def record(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **given: Any
    ) -> tuple[Tensor, None]:
        wide_k, wide_v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = q @ wide_k.mT * given["scaling"]
        if given.get("position_bias") is not None:
            scores = scores + given["position_bias"]
        if mask is None:
            i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
            window = given.get("sliding_window") or k.shape[2]
            mask = torch.zeros_like(scores[0, 0]).masked_fill((j > i) | (i - j >= window), -torch.inf)
        y = ((scores + mask).softmax(-1) @ wide_v).transpose(1, 2).contiguous()
        calls.append({"q": q, "k": k, "v": v, "y": y, "mask": mask, **given})
        return y, None

    AttentionInterface.register("record", record)
    yield calls
    AttentionInterface._global_mapping.pop("record")
