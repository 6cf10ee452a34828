"""Rows of door 3."""

from typing import Any

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.row import Scheme, head_dim
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


def _alibi(dim: int, num_heads: int, max_length: int) -> Where:
    head_dim(dim, num_heads)
    return Where(score=ALiBi(num_heads))


def _kerple(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    head_dim(dim, num_heads)
    return Where(score=KERPLE(num_heads, **options))


def _sandwich(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    head_dim(dim, num_heads)
    return Where(score=Sandwich(num_heads, **options))


def _fire(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    head_dim(dim, num_heads)
    return Where(score=FIRE(num_heads, **options))


def _fox(dim: int, num_heads: int, max_length: int) -> Where:
    head_dim(dim, num_heads)
    return Where(score=FoX(dim, num_heads))


def _cope(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(score=CoPE(head_dim(dim, num_heads), num_heads, **{"max_position": max_length} | options))


def _t5(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    head_dim(dim, num_heads)
    return Where(score=T5(num_heads, **{"std": dim**-0.5} | options))


def _shaw(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(score=Shaw(head_dim(dim, num_heads), num_heads, **options))


def _transformer_xl(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(score=TransformerXL(head_dim(dim, num_heads), num_heads, dim, **options))


def _deberta(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(score=DeBERTa(head_dim(dim, num_heads), num_heads, **{"span": max_length} | options))


ROWS = (
    Scheme(
        name="alibi",
        door="score",
        formula="score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8h/H)",
        paper="Press et al., Train Short, Test Long: Attention with Linear Biases",
        url="https://arxiv.org/abs/2108.12409",
        year=2022,
        used_by=("BLOOM", "MPT"),
        build=_alibi,
        relative=True,
        near=128,
    ),
    Scheme(
        name="kerple",
        door="score",
        formula="score(h, i, j) += -p_h ln(1 + a_h |i - j|), or -a_h |i - j|^p_h",
        paper="Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
        url="https://arxiv.org/abs/2205.09921",
        year=2022,
        used_by=("its authors' models",),
        build=_kerple,
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
        build=_sandwich,
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
        build=_fire,
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
        build=_fox,
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
        build=_cope,
        learned=True,
        relative=True,
        causal_only=True,
        variants=({"std": 0.5}, {"std": 0.5, "max_position": 3}, {"std": 0.5, "scale": 1.0}),
    ),
    Scheme(
        name="t5",
        door="score",
        formula="score(h, i, j) += W[bucket(i - j), h],  buckets wider with the distance; softmax scale 1",
        paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        url="https://arxiv.org/abs/1910.10683",
        year=2020,
        used_by=("T5", "mT5", "UMT5"),
        build=_t5,
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
        formula="score(h, i, j) += <q_i, E[clip(j - i, -left, right) + left]> / sqrt(head_dim)",
        paper="Shaw et al., Self-Attention with Relative Position Representations",
        url="https://arxiv.org/abs/1803.02155",
        year=2018,
        used_by=("Wav2Vec2-BERT",),
        build=_shaw,
        learned=True,
        relative=True,
        variants=({"left": 3}, {"left": 2, "right": 0}),
    ),
    Scheme(
        name="transformer-xl",
        door="score",
        formula="score(h, i, j) += (<u_h, k_j> + <q_i + v_h, W_h R(i - j)>) / sqrt(head_dim),  R the sinusoid",
        paper="Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
        url="https://arxiv.org/abs/1901.02860",
        year=2019,
        used_by=("Transformer-XL", "XLNet"),
        build=_transformer_xl,
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
        build=_deberta,
        learned=True,
        relative=True,
        variants=({"span": 6, "max_distance": 9}, {"span": 3}, {"terms": ("c2p",)}, {"terms": ("p2c",)}),
    ),
)
