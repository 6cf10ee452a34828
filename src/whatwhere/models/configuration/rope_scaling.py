"""RoPE scaling in one set of rope parameters of Hugging Face: `rope_type`, and the parameters of each type."""

from dataclasses import dataclass
from math import isclose, log

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_types import MAX_FEATURES
from whatwhere.models.configuration.plan import Plan

ORIGINAL = "original_max_position_embeddings"
FACTOR_OF_VLLM = "attn_factor"
"""vLLM multiplies YaRN's magnitude by it (DeepSeek-R1-0528-Qwen3-8B); transformers does not read it."""


ROPE_TYPES = ("default", "linear", "ntk", "dynamic", "yarn", "longrope", "su", "llama3", "proportional")


@dataclass(frozen=True)
class Context:
    """Values outside of the rope parameters that a scaling may need."""

    max_length: int | None  # `max_position_embeddings`
    original_length: int | None  # beside the parameters, as in Phi-3
    fraction: float  # of the features of a head that are rotated


def read_scaling(rope_type: str, rope: Keys, context: Context) -> Plan | None:
    """Return the scaling of a `rope_type`, one of ROPE_TYPES; None for `default`."""
    match rope_type:
        case "linear" | "ntk":
            return Plan(f"rotary-{rope_type}", {"factor": rope.number("factor")})
        case "proportional":
            settings = {"share": context.fraction, "factor": rope.number("factor", default=1.0)}
            return Plan("rotary-proportional", settings)
        case "dynamic":
            return _dynamic(rope, context)
        case "yarn":
            return _yarn(rope, context)
        case "longrope" | "su":
            return _longrope(rope, context)
        case "llama3":
            return _llama3(rope, context)
    return None


def require_fit(scaling: Plan | None, path: str, rotary_dim: int, theta: float) -> None:
    """Raise unless a scaling can be applied to `rotary_dim` features of a head that rotate by `theta`."""
    pairs, settings = rotary_dim // 2, {} if scaling is None else scaling.settings
    match scaling and scaling.scheme:
        case "rotary-ntk" | "rotary-dynamic-ntk" if rotary_dim <= 2:
            raise ShapeError(
                f"{path}rope_type raises theta by dim / (dim - 2), so more than {rotary_dim} features must be rotated."
            )
        case "rotary-yarn" if theta <= 1:
            raise SettingError(
                f"{path}rope_theta is {theta}, but YaRN needs one above 1: pairs must differ in frequency."
            )
        case "rotary-longrope":
            for name in ("short_factor", "long_factor"):
                if len(settings[name]) != pairs:
                    raise ShapeError(
                        f"{path}{name} has {len(settings[name])} numbers, but {rotary_dim} rotated features are "
                        f"{pairs} pairs, and each needs its own."
                    )
        case "rotary-proportional" if int(settings["share"] * rotary_dim // 2) == 0:
            raise SettingError(
                f"{path}partial_rotary_factor is {settings['share']}, which of {rotary_dim} features rotates no pair."
            )


def _original_length(rope: Keys, context: Context) -> int:
    """Return the trained length: beside the parameters, or in them, or else `max_position_embeddings`."""
    length = rope.whole(ORIGINAL, default=None)
    if context.original_length is not None:
        if length not in (None, context.original_length):
            raise SettingError(
                f"{ORIGINAL} is {context.original_length} beside the rope parameters and {length} in them: keep one of "
                "them.\nTransformers would use the first silently."
            )
        return context.original_length
    if length is None and context.max_length is None:
        raise SettingError(f"{rope.path}{ORIGINAL} is missing: the length that was trained.")
    return length or context.max_length or 0


def _factor(rope: Keys, original: int, context: Context) -> float:
    factor = rope.number("factor", default=None)
    if factor is None and context.max_length is None:
        raise SettingError(f"{rope.path}factor is missing: new length over trained length.")
    return factor if factor is not None else (context.max_length or 0) / original


def _magnitude(rope: Keys) -> float | None:
    """Return the factor of queries and keys, if the parameters have it."""
    magnitude = rope.number("attention_factor", default=None)
    if magnitude is not None and not 1e-18 <= magnitude <= 1e18:
        needed = "must be from 1e-18 to 1e18: queries and keys are both multiplied by it, in float32."
        raise rope.wrong("attention_factor", magnitude, needed)
    return magnitude


def _dynamic(rope: Keys, context: Context) -> Plan:
    # HunYuan's alpha multiplies theta by a constant, although its rope_type is called dynamic.
    alpha = rope.number("alpha", default=None) if "alpha" in rope.defaults else None
    if alpha is not None:
        rope.take("factor", default=None)
        return Plan("rotary-ntk", {"factor": alpha})
    if context.max_length is None:
        raise SettingError("max_position_embeddings is missing: dynamic scaling starts beyond it.")
    rope.take(ORIGINAL, default=None)  # transformers uses max_position_embeddings here
    factor = rope.number("factor")
    if factor < 1:
        raise rope.wrong("factor", factor, "dynamic scaling needs a number of at least 1.")
    return Plan("rotary-dynamic-ntk", {"factor": factor, "original_length": context.max_length})


def _yarn(rope: Keys, context: Context) -> Plan:
    original = _original_length(rope, context)
    # Transformers reads zero as absent in these two.
    beta_fast = rope.number("beta_fast", default=None, zero=True) or 32.0
    beta_slow = rope.number("beta_slow", default=None, zero=True) or 1.0
    factor, magnitude = _factor(rope, original, context), _magnitude(rope)
    mscale, mscale_all_dim = _mscales(rope, factor, magnitude)
    rope.number(FACTOR_OF_VLLM, default=None)
    settings = {
        "factor": factor,
        "original_length": original,
        "beta_fast": beta_fast,
        "beta_slow": beta_slow,
        "attention_factor": magnitude,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "truncate": rope.flag("truncate", default=True),
    }
    if beta_fast < beta_slow:
        raise SettingError(
            f"{rope.path}beta_fast is {beta_fast} and beta_slow {beta_slow}, but fast pairs rotate more often: "
            "beta_fast must not be smaller. The paper has 32 and 1."
        )
    return Plan("rotary-yarn", settings)


def _mscales(rope: Keys, factor: float, magnitude: float | None) -> tuple[float | None, float | None]:
    """Return both factors of YaRN's logarithm, or none where transformers' and DeepSeek's formulas agree without them.

    Transformers takes 1 and 0 unless both are above 0, DeepSeek's code where one is absent.
    """
    stated = [rope.number(name, default=None, zero=True) for name in ("mscale", "mscale_all_dim")]
    mscale, mscale_all_dim = (value or None for value in stated)
    if magnitude is not None or ((mscale is None) == (mscale_all_dim is None) and stated[0] != 0):
        return mscale, mscale_all_dim

    def of(number: float) -> float:
        return 0.1 * number * log(factor) + 1.0 if factor > 1 else 1.0

    theirs = of(1.0 if stated[0] is None else stated[0]) / of(stated[1] or 0.0)
    if not isclose(theirs, of(1.0)):
        shown = ", ".join(
            f"{rope.path}{name} is {value:g}" if value is not None else f"{rope.path}{name} is absent"
            for name, value in zip(("mscale", "mscale_all_dim"), stated, strict=True)
        )
        raise SettingError(
            f"{shown}: from these DeepSeek's code makes the magnitude {theirs:.6g}, and transformers {of(1.0):.6g}, "
            f"for it takes them only if both are above 0.\nWrite the one that you mean: attention_factor={theirs:.6g}."
        )
    return None, None


def _longrope(rope: Keys, context: Context) -> Plan:
    original = _original_length(rope, context)
    names = [name for name in ("short_mscale", "long_mscale") if name in rope.defaults]
    magnitudes = {name: rope.number(name, default=None) for name in names}
    if len(set(magnitudes.values())) > 1:
        raise SettingError(
            f"{rope.path}short_mscale is {magnitudes['short_mscale']} and long_mscale {magnitudes['long_mscale']}, "
            "but LongRoPE has one magnitude for both."
        )
    explicit, mscale = _magnitude(rope), next(iter(magnitudes.values()), None)
    settings = {
        "short_factor": rope.numbers("short_factor", MAX_FEATURES),
        "long_factor": rope.numbers("long_factor", MAX_FEATURES),
        "original_length": original,
        "factor": (factor := _factor(rope, original, context)),
        "attention_factor": explicit if mscale is None else mscale,
    }
    if original == 1 and factor > 1 and settings["attention_factor"] is None:
        raise SettingError(
            f"{ORIGINAL} is 1, but LongRoPE divides by its logarithm: it must be at least 2.\n"
            "Or write the magnitude itself as attention_factor."
        )
    return Plan("rotary-longrope", settings)


def _llama3(rope: Keys, context: Context) -> Plan:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high < low:
        raise SettingError(
            f"this configuration has {rope.path}low_freq_factor={low} and {rope.path}high_freq_factor={high}, but the "
            "second must not be smaller. Llama 3.1 has 1 and 4."
        )
    settings = {
        "factor": rope.number("factor"),
        "original_length": _original_length(rope, context),
        "low_frequency_factor": low,
        "high_frequency_factor": high,
    }
    return Plan("rotary-llama3", settings)
