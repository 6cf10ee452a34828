"""Every scheme equals its reference; its gradients, by inputs and by weights, are the differences of the reference."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from tests.samples import table
from whatwhere import reference

NEAR, AT, FAR = np.arange(6), np.array([0, 3, 40, 600]), np.array([0, 3, 40, 100_000])
QUERIES, KEYS = np.array([0, 4, 30, 999_999]), np.array([0, 1, 2, 3, 5, 29, 200, 9999])
GRID = np.array([[0, 1, 3, 40], [2, 0, 3, 7]])
GRID_QUERIES, GRID_KEYS = np.array([[0, 3, 2, 40], [1, 0, 4, 2]]), np.array([[0, 1, 2, 7, 3], [2, 2, 0, 1, 4]])
SPACE = np.random.default_rng(0).integers(2000, size=(4, 5))
HEADS = (3, 4, 8)
CASES = []
ROUNDED = 3e-7
"""What float32 cosines and sines change of a pair of features up to 5 long."""


def case(name, scheme, ours, formula, *shapes, atol=1e-12, rtol=0.0, slack=1e-7):
    """Add a scheme, what it makes of arrays of these shapes, and the formula of the arrays and its weights."""
    CASES.append(pytest.param(type(scheme), scheme, ours, formula, shapes, atol, rtol, slack, id=name))


@pytest.fixture(scope="module", autouse=True)
def random():
    torch.manual_seed(0)


def at(index):
    """Return positions along one axis, or along several for rows of coordinates."""
    index = torch.tensor(index)
    return ww.Positions.from_position_ids(index) if index.ndim == 1 else ww.Positions.from_coordinates(index[:, None])


# Door 1

for layout, dim, first in product(("interleaved", "half", "tensor2tensor"), (4, 10), (False, True)):
    case(
        f"sinusoidal-{layout}-{dim}-{first}",
        ww.Sinusoidal(dim, 5_000.0, layout, cosines_first=first),
        lambda scheme: scheme(at([0, 1, 7, 511, 65_535, 1_000_000]))[0],
        lambda d=dim, how=layout, c=first: reference.sinusoid([0, 1, 7, 511, 65_535, 1_000_000], d, 5_000.0, how, c),
        atol=6.1e-8,  # the last bit of a float32 at 1 is worth 1.2e-7
    )
for (dim, axes), layout in product(
    ((64, 2), (16, 3), (10, 2), (8, 1), (20, 4)), ("interleaved", "half", "tensor2tensor")
):
    index = np.array([[0, 1, 5, 40, 999_999]] * axes) + 3 * np.arange(axes)[:, None]
    case(
        f"sinusoidal-axial-{dim}-{axes}-{layout}",
        ww.AxialSinusoidal(dim, axes, 500.0, layout),
        lambda scheme, index=index: scheme(at(index))[0],
        lambda index=index, d=dim, how=layout: reference.axial_sinusoid(index, d, 500.0, how),
        atol=6.1e-8,
    )
for settings in ({}, {"axes": 2}, {"features": 6, "hidden": 5}, {"axes": 3, "features": 2}):
    index = np.array([[0, 1, 7, 99, 2000]] * settings.get("axes", 1)) + np.arange(settings.get("axes", 1))[:, None]
    case(
        f"fourier-{settings}",
        ww.Fourier(8, 100, **settings),
        lambda scheme, index=index: scheme(at(index))[0],
        lambda *weights, index=index: reference.fourier(index, 100, *weights),
        slack=1e-5,
    )
for offset in (0, 2):
    case(
        f"learned-{offset}",
        ww.Learned(4, 9, offset),
        lambda scheme: scheme(torch.tensor([[0, 1, 8], [1, 1, 7]])),
        lambda weight, offset=offset: reference.learned(weight, np.array([[0, 1, 8], [1, 1, 7]]), offset),
    )

# Door 2


def mapped(index):
    """Return what a map makes of queries and of keys, one after the other."""
    return lambda scheme, q, k: torch.cat(scheme(q[None], k[None], at(index)), dim=1)[0]


def by_content(scheme, x, q, k):
    here = ww.Where(scheme).at(len(x))
    return torch.cat(here.query_key(q[None], k[None], increments=here.increments(x[None])), dim=1)[0]


def both(formula):
    """Return the formula of queries and of keys, one after the other."""
    return lambda q, k, *weights: np.concatenate([formula(q, *weights), formula(k, *weights)])


FLOAT32 = {"atol": ROUNDED, "rtol": ROUNDED, "slack": 2e-6}
for interleaved, rotary_dim in ((False, None), (True, None), (False, 4), (True, 6)):
    case(
        f"rotary-{interleaved}-{rotary_dim}",
        ww.Rotary(8, 500.0, interleaved=interleaved, rotary_dim=rotary_dim),
        mapped(FAR),
        both(lambda x, i=interleaved, d=rotary_dim: reference.rotary(x, FAR, 500.0, i, d)),
        *[HEADS] * 2,
        **FLOAT32,
    )
for settings in (
    {},
    {"interleaved": True, "theta": 500.0},
    {"rotary_dim": 4, "rotary_start": 3},
    {"rotary_start": 2, "interleaved": True},
    {"scaling": ww.scaling.YaRN(factor=4.0, original_length=64)},
):
    plain = ww.Rotary(8, **settings)

    def learned_rotary(x, alpha, plain=plain):
        frequencies = list(plain.frequencies().numpy() * np.exp(alpha))
        how = (plain.theta, plain.interleaved, plain.rotary_dim, frequencies, plain.magnitude, plain.rotary_start)
        return reference.rotary(x, AT, *how)

    scheme = ww.LearnedRotary(8, **settings)
    case(f"rotary-learned-{settings}", scheme, mapped(AT), both(learned_rotary), *[HEADS] * 2, atol=1e-10, slack=1e-4)
for sections, interleaved in product(((4, 4), (2, 2, 2, 2), (3, 3, 2), (1, 7)), (False, True)):
    index = SPACE[: len(sections)]
    case(
        f"rotary-axial-{sections}-{interleaved}",
        ww.AxialRotary(16, len(sections), 500.0, interleaved=interleaved, sections=sections),
        mapped(index),
        both(lambda x, index=index, s=sections, i=interleaved: reference.axial_rotary(x, index, s, 500.0, i)),
        *[(3, 5, 16)] * 2,
        **FLOAT32,
    )
for sets, interleaved in product((1, 3), (False, True)):
    case(
        f"rotary-mixed-{sets}-{interleaved}",
        ww.MixedRotary(8, sets, interleaved=interleaved),
        mapped(GRID),
        both(lambda x, w, i=interleaved: reference.mixed_rotary(x, GRID, np.broadcast_to(w, (2, 3, 4)), i)),
        *[HEADS] * 2,
        slack=1e-5,
    )
AXES = (("chunked", (2, 3, 3)), ("chunked", (5, 0, 3)), ("interleaved", (4, 2, 2)), ("interleaved", (2, 2, 2, 2)))
for (layout, sections), interleaved, scaling in product(AXES, (False, True), (None, ww.scaling.YaRN(4.0, 64))):
    index, settings = SPACE[: len(sections)], {"layout": layout, "interleaved": interleaved, "scaling": scaling}
    rope = ww.MultimodalRotary(20, sections, 500.0, rotary_dim=16, **settings)
    frequencies = reference.inverse_frequencies(16, 500.0)
    if scaling is not None:
        frequencies = reference.yarn_frequencies(16, 500.0, 4.0, 64)
    how = (index, sections, 500.0, layout, interleaved, frequencies, rope.magnitude)
    case(
        f"rotary-multimodal-{layout}-{sections}-{interleaved}-{scaling is not None}",
        rope,
        mapped(index),
        both(lambda x, how=how: reference.multimodal_rotary(x, *how)),
        *[(3, 5, 20)] * 2,
        **FLOAT32,
    )
for interleaved, (center, base) in product((False, True), ((0, 512.0), (900, 512.0), (3, 2048.0))):
    how = {"theta": 500.0, "interleaved": interleaved, "scale_base": base, "center": center}
    case(
        f"xpos-{interleaved}-{center}",
        ww.XPos(16, **how),
        mapped(AT),
        lambda q, k, how=how: np.concatenate([reference.xpos(x, AT, n, **how) for n, x in ((False, q), (True, k))]),
        *[(3, 4, 16)] * 2,
        atol=1e-6,  # factors are up to 3.5 ** (900 / 512)
        rtol=1e-6,
        slack=2e-5,
    )
case(
    "pope",
    ww.PoPE(6, 3, 500.0),
    mapped(FAR),
    lambda q, k, delta: np.concatenate([reference.pope(q, FAR, 500.0, delta), reference.pope(k, FAR, 500.0)]),
    *[(3, 4, 6)] * 2,
    **FLOAT32,
)
for interleaved in (False, True):
    case(
        f"fope-{interleaved}",
        ww.FoPE(8, 100, 3, 500.0, interleaved, gain=2.0),
        mapped(FAR),
        both(lambda x, *weights, i=interleaved: reference.fope(x, FAR, *weights, 500.0, i)),
        *[HEADS] * 2,
        atol=1e-9,
    )
    case(
        f"carope-{interleaved}",
        ww.CARoPE(5, 8, 3, interleaved=interleaved),
        by_content,
        lambda x, q, k, *weights, i=interleaved: both(
            lambda y: reference.carope(y, reference.carope_increments(x, *weights), i)
        )(q, k),
        (6, 5),
        *[(3, 6, 8)] * 2,
    )
    case(
        f"ssmax-{interleaved}",
        ww.SSMax(8, 3, bias=interleaved),
        mapped(FAR),
        lambda q, k, *weights: np.concatenate([reference.ssmax(q, FAR, *weights), k]),
        *[HEADS] * 2,
        atol=1e-11,
    )
for settings in ({}, {"gate": True}, {"gate": True, "interleaved": True, "theta": 10.0}, {"norm_groups": 2}):
    scheme = ww.SelectiveRoPE(12, 8, 3, rank=5, **settings)

    def selective_rope(x, q, k, *weights, scheme=scheme):
        named = dict(zip((name for name, _ in scheme.named_parameters()), weights, strict=True))
        convolution = named.pop("convolution")
        increments = reference.selective_rope_increments(x, **named, groups=scheme.norm_groups)
        return both(lambda y: reference.selective_rope(y, increments, convolution, scheme.theta, scheme.interleaved))(
            q, k
        )

    case(f"selective-rope-{settings}", scheme, by_content, selective_rope, (7, 12), *[(3, 7, 8)] * 2, slack=1e-4)

# Door 3


def bias(scheme, q=None, k=None, queries=QUERIES, keys=KEYS):
    q, k = (None if x is None else x[None] for x in (q, k))
    return table(scheme, at(queries), at(keys), q, k)[0]


def distances(scheme):
    return scheme(at(QUERIES), at(KEYS))[0]


def grid(scheme):
    return scheme(at(GRID_QUERIES), at(GRID_KEYS))[0]


for num_heads in (1, 2, 3, 5, 8, 12, 31, 71):
    case(
        f"alibi-{num_heads}",
        ww.ALiBi(num_heads),
        distances,
        lambda heads=num_heads: reference.alibi_bias(QUERIES, KEYS, heads),
        rtol=2e-7,
    )
for sizes in ((4, 128, 10_000.0), (12, 16, 500.0), (1, 2, 10_000.0), (3, 64, 100_000.0)):
    case(
        f"sandwich-{sizes}",
        ww.Sandwich(*sizes),
        distances,
        lambda sizes=sizes: reference.sandwich_bias(QUERIES, KEYS, *sizes),
        rtol=2e-7,  # the sum is rounded to float32, the quotient too
        atol=1e-9,
    )
for buckets in (
    (32, 128, False),
    (32, 128, True),
    (8, 6, True),
    (7, 9, False),
    (2, 3, False),
    (4, 2, True),
    (64, 1000, False),
):

    def t5(weight, buckets=buckets):
        found = reference.t5_bias(weight, QUERIES, KEYS, *buckets[1:])
        return found if buckets[2] else np.where(QUERIES[:, None] < KEYS, 0, found)

    case(
        f"t5-{buckets}",
        ww.T5(3, *buckets),
        lambda scheme, both_ways=buckets[2]: scheme(at(QUERIES), at(KEYS), causal=not both_ways)[0].masked_fill(
            torch.tensor((QUERIES[:, None] < KEYS) & (not both_ways)), 0
        ),
        t5,
    )
for kind in ("log", "power"):

    def kerple(p, a, kind=kind):
        p = 2 / (1 + np.exp(-p)) if kind == "power" else np.logaddexp(0, p)
        return reference.kerple_bias(QUERIES, KEYS, p, np.logaddexp(0, a), kind)

    case(f"kerple-{kind}", ww.KERPLE(3, kind), distances, kerple, rtol=1e-13)
for settings in ({}, {"width": 5}, {"threshold": 20.0}, {"c": 2.0}):
    scheme = ww.FIRE(3, **settings)

    def fire(c, factor, u, a, v, b, threshold=scheme.threshold):
        return reference.fire_bias(QUERIES, KEYS, c.item(), threshold * factor.item(), (u, a), (v, b))

    case(f"fire-{settings}", scheme, distances, fire, rtol=1e-11)
for window in ((3, 3), (4, 2), (1, 5)):
    case(
        f"swin-{window}",
        ww.Swin(2, window),
        grid,
        lambda weight, w=window: reference.swin_bias(weight, GRID_QUERIES, GRID_KEYS, *w),
    )
for window in ((3, 3), (4, 2), (1, 5), (50, 50)):
    case(
        f"sam-{window}",
        ww.SAM(6, 2, window),
        lambda scheme, q: bias(scheme, q, None, GRID_QUERIES, GRID_KEYS),
        lambda q, rows, columns: reference.sam_bias(q, rows, columns, GRID_QUERIES, GRID_KEYS),
        (2, 4, 6),
    )
for window, trained in (((3, 3), None), ((4, 2), (3, 9)), ((1, 5), (1, 2))):
    scheme = ww.SwinV2(2, window, trained, hidden=7)

    def swin_v2(*weights, scheme=scheme):
        rows = reference.swin_v2_table(*weights, scheme.window_size, scheme.trained_size)
        return reference.swin_bias(rows, GRID_QUERIES, GRID_KEYS, *scheme.window_size)

    case(f"swin-v2-{window}-{trained}", scheme, grid, swin_v2, slack=1e-6)
for past, future in ((3, 2), (1, 0), (40, 40)):
    case(
        f"shaw-{past}-{future}",
        ww.Shaw(4, 2, past, future),
        bias,
        lambda q, weight, past=past: reference.shaw_bias(q, weight, QUERIES, KEYS, past),
        (2, 4, 4),
    )
TERMS = (("c2p", "p2c"), ("c2p",), ("p2c",))
for (distance, rows), terms in product(((4, None), (9, 6), (4, 4), (20, 8)), TERMS):

    def deberta(q, k, *tables, shared=None if rows is None else distance, terms=terms):
        of_keys, of_queries = tables if len(terms) == 2 else (*tables, None) if terms == ("c2p",) else (None, *tables)
        return reference.deberta_bias(q, k, QUERIES, KEYS, of_keys, of_queries, shared)

    scheme = ww.DeBERTa(4, 2, distance, rows, terms=terms)
    case(f"deberta-{distance}-{rows}-{'+'.join(terms)}", scheme, bias, deberta, (2, 4, 4), (2, 8, 4))
for start, settings in product((0, 1_000_000), ({}, {"dim": 12}, {"theta": 50.0})):
    scheme = ww.TransformerXL(4, 2, **settings)
    case(
        f"transformer-xl-{start}-{settings}",
        scheme,
        lambda scheme, q, k, n=start: bias(scheme, q, k, QUERIES[:3] + n, KEYS + n),
        lambda q, k, *weights, n=start, theta=scheme.theta: reference.transformer_xl_bias(
            q, k, QUERIES[:3] + n, KEYS + n, *weights, theta
        ),
        (2, 3, 4),
        (2, 8, 4),
        atol=2e-6,  # float32 sines in sums of a few dozen products of size 1 to 3
        slack=2e-5,
    )
for rows, scale in ((3, None), (64, None), (3, 1.0), (1, None)):
    case(
        f"cope-{rows}-{scale}",
        ww.CoPE(6, 4, rows, scale),
        lambda scheme, q, k: bias(scheme, q, k, NEAR, NEAR).tril(),
        lambda q, k, weight, scale=scale: reference.cope_bias(q, k, weight, scale or 6**-0.5) * np.tri(6),
        *[(4, 6, 6)] * 2,
    )
case(
    "fox",
    ww.FoX(12, 4),
    lambda scheme, gates: table(scheme, at(NEAR), at(NEAR), gates=-gates[None].abs())[0].tril(),
    lambda gates, *_: reference.fox_bias(-abs(gates)),
    (4, 6),
)
case("fox-gates", ww.FoX(12, 4), lambda scheme, x: scheme.gates(x[None])[0], reference.fox_gates, (6, 12))
for extent in (1, 5, 40):
    case(
        f"inkling-{extent}",
        ww.Inkling(8, 2, 4, extent),
        lambda scheme, gates: table(scheme, at(QUERIES), at(KEYS), gates=gates[None])[0],
        lambda gates, _, profiles: reference.inkling_bias(gates, profiles, QUERIES, KEYS),
        (2, 4, 4),
    )
for max_norm in (None, 0.5, 4.0, 1000.0):

    def inkling_gates(x, *weights, max_norm=max_norm):
        weight, _, *gain = weights
        return reference.inkling_gates(x, weight, 2, *gain, max_norm=max_norm)

    # Inkling 2 adds 1e-6 to the norm, which a formula need not.
    scheme = ww.Inkling(8, 2, 4, 5, max_norm=max_norm)
    case(
        f"inkling-gates-{max_norm}",
        scheme,
        lambda s, x: s.gates(x[None])[0],
        inkling_gates,
        (6, 8),
        rtol=1e-5,
        slack=1e-4,
    )


@pytest.mark.every_nth(7)
@pytest.mark.parametrize(("kind", "scheme", "ours", "formula", "shapes", "atol", "rtol", "slack"), CASES)
def test_it_is_the_reference_forward_and_backward(kind, scheme, ours, formula, shapes, atol, rtol, slack):
    """Of each kind of scheme one case is left in the default pass."""
    scheme = scheme.double()
    with torch.no_grad():
        for n, parameter in enumerate(scheme.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=20 + n))
    given: list[Tensor] = [draw(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)]
    made, leaves = ours(scheme, *given), [*given, *scheme.parameters()]
    arrays = [leaf.detach().numpy() for leaf in leaves]
    np.testing.assert_allclose(made.detach().double().numpy(), formula(*arrays), rtol=rtol, atol=atol)
    if not leaves:
        return
    g = draw(*made.shape, seed=40)
    made.backward(g)
    used = [leaf for leaf in leaves if leaf.grad is not None]
    assert used

    def of_used(*changed):
        values = iter(changed)
        return formula(
            *(next(values) if leaf.grad is not None else array for leaf, array in zip(leaves, arrays, strict=True))
        )

    require_gradients([leaf.grad for leaf in used], of_used, used, g, atol=slack)
