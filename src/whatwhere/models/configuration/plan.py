"""Plans: schemes, RoPE scalings and curves that are named but not built; building one imports PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from whatwhere.where.base import InputEncoding, QueryKeyMap
    from whatwhere.where.scaling import Scaling
    from whatwhere.where.score_bias import ScoreBias
    from whatwhere.where.temperature import Curve

Setting = bool | int | float | str | None | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
"""An argument of a constructor; that of Rotary may be a ScalingPlan too, that of Inkling a CurvePlan."""
Settings = Mapping[str, Setting]
"""Keyword arguments of a constructor, which differ from scheme to scheme."""

CLASSES: Mapping[str, str] = {
    "alibi": "score.alibi.ALiBi",
    "deberta": "score.deberta.DeBERTa",
    "inkling": "score.inkling.Inkling",
    "learned": "input.learned.Learned",
    "rotary": "query_key.rotary.Rotary",
    "rotary-dynamic-ntk": "scaling.dynamic_ntk.DynamicNTK",
    "rotary-learned": "query_key.learned_rotary.LearnedRotary",
    "rotary-linear": "scaling.linear.Linear",
    "rotary-llama3": "scaling.llama3.Llama3",
    "rotary-longrope": "scaling.longrope.LongRoPE",
    "rotary-multimodal": "query_key.multimodal_rotary.MultimodalRotary",
    "rotary-ntk": "scaling.ntk.NTK",
    "rotary-proportional": "scaling.proportional.Proportional",
    "rotary-yarn": "scaling.yarn.YaRN",
    "ssmax": "query_key.ssmax.SSMax",
    "sinusoidal": "input.sinusoidal.Sinusoidal",
    "t5": "score.t5.T5",
    "transformer-xl": "score.transformer_xl.TransformerXL",
}
"""Name in the catalogue -> class below `whatwhere.where`: of the scheme, or of the scaling of rotary positions."""

CURVES: Mapping[str, str] = {"clamped": "ClampedLog", "logn": "LogN", "power": "Power", "stepped": "SteppedLog"}
"""Name of a curve in the catalogue -> its class in `whatwhere.temperature`."""


def class_of(name: str) -> type:
    """Return the class of a scheme or RoPE scaling, by its name in CLASSES; this imports PyTorch.

    Examples:
        >>> class_of("rotary-yarn").__name__
        'YaRN'
    """
    module, _, class_name = CLASSES[name].rpartition(".")
    loaded: type = getattr(import_module(f"whatwhere.where.{module}"), class_name)
    return loaded


class _Arguments:
    """Keyword arguments of a constructor, read by type."""

    settings: "Mapping[str, Setting | ScalingPlan | CurvePlan]"

    def whole(self, name: str) -> int:
        """Return a whole number."""
        value = self.settings[name]
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> int | float:
        """Return a number."""
        value = self.settings[name]
        assert isinstance(value, int | float)
        return value

    def numbers(self, name: str) -> tuple[int | float, ...]:
        """Return numbers."""
        value = self.settings[name]
        assert isinstance(value, tuple)
        return tuple(number for number in value if not isinstance(number, str))


@dataclass(frozen=True)
class ScalingPlan(_Arguments):
    """A RoPE scaling that is not built yet: its name and settings.

    Args:
        name: of its entry in the catalogue, such as `rotary-yarn`.
        settings: keyword arguments of its constructor.

    Examples:
        >>> ScalingPlan("rotary-linear", {"factor": 4.0})
        Linear(factor=4.0)
    """

    name: str
    settings: Settings

    def build(self) -> "Scaling":
        """Build the scaling, for the `scaling` argument of Rotary."""
        scaling: Scaling = class_of(self.name)(**self.settings)
        return scaling

    def __repr__(self) -> str:
        """Return the call that builds it."""
        return _call(self.name, self.settings)


@dataclass(frozen=True)
class CurvePlan(_Arguments):
    """A curve of the query temperature that is not built yet: its name and settings.

    Args:
        name: one of CURVES.
        settings: keyword arguments of its constructor.

    Examples:
        >>> CurvePlan("stepped", {"alpha": 0.1, "period": 8192, "offset": 1})
        SteppedLog(alpha=0.1, period=8192, offset=1)
    """

    name: str
    settings: Settings

    def build(self) -> "Curve":
        """Build the curve, for the `curve` argument of QueryTemperature."""
        curve: Curve = getattr(import_module("whatwhere.where.temperature"), CURVES[self.name])(**self.settings)
        return curve

    def __repr__(self) -> str:
        """Return the call that builds it."""
        return f"{CURVES[self.name]}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


@dataclass(frozen=True)
class Plan(_Arguments):
    """A scheme that is not built yet: its name and settings. Reading a configuration allocates no tables.

    Args:
        scheme: its name in the catalogue without a scaling, such as `rotary`, `learned` or `t5`.
        settings: keyword arguments of its constructor; the `scaling` of rotary positions is a ScalingPlan or None, the
            `temperature` of Inkling's bias a CurvePlan or None.
        shared: whether all layers with this plan share one module, as in T5, or have one each.

    Examples:
        >>> plan = Plan("rotary", {"head_dim": 64, "scaling": ScalingPlan("rotary-linear", {"factor": 4.0})})
        >>> plan, plan.name
        (Rotary(head_dim=64, scaling=Linear(factor=4.0)), 'rotary-linear')
        >>> plan.build().theta
        10000.0
    """

    scheme: str
    settings: "Mapping[str, Setting | ScalingPlan | CurvePlan]" = field(default_factory=dict)
    shared: bool = True

    @property
    def name(self) -> str:
        """The name of its entry in the catalogue, such as `rotary-yarn` for rotary positions with YaRN."""
        return self.scaling.name if self.scheme == "rotary" and self.scaling is not None else self.scheme

    @property
    def scaling(self) -> ScalingPlan | None:
        """The scaling of rotary positions; None where there is none."""
        scaling = self.settings.get("scaling")
        return scaling if isinstance(scaling, ScalingPlan) else None

    @property
    def rotary_dim(self) -> int:
        """The features of a head that are rotated; all of them where the plan does not name a number."""
        return self.whole("head_dim" if self.settings.get("rotary_dim") is None else "rotary_dim")

    @property
    def class_name(self) -> str:
        """The name of its class, such as `Rotary`."""
        return _class_name(self.scheme)

    def build(
        self,
        device: "torch.device | str | None" = None,
        dtype: "torch.dtype | None" = None,
        then: "QueryKeyMap | None" = None,
    ) -> "InputEncoding | QueryKeyMap | ScoreBias":
        """Build the scheme; learned tables have random initial values, and SSMax is around the map `then`."""
        settings: dict[str, object] = {
            name: value.build() if isinstance(value, ScalingPlan | CurvePlan) else value
            for name, value in self.settings.items()
        }
        if then is not None:
            settings["then"] = then
        scheme = class_of(self.scheme)
        if "device" in signature(scheme).parameters:  # it has learned tables
            settings |= {"device": device, "dtype": dtype}
        module: InputEncoding | QueryKeyMap | ScoreBias = scheme(**settings)
        return module

    def __repr__(self) -> str:
        """Return the call that builds it."""
        return _call(self.scheme, self.settings)


def _call(name: str, settings: Mapping[str, object]) -> str:
    return f"{_class_name(name)}({', '.join(f'{setting}={value!r}' for setting, value in settings.items())})"


def _class_name(name: str) -> str:
    return CLASSES.get(name, name).rpartition(".")[2]
