"""Rope types of ours in transformers: scalings that it lacks, in any model with rotary positions."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.where.query_key.rotary import Rotary

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

ROPE_TYPES = ("ntk",)  # the types that `register_rope_types` adds: NTK-aware scaling by a fixed factor


def register_rope_types() -> tuple[str, ...]:
    """Register rope types of ours with transformers, for the `rope_type` of a configuration.

    `{"rope_type": "ntk", "factor": 4.0, "rope_theta": 1e4}` raises theta as `whatwhere.scaling.NTK` does, for texts of
    every length alike; transformers' `dynamic` changes with the length. A type that transformers has is not replaced.

    Returns:
        Their names.

    Raises:
        ImportError: If transformers is not installed.

    Examples:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> names = register_rope_types()
        >>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...                      num_attention_heads=2,
        ...                      rope_parameters={"rope_type": "ntk", "factor": 4.0, "rope_theta": 1e4})
        >>> LlamaForCausalLM(config).model.rotary_emb.inv_freq
        tensor([1.0000, 0.0025])
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for name in ROPE_TYPES:
        ROPE_INIT_FUNCTIONS.setdefault(name, frequencies)
    return ROPE_TYPES


def frequencies(
    config: "PreTrainedConfig",
    device: torch.device | str | None = None,
    seq_len: int | None = None,
    layer_type: str | None = None,
) -> tuple[Tensor, float]:
    """Return the frequencies that a configuration states, rounded once from float64, and the factor of cosines.

    `layer_type` says whose parameters count, where there are several; no type depends on `seq_len`.
    """
    description = from_huggingface(config)
    types = description.layer_types or (None,) * description.layers
    for plan, kind in zip(description.query_key, types, strict=True):
        if plan is None or (layer_type is not None and kind != layer_type):
            continue
        rotary = plan.build()
        assert isinstance(rotary, Rotary)
        return rotary.frequencies().to(device, torch.float32), float(rotary.magnitude)
    raise SettingError(f"no layer of the type {layer_type!r} has rotary positions.")
