"""The entries of the catalogue: a table of facts, and how each scheme is built and what it promises."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from whatwhere.checks import require_choice
from whatwhere.errors import UnknownScheme
from whatwhere.where import temperature
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entry import Builder, Door, Scheme, Sizes
from whatwhere.where.input.axial_sinusoidal import AxialSinusoidal
from whatwhere.where.input.fourier import Fourier
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.by_region import DualChunk, SelfExtend
from whatwhere.where.query_key.carope import CARoPE
from whatwhere.where.query_key.fope import FoPE
from whatwhere.where.query_key.learned_rotary import LearnedRotary
from whatwhere.where.query_key.mixed_rotary import MixedRotary
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.pope import PoPE
from whatwhere.where.query_key.query_factor import QueryTemperature, SSMax
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.selective_rope import SelectiveRoPE
from whatwhere.where.query_key.xpos import XPos
from whatwhere.where.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.cope import CoPE
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.fire import FIRE
from whatwhere.where.score.fox import FoX
from whatwhere.where.score.inkling import Inkling
from whatwhere.where.score.kerple import KERPLE
from whatwhere.where.score.sandwich import Sandwich
from whatwhere.where.score.shaw import Shaw
from whatwhere.where.score.swin import SAM, Swin, SwinV2
from whatwhere.where.score.t5 import T5
from whatwhere.where.score.transformer_xl import TransformerXL

FACTS = """
none, 2022, https://arxiv.org/abs/2203.16634
    Haviv et al., Transformer Language Models without Positional Encodings Still Learn Positions
    x_i = what(token_i)
    some layers of Llama 4, SmolLM3
sinusoidal, 2017, https://arxiv.org/abs/1706.03762
    Vaswani et al., Attention Is All You Need
    x_i += (sin p w_0, cos p w_0, sin p w_1, ...),  w_n = theta^(-2n/dim)
    the original Transformer; Transformer-XL; fairseq; MusicGen
sinusoidal-axial, 2018, https://arxiv.org/abs/1802.05751
    Parmar et al., Image Transformer
    x_i += (S(p_1), ..., S(p_A)),  S: the sinusoid of one axis, with dim/A features
    the Image Transformer
fourier, 2021, https://arxiv.org/abs/2106.02795
    Li et al., Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding
    x_i += W_2 gelu(W_1 (cos W_r p', sin W_r p') / sqrt(D) + b_1) + b_2,  p' = p / max_length
    the paper's image models
learned, 2017, https://arxiv.org/abs/1705.03122
    Gehring et al., Convolutional Sequence to Sequence Learning
    x_i += P[p_i]
    GPT-2; BERT; OPT
rotary, 2021, https://arxiv.org/abs/2104.09864
    Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding
    q_i, k_j rotated by p w_n in each pair of features,  w_n = theta^(-2n/head_dim)
    Llama; Qwen; Mistral; GPT-NeoX
rotary-linear, 2023, https://arxiv.org/abs/2306.15595
    Chen et al., Extending Context Window of Large Language Models via Positional Interpolation
    rotary with w_n / s
    Gemma 3; DeepSeek-Coder; Vicuna 16k
rotary-ntk, 2023, https://arxiv.org/abs/2309.00071
    bloc97, NTK-Aware Scaled RoPE, in Peng et al., YaRN, section 3.1
    rotary with theta s^(d/(d-2)): the fastest pair kept, the slowest divided by s
    Hunyuan
rotary-dynamic-ntk, 2023, https://arxiv.org/abs/2309.00071
    emozilla, Dynamically Scaled RoPE, in Peng et al., YaRN, section 3.3
    rotary with theta (s L/L_0 - s + 1)^(d/(d-2)) for a sequence of length L > L_0
    InternLM2; Qwen 1
rotary-yarn, 2023, https://arxiv.org/abs/2309.00071
    Peng et al., YaRN: Efficient Context Window Extension of Large Language Models
    rotary with w_n for fast pairs, w_n / s for slow ones, a ramp between;  q, k times 0.1 ln s + 1
    DeepSeek-V3; gpt-oss; Qwen2.5 beyond 32k
rotary-longrope, 2024, https://arxiv.org/abs/2402.13753
    Ding et al., LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens
    rotary with w_n / f_n, one list f up to length L_0, another beyond;  q, k times a magnitude
    Phi-3; Phi-4-mini
rotary-llama3, 2024, https://arxiv.org/abs/2407.21783
    Dubey et al., The Llama 3 Herd of Models
    rotary with w_n for short wavelengths, w_n / s for long ones, interpolated between
    Llama 3.1; Llama 3.2; Llama 3.3
rotary-proportional, 2024, https://arxiv.org/abs/2410.06205
    Barbero et al., Round and Round We Go! What makes Rotary Positional Encodings useful?
    rotary in a share of the pairs, the fastest; the others are not rotated
    LFM3
rotary-learned, 2026, https://github.com/huggingface/transformers/tree/main/src/transformers/models/mistral_large4
    Mistral AI, Mistral Large 4 (LeRoPE); its implementation in transformers
    rotary with w_n exp(a_n), a learned from 0
    Mistral Large 4
rotary-axial, 2024, https://arxiv.org/abs/2403.13298
    Heo et al., Rotary Position Embedding for Vision Transformer
    rotary, its pairs divided among the axes of a grid, each by its own coordinate and frequencies
    the paper's image models
rotary-mixed, 2024, https://arxiv.org/abs/2403.13298
    Heo et al., Rotary Position Embedding for Vision Transformer
    rotary, pair n of head h by y u_hn + x v_hn, frequencies of a grid that are learned
    the paper's image models
rotary-multimodal, 2024, https://arxiv.org/abs/2409.12191
    Wang et al., Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution
    rotary, each pair by the coordinate of its axis: time, height or width
    Qwen2-VL; Qwen2.5-VL; Qwen3-VL; GLM-4V
rotary-self-extend, 2024, https://arxiv.org/abs/2401.01325
    Jin et al., LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning
    rotary by i - j for i - j < W, by i//G - j//G + W - W//G beyond
    the paper's language models
rotary-dual-chunk, 2024, https://arxiv.org/abs/2402.17463
    An et al., Training-Free Long-Context Scaling of Large Language Models
    rotary by i%s - j%s in a chunk of s, by min(i%s + s, M) - j%s of the chunk before, by M - j%s beyond
    the paper's language models
xpos, 2022, https://arxiv.org/abs/2212.10554
    Sun et al., A Length-Extrapolatable Transformer
    rotary;  q_i times z_n^(p/512), k_j divided by it in each pair,  z_n = (2n + 0.4 d) / (1.4 d)
    the paper's language models
pope, 2025, https://arxiv.org/abs/2509.10534
    Gopalakrishnan et al., Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings
    <q_i, k_j> -> sum_c softplus(q_c) softplus(k_c) cos((p_i - p_j) theta^(-c/head_dim) - delta_c)
    the paper's language models
fope, 2024, https://arxiv.org/abs/2412.17739
    Hua et al., Fourier Position Embedding: Enhancing Attention's Periodic Extension
    rotary, its waves mixed by learned matrices; pairs slower than 2 pi / max_length are not rotated
    the paper's language models
carope, 2025, https://arxiv.org/abs/2507.23083
    Veisi et al., Context-aware Rotary Position Embedding
    rotary by sum_(t = 1..i) f_t^n in pair n,  f_t = 1 / (softplus(<w_h, x_t> + b_h) + 1)
    the paper's language models
selective-rope, 2025, https://arxiv.org/abs/2511.17388
    Movahedi et al., Selective Rotary Position Embedding
    rotary by w_n sum_(t = 1..i) g_t (c_0 f_(t-3) + ... + c_3 f_t) in pair n,  f_t = U_hn D x_t / |x_t|
    the paper's language models
ssmax, 2025, https://arxiv.org/abs/2501.19399
    Nakanishi, Scalable-Softmax Is Superior for Attention
    q_i -> s_h ln(p_i + 1) q_i, after another map if one is given
    the paper's language models
temperature, 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence/
    Meta, The Llama 4 herd; its implementation in transformers
    q_i -> (1 + (p_i + 1) / L)^0.1 q_i, or another curve of p_i, after another map if one is given
    Llama 4; Ministral 3; Beam
alibi, 2022, https://arxiv.org/abs/2108.12409
    Press et al., Train Short, Test Long: Attention with Linear Biases
    score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8(h+1)/H) for h = 0 to H-1, where H is a power of 2
    BLOOM; MPT
kerple, 2022, https://arxiv.org/abs/2205.09921
    Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation
    score(h, i, j) += -p_h ln(1 + a_h |i - j|), or -a_h |i - j|^p_h
    its authors' models
sandwich, 2023, https://arxiv.org/abs/2212.10356
    Chi et al., Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis
    score(h, i, j) += sum_n cos((i - j) w_n) / (8(h+1)/H),  w_n = theta^(-2n/sinusoid_dim)
    its authors' models
fire, 2024, https://arxiv.org/abs/2310.04418
    Li et al., Functional Interpolation for Relative Positions Improves Long Context Transformers
    score(h, i, j) += MLP_h(ln(|c (i - j)| + 1) / (ln(|c max(i, |m L|)| + 1) + 1e-6))
    its authors' models
fox, 2025, https://arxiv.org/abs/2503.02130
    Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate
    score(h, i, j) += ln f_(j+1) + ... + ln f_i,  f_t = sigmoid(<w_h, x_t> + b_h)
    its authors' models
cope, 2024, https://arxiv.org/abs/2405.18719
    Golovneva et al., Contextual Position Encoding: Learning to Count What's Important
    score(h, i, j) += <q_i, e[p_ij]>,  p_ij = min(sum_(l = j..i) sigmoid(<q_i, k_l> scale), P - 1)
    its authors' models
inkling, 2026, https://huggingface.co/docs/transformers/model_doc/inkling
    Thinking Machines, Inkling (in transformers)
    score(h, i, j) += <r_hi, P[:, i - j]> for 0 <= i - j < extent,  r_hi = W_h x_i
    Inkling
t5, 2020, https://arxiv.org/abs/1910.10683
    Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer
    score(h, i, j) += W[bucket(i - j), h],  buckets widen with the distance; softmax scale 1
    T5; mT5; UMT5
shaw, 2018, https://arxiv.org/abs/1803.02155
    Shaw et al., Self-Attention with Relative Position Representations
    score(h, i, j) += <q_i, E[clip(j - i, -D, F) + D]> / sqrt(head_dim)
    the paper's translation models
swin, 2021, https://arxiv.org/abs/2103.14030
    Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows
    score(h, i, j) += B[y_i - y_j, x_i - x_j, h] on a grid, up to the size of a window
    the paper's image models
swin-v2, 2022, https://arxiv.org/abs/2111.09883
    Liu et al., Swin Transformer V2: Scaling Up Capacity and Resolution
    score(h, i, j) += 16 sigmoid(MLP_h(s(y_i - y_j), s(x_i - x_j))),  s(d) = +-log8(1 + 8|d|/(n - 1))
    the paper's image models
sam, 2022, https://arxiv.org/abs/2112.01526
    Li et al., MViTv2: Improved Multiscale Vision Transformers for Classification and Detection
    score(h, i, j) += <q_i, R[y_i - y_j]> + <q_i, C[x_i - x_j]> on a grid, up to the size of a window
    the paper's image models
transformer-xl, 2019, https://arxiv.org/abs/1901.02860
    Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context
    score(h, i, j) += (<u_h, k_j> + <q_i + v_h, W_h R(i - j)>) / sqrt(head_dim),  R the sinusoid
    Transformer-XL; XLNet
deberta, 2021, https://arxiv.org/abs/2006.03654
    He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention
    score(h, i, j) += (<q_i, K[r, h]> + <k_j, Q[r, h]>) / sqrt(3 head_dim),  r = row(i - j)
    DeBERTa; DeBERTa-v3
"""
"""Of each scheme: name, year and address; the paper; the formula; and by which models it is used."""

_FACTS = {
    name: {"year": int(year), "url": url, "paper": paper, "formula": formula, "used_by": tuple(used_by.split("; "))}
    for name, year, url, paper, formula, used_by in re.findall(
        r"^(\S+), (\d+), (.*)\n +(.*)\n +(.*)\n +(.*)$", FACTS, re.M
    )
}
FACTOR = 4.0  # by which rotary is scaled unless another factor is given: for four times the trained length


def _entry(door: Door | None, name: str, build: Callable[..., Where], **promises: Any) -> Scheme:
    facts: dict[str, Any] = _FACTS[name]
    return Scheme(door=door, name=name, build=build, **facts, **promises)


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


def _parted(settings: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that are fields of a scaling or a curve, and the others."""
    names = {field.name for field in fields(kind)}
    return tuple({name: settings[name] for name in settings if (name in names) is own} for own in (True, False))  # type: ignore[return-value]


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
    chosen, others = _parted(settings, _CURVES[curve])
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
    entry = next((each for each in ENTRIES if each.door == "query_key" and each.name == then), None)
    if entry is None:
        names = ", ".join(entry.name for entry in ENTRIES if entry.door == "query_key")
        raise UnknownScheme(f"{owner} got then={then!r}, but takes one of: {names}.")
    factory = {name: options[name] for name in ("device", "dtype") if name in options and entry.learned}
    inner = entry.build(dim, num_heads, max_length, **factory).query_key
    return build(dim, num_heads, max_length, then=inner, **options)


def _self_extend(head_dim: int, *, window: int, group_size: int, theta: float = 10_000.0, **rotary: Any) -> SelfExtend:
    return SelfExtend(Rotary(head_dim, theta, **rotary), window, group_size)


def _dual_chunk(
    head_dim: int, *, chunk_size: int, max_distance: int, theta: float = 10_000.0, **rotary: Any
) -> DualChunk:
    return DualChunk(Rotary(head_dim, theta, **rotary), chunk_size, max_distance)


def _dual_chunk_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"chunk_size": max(1, sizes.max_length * 3 // 4), "max_distance": max(1, sizes.max_length - 1)}


_SSMAX = partial(_around, "ssmax", Builder(SSMax, ("head_dim", "num_heads"), _ssmax_defaults))
_TEMPERATURE = partial(_around, "temperature", Builder(_query_temperature, ("head_dim", "max_length")))


def _rotary(kind: type[Scaling], head_dim: int, **settings: Any) -> Rotary:
    """Build Rotary under a scaling; settings that are fields of the scaling go there, the others to Rotary."""
    chosen, others = _parted(settings, kind)
    return Rotary(head_dim, scaling=kind(**chosen), **others)


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


def _t5_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"std": sizes.dim**-0.5}  # as Hugging Face


def _max_distance(sizes: Sizes) -> dict[str, Any]:
    return {"max_distance": sizes.max_length}


_input, _query_key, _score = (partial(_entry, door) for door in ("input", "query_key", "score"))
ENTRIES: tuple[Scheme, ...] = (
    _entry(None, "none", lambda dim, num_heads, max_length: Where(), relative=True),
    _input("sinusoidal", Builder(Sinusoidal, ("dim",))),
    _input("sinusoidal-axial", Builder(AxialSinusoidal, ("dim",))),
    _input("fourier", Builder(Fourier, ("dim", "max_length")), learned=True),
    _input("learned", Builder(Learned, ("dim", "max_length")), learned=True, any_length=False),
    _query_key("rotary", Builder(Rotary, ("head_dim",)), relative=True),
    _query_key("rotary-linear", Builder(partial(_rotary, Linear), ("head_dim",), _factor), relative=True),
    _query_key("rotary-ntk", Builder(partial(_rotary, NTK), ("head_dim",), _factor), relative=True),
    _query_key(
        "rotary-dynamic-ntk",
        Builder(partial(_rotary, DynamicNTK), ("head_dim",), _factor_and_length),
        relative=True,
        follows_length=True,
    ),
    _query_key("rotary-yarn", Builder(partial(_rotary, YaRN), ("head_dim",), _factor_and_length), relative=True),
    _query_key(
        "rotary-longrope",
        Builder(partial(_longrope, LongRoPE), ("head_dim",), _factor_and_length),
        relative=True,
        follows_length=True,
    ),
    _query_key("rotary-llama3", Builder(partial(_rotary, Llama3), ("head_dim",), _factor_and_length), relative=True),
    _query_key("rotary-proportional", Builder(partial(_rotary, Proportional), ("head_dim",), _half), relative=True),
    _query_key("rotary-learned", Builder(LearnedRotary, ("head_dim",)), learned=True, relative=True),
    _query_key("rotary-axial", Builder(AxialRotary, ("head_dim",)), relative=True),
    _query_key("rotary-mixed", Builder(MixedRotary, ("head_dim",)), learned=True, relative=True),
    _query_key("rotary-multimodal", Builder(MultimodalRotary, ("head_dim",), _even_sections), relative=True),
    _query_key(
        "rotary-self-extend",
        # For texts of up to 3 1/4 times the length.
        Builder(_self_extend, ("head_dim",), lambda sizes: {"window": max(1, sizes.max_length // 4), "group_size": 4}),
        causal_only=True,
        keeps_norms=False,
    ),
    _query_key(
        "rotary-dual-chunk",
        Builder(_dual_chunk, ("head_dim",), _dual_chunk_defaults),
        causal_only=True,
        keeps_norms=False,
    ),
    _query_key(
        "xpos", Builder(XPos, ("head_dim",)), relative=True, causal_only=True, keeps_norms=False, tested_up_to=33_994
    ),
    _query_key("pope", Builder(PoPE, ("head_dim", "num_heads")), learned=True, relative=True, keeps_norms=False),
    _query_key("fope", Builder(FoPE, ("head_dim",), _fope_defaults), learned=True, keeps_norms=False),
    _query_key(
        "carope", Builder(CARoPE, ("dim", "head_dim", "num_heads")), learned=True, relative=True, causal_only=True
    ),
    _query_key(
        "selective-rope",
        Builder(SelectiveRoPE, ("dim", "head_dim", "num_heads")),
        learned=True,
        relative=True,
        causal_only=True,
    ),
    _query_key("ssmax", _SSMAX, learned=True, keeps_norms=False),
    _query_key("temperature", _TEMPERATURE, keeps_norms=False),
    _score("alibi", Builder(ALiBi, ("num_heads",)), relative=True, distinct_up_to=128),
    _score("kerple", Builder(KERPLE, ("num_heads",)), learned=True, relative=True),
    _score("sandwich", Builder(Sandwich, ("num_heads",)), relative=True),
    _score("fire", Builder(FIRE, ("num_heads",)), learned=True, relative_below=512),
    _score("fox", Builder(FoX, ("dim", "num_heads")), learned=True, relative=True, causal_only=True),
    _score(
        "cope", Builder(CoPE, ("head_dim", "num_heads"), _max_distance), learned=True, relative=True, causal_only=True
    ),
    _score("inkling", Builder(Inkling, ("dim", "num_heads")), learned=True, relative=True),
    _score("t5", Builder(T5, ("num_heads",), _t5_defaults), learned=True, relative=True, causal_only=True),
    _score("shaw", Builder(Shaw, ("head_dim", "num_heads")), learned=True, relative=True),
    _score("swin", Builder(Swin, ("num_heads",)), learned=True, relative=True),
    _score("swin-v2", Builder(SwinV2, ("num_heads",)), learned=True, relative=True),
    _score("sam", Builder(SAM, ("head_dim", "num_heads")), learned=True, relative=True),
    _score("transformer-xl", Builder(TransformerXL, ("head_dim", "num_heads", "dim")), learned=True, relative=True),
    _score("deberta", Builder(DeBERTa, ("head_dim", "num_heads"), _max_distance), learned=True, relative=True),
)
