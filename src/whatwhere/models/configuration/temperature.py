"""Keys of the query temperature: by how much queries are multiplied at each position, and in which layers."""

from dataclasses import dataclass

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.layer_types import HYBRID
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import CurvePlan, Plan
from whatwhere.models.configuration.rope_scaling import ORIGINAL

Curves = tuple[CurvePlan | None, ...]


@dataclass(frozen=True)
class SteppedWithoutRotary:
    """Multiply queries by steps in the layers that do not rotate, as in Llama 4.

    1 + attn_scale ln(1 + floor((p + 1) / floor_scale))
    """

    SWITCH, STRENGTH, PERIOD = "attn_temperature_tuning", "attn_scale", "floor_scale"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer; the first files have a number as the flag, of which 0 is off."""
        on = keys.take(self.SWITCH, default=True)
        if not isinstance(on, bool):
            on = keys.whole(self.SWITCH, least=0) > 0
        alpha = keys.number(self.STRENGTH, default=0.1, zero=True)
        period = keys.whole(self.PERIOD, default=8192)
        if not on or alpha == 0:
            return (None,) * sizes.layers
        curve = CurvePlan("stepped", {"alpha": alpha, "period": period, "offset": 1})
        return tuple(curve if plan is None else None for plan in position.query_key or (None,) * sizes.layers)


@dataclass(frozen=True)
class PowerWithoutRotary:
    """Multiply queries by a power of their position in the layers that do not rotate: Beam, whose code has its numbers.

    (1 + (p + 1) / 2048) ** 0.1
    """

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        curve = CurvePlan("power", {"exponent": 0.1, "length": 2048})
        return tuple(curve if plan is None else None for plan in position.query_key or (None,) * sizes.layers)


@dataclass(frozen=True)
class LearnedInAllLayers:
    """Multiply queries by a learned factor of the logarithm of the position, and a learned bias: Mistral Large 4."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[Plan, ...]:
        """Return the plan of each layer, whose numbers are weights of its own."""
        return tuple(
            Plan("ssmax", {"head_dim": heads.head_dim, "num_heads": heads.num_heads, "bias": True}, shared=False)
            for heads in sizes.heads
        )


@dataclass(frozen=True)
class ClampedWithoutWindow:
    """Multiply queries by a logarithm from a number of visible tokens on, in the layers without a window: Inkling.

    1 + log_scaling_alpha ln max(1, (p + 1) / log_scaling_n_floor)
    """

    STRENGTH, LENGTH = "log_scaling_alpha", "log_scaling_n_floor"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        curve = self.curve(keys)
        return tuple(curve if each == HYBRID else None for each in position.layer_types or ())

    def curve(self, keys: Keys) -> CurvePlan | None:
        """Return the curve of the layers that have one, which multiplies their bias too; None if it is 1.

        Args:
            keys: the configuration.
        """
        alpha = keys.number(self.STRENGTH, default=0.1, zero=True)
        length = keys.whole(self.LENGTH, default=None)
        return None if not alpha or length is None else CurvePlan("clamped", {"alpha": alpha, "length": length})


@dataclass(frozen=True)
class SteppedInAllLayers:
    """Multiply queries by steps in all layers, after the rotation, by a number among the rope parameters: Ministral 3.

    1 + llama_4_scaling_beta ln(1 + floor(p / original_max_position_embeddings))
    """

    STRENGTH = "llama_4_scaling_beta"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        name = next((name for name in ("rope_parameters", "rope_scaling") if keys.values.get(name)), "rope_parameters")
        rope = keys.inside(name) if keys.values.get(name) else Keys(dict(position.parameters), {}, keys.owner)
        alpha = rope.number(self.STRENGTH, default=None, zero=True)
        if not alpha:
            return (None,) * sizes.layers
        period = rope.whole(ORIGINAL, default=None)
        if period is None:
            raise SettingError(
                f"{rope.path}{self.STRENGTH} is {alpha}, but {rope.path}{ORIGINAL} is missing: the number of tokens "
                "after which queries are multiplied by more."
            )
        keys.absorb(rope)
        return (CurvePlan("stepped", {"alpha": alpha, "period": period, "offset": 0}),) * sizes.layers
