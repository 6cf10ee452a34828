"""One set of rope parameters, as Hugging Face writes it, and the scaling that it means."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.interop.huggingface.keys import Keys
from whatwhere.where.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN


@dataclass(frozen=True)
class Around:
    """Hold what a rule may need from outside of its parameters.

    Args:
        max_length: `max_position_embeddings`, or None.
        original_length: `original_max_position_embeddings` beside the parameters, where Phi-3 has it, or None.
        share: of the features of a head that turn.
    """

    max_length: int | None
    original_length: int | None
    share: float


def read_scaling(kind: str, rope: Keys, around: Around) -> Scaling | None:
    """Give the scaling of a `rope_type`; None for `default`.

    Args:
        kind: the `rope_type`, one of `KINDS`.
        rope: the parameters.
        around: what stands beside them.

    >>> read_scaling("linear", Keys({"factor": 4.0}, {}, "llama"), Around(4096, None, 1.0))
    Linear(factor=4.0)
    """
    return _READERS[kind](rope, around)


def write_scaling(scaling: Scaling | None) -> dict[str, Any]:
    """Give the parameters that mean this scaling, `rope_type` first.

    >>> write_scaling(Linear(4.0))
    {'rope_type': 'linear', 'factor': 4.0}
    """
    match scaling:
        case None:
            return {"rope_type": "default"}
        case Linear():
            return {"rope_type": "linear", "factor": scaling.factor}
        case NTK():
            return {"rope_type": "dynamic", "alpha": scaling.factor}
        case DynamicNTK():
            return {"rope_type": "dynamic", "factor": scaling.factor}
        case YaRN():
            return _write_yarn(scaling)
        case LongRoPE():
            return _write_longrope(scaling)
        case Llama3():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_frequency_factor,
                "high_freq_factor": scaling.high_frequency_factor,
                "original_max_position_embeddings": scaling.original_length,
            }
        case Proportional():
            return {"rope_type": "proportional", "partial_rotary_factor": scaling.share, "factor": scaling.factor}
    raise SettingError(f"Hugging Face has no rope_type that means {scaling!r}.")


def _original(rope: Keys, around: Around) -> int:
    """Give the trained length: beside the parameters, or in them, or the length that is named."""
    given = rope.whole("original_max_position_embeddings", default=None)
    if around.original_length is not None:
        if given not in (None, around.original_length):
            raise SettingError(
                f"original_max_position_embeddings is {around.original_length} beside the rope parameters and {given} "
                "in them: keep one of them.\nTransformers would take the first, in silence."
            )
        return around.original_length
    if given is None and around.max_length is None:
        raise SettingError(f"{rope.place}original_max_position_embeddings is missing: the length that was trained.")
    return int(given or around.max_length or 0)


def _factor(rope: Keys, original: int, around: Around) -> float:
    given = rope.number("factor", default=None)
    if given is None and around.max_length is None:
        raise SettingError(f"{rope.place}factor is missing: new length over trained length.")
    return float(given if given is not None else (around.max_length or 0) / original)


def _none(rope: Keys, around: Around) -> None:
    return None


def _linear(rope: Keys, around: Around) -> Linear:
    return Linear(rope.number("factor"))


def _dynamic(rope: Keys, around: Around) -> DynamicNTK | NTK:
    # HunYuan's alpha raises theta once and for all, although its kind is called dynamic.
    alpha = rope.number("alpha", default=None) if "alpha" in rope.defaults else None
    if alpha is not None:
        rope.take("factor", default=None)
        return NTK(alpha)
    if around.max_length is None:
        raise SettingError("max_position_embeddings is missing: dynamic scaling starts beyond it.")
    rope.take("original_max_position_embeddings", default=None)  # transformers takes the other one here
    return DynamicNTK(rope.number("factor"), around.max_length)


def _yarn(rope: Keys, around: Around) -> YaRN:
    original = _original(rope, around)
    # Zero is as good as absent in all of these, as transformers reads them.
    given = {name: rope.take(name, default=None) or None for name in ("beta_fast", "beta_slow")}
    mscales = {name: rope.take(name, default=None) or None for name in ("mscale", "mscale_all_dim")}
    return YaRN(
        _factor(rope, original, around),
        original,
        beta_fast=float(given["beta_fast"] or 32.0),
        beta_slow=float(given["beta_slow"] or 1.0),
        attention_factor=rope.number("attention_factor", default=None),
        truncate=rope.flag("truncate", default=True),
        **mscales,
    )


def _longrope(rope: Keys, around: Around) -> LongRoPE:
    original = _original(rope, around)
    short, long = (rope.number(f"{name}_mscale", default=None) for name in ("short", "long"))
    if short != long:
        raise SettingError(
            f"{rope.place}short_mscale is {short} and long_mscale {long}, but LongRoPE has one magnitude for both."
        )
    explicit = rope.number("attention_factor", default=None)
    return LongRoPE(
        tuple(float(n) for n in rope.take("short_factor")),
        tuple(float(n) for n in rope.take("long_factor")),
        original,
        _factor(rope, original, around),
        explicit if short is None else short,
    )


def _llama3(rope: Keys, around: Around) -> Llama3:
    return Llama3(
        rope.number("factor"),
        _original(rope, around),
        rope.number("low_freq_factor"),
        rope.number("high_freq_factor"),
    )


def _proportional(rope: Keys, around: Around) -> Proportional:
    return Proportional(around.share, rope.number("factor", default=1.0))


_READERS: dict[str, Callable[[Keys, Around], Scaling | None]] = {
    "default": _none,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
KINDS = tuple(_READERS)


def _write_yarn(scaling: YaRN) -> dict[str, Any]:
    optional = {name: getattr(scaling, name) for name in ("attention_factor", "mscale", "mscale_all_dim")}
    return {
        "rope_type": "yarn",
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.truncate,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _write_longrope(scaling: LongRoPE) -> dict[str, Any]:
    optional = {} if scaling.attention_factor is None else {"attention_factor": scaling.attention_factor}
    return {
        "rope_type": "longrope",
        "short_factor": list(scaling.short_factor),
        "long_factor": list(scaling.long_factor),
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        **optional,
    }
