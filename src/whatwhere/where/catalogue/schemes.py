"""The entries of all schemes: those of the input door, of the query_key door, and of the score door."""

from typing import Any

from whatwhere.errors import UnknownScheme
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entry import Builder, Scheme, Sizes
from whatwhere.where.catalogue.scaling import ENTRIES as _SCALED
from whatwhere.where.input.axial_sinusoidal import AxialSinusoidal
from whatwhere.where.input.fourier import Fourier
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.fope import FoPE
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.pope import PoPE
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.ssmax import SSMax
from whatwhere.where.query_key.xpos import XPos
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.cope import CoPE
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.fire import FIRE
from whatwhere.where.score.fox import FoX
from whatwhere.where.score.kerple import KERPLE
from whatwhere.where.score.sandwich import Sandwich
from whatwhere.where.score.shaw import Shaw
from whatwhere.where.score.t5 import T5
from whatwhere.where.score.transformer_xl import TransformerXL


def _none(dim: int, num_heads: int, max_length: int) -> Where:
    return Where()


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


_SSMAX = Builder(SSMax, ("head_dim", "num_heads"), _ssmax_defaults)


def _ssmax(dim: int, num_heads: int, max_length: int, then: str | None = None, **options: Any) -> Where:
    """Build SSMax; `then` is the name of another entry of this door, for the map inside."""
    if then is None:
        return _SSMAX(dim, num_heads, max_length, **options)
    entry = _named(then)
    factory = {name: options[name] for name in ("device", "dtype") if name in options and entry.learned}
    inner = entry.build(dim, num_heads, max_length, **factory).query_key
    return _SSMAX(dim, num_heads, max_length, then=inner, **options)


def _named(name: str) -> Scheme:
    for entry in ENTRIES:
        if entry.door == "query_key" and entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in ENTRIES if entry.door == "query_key")
    raise UnknownScheme(f"ssmax got then={name!r}, but takes one of: {names}.")


def _t5_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"std": sizes.dim**-0.5}  # as Hugging Face


def _max_distance(sizes: Sizes) -> dict[str, Any]:
    return {"max_distance": sizes.max_length}


ENTRIES = (
    Scheme(
        name="none",
        door=None,
        formula="x_i = what(token_i)",
        paper="Haviv et al., Transformer Language Models without Positional Encodings Still Learn Positions",
        url="https://arxiv.org/abs/2203.16634",
        year=2022,
        used_by=("some layers of Llama 4, SmolLM3",),
        build=_none,
        relative=True,
    ),
    Scheme(
        name="sinusoidal",
        door="input",
        formula="x_i += (sin p w_0, cos p w_0, sin p w_1, ...),  w_n = theta^(-2n/dim)",
        paper="Vaswani et al., Attention Is All You Need",
        url="https://arxiv.org/abs/1706.03762",
        year=2017,
        used_by=("the original Transformer", "Transformer-XL", "fairseq"),
        build=Builder(Sinusoidal, ("dim",)),
        variants=({"layout": "half"}, {"layout": "tensor2tensor"}, {"theta": 500.0}),
    ),
    Scheme(
        name="sinusoidal-axial",
        door="input",
        formula="x_i += (S(p_1), ..., S(p_A)),  S: the sinusoid of one axis, with dim/A features",
        paper="Parmar et al., Image Transformer",
        url="https://arxiv.org/abs/1802.05751",
        year=2018,
        used_by=("the Image Transformer", "MAE"),
        build=Builder(AxialSinusoidal, ("dim",)),
        variants=({"axes": 3}, {"layout": "half"}, {"axes": 3, "layout": "tensor2tensor"}, {"theta": 500.0}),
    ),
    Scheme(
        name="fourier",
        door="input",
        formula="x_i += W_2 gelu(W_1 (cos W_r p', sin W_r p') / sqrt(D) + b_1) + b_2,  p' = p / max_length",
        paper="Li et al., Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding",
        url="https://arxiv.org/abs/2106.02795",
        year=2021,
        used_by=("the paper's image models",),
        build=Builder(Fourier, ("dim", "max_length")),
        learned=True,
        variants=({"axes": 2}, {"features": 16}, {"hidden": 24}, {"width": 2.0}),
    ),
    Scheme(
        name="learned",
        door="input",
        formula="x_i += P[p_i]",
        paper="Gehring et al., Convolutional Sequence to Sequence Learning",
        url="https://arxiv.org/abs/1705.03122",
        year=2017,
        used_by=("GPT-2", "BERT", "OPT"),
        build=Builder(Learned, ("dim", "max_length")),
        learned=True,
        any_length=False,
        variants=({"offset": 2},),
    ),
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
            {"theta": 500_000.0},
        ),
    ),
    *_SCALED,
    Scheme(
        name="rotary-axial",
        door="query_key",
        formula="rotary, its pairs divided among the axes of a grid, each by its own coordinate and frequencies",
        paper="Heo et al., Rotary Position Embedding for Vision Transformer",
        url="https://arxiv.org/abs/2403.13298",
        year=2024,
        used_by=("EVA-02", "Qwen2-VL (vision)"),
        build=Builder(AxialRotary, ("head_dim",)),
        relative=True,
        variants=({"interleaved": True}, {"theta": 100.0}, {"axes": 4}),
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
        name="xpos",
        door="query_key",
        formula="rotary;  q_i times z_n^(p/512), k_j divided by it in each pair,  z_n = (2n + 0.4 d) / (1.4 d)",
        paper="Sun et al., A Length-Extrapolatable Transformer",
        url="https://arxiv.org/abs/2212.10554",
        year=2022,
        used_by=("Kosmos-1",),
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
        used_by=("Intern-S1-Pro",),
        build=Builder(FoPE, ("head_dim",), _fope_defaults),
        learned=True,
        keeps_norms=False,
        variants=({"interleaved": True}, {"sets": 1}, {"original_length": 5000}, {"theta": 100.0}),
    ),
    Scheme(
        name="ssmax",
        door="query_key",
        formula="q_i -> s_h ln(p_i + 1) q_i, after another map if one is given",
        paper="Nakanishi, Scalable-Softmax Is Superior for Attention",
        url="https://arxiv.org/abs/2501.19399",
        year=2025,
        used_by=("the paper's language models",),
        build=_ssmax,
        learned=True,
        keeps_norms=False,
        variants=({"then": "rotary"}, {"then": "pope"}, {"original_length": 20}),
    ),
    Scheme(
        name="alibi",
        door="score",
        formula="score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8h/H)",
        paper="Press et al., Train Short, Test Long: Attention with Linear Biases",
        url="https://arxiv.org/abs/2108.12409",
        year=2022,
        used_by=("BLOOM", "MPT"),
        build=Builder(ALiBi, ("num_heads",)),
        relative=True,
        distinct_up_to=128,
    ),
    Scheme(
        name="kerple",
        door="score",
        formula="score(h, i, j) += -p_h ln(1 + a_h |i - j|), or -a_h |i - j|^p_h",
        paper="Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
        url="https://arxiv.org/abs/2205.09921",
        year=2022,
        used_by=("its authors' models",),
        build=Builder(KERPLE, ("num_heads",)),
        learned=True,
        relative=True,
        variants=({"kind": "power"},),
    ),
    Scheme(
        name="sandwich",
        door="score",
        formula="score(h, i, j) += sum_n cos((i - j) w_n) / (8h/H),  w_n = theta^(-2n/sinusoid_dim)",
        paper="Chi et al., Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis",
        url="https://arxiv.org/abs/2212.10356",
        year=2023,
        used_by=("its authors' models",),
        build=Builder(Sandwich, ("num_heads",)),
        relative=True,
        variants=({"sinusoid_dim": 16}, {"theta": 500.0}),
    ),
    Scheme(
        name="fire",
        door="score",
        formula="score(h, i, j) += MLP_h(ln(|c (i - j)| + 1) / (ln(|c max(i, |m L|)| + 1) + 1e-6))",
        paper="Li et al., Functional Interpolation for Relative Positions Improves Long Context Transformers",
        url="https://arxiv.org/abs/2310.04418",
        year=2024,
        used_by=("its authors' models",),
        build=Builder(FIRE, ("num_heads",)),
        learned=True,
        relative_below=512,
        variants=({"width": 16}, {"c": 1.0}),
    ),
    Scheme(
        name="fox",
        door="score",
        formula="score(h, i, j) += ln f_(j+1) + ... + ln f_i,  f_t = sigmoid(<w_h, x_t> + b_h)",
        paper="Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate",
        url="https://arxiv.org/abs/2503.02130",
        year=2025,
        used_by=("its authors' models",),
        build=Builder(FoX, ("dim", "num_heads")),
        learned=True,
        relative=True,
        causal_only=True,
    ),
    Scheme(
        name="cope",
        door="score",
        formula="score(h, i, j) += <q_i, e[p_ij]>,  p_ij = min(sum_(l = j..i) sigmoid(<q_i, k_l> scale), P - 1)",
        paper="Golovneva et al., Contextual Position Encoding: Learning to Count What's Important",
        url="https://arxiv.org/abs/2405.18719",
        year=2024,
        used_by=("its authors' models",),
        build=Builder(CoPE, ("head_dim", "num_heads"), _max_distance),
        learned=True,
        relative=True,
        causal_only=True,
        variants=({"std": 0.5}, {"std": 0.5, "max_distance": 3}, {"std": 0.5, "scale": 1.0}),
    ),
    Scheme(
        name="t5",
        door="score",
        formula="score(h, i, j) += W[bucket(i - j), h],  buckets widen with the distance; softmax scale 1",
        paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        url="https://arxiv.org/abs/1910.10683",
        year=2020,
        used_by=("T5", "mT5", "UMT5"),
        build=Builder(T5, ("num_heads",), _t5_defaults),
        learned=True,
        relative=True,
        causal_only=True,
        variants=(
            {"num_buckets": 7, "max_distance": 9},
            {"bidirectional": True, "num_buckets": 8, "max_distance": 6},
            {"scale": None},
        ),
    ),
    Scheme(
        name="shaw",
        door="score",
        formula="score(h, i, j) += <q_i, E[clip(j - i, -D, F) + D]> / sqrt(head_dim)",
        paper="Shaw et al., Self-Attention with Relative Position Representations",
        url="https://arxiv.org/abs/1803.02155",
        year=2018,
        used_by=("Wav2Vec2-BERT",),
        build=Builder(Shaw, ("head_dim", "num_heads")),
        learned=True,
        relative=True,
        variants=({"max_distance": 3, "max_future_distance": 16}, {"max_distance": 2, "max_future_distance": 0}),
    ),
    Scheme(
        name="transformer-xl",
        door="score",
        formula="score(h, i, j) += (<u_h, k_j> + <q_i + v_h, W_h R(i - j)>) / sqrt(head_dim),  R the sinusoid",
        paper="Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
        url="https://arxiv.org/abs/1901.02860",
        year=2019,
        used_by=("Transformer-XL", "XLNet"),
        build=Builder(TransformerXL, ("head_dim", "num_heads", "dim")),
        learned=True,
        relative=True,
        variants=({"theta": 100.0},),
    ),
    Scheme(
        name="deberta",
        door="score",
        formula="score(h, i, j) += (<q_i, K[r, h]> + <k_j, Q[r, h]>) / sqrt(3 head_dim),  r = row(i - j)",
        paper="He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        url="https://arxiv.org/abs/2006.03654",
        year=2021,
        used_by=("DeBERTa", "DeBERTa-v3"),
        build=Builder(DeBERTa, ("head_dim", "num_heads"), _max_distance),
        learned=True,
        relative=True,
        variants=(
            {"max_distance": 9, "position_buckets": 6},
            {"max_distance": 3},
            {"terms": ("c2p",)},
            {"terms": ("p2c",)},
        ),
    ),
)
