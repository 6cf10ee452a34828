"""Entries of the query_key door: maps of queries and keys."""

from dataclasses import fields
from functools import partial
from typing import Any

from whatwhere.checks import require_choice
from whatwhere.errors import UnknownScheme
from whatwhere.where import temperature
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entry import Builder, Scheme, Sizes
from whatwhere.where.catalogue.scaling import ENTRIES as _SCALED
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.carope import CARoPE
from whatwhere.where.query_key.dual_chunk import DualChunk
from whatwhere.where.query_key.fope import FoPE
from whatwhere.where.query_key.learned_rotary import LearnedRotary
from whatwhere.where.query_key.mixed_rotary import MixedRotary
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.pope import PoPE
from whatwhere.where.query_key.query_temperature import QueryTemperature
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.selective_rope import SelectiveRoPE
from whatwhere.where.query_key.self_extend import SelfExtend
from whatwhere.where.query_key.ssmax import SSMax
from whatwhere.where.query_key.xpos import XPos


def _even_sections(sizes: Sizes) -> dict[str, Any]:
    """Divide the pairs evenly among three axes; time gets the remainder."""
    pairs = sizes.head_dim // 2
    third = pairs // 3
    return {"sections": (pairs - 2 * third, third, third)}


def _fope_defaults(sizes: Sizes) -> dict[str, Any]:
    # Below 7 positions not even the fastest wave completes a rotation.
    return {"original_length": max(7, sizes.max_length), "sets": sizes.num_heads}


def _ssmax_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"original_length": max(2, sizes.max_length)}


_CURVES: dict[str, type[temperature.Curve]] = {
    "power": temperature.Power,
    "stepped": temperature.SteppedLog,
    "clamped": temperature.ClampedLog,
    "logn": temperature.LogN,
}


def _query_temperature(head_dim: int, length: int, /, curve: str = "power", **settings: Any) -> QueryTemperature:
    """Build a temperature; `curve` names one of its curves, and settings that are fields of it go there."""
    require_choice("temperature", "curve", curve, tuple(_CURVES))
    # By default the curve of the trained length; a quarter of it is Beam's power curve: 2048 of 8192.
    defaults = {
        "power": {"length": max(1, length // 4)},
        "stepped": {"period": length},
        "clamped": {"length": length},
        "logn": {"original_length": max(2, length)},
    }
    names = {field.name for field in fields(_CURVES[curve])}  # type: ignore[arg-type]  # every curve is a dataclass
    chosen = {name: value for name, value in settings.items() if name in names}
    others = {name: value for name, value in settings.items() if name not in names}
    return QueryTemperature(head_dim, _CURVES[curve](**{**defaults[curve], **chosen}), **others)


def _around(
    owner: str,
    build: Builder,
    dim: int,
    num_heads: int,
    max_length: int,
    then: str | QueryKeyMap | None = None,
    **options: Any,
) -> Where:
    """Build a factor of queries; `then` is the map inside, or the name of another entry of this door."""
    if then is None:
        return build(dim, num_heads, max_length, **options)
    if isinstance(then, QueryKeyMap):
        return build(dim, num_heads, max_length, then=then, **options)
    entry = _named(owner, then)
    factory = {name: options[name] for name in ("device", "dtype") if name in options and entry.learned}
    inner = entry.build(dim, num_heads, max_length, **factory).query_key
    return build(dim, num_heads, max_length, then=inner, **options)


def _named(owner: str, name: str) -> Scheme:
    for entry in ENTRIES:
        if entry.door == "query_key" and entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in ENTRIES if entry.door == "query_key")
    raise UnknownScheme(f"{owner} got then={name!r}, but takes one of: {names}.")


def _self_extend(head_dim: int, *, window: int, group_size: int, theta: float = 10_000.0, **rotary: Any) -> SelfExtend:
    return SelfExtend(Rotary(head_dim, theta, **rotary), window, group_size)


def _self_extend_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"window": max(1, sizes.max_length // 4), "group_size": 4}  # for texts of up to 3 1/4 times the length


def _dual_chunk(
    head_dim: int, *, chunk_size: int, max_distance: int, theta: float = 10_000.0, **rotary: Any
) -> DualChunk:
    return DualChunk(Rotary(head_dim, theta, **rotary), chunk_size, max_distance)


def _dual_chunk_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"chunk_size": max(1, sizes.max_length * 3 // 4), "max_distance": max(1, sizes.max_length - 1)}


_SSMAX = partial(_around, "ssmax", Builder(SSMax, ("head_dim", "num_heads"), _ssmax_defaults))
_TEMPERATURE = partial(_around, "temperature", Builder(_query_temperature, ("head_dim", "max_length")))

ENTRIES: tuple[Scheme, ...] = (
    Scheme(
        name="rotary",
        door="query_key",
        formula="q_i, k_j rotated by p w_n in each pair of features,  w_n = theta^(-2n/head_dim)",
        paper="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding",
        url="https://arxiv.org/abs/2104.09864",
        year=2021,
        used_by=("Llama", "Qwen", "Mistral", "GPT-NeoX"),
        build=Builder(Rotary, ("head_dim",)),
        relative=True,
        variants=(
            {"interleaved": True},
            {"rotary_dim": 8},
            {"rotary_dim": 8, "interleaved": True},
            {"rotary_dim": 8, "rotary_start": 3},
            {"rotary_start": 4, "interleaved": True},
            {"reversed": True},
            {"theta": 500_000.0},
        ),
    ),
    *_SCALED,
    Scheme(
        name="rotary-learned",
        door="query_key",
        formula="rotary with w_n exp(a_n), a learned from 0",
        paper="Mistral AI, Mistral Large 4 (LeRoPE); its implementation in transformers",
        url="https://github.com/huggingface/transformers/tree/main/src/transformers/models/mistral_large4",
        year=2026,
        used_by=("Mistral Large 4",),
        build=Builder(LearnedRotary, ("head_dim",)),
        learned=True,
        relative=True,
        variants=({"interleaved": True}, {"rotary_dim": 2, "rotary_start": 1}, {"theta": 500_000.0}),
    ),
    Scheme(
        name="rotary-axial",
        door="query_key",
        formula="rotary, its pairs divided among the axes of a grid, each by its own coordinate and frequencies",
        paper="Heo et al., Rotary Position Embedding for Vision Transformer",
        url="https://arxiv.org/abs/2403.13298",
        year=2024,
        used_by=("the paper's image models",),
        build=Builder(AxialRotary, ("head_dim",)),
        relative=True,
        variants=({"interleaved": True}, {"theta": 100.0}, {"axes": 4}),
    ),
    Scheme(
        name="rotary-mixed",
        door="query_key",
        formula="rotary, pair n of head h by y u_hn + x v_hn, frequencies of a grid that are learned",
        paper="Heo et al., Rotary Position Embedding for Vision Transformer",
        url="https://arxiv.org/abs/2403.13298",
        year=2024,
        used_by=("the paper's image models",),
        build=Builder(MixedRotary, ("head_dim",)),
        learned=True,
        relative=True,
        variants=({"interleaved": True}, {"theta": 100.0}),
    ),
    Scheme(
        name="rotary-multimodal",
        door="query_key",
        formula="rotary, each pair by the coordinate of its axis: time, height or width",
        paper="Wang et al., Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution",
        url="https://arxiv.org/abs/2409.12191",
        year=2024,
        used_by=("Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL", "GLM-4V"),
        build=Builder(MultimodalRotary, ("head_dim",), _even_sections),
        relative=True,
        variants=(
            {"layout": "interleaved"},
            {"rotary_dim": 16, "sections": (2, 3, 3)},
            {"rotary_dim": 12, "sections": (2, 2, 2), "layout": "interleaved"},
            {"interleaved": True},
        ),
    ),
    Scheme(
        name="rotary-self-extend",
        door="query_key",
        formula="rotary by i - j for i - j < W, by i//G - j//G + W - W//G beyond",
        paper="Jin et al., LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning",
        url="https://arxiv.org/abs/2401.01325",
        year=2024,
        used_by=("the paper's language models",),
        build=Builder(_self_extend, ("head_dim",), _self_extend_defaults),
        causal_only=True,
        keeps_norms=False,
        variants=(
            {"window": 3, "group_size": 3},
            {"window": 2, "group_size": 3, "interleaved": True},
            {"window": 4, "group_size": 2, "rotary_dim": 8, "theta": 500_000.0},
        ),
    ),
    Scheme(
        name="rotary-dual-chunk",
        door="query_key",
        formula="rotary by i%s - j%s in a chunk of s, by min(i%s + s, M) - j%s of the chunk before, by M - j%s beyond",
        paper="An et al., Training-Free Long-Context Scaling of Large Language Models",
        url="https://arxiv.org/abs/2402.17463",
        year=2024,
        used_by=("the paper's language models",),
        build=Builder(_dual_chunk, ("head_dim",), _dual_chunk_defaults),
        causal_only=True,
        keeps_norms=False,
        variants=(
            {"chunk_size": 3, "max_distance": 4},
            {"chunk_size": 2, "max_distance": 2, "interleaved": True},
            {"chunk_size": 3, "max_distance": 7, "rotary_dim": 8},
        ),
    ),
    Scheme(
        name="xpos",
        door="query_key",
        formula="rotary;  q_i times z_n^(p/512), k_j divided by it in each pair,  z_n = (2n + 0.4 d) / (1.4 d)",
        paper="Sun et al., A Length-Extrapolatable Transformer",
        url="https://arxiv.org/abs/2212.10554",
        year=2022,
        used_by=("the paper's language models",),
        build=Builder(XPos, ("head_dim",)),
        relative=True,
        causal_only=True,
        keeps_norms=False,
        tested_up_to=33_994,
        variants=({"interleaved": True}, {"scale_base": 1024.0, "center": 4}, {"theta": 500_000.0}),
    ),
    Scheme(
        name="pope",
        door="query_key",
        formula="<q_i, k_j> -> sum_c softplus(q_c) softplus(k_c) cos((p_i - p_j) theta^(-c/head_dim) - delta_c)",
        paper='Gopalakrishnan et al., Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings',
        url="https://arxiv.org/abs/2509.10534",
        year=2025,
        used_by=("the paper's language models",),
        build=Builder(PoPE, ("head_dim", "num_heads")),
        learned=True,
        relative=True,
        keeps_norms=False,
        variants=({"theta": 500.0},),
    ),
    Scheme(
        name="fope",
        door="query_key",
        formula="rotary, its waves mixed by learned matrices; pairs slower than 2 pi / max_length are not rotated",
        paper="Hua et al., Fourier Position Embedding: Enhancing Attention's Periodic Extension",
        url="https://arxiv.org/abs/2412.17739",
        year=2024,
        used_by=("the paper's language models",),
        build=Builder(FoPE, ("head_dim",), _fope_defaults),
        learned=True,
        keeps_norms=False,
        variants=({"interleaved": True}, {"sets": 1}, {"original_length": 5000}, {"theta": 100.0}),
    ),
    Scheme(
        name="carope",
        door="query_key",
        formula="rotary by sum_(t = 1..i) f_t^n in pair n,  f_t = 1 / (softplus(<w_h, x_t> + b_h) + 1)",
        paper="Veisi et al., Context-aware Rotary Position Embedding",
        url="https://arxiv.org/abs/2507.23083",
        year=2025,
        used_by=("the paper's language models",),
        build=Builder(CARoPE, ("dim", "head_dim", "num_heads")),
        learned=True,
        relative=True,
        causal_only=True,
        variants=({"interleaved": True}, {"theta": 100.0}),
    ),
    Scheme(
        name="selective-rope",
        door="query_key",
        formula="rotary by w_n sum_(t = 1..i) g_t (c_0 f_(t-3) + ... + c_3 f_t) in pair n,  f_t = U_hn D x_t / |x_t|",
        paper="Movahedi et al., Selective Rotary Position Embedding",
        url="https://arxiv.org/abs/2511.17388",
        year=2025,
        used_by=("the paper's language models",),
        build=Builder(SelectiveRoPE, ("dim", "head_dim", "num_heads")),
        learned=True,
        relative=True,
        causal_only=True,
        variants=({"gate": True}, {"gate": True, "interleaved": True}, {"theta": 1.0, "rank": 4}),
    ),
    Scheme(
        name="ssmax",
        door="query_key",
        formula="q_i -> s_h ln(p_i + 1) q_i, after another map if one is given",
        paper="Nakanishi, Scalable-Softmax Is Superior for Attention",
        url="https://arxiv.org/abs/2501.19399",
        year=2025,
        used_by=("the paper's language models",),
        build=_SSMAX,
        learned=True,
        keeps_norms=False,
        variants=({"then": "rotary"}, {"then": "pope"}, {"original_length": 20}),
    ),
    Scheme(
        name="temperature",
        door="query_key",
        formula="q_i -> (1 + (p_i + 1) / L)^0.1 q_i, or another curve of p_i, after another map if one is given",
        paper="Meta, The Llama 4 herd; its implementation in transformers",
        url="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        year=2025,
        used_by=("Llama 4", "Ministral 3", "Beam"),
        build=_TEMPERATURE,
        keeps_norms=False,
        variants=(
            {"then": "rotary"},
            {"curve": "stepped", "period": 3},
            {"curve": "stepped", "period": 2, "offset": 0, "alpha": 0.5},
            {"curve": "clamped", "length": 2},
            {"curve": "logn", "original_length": 2},
            {"exponent": 0.5},
        ),
    ),
)
