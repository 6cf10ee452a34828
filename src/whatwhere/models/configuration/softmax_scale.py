"""The softmax scale in a configuration, for models that do not divide scores by sqrt(head_dim) alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.score_keys import read_terms


@dataclass(frozen=True)
class One:
    """Leave scores as they are: T5, GPT-Neo."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return 1 for each layer."""
        return (1.0,) * sizes.layers

    def write(self, description: Description) -> Mapping[str, object]:
        """Return nothing: no key describes it."""
        return {}


@dataclass(frozen=True)
class Multiplier:
    """Take the scale itself from a key: Granite, MPT.

    Args:
        key: of the scale.
        default: where it is absent; None is 1 / sqrt(head_dim).
        inside: the dictionary that has the key, as in MPT.
    """

    key: str = "attention_multiplier"
    default: float | None = 1.0
    inside: str | None = None

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the number for each layer."""
        source = keys
        if self.inside is not None:
            if keys.values.get(self.inside) is None:
                return (sizes.head_dim**-0.5,) * sizes.layers
            source = keys.inside(self.inside)
        default = sizes.head_dim**-0.5 if self.default is None else self.default
        scale = source.number(self.key, default=default)
        if source is not keys:
            keys.absorb(source)
        return (scale,) * sizes.layers

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the number; MPT's dictionary is written with its ALiBi."""
        return {} if self.inside is not None else {self.key: description.scale}


@dataclass(frozen=True)
class PreAttentionScalar:
    """Take 1 / sqrt of a key: Gemma 2 and 3."""

    key: str = "query_pre_attn_scalar"
    default: float = 256.0

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the number for each layer."""
        return (keys.number(self.key, default=self.default) ** -0.5,) * sizes.layers

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the number under the root."""
        scalar = description.scale**-2
        return {self.key: round(scalar) if abs(scalar - round(scalar)) < 1e-9 * scalar else scalar}


@dataclass(frozen=True)
class GPT2Scale:
    """Divide by sqrt(head_dim), or not, and by the number of the layer, or not.

    Args:
        by_layer: whether the model type has the second.
    """

    by_layer: bool = True

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the number of each layer."""
        scale = sizes.head_dim**-0.5 if keys.flag("scale_attn_weights", default=True) else 1.0
        if self.by_layer and keys.flag("scale_attn_by_inverse_layer_idx", default=False):
            return tuple(scale / (layer + 1) for layer in range(sizes.layers))
        return (scale,) * sizes.layers

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the flags."""
        written = {"scale_attn_weights": description.scales[0] != 1.0 or description.head_dim == 1}
        if self.by_layer:
            written["scale_attn_by_inverse_layer_idx"] = len(set(description.scales)) > 1
        return written


@dataclass(frozen=True)
class Latent:
    """Divide by sqrt(head_dim), and multiply by the square of YaRN's magnitude, as DeepSeek's latent attention does."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the number of each layer."""
        scales = []
        for plan in position.query_key or (None,) * sizes.layers:
            scaling = None if plan is None else plan.settings["scaling"]
            yarn = scaling.settings if scaling is not None and scaling.name == "rotary-yarn" else {}
            magnitude = 1.0
            if yarn.get("mscale_all_dim") and yarn["factor"] > 1:
                magnitude = 0.1 * yarn["mscale_all_dim"] * log(yarn["factor"]) + 1.0
            scales.append(sizes.head_dim**-0.5 * magnitude * magnitude)
        return tuple(scales)

    def write(self, description: Description) -> Mapping[str, object]:
        """Return nothing: the rope parameters describe it."""
        return {}


@dataclass(frozen=True)
class Disentangled:
    """Divide by sqrt(head_dim times the number of terms), as DeBERTa does, with relative attention or without."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the number for each layer."""
        return ((sizes.head_dim * (1 + len(read_terms(keys)))) ** -0.5,) * sizes.layers

    def write(self, description: Description) -> Mapping[str, object]:
        """Return nothing: `pos_att_type` describes it."""
        return {}
