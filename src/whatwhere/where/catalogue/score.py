"""Entries of the score door: biases that are added to attention scores."""

from typing import Any

from whatwhere.where.catalogue.entry import Builder, Scheme, Sizes
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.cope import CoPE
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.fire import FIRE
from whatwhere.where.score.fox import FoX
from whatwhere.where.score.inkling import Inkling
from whatwhere.where.score.kerple import KERPLE
from whatwhere.where.score.sam import SAM
from whatwhere.where.score.sandwich import Sandwich
from whatwhere.where.score.shaw import Shaw
from whatwhere.where.score.swin import Swin
from whatwhere.where.score.swin_v2 import SwinV2
from whatwhere.where.score.t5 import T5
from whatwhere.where.score.transformer_xl import TransformerXL


def _t5_defaults(sizes: Sizes) -> dict[str, Any]:
    return {"std": sizes.dim**-0.5}  # as Hugging Face


def _max_distance(sizes: Sizes) -> dict[str, Any]:
    return {"max_distance": sizes.max_length}


ENTRIES = (
    Scheme(
        name="alibi",
        door="score",
        formula="score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8(h+1)/H) for h = 0 to H-1, where H is a power of 2",
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
        formula="score(h, i, j) += sum_n cos((i - j) w_n) / (8(h+1)/H),  w_n = theta^(-2n/sinusoid_dim)",
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
        name="inkling",
        door="score",
        formula="score(h, i, j) += <r_hi, P[:, i - j]> for 0 <= i - j < extent,  r_hi = W_h x_i",
        paper="Thinking Machines, Inkling (in transformers)",
        url="https://huggingface.co/docs/transformers/model_doc/inkling",
        year=2026,
        used_by=("Inkling",),
        build=Builder(Inkling, ("dim", "num_heads")),
        learned=True,
        relative=True,
        variants=({"features": 4, "std": 0.5}, {"extent": 5, "std": 0.5}, {"max_norm": 0.5, "std": 0.5}),
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
        used_by=("the paper's translation models",),
        build=Builder(Shaw, ("head_dim", "num_heads")),
        learned=True,
        relative=True,
        variants=({"max_distance": 3, "max_future_distance": 16}, {"max_distance": 2, "max_future_distance": 0}),
    ),
    Scheme(
        name="swin",
        door="score",
        formula="score(h, i, j) += B[y_i - y_j, x_i - x_j, h] on a grid, up to the size of a window",
        paper="Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows",
        url="https://arxiv.org/abs/2103.14030",
        year=2021,
        used_by=("the paper's image models",),
        build=Builder(Swin, ("num_heads",)),
        learned=True,
        relative=True,
        variants=({"window_size": 3}, {"window_size": (12, 2)}, {"std": 0.5}),
    ),
    Scheme(
        name="swin-v2",
        door="score",
        formula="score(h, i, j) += 16 sigmoid(MLP_h(s(y_i - y_j), s(x_i - x_j))),  s(d) = +-log8(1 + 8|d|/(n - 1))",
        paper="Liu et al., Swin Transformer V2: Scaling Up Capacity and Resolution",
        url="https://arxiv.org/abs/2111.09883",
        year=2022,
        used_by=("the paper's image models",),
        build=Builder(SwinV2, ("num_heads",)),
        learned=True,
        relative=True,
        variants=({"hidden": 16}, {"window_size": 3}, {"window_size": 12, "trained_size": 4}),
    ),
    Scheme(
        name="sam",
        door="score",
        formula="score(h, i, j) += <q_i, R[y_i - y_j]> + <q_i, C[x_i - x_j]> on a grid, up to the size of a window",
        paper="Li et al., MViTv2: Improved Multiscale Vision Transformers for Classification and Detection",
        url="https://arxiv.org/abs/2112.01526",
        year=2022,
        used_by=("the paper's image models",),
        build=Builder(SAM, ("head_dim", "num_heads")),
        learned=True,
        relative=True,
        variants=({"window_size": 3}, {"window_size": (12, 2)}, {"std": 0.5}),
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
