"""Keys of the first Qwen: flags by which its code raises theta with the length, and multiplies queries by log n."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import CurvePlan, Plan, ScalingPlan
from whatwhere.models.configuration.rope_scaling import require_fit
from whatwhere.models.configuration.rotary_keys import require_rotary_dim, rotary_plan, rotated_fraction
from whatwhere.models.configuration.temperature import Curves

LENGTH = "seq_length"
"""Key of the trained length; `max_position_embeddings` is that of its longest inputs."""

REGIME = "after a prompt its code keeps the theta of the prompt's length: pass that as regime_length"


@dataclass(frozen=True)
class QwenRotary:
    """Read rotary positions, whose theta follows the length L in steps, beyond the trained length L_0.

    theta (2 ** ceil(log2(L / L_0) + 1) - 1) ** (dim / (dim - 2))
    """

    THETA, FRACTION, SWITCH = "rotary_emb_base", "rotary_pct", "use_dynamic_ntk"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        theta, fraction = keys.number(self.THETA, default=10_000.0), keys.number(self.FRACTION, default=1.0)
        rotary_dim = None if fraction == 1 else int(sizes.head_dim * fraction)
        scaling = None
        if keys.flag(self.SWITCH, default=True):
            settings = {"factor": 2.0, "original_length": keys.whole(LENGTH), "doubling": True}
            scaling = ScalingPlan("rotary-dynamic-ntk", settings)
        path = f"{keys.path}{self.FRACTION}"
        require_rotary_dim(path, sizes.head_dim, rotary_dim)
        require_fit(scaling, path, rotary_dim or sizes.head_dim, theta)
        plan = rotary_plan(sizes.head_dim, theta, False, rotary_dim, scaling, None, "chunked", path)
        return Position(query_key=(plan,) * sizes.layers, notes=() if scaling is None else (REGIME,))

    def write(self, description: Description) -> Mapping[str, object]:
        """Return theta, the fraction and the flag, with the trained length if it is on."""
        plan = description.query_key[0]
        assert isinstance(plan, Plan)
        scaling = plan.scaling
        fraction = rotated_fraction(plan.rotary_dim, plan.whole("head_dim"))
        written = {self.THETA: plan.settings["theta"], self.FRACTION: fraction, self.SWITCH: scaling is not None}
        return written if scaling is None else {**written, LENGTH: scaling.settings["original_length"]}


@dataclass(frozen=True)
class QwenLogN:
    """Multiply queries beyond the trained length by the logarithm of their number of keys to that base, in all layers.

    max(1, ln(p + 1) / ln L_0) = 1 + alpha ln max(1, (p + 1) / L_0), with alpha = 1 / ln L_0
    """

    SWITCH = "use_logn_attn"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        if not keys.flag(self.SWITCH, default=True):
            return (None,) * sizes.layers
        length = keys.whole(LENGTH, least=2)
        return (CurvePlan("clamped", {"alpha": 1 / log(length), "length": length}),) * sizes.layers

    def write(self, description: Description, written: Mapping[str, object]) -> Mapping[str, object]:
        """Return the flag, with the trained length if it is on."""
        curve = description.temperatures[0]
        return {self.SWITCH: False} if curve is None else {self.SWITCH: True, LENGTH: curve.settings["length"]}
