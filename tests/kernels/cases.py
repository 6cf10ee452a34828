"""One table of what every kernel of kernels/backend.py must compute exactly as PyTorch's operations do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.kernels import cos_sin, embedding, rotary, row_adamw
from whatwhere.kernels.embedding import Rows, embed
from whatwhere.kernels.group_by_row import group, sum_by_row
from whatwhere.kernels.rotary import rotate, rotate_, rotate_both
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, coefficients, look_up, update
from whatwhere.where.frequencies import inverse_frequencies, rotary_tables, sinusoid

from . import inputs
from .inputs import BATCH, LAYOUTS, NOT_SHARED, THREE_DTYPES, TOKENS, VOCAB_SIZE, Layout, ids_below, sampled

Results = dict[str, Tensor]


def require_same_bits(result: Results, wanted: Results) -> None:
    """Raise AssertionError unless all bits are equal; one NaN is as good as another."""
    assert result.keys() == wanted.keys()
    for name, right in wanted.items():
        actual = result[name]
        assert (actual.dtype, actual.shape) == (right.dtype, right.shape), name
        if not right.is_floating_point():
            assert torch.equal(actual, right), name
            continue
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[right.element_size()]
        assert torch.equal(actual.isnan(), right.isnan()), name
        assert torch.equal(actual.nan_to_num().view(bits), right.nan_to_num().view(bits)), name


def require_equal_numbers(result: Results, wanted: Results) -> None:
    """Raise AssertionError unless all numbers are finite and equal; -0 equals 0."""
    assert result.keys() == wanted.keys()
    for name, right in wanted.items():
        assert right.isfinite().all(), name
        assert result[name].dtype == right.dtype, name
        assert torch.equal(result[name], right), name


def require_near_tables(result: Results, wanted: Results, farthest: float = 1e4) -> None:
    """Raise AssertionError unless float32 tables are equal but for what float64 angles leave open."""
    apart = 2**-51 * farthest  # two roundings of the angle here, one there
    assert result.keys() == wanted.keys()
    for name, right in wanted.items():
        assert result[name].shape == right.shape, name
        assert result[name].dtype == right.dtype == torch.float32, name
        torch.testing.assert_close(result[name], right, rtol=0, atol=1e-7 + apart)
        assert (result[name] != right).sum() <= max(1, (1e-4 + apart * 2**26) * right.numel()), name


def require_near_rules(result: Results, wanted: Results) -> None:
    """Raise AssertionError unless decays agree to 1e-14 and motions to 1e-11."""
    assert result.keys() == wanted.keys()
    for name, right in wanted.items():
        torch.testing.assert_close(result[name], right, rtol=1e-14 if name == "decays" else 1e-11, atol=0)


@dataclass(frozen=True)
class Case:
    """A function that a kernel serves, with inputs.

    Args:
        kernel: its name in backend.KERNELS.
        run: makes inputs, calls the function and returns its results, with gradients where it has any. Called twice
            with the same arguments, it must make the same inputs.
        shapes: of the inputs, as `run` reads them.
        dtypes: of the inputs.
        layouts: of the inputs in memory.
        options: keyword arguments of `run`; all are tested for each shape, dtype and layout.
        require: raises AssertionError unless results are those of PyTorch's operations.
        streams: the module whose large results are written past the caches.
    """

    kernel: str
    run: Callable[..., Results]
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[torch.dtype] = (torch.float32,)
    layouts: dict[str, Layout] = field(default_factory=lambda: {"contiguous": lambda x: x})
    options: Sequence[dict[str, Any]] = ({},)
    require: Callable[[Results, Results], None] = require_same_bits
    streams: ModuleType | None = None

    def arguments(self) -> Iterator[tuple[torch.dtype, tuple[int, ...], str]]:
        """Yield each dtype, shape and name of a layout."""
        yield from product(self.dtypes, self.shapes, self.layouts)


def each(**options: Sequence[Any]) -> list[dict[str, Any]]:
    """Return every combination of keyword arguments.

    >>> each(a=[1, 2], b=[3])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


# Rotation.

WIDTHS = [(128, 64), (64, 20), (96, 16), (26, 13), (20, 3), (2, 1), (6, 0)]
"""Features, and pairs that rotate: vectors' widths, rests behind them, features that stay, and no rotation at all."""
ROTARY_SHAPES = [
    *[(2, 3, 7, features, pairs, 1, 1) for features, pairs in WIDTHS],
    *[(3, 4, 5, 12, 4, rows, heads) for rows, heads in ((3, 1), (1, 4), (3, 4))],
    (1, 1, 1, 8, 4, 1, 1),
    *[(*sizes, 8, 4, 1, 1) for sizes in ((2, 3, 0), (2, 0, 3), (0, 2, 3))],
]
"""Batch, heads, tokens, features, pairs; rows and heads of the tables of cosines."""


def _rotary_inputs(shape: tuple[int, ...], dtype: torch.dtype, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, tokens, features, pairs, rows, table_heads = shape
    return (
        layout(sampled(batch, heads, tokens, features, dtype=dtype)),
        *inputs.rotary_tables(rows, table_heads, tokens, pairs),
    )


def _rotate(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, interleaved: bool, back: bool) -> Results:
    x, cos, sin = _rotary_inputs(shape, dtype, layout)
    leaf = x.detach().requires_grad_()
    y, g = rotate(leaf, cos, sin, interleaved, back), layout(sampled(*x.shape, dtype=dtype, seed=2))
    return {
        "rotated": rotate(x, cos, sin, interleaved, back),
        "rotated, with a gradient": y.detach(),
        "gradient": torch.autograd.grad(y, leaf, g)[0],
    }


def _rotate_in_place(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, interleaved: bool) -> Results:
    x, cos, sin = _rotary_inputs(shape, dtype, layout)
    leaf = x.clone().requires_grad_()
    y = rotate_(layout(leaf * 1), cos, sin, interleaved)
    g = layout(sampled(*x.shape, dtype=dtype, seed=2))
    return {
        "gradient": torch.autograd.grad(y, leaf, g)[0],
        "rotated, with a gradient": y.detach(),
        "rotated": rotate_(x, cos, sin, interleaved),
    }


def _rotate_both(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, interleaved: bool) -> Results:
    q, cos, sin = _rotary_inputs((*shape[:-1], 1), dtype, layout)
    k = layout(sampled(shape[0], 2, *shape[2:4], dtype=dtype, seed=2))
    leaves = [x.detach().requires_grad_() for x in (q, k)]
    rotated = rotate_both(*leaves, cos, sin, interleaved)
    slopes = torch.autograd.grad(rotated, leaves, [y.detach() for y in rotated])
    results = (*rotate_both(q, k, cos, sin, interleaved), *(y.detach() for y in rotated), *slopes)
    return dict(zip(("q", "k", "q, learning", "k, learning", "gradient of q", "gradient of k"), results, strict=True))


# Tables of cosines and sines.

INDEX_LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x,
    "every third token": lambda x: x.repeat_interleave(3, dim=-1)[..., ::3],
    "sequences behind tokens": lambda x: x.mT.contiguous().mT,
    "one row for all sequences": lambda x: x[..., :1, :].expand(x.shape),
}
TABLE_SHAPES = [(3, 7, pairs) for pairs in (1, 13, 64, 200)] + [(1, 150, 13), (1, 1, 24), (2, 0, 5), (1, 50, 160)]
"""Sequences, tokens, pairs."""


def _cos_sin(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, magnitude: float, strided: bool) -> Results:
    sequences, tokens, pairs = shape
    index = layout(torch.arange(sequences * tokens).reshape(1, sequences, tokens))
    frequencies = inverse_frequencies(2 * pairs)
    if strided:
        frequencies = torch.stack([frequencies, -frequencies], -1)[:, 0]
    return dict(zip(("cos", "sin"), rotary_tables(index, frequencies, magnitude), strict=True))


def _cos_sin_of_tokens(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, rows: tuple[int, ...]) -> Results:
    """Every token has frequencies of its own."""
    sequences, tokens, pairs = shape
    index = layout(torch.arange(sequences * tokens).reshape(1, sequences, tokens))
    factors = torch.rand(*rows, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return dict(zip(("cos", "sin"), rotary_tables(index, inverse_frequencies(2 * pairs) * factors), strict=True))


def _cos_sin_of_axes(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, axes: tuple[int, ...]) -> Results:
    index = layout(ids_below(10_000, 3, *shape))
    tables = rotary_tables(index, inverse_frequencies(2 * len(axes)), 1.0, axes)
    return dict(zip(("cos", "sin"), tables, strict=True))


def _sinusoid(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, order: str, dim: int) -> Results:
    return {"sinusoid": sinusoid(ids_below(100_000, *shape), dim, layout=order)}


# Input layer.

EMBEDDING_LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x,
    "rows and features of a larger table": lambda x: torch.cat([x, x, x], -1).repeat_interleave(2, dim=0)[
        ::2, ..., x.shape[-1] : 2 * x.shape[-1]
    ],
}


def _embed(
    dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, kind: str, scale: float | None, wide: bool
) -> Results:
    weight = layout(inputs.of_all_sizes(VOCAB_SIZE, *shape, dtype=dtype))
    sample = partial(inputs.of_all_sizes, dtype=torch.float32 if wide else dtype)
    rows = inputs.added(kind, *shape, lambda *size, seed: layout(sample(*size, seed=seed)))
    ids = layout(ids_below(VOCAB_SIZE, BATCH, TOKENS))
    result = embed(weight, ids, scale, rows=rows)
    return {"vectors": embedding._in_pytorch(weight, ids, scale, rows) if result is None else result}


def _embed_many(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, by_index: bool) -> Results:
    """So many vectors that threads share them."""
    batch, tokens, dim = shape
    weight, ids = layout(inputs.of_all_sizes(50, dim, dtype=dtype)), ids_below(50, batch, tokens)
    table = layout(inputs.of_all_sizes(90, dim, seed=1, dtype=dtype))
    rows = Rows(table, ids_below(90, batch, tokens, seed=4)) if by_index else Rows(table[None, :tokens])
    result = embed(weight, ids, 0.3, rows=rows)
    return {"vectors": embedding._in_pytorch(weight, ids, 0.3, rows) if result is None else result}


def _embed_strided(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, positions: str) -> Results:
    """Rows from an odd offset on, transposed ids, and positions expanded, transposed or read by transposed indices."""
    (dim,) = shape
    sample = partial(inputs.of_all_sizes, dtype=dtype)
    weight, ids = (
        sample(2 * VOCAB_SIZE, dim + 24)[::2, 3 : dim + 3],
        ids_below(VOCAB_SIZE, TOKENS, 2 * BATCH)[:, ::2].mT,
    )
    rows = {
        "none": None,
        "expanded": Rows(sample(1, TOKENS, dim, seed=1).expand(BATCH, -1, -1)),
        "transposed": Rows(sample(TOKENS, BATCH, dim + 22, seed=1)[:, :, 9 : dim + 9].transpose(0, 1)),
        "by index": Rows(sample(9, dim + 22, seed=1)[:, 1 : dim + 1], ids_below(9, TOKENS, BATCH, seed=4).mT),
    }[positions]
    result = embed(weight, ids, 3.0, rows=rows)
    return {"vectors": embedding._in_pytorch(weight, ids, 3.0, rows) if result is None else result}


INPUT_SCHEMES: dict[str, Callable[[int, torch.dtype], ww.InputEncoding]] = {
    "Sinusoidal": lambda dim, dtype: ww.Sinusoidal(dim),
    "Learned": lambda dim, dtype: ww.Learned(dim, 16, offset=2),
    "Learned, of the table's dtype": lambda dim, dtype: ww.Learned(dim, 16, dtype=dtype),
    "Fourier": lambda dim, dtype: ww.Fourier(dim, 16),
}
INPUT_POSITIONS: dict[str, Callable[[], ww.Positions | Tensor | None]] = {
    "counted": lambda: None,
    "from 4": lambda: ww.positions(TOKENS, start=4),
    "for each sequence": lambda: ids_below(10, BATCH, TOKENS),
    "in no order": lambda: torch.tensor([3, 1, 2, 2, 0]),
}


INPUT_LAYERS = [
    options | {"positions": list(INPUT_POSITIONS)[(n + n // 4) % 4]}
    for n, options in enumerate(each(scale=[None, "sqrt_dim", "sqrt_dim_rounded"], scheme=list(INPUT_SCHEMES)))
]
"""Every scheme with every scale, each with one kind of positions, so that every scheme meets three of them."""


def _input_layer(
    dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, scheme: str, scale: str | None, positions: str
) -> Results:
    (dim,) = shape
    torch.manual_seed(0)
    encoding = INPUT_SCHEMES[scheme](dim, dtype)
    layer = ww.InputLayer(VOCAB_SIZE, dim, input=encoding, scale=scale, padding_idx=4, dtype=dtype)
    ids, p = layout(ids_below(VOCAB_SIZE, BATCH, TOKENS)), INPUT_POSITIONS[positions]()
    x = layer(ids, p)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    gradients = torch.autograd.grad(x, parameters, sampled(*x.shape, dtype=dtype, seed=1))
    with torch.no_grad():
        return {"vectors": layer(ids, p), "with a gradient": x.detach(), **dict(zip(names, gradients, strict=True))}


# RowAdamW.

ROWS, NUM_STEPS, ADAMW_BETAS = 40, 30, (0.9, 0.98)
ALL_BETAS = [(0.9, 0.999), (0.9, 0.95), (0.95, 0.99), (0.0, 0.999), (0.8, 0.9), (0.99, 0.999)]
FEATURE_LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x,
    "every second feature": lambda x: torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    "features behind rows": lambda x: x.mT.contiguous().mT,
}


def _values(table: Moments) -> Results:
    return {name: x for name, x in vars(table).items() if x is not None}


def _group(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout) -> Results:
    count, rows = shape
    slots = group(layout(ids_below(rows, count)), rows)
    assert slots is not None
    return dict(vars(slots))


def _sum_by_row(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout) -> Results:
    """One slot, some, and more than are read ahead."""
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3, 39])
    slots = group(ids, ROWS)
    assert slots is not None
    return {"sums": sum_by_row(layout(sampled(len(ids), *shape, dtype=dtype)), slots)}


def _rules(
    dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, kind: str, betas: tuple[float, float]
) -> Results:
    (steps,) = shape
    numbers = coefficients(inputs.step_history(betas, inputs.learning_rates(kind, steps)), np.arange(steps))
    nodes, weights = np.split(numbers[:, 3:, None], 2, axis=1)
    motion = (weights / (nodes * 10.0 ** np.arange(-12, 2) + 1e-8)).sum(1)
    return {"decays": torch.from_numpy(numbers[:, :3]), "motion": torch.from_numpy(motion)}


def _catch_up(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, eps: float, every_row: bool) -> Results:
    table = inputs.moments(ROWS, *shape, dtype, zero_eps=eps == 0)
    history = inputs.step_history(ADAMW_BETAS, inputs.learning_rates("sampled", NUM_STEPS), at_zero=eps == 0)
    rows = None if every_row else layout(torch.tensor([2, 3, 17, 29, 30, 39]))
    behind = [catch_up(table, history, eps, rows) for _ in range(2)]
    return {"any behind": torch.tensor(behind), **_values(table)}


def _look_up(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout) -> Results:
    table, ids = inputs.moments(ROWS, *shape, dtype), ids_below(ROWS, 5, 20)
    history = inputs.step_history(ADAMW_BETAS, inputs.learning_rates("sampled", NUM_STEPS))
    slots = group(ids.reshape(-1), ROWS)
    assert slots is not None
    (rows, behind), (again, still) = (look_up(table, history, 1e-8, ids, slots) for _ in range(2))
    return {"rows": rows, "again": again, "any behind": torch.tensor([behind, still]), **_values(table)}


def _update(dtype: torch.dtype, shape: tuple[int, ...], layout: Layout, step: Step) -> Results:
    (dim,) = shape
    table = inputs.moments(ROWS, dim, dtype, zero_eps=True)
    rows = torch.tensor([0, 3, 12, 39]).repeat_interleave(2)[::2]
    table.last[rows] = step.number - 1
    gradient = torch.where(sampled(4, dim, seed=8) > 1, 0, sampled(4, dim, seed=7)).to(dtype)
    behind = update(table, rows, layout(gradient), step)
    return {"behind": torch.tensor(behind), **_values(table)}


STEPS = [Step(number=31, lr=2e-3, betas=ADAMW_BETAS, eps=eps, weight_decay=0.1) for eps in (1e-8, 0.0)]
ROTARY_DTYPES = [*THREE_DTYPES, torch.float64]

CASES = {
    "rotate": Case(
        "rotate", _rotate, ROTARY_SHAPES, ROTARY_DTYPES, LAYOUTS, each(interleaved=[False, True], back=[False, True]),
        streams=rotary,
    ),
    "rotate in place": Case(
        "rotate", _rotate_in_place, ROTARY_SHAPES[1::2], ROTARY_DTYPES, NOT_SHARED, each(interleaved=[False, True]),
        streams=rotary,
    ),
    "rotate queries and keys": Case(
        "rotate", _rotate_both, ROTARY_SHAPES[:3], ROTARY_DTYPES, LAYOUTS, each(interleaved=[False, True]),
        streams=rotary,
    ),
    "cos_sin": Case(
        "cos_sin", _cos_sin, TABLE_SHAPES, layouts=INDEX_LAYOUTS,
        options=each(magnitude=[1.0, 1.25], strided=[False, True]), require=require_near_tables, streams=cos_sin,
    ),
    "cos_sin with frequencies of each token": Case(
        "cos_sin", _cos_sin_of_tokens, [(3, 7, 5), (1, 7, 5)], layouts=INDEX_LAYOUTS,
        options=each(rows=[(3, 7), (1, 7), (3, 1), (7,)]), require=require_near_tables, streams=cos_sin,
    ),
    "cos_sin with an axis of each pair": Case(
        "cos_sin", _cos_sin_of_axes, [(2, 90), (1, 7)], layouts=INDEX_LAYOUTS,
        options=each(axes=[(0, 0, 1, 2, 1), (2, 1, 0) * 50]), require=require_near_tables, streams=cos_sin,
    ),
    "sinusoid": Case(
        "cos_sin", _sinusoid, [(5,), (2, 3), (2, 0), (2, 3, 4)],
        options=each(order=["interleaved", "half", "tensor2tensor"], dim=[4, 26, 32, 320, 600]),
        require=partial(require_near_tables, farthest=1e5), streams=cos_sin,
    ),
    "embed": Case(
        "embed", _embed, [(1,), (7,), (31,), (64,), (299,)], THREE_DTYPES, EMBEDDING_LAYOUTS,
        each(kind=inputs.ADDED, scale=[None, 27.712812921102035], wide=[False, True]), streams=embedding,
    ),
    "embed many": Case(
        "embed", _embed_many, [(7, 90, 520)], THREE_DTYPES, EMBEDDING_LAYOUTS, each(by_index=[False, True]),
        streams=embedding,
    ),
    "embed from strided memory": Case(
        "embed", _embed_strided, [(77,)], THREE_DTYPES,
        options=each(positions=["none", "expanded", "transposed", "by index"]), streams=embedding,
    ),
    "input layer": Case(
        "embed", _input_layer, [(8,), (34,)], THREE_DTYPES, EMBEDDING_LAYOUTS, INPUT_LAYERS,
    ),
    "group_by_row": Case(
        "group_by_row", _group, [(n, rows) for n in (0, 1, 5, 700) for rows in (1, 50, 3000, 5_000_000)],
        [torch.int64], {"contiguous": lambda x: x, "every second": lambda x: x.repeat_interleave(2)[::2]},
    ),
    "sum_by_row": Case("sum_by_row", _sum_by_row, [(1,), (33,), (1100,)], THREE_DTYPES, FEATURE_LAYOUTS),
    "adamw_rules": Case(
        "adamw_rules", _rules, [(1,), (300,)], [torch.float64],
        options=each(kind=["warm-up and cosine", "sampled", "mostly zero", "zero"], betas=ALL_BETAS),
        require=require_near_rules,
    ),
    "adamw_catch_up": Case(
        "adamw_catch_up", _catch_up, [(1,), (64,), (515,)], THREE_DTYPES,
        options=each(eps=[1e-8, 0.0], every_row=[False, True]), require=require_equal_numbers,
    ),
    "adamw_catch_up and look up": Case(
        "adamw_catch_up", _look_up, [(1,), (33,), (64,)], THREE_DTYPES, require=require_equal_numbers,
        streams=row_adamw,
    ),
    "adamw_update": Case(
        "adamw_update", _update, [(1,), (33,), (515,)], THREE_DTYPES, FEATURE_LAYOUTS, each(step=STEPS),
        require=require_equal_numbers,
    ),
}  # fmt: skip
