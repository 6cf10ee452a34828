"""Entries of the query_key door: rotary under each scaling, by default for four times the trained length."""

from dataclasses import fields
from functools import partial
from typing import Any

from whatwhere.where.catalogue.entry import Builder, Scheme, Sizes
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

FACTOR = 4.0


def _rotary(kind: type[Scaling], head_dim: int, **settings: Any) -> Rotary:
    """Build Rotary under a scaling; settings that are fields of the scaling go there, the others to Rotary."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every scaling is a dataclass
    scaling = kind(**{name: value for name, value in settings.items() if name in names})
    others = {name: value for name, value in settings.items() if name not in names}
    return Rotary(head_dim, scaling=scaling, **others)


def _longrope(kind: type[LongRoPE], head_dim: int, **settings: Any) -> Rotary:
    """Build Rotary with lists that need no search: 1 up to the trained length; beyond, from 1 evenly to `factor`."""
    pairs, factor = (settings.get("rotary_dim") or head_dim) // 2, settings["factor"]
    rising = tuple(1 + (factor - 1) * pair / max(pairs - 1, 1) for pair in range(pairs))
    return _rotary(kind, head_dim, **{"short_factor": (1.0,) * pairs, "long_factor": rising, **settings})


def _factor(sizes: Sizes) -> dict[str, Any]:
    return {"factor": FACTOR}


def _factor_and_length(sizes: Sizes) -> dict[str, Any]:
    return {"factor": FACTOR, "original_length": sizes.max_length}


def _half(sizes: Sizes) -> dict[str, Any]:
    return {"share": 0.5}  # not Gemma 4's quarter, so that a pair of small heads is rotated


ENTRIES = (
    Scheme(
        name="rotary-linear",
        door="query_key",
        formula="rotary with w_n / s",
        paper="Chen et al., Extending Context Window of Large Language Models via Positional Interpolation",
        url="https://arxiv.org/abs/2306.15595",
        year=2023,
        used_by=("Gemma 3", "DeepSeek-Coder", "Vicuna 16k"),
        build=Builder(partial(_rotary, Linear), ("head_dim",), _factor),
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
        build=Builder(partial(_rotary, NTK), ("head_dim",), _factor),
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
        used_by=("InternLM2", "Qwen 1"),
        build=Builder(partial(_rotary, DynamicNTK), ("head_dim",), _factor_and_length),
        relative=True,
        follows_length=True,
        variants=({"factor": 2.0}, {"original_length": 32}, {"factor": 2.0, "original_length": 48, "doubling": True}),
    ),
    Scheme(
        name="rotary-yarn",
        door="query_key",
        formula="rotary with w_n for fast pairs, w_n / s for slow ones, a ramp between;  q, k times 0.1 ln s + 1",
        paper="Peng et al., YaRN: Efficient Context Window Extension of Large Language Models",
        url="https://arxiv.org/abs/2309.00071",
        year=2023,
        used_by=("DeepSeek-V3", "gpt-oss", "Qwen2.5 beyond 32k"),
        build=Builder(partial(_rotary, YaRN), ("head_dim",), _factor_and_length),
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
        formula="rotary with w_n / f_n, one list f up to length L_0, another beyond;  q, k times a magnitude",
        paper="Ding et al., LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
        url="https://arxiv.org/abs/2402.13753",
        year=2024,
        used_by=("Phi-3", "Phi-4-mini"),
        build=Builder(partial(_longrope, LongRoPE), ("head_dim",), _factor_and_length),
        relative=True,
        follows_length=True,
        variants=({"factor": 16.0}, {"attention_factor": 1.0}),
    ),
    Scheme(
        name="rotary-llama3",
        door="query_key",
        formula="rotary with w_n for short wavelengths, w_n / s for long ones, interpolated between",
        paper="Dubey et al., The Llama 3 Herd of Models",
        url="https://arxiv.org/abs/2407.21783",
        year=2024,
        used_by=("Llama 3.1", "Llama 3.2", "Llama 3.3"),
        build=Builder(partial(_rotary, Llama3), ("head_dim",), _factor_and_length),
        relative=True,
        variants=({"factor": 32.0}, {"low_frequency_factor": 0.01, "high_frequency_factor": 16.0}),
    ),
    Scheme(
        name="rotary-proportional",
        door="query_key",
        formula="rotary in a share of the pairs, the fastest; the others are not rotated",
        paper="Barbero et al., Round and Round We Go! What makes Rotary Positional Encodings useful?",
        url="https://arxiv.org/abs/2410.06205",
        year=2024,
        used_by=("LFM3",),
        build=Builder(partial(_rotary, Proportional), ("head_dim",), _half),
        relative=True,
        variants=({"share": 0.25}, {"factor": 8.0}, {"share": 0.25, "interleaved": True}),
    ),
)
