"""Entries of the input door: vectors that are added to those of the tokens."""

from whatwhere.where.catalogue.entry import Builder, Scheme
from whatwhere.where.input.axial_sinusoidal import AxialSinusoidal
from whatwhere.where.input.fourier import Fourier
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal

ENTRIES = (
    Scheme(
        name="sinusoidal",
        door="input",
        formula="x_i += (sin p w_0, cos p w_0, sin p w_1, ...),  w_n = theta^(-2n/dim)",
        paper="Vaswani et al., Attention Is All You Need",
        url="https://arxiv.org/abs/1706.03762",
        year=2017,
        used_by=("the original Transformer", "Transformer-XL", "fairseq", "MusicGen"),
        build=Builder(Sinusoidal, ("dim",)),
        variants=(
            {"layout": "half"},
            {"layout": "tensor2tensor"},
            {"theta": 500.0},
            {"cosines_first": True},
            {"layout": "tensor2tensor", "cosines_first": True},
        ),
    ),
    Scheme(
        name="sinusoidal-axial",
        door="input",
        formula="x_i += (S(p_1), ..., S(p_A)),  S: the sinusoid of one axis, with dim/A features",
        paper="Parmar et al., Image Transformer",
        url="https://arxiv.org/abs/1802.05751",
        year=2018,
        used_by=("the Image Transformer",),
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
)
