"""Keys of the softmax scale, of models that do not divide scores by sqrt(head_dim) alone."""

from dataclasses import dataclass
from math import log

from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import Plan
from whatwhere.models.configuration.score_keys import read_terms


@dataclass(frozen=True)
class NoScale:
    """Do not scale scores, as in T5 and GPT-Neo."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return 1 for each layer."""
        return (1.0,) * sizes.layers


@dataclass(frozen=True)
class ScaleKey:
    """Read the scale itself from a key, as in Granite and MPT.

    Args:
        key: of the scale.
        default: if it is absent; None is 1 / sqrt(head_dim).
        inside: a nested dictionary that contains the key, as in MPT.
    """

    key: str = "attention_multiplier"
    default: float | None = 1.0
    inside: str | None = None

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
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


@dataclass(frozen=True)
class PreAttentionScalar:
    """Scale by 1 / sqrt of the value of a key, as in Gemma 2 and 3.

    Args:
        key: of the value.
        default: if it is absent; None is head_dim.
    """

    key: str = "query_pre_attn_scalar"
    default: float | None = 256.0

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        default = float(sizes.head_dim) if self.default is None else self.default
        return (keys.number(self.key, default=default) ** -0.5,) * sizes.layers


@dataclass(frozen=True)
class GPT2Scale:
    """Divide by sqrt(head_dim), and by the number of the layer, each if its flag is set, as in GPT-2.

    Args:
        by_layer: whether the model type has the second flag.
    """

    by_layer: bool = True

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        scale = sizes.head_dim**-0.5 if keys.flag("scale_attn_weights", default=True) else 1.0
        if self.by_layer and keys.flag("scale_attn_by_inverse_layer_idx", default=False):
            return tuple(scale / (layer + 1) for layer in range(sizes.layers))
        return (scale,) * sizes.layers


@dataclass(frozen=True)
class LatentAttentionScale:
    """Divide by sqrt(head_dim), and multiply by the square of YaRN's magnitude, as in DeepSeek's latent attention."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        plans = position.query_key or (None,) * sizes.layers
        return tuple(self.of(plan, heads.head_dim) for plan, heads in zip(plans, sizes.heads, strict=True))

    def of(self, plan: Plan | None, head_dim: int) -> float:
        """Return the scale of one layer.

        Args:
            plan: of its rotary positions, or None.
            head_dim: features of its heads, rotated and others.
        """
        yarn = None if plan is None or plan.name != "rotary-yarn" else plan.scaling
        magnitude = 1.0
        if yarn is not None and yarn.settings["mscale_all_dim"] and yarn.number("factor") > 1:
            magnitude = 0.1 * yarn.number("mscale_all_dim") * log(yarn.number("factor")) + 1.0
        scale: float = head_dim**-0.5 * magnitude * magnitude
        return scale


@dataclass(frozen=True)
class LowRankScale:
    """Divide by sqrt(head_dim), and multiply by the factor of the queries, sqrt(dim / q_lora_rank), as in LongCat."""

    KEY = "q_lora_rank"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        factor = (sizes.dim / keys.whole(self.KEY)) ** 0.5
        return tuple(scale * factor for scale in LatentAttentionScale().read(keys, sizes, position))


@dataclass(frozen=True)
class KeyMultiplier:
    """Divide by sqrt(head_dim), and multiply by the factor of the keys, as in Falcon-H1."""

    KEY = "key_multiplier"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        return (keys.number(self.KEY, default=1.0) * sizes.head_dim**-0.5,) * sizes.layers


@dataclass(frozen=True)
class NormedHeadScale:
    """Divide by head_dim, as Inkling does, whose queries and keys are normed."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        return tuple(1 / heads.head_dim for heads in sizes.heads)


@dataclass(frozen=True)
class HalfHeadScale:
    """Divide by sqrt(head_dim / 2), as Zamba does: its heads are twice as wide as its features divided by them."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        return ((sizes.head_dim / 2) ** -0.5,) * sizes.layers


@dataclass(frozen=True)
class DeBERTaScale:
    """Divide by sqrt(head_dim times the number of terms), as in DeBERTa, with relative attention or without.

    Args:
        counts_none: whether `none` counts as a term, as in the first DeBERTa.
    """

    counts_none: bool = False

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""
        terms = len(read_terms(keys)) or int(self.counts_none and bool(keys.values.get("pos_att_type")))
        return ((sizes.head_dim * (1 + terms)) ** -0.5,) * sizes.layers
