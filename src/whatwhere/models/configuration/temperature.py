"""Keys of the query temperature: by how much queries are multiplied at each position, and in which layers."""

from collections.abc import Mapping
from dataclasses import dataclass

from whatwhere.errors import SettingError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import CurvePlan
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

    def write(self, description: Description, written: Mapping[str, object]) -> Mapping[str, object]:
        """Return the flag, and the strength and period if it is on."""
        curve = next((curve for curve in description.temperatures if curve is not None), None)
        if curve is None:
            return {self.SWITCH: False}
        return {self.SWITCH: True, self.STRENGTH: curve.settings["alpha"], self.PERIOD: curve.settings["period"]}


@dataclass(frozen=True)
class PowerWithoutRotary:
    """Multiply queries by a power of their position in the layers that do not rotate: Beam, whose code has its numbers.

    (1 + (p + 1) / 2048) ** 0.1
    """

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        curve = CurvePlan("power", {"exponent": 0.1, "length": 2048})
        return tuple(curve if plan is None else None for plan in position.query_key or (None,) * sizes.layers)

    def write(self, description: Description, written: Mapping[str, object]) -> Mapping[str, object]:
        """Return no keys: the model type implies it."""
        return {}


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

    def write(self, description: Description, written: Mapping[str, object]) -> Mapping[str, object]:
        """Return the rope parameters, with the strength among them."""
        curve, rope = description.temperatures[0], written["rope_parameters"]
        assert isinstance(rope, Mapping)
        own = {self.STRENGTH: 0.0} if curve is None else {self.STRENGTH: curve.settings["alpha"]}
        period = {} if curve is None else {ORIGINAL: curve.settings["period"]}
        return {"rope_parameters": {**rope, **period, **own}}
