"""Rows of door 2: rotary under each scaling, four times the trained length unless the options say otherwise."""

from dataclasses import fields
from typing import Any

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.row import Scheme, head_dim
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

FACTOR = 4.0


def _scaled(kind: type[Scaling], features: int, settings: dict[str, Any], options: dict[str, Any]) -> Where:
    """Build a rotary under a scaling; options that are settings of the scaling go there, the others to Rotary."""
    own = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every scaling is a dataclass
    scaling = kind(**settings | {name: value for name, value in options.items() if name in own})
    others = {name: value for name, value in options.items() if name not in own}
    return Where(query_key=Rotary(features, scaling=scaling, **others))


def _linear(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return _scaled(Linear, head_dim(dim, num_heads), {"factor": FACTOR}, options)


def _ntk(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return _scaled(NTK, head_dim(dim, num_heads), {"factor": FACTOR}, options)


def _dynamic_ntk(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    settings = {"factor": FACTOR, "original_length": max_length}
    return _scaled(DynamicNTK, head_dim(dim, num_heads), settings, options)


def _yarn(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    settings = {"factor": FACTOR, "original_length": max_length}
    return _scaled(YaRN, head_dim(dim, num_heads), settings, options)


def _longrope(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    """Stand in for a search: all 1 up to the trained length; beyond, factors rise evenly from 1 to `factor`."""
    features = head_dim(dim, num_heads)
    pairs = (options.get("rotary_dim") or features) // 2
    factor = options.get("factor", FACTOR)
    rising = tuple(1 + (factor - 1) * pair / max(pairs - 1, 1) for pair in range(pairs))
    lists = {"short_factor": (1.0,) * pairs, "long_factor": rising}
    return _scaled(LongRoPE, features, {"factor": factor, "original_length": max_length, **lists}, options)


def _llama3(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    settings = {"factor": FACTOR, "original_length": max_length}
    return _scaled(Llama3, head_dim(dim, num_heads), settings, options)


def _proportional(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    # A half, not Gemma 4's quarter: small heads keep a pair that turns.
    return _scaled(Proportional, head_dim(dim, num_heads), {"share": 0.5}, options)


ROWS = (
    Scheme(
        name="rotary-linear",
        door="query_key",
        formula="rotary with w_n / s",
        paper="Chen et al., Extending Context Window of Large Language Models via Positional Interpolation",
        url="https://arxiv.org/abs/2306.15595",
        year=2023,
        used_by=("Gemma 3", "DeepSeek-Coder", "Vicuna 16k"),
        build=_linear,
        relative=True,
        variants=({"factor": 2.0}, {"theta": 500_000.0, "interleaved": True}),
    ),
    Scheme(
        name="rotary-ntk",
        door="query_key",
        formula="rotary with theta s^(d/(d-2)): the fastest pair kept, the slowest divided by s",
        paper="bloc97, NTK-Aware Scaled RoPE, in Peng et al., YaRN, section 3.1",
        url="https://arxiv.org/abs/2309.00071",
        year=2023,
        used_by=("Hunyuan",),
        build=_ntk,
        relative=True,
        variants=({"factor": 16.0}, {"rotary_dim": 8}),
    ),
    Scheme(
        name="rotary-dynamic-ntk",
        door="query_key",
        formula="rotary with theta (s L/L_0 - s + 1)^(d/(d-2)) for a sequence of length L > L_0",
        paper="emozilla, Dynamically Scaled RoPE, in Peng et al., YaRN, section 3.3",
        url="https://arxiv.org/abs/2309.00071",
        year=2023,
        used_by=("InternLM2", "Qwen"),
        build=_dynamic_ntk,
        relative=True,
        follows_length=True,
        variants=({"factor": 2.0}, {"original_length": 32}),
    ),
    Scheme(
        name="rotary-yarn",
        door="query_key",
        formula="rotary with w_n for fast pairs, w_n / s for slow ones, a ramp between;  q, k times 0.1 ln s + 1",
        paper="Peng et al., YaRN: Efficient Context Window Extension of Large Language Models",
        url="https://arxiv.org/abs/2309.00071",
        year=2023,
        used_by=("DeepSeek-V3", "gpt-oss", "Qwen2.5 beyond 32k"),
        build=_yarn,
        relative=True,
        variants=(
            {"attention_factor": 1.0},
            {"truncate": False},
            {"mscale": 2.0, "mscale_all_dim": 1.0},
            {"beta_fast": 2.0, "beta_slow": 0.1},
        ),
    ),
    Scheme(
        name="rotary-longrope",
        door="query_key",
        formula="rotary with w_n / f_n, one list of f for lengths up to L_0 and one beyond;  q, k times a magnitude",
        paper="Ding et al., LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
        url="https://arxiv.org/abs/2402.13753",
        year=2024,
        used_by=("Phi-3", "Phi-4-mini"),
        build=_longrope,
        relative=True,
        follows_length=True,
        variants=({"factor": 16.0}, {"attention_factor": 1.0}),
    ),
    Scheme(
        name="rotary-llama3",
        door="query_key",
        formula="rotary with w_n for short wavelengths, w_n / s for long ones, smooth between",
        paper="Dubey et al., The Llama 3 Herd of Models",
        url="https://arxiv.org/abs/2407.21783",
        year=2024,
        used_by=("Llama 3.1", "Llama 3.2", "Llama 3.3"),
        build=_llama3,
        relative=True,
        variants=({"factor": 32.0}, {"low_frequency_factor": 0.01, "high_frequency_factor": 16.0}),
    ),
    Scheme(
        name="rotary-proportional",
        door="query_key",
        formula="rotary in the fastest share of the pairs, none in the rest",
        paper="Barbero et al., Round and Round We Go! What makes Rotary Positional Encodings useful?",
        url="https://arxiv.org/abs/2410.06205",
        year=2024,
        used_by=("Gemma 4",),
        build=_proportional,
        relative=True,
        variants=({"share": 0.25}, {"factor": 8.0}, {"share": 0.25, "interleaved": True}),
    ),
)
