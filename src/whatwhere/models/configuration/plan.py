"""Plans: schemes, RoPE scalings and curves that are named but not built; building one imports PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CLASSES: Mapping[str, str] = {
    "alibi": "score.alibi.ALiBi",
    "deberta": "score.deberta.DeBERTa",
    "inkling": "score.inkling.Inkling",
    "learned": "input.learned.Learned",
    "rotary": "query_key.rotary.Rotary",
    "rotary-dynamic-ntk": "scaling.rules.DynamicNTK",
    "rotary-learned": "query_key.learned_rotary.LearnedRotary",
    "rotary-linear": "scaling.rules.Linear",
    "rotary-llama3": "scaling.rules.Llama3",
    "rotary-longrope": "scaling.longrope.LongRoPE",
    "rotary-multimodal": "query_key.multimodal_rotary.MultimodalRotary",
    "rotary-ntk": "scaling.rules.NTK",
    "rotary-proportional": "scaling.rules.Proportional",
    "rotary-yarn": "scaling.yarn.YaRN",
    "ssmax": "query_key.query_factor.SSMax",
    "sinusoidal": "input.sinusoidal.Sinusoidal",
    "t5": "score.t5.T5",
    "temperature": "query_key.query_factor.QueryTemperature",
    "transformer-xl": "score.transformer_xl.TransformerXL",
}
"""Name in the catalogue -> class below `whatwhere.where`: of the scheme, or of the scaling of rotary positions."""

CURVES: Mapping[str, str] = {
    "clamped": "temperature.ClampedLog",
    "logn": "temperature.LogN",
    "power": "temperature.Power",
    "stepped": "temperature.SteppedLog",
}
"""The same of the curves of the query temperature."""


def class_of(name: str) -> type:
    """Return the class of a scheme, a RoPE scaling or a curve; this imports PyTorch."""
    module, _, class_name = {**CLASSES, **CURVES}[name].rpartition(".")
    loaded: type = getattr(import_module(f"whatwhere.where.{module}"), class_name)
    return loaded


@dataclass(frozen=True)
class Plan:
    """A scheme, RoPE scaling or curve that is not built yet. Reading a configuration allocates no tables.

    Args:
        scheme: its name in CLASSES or CURVES, such as `rotary`, `rotary-yarn` or `stepped`.
        settings: keyword arguments of its constructor; the `scaling` of rotary positions and the `temperature` of
            Inkling's bias are a Plan or None.
        shared: whether all layers with this plan share one module, as in T5, or have one each.

    Examples:
        >>> plan = Plan("rotary", {"head_dim": 64, "scaling": Plan("rotary-linear", {"factor": 4.0})})
        >>> plan, plan.name
        (Rotary(head_dim=64, scaling=Linear(factor=4.0)), 'rotary-linear')
        >>> plan.build().theta
        10000.0
    """

    scheme: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = True

    @property
    def name(self) -> str:
        """The name of its entry in the catalogue, such as `rotary-yarn` for rotary positions with YaRN."""
        return self.scaling.scheme if self.scheme == "rotary" and self.scaling is not None else self.scheme

    @property
    def scaling(self) -> "Plan | None":
        """The scaling of rotary positions; None where there is none."""
        return self.settings.get("scaling")

    @property
    def is_curve(self) -> bool:
        """Whether it is a function of the position, by which queries are multiplied, rather than a scheme."""
        return self.scheme in CURVES

    @property
    def rotary_dim(self) -> int:
        """The features of a head that are rotated; all of them where the plan does not name a number."""
        part: int | None = self.settings.get("rotary_dim")
        return int(self.settings["head_dim"]) if part is None else part

    @property
    def class_name(self) -> str:
        """The name of its class, such as `Rotary`."""
        return {**CLASSES, **CURVES}.get(self.scheme, self.scheme).rpartition(".")[2]

    def build(
        self, device: "torch.device | str | None" = None, dtype: "torch.dtype | None" = None, then: object = None
    ) -> Any:
        """Build it; learned tables have random initial values, and a query temperature is around the map `then`."""
        settings = {name: value.build() if isinstance(value, Plan) else value for name, value in self.settings.items()}
        if then is not None:
            settings["then"] = then
        scheme = class_of(self.scheme)
        if "device" in signature(scheme).parameters:  # it has learned tables
            settings |= {"device": device, "dtype": dtype}
        return scheme(**settings)

    def with_settings(self, **settings: Any) -> "Plan":
        """Return a plan with some settings replaced or added."""
        return Plan(self.scheme, {**self.settings, **settings}, self.shared)

    def __repr__(self) -> str:
        """Return the call that builds it."""
        return f"{self.class_name}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"
