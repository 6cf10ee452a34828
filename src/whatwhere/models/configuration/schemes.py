"""The schemes and RoPE scalings that configurations name; the only file of this package that imports PyTorch."""

from collections.abc import Mapping
from typing import Any

import torch

from whatwhere.where.base import InputEncoding, QueryKeyMap, ScoreBias
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.t5 import T5

SCHEMES: Mapping[str, type[InputEncoding | QueryKeyMap | ScoreBias]] = {
    "alibi": ALiBi,
    "deberta": DeBERTa,
    "learned": Learned,
    "rotary": Rotary,
    "rotary-multimodal": MultimodalRotary,
    "sinusoidal": Sinusoidal,
    "t5": T5,
}
"""Name in the catalogue -> class."""
SCALINGS: Mapping[str, type[Scaling]] = {
    "rotary-dynamic-ntk": DynamicNTK,
    "rotary-linear": Linear,
    "rotary-llama3": Llama3,
    "rotary-longrope": LongRoPE,
    "rotary-ntk": NTK,
    "rotary-proportional": Proportional,
    "rotary-yarn": YaRN,
}
"""Name in the catalogue of rotary positions under a scaling -> class of the scaling."""
WITH_TABLES = ("deberta", "learned", "t5")


def build_scheme(
    name: str, settings: Mapping[str, Any], device: torch.device | str | None, dtype: torch.dtype | None
) -> InputEncoding | QueryKeyMap | ScoreBias:
    """Build a scheme.

    Args:
        name: of the catalogue.
        settings: by name, as its constructor takes them.
        device, dtype: of its learned tables, if it has any.

    Returns:
        The module.
    """
    placement = {"device": device, "dtype": dtype} if name in WITH_TABLES else {}
    return SCHEMES[name](**settings, **placement)


def build_scaling(name: str, settings: Mapping[str, Any]) -> Scaling:
    """Build a RoPE scaling.

    Args:
        name: of the catalogue, such as `rotary-yarn`.
        settings: by name, as its constructor takes them.

    Returns:
        The scaling.
    """
    return SCALINGS[name](**settings)
