"""Number of parameters of an input layer, from a configuration or from the layer itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Json, Keys
from whatwhere.models.configuration.read import Config, HasDict, from_huggingface

if TYPE_CHECKING:
    from torch import nn

_SIZES = ("vocab_size", "dim", "max_length", "segments", "tied")


@dataclass(frozen=True)
class InputParameters:
    """Numbers of parameters of the tables of an input layer."""

    tokens: int  # of the token table
    positions: int = 0  # of a learned position table, including rows before position 0
    segments: int = 0  # token types, as in BERT
    output_projection: int = 0  # 0 if it is tied to the token table

    @property
    def total(self) -> int:
        """The sum of all four."""
        return self.tokens + self.positions + self.segments + self.output_projection


def parameters(config_or_layer: "Config | nn.Module", *, part: str | None = None) -> InputParameters:
    """Count the parameters of an input layer: the tables whose rows are added, and a separate output projection.

    Rotary positions and ALiBi have no parameters. Not counted are bias tables (T5, DeBERTa), which belong to attention,
    and the parts in `notes` of a Description, such as norms and projections.

    Args:
        config_or_layer: a Hugging Face configuration, as in `from_huggingface`; a dictionary without `model_type`, of
            vocab_size and dim, and optionally max_length (rows of learned positions), segments (rows) and tied (False
            for a separate output projection); or an InputLayer, TokenEmbedding or Where.
        part: `decoder` or `encoder` of a configuration that has both; None is the decoder.

    Returns:
        The number of parameters of each table.

    Raises:
        SettingError, ShapeError, CheckpointError: If the configuration cannot be read, or the layer is not an input
            layer.

    Examples:
        >>> gpt2 = parameters({"vocab_size": 50_257, "dim": 768, "max_length": 1024})
        >>> gpt2.tokens, gpt2.positions, gpt2.total
        (38597376, 786432, 39383808)
        >>> parameters({"model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 32,
        ...             "num_attention_heads": 32, "tie_word_embeddings": False})
        InputParameters(tokens=525336576, positions=0, segments=0, output_projection=525336576)
    """
    if isinstance(config_or_layer, Mapping) and "model_type" not in config_or_layer:
        return _of_sizes(config_or_layer)
    if isinstance(config_or_layer, Mapping | HasDict | str | Path):
        return _of_configuration(config_or_layer, part)
    return _of_module(config_or_layer)


def _of_configuration(config: Config, part: str | None) -> InputParameters:
    description = from_huggingface(config, part=part)
    table = description.vocab_size * description.token_dim
    positions = 0
    if description.input is not None and description.input.scheme == "learned":
        learned = description.input.settings
        positions = (learned["offset"] + learned["max_length"]) * learned["dim"]
    segments = description.segments * description.token_dim
    projection = (description.vocab_size - description.extra_rows) * (description.output_dim or description.token_dim)
    return InputParameters(table, positions, segments, 0 if description.tied else projection)


def _of_sizes(sizes: Json) -> InputParameters:
    unknown = sorted(set(sizes) - set(_SIZES))
    if unknown:
        raise SettingError(
            f"parameters() does not know {', '.join(map(repr, unknown))}; it knows {', '.join(sorted(_SIZES))}.\n"
            "For a configuration of Hugging Face keep its 'model_type'."
        )
    keys = Keys(sizes, {}, "parameters()")
    dim = keys.whole("dim")
    table = keys.whole("vocab_size") * dim
    positions, segments = ((keys.whole(name, default=0, least=0) or 0) * dim for name in ("max_length", "segments"))
    return InputParameters(table, positions, segments, 0 if keys.flag("tied", default=True) else table)


def are_sinusoids(table: Float[np.ndarray, "rows dim"]) -> bool:
    """Return whether a position table is computed, not learned: all columns are sines of the position, in any layout.

    Then v(p+1) + v(p-1) = 2 cos(w) v(p), within the rounding of bfloat16, and the fastest has w = 1.
    """
    rows = np.asarray(table[:512], np.float64)
    rows = rows[max(np.flatnonzero(~rows[:4].any(axis=1)), default=-1) + 1 :]  # behind the padding row of fairseq
    if len(rows) < 5 or not np.isfinite(rows).all():
        return False
    middle, sides = rows[1:-1], rows[2:] + rows[:-2]
    factor = (middle * sides).sum(axis=0) / np.maximum((middle * middle).sum(axis=0), 1e-30)
    return bool(factor.min() < 1.9 and np.abs(sides - factor * middle).max() < 0.02 * np.abs(rows).max())


def _of_module(layer: object) -> InputParameters:
    from torch import nn

    from whatwhere.what.embedding import TokenEmbedding
    from whatwhere.where.binding import Where
    from whatwhere.where.input_layer import InputLayer

    def count(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    if isinstance(layer, InputLayer):
        return InputParameters(tokens=count(layer.tokens), positions=count(layer.where))
    if isinstance(layer, TokenEmbedding):
        return InputParameters(tokens=count(layer))
    if isinstance(layer, Where):
        return InputParameters(tokens=0, positions=count(layer))
    raise SettingError(
        f"parameters() got {type(layer).__name__}, but takes an InputLayer, a TokenEmbedding or a Where, a "
        'configuration, or sizes such as {"vocab_size": 50_257, "dim": 768, "max_length": 1024}.'
    )
