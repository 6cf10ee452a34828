"""Attention with a bias by distance on a GPU: a tile of queries and keys at a time, forward and backward.

The scores of a tile are made, used and forgotten; tiles that the mask hides are never visited. Scores are in base 2,
times 1 / ln 2, as GPUs compute powers. kernels/flash_attention.py says what is computed; nothing is added atomically,
so the same inputs give the same bits:

    of queries      a program for each query block: outputs and log2 of the sums of 2 ** score; backward, gradients of
                    q, and a row of sums for the numbers of the bias, which are then added
    of keys         a program for each block of keys and head of keys, over all heads of queries that share it
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch
from whatwhere.kernels.flash_attention import LN_2, ByDistance, FlashMask

FORWARD_TILES = {64: (128, 64, 8, 2), 128: (64, 64, 8, 2), 256: (64, 32, 8, 1)}
"""Up to so many features of a head: queries and keys of a tile, warps of a program, and stages of its loads. Chosen by
what fits into registers and shared memory; not tuned on a device yet."""

BACKWARD_TILES = {128: (64, 32, 8, 2), 256: (32, 32, 8, 1)}


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FlashMask,
    bias: ByDistance,
    numbers: Tensor,
    scale: float,
    sink: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return outputs of a dtype, and log2 of the sums of 2 ** score; numbers are those of the bias, in float32."""
    task = _Task(q, k, v, mask, bias, numbers, scale, FORWARD_TILES)
    y = q.new_empty(*q.shape[:3], v.shape[-1], dtype=dtype)
    logs = q.new_empty(q.shape[:3], dtype=torch.float32)
    launch(
        _of_queries, task.rows, q.device, q, k, v, None, y, logs, None, None if sink is None else sink.float() / LN_2,
        None, *task.of_rows, None, *task.strides, None, None, None, *task.sizes, **task.constants, COUNT=1,
    )  # fmt: skip
    return y, logs


def flash_attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    mask: FlashMask,
    bias: ByDistance,
    numbers: Tensor,
    scale: float,
    logs: Tensor,
    mean: Tensor,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of q, k, v and the numbers.

        dL/ds_ij = a_ij (<g_i, v_j> - mean_i)        a_ij = 2 ** (s_ij - logs_i)

    Args:
        g: the gradient of the outputs.
        logs: what the forward returned, infinite where a query sees no key.
        mean: the sum of a_ij <g_i, v_j> over the keys, less the gradient of the logarithm.
        learned: whether the numbers get gradients.
    """
    task = _Task(q, k, v, mask, bias, numbers, scale, BACKWARD_TILES)
    d_q, d_k, d_v = (x.new_empty(x.shape) for x in (q, k, v))
    count = covering(numbers.shape[1] if bias.kind == "rows" else 2, 1 << 30) if learned else 1
    sums = q.new_empty(*q.shape[:2], task.row_tiles, count, dtype=torch.float32) if learned else None
    logs, mean = logs.contiguous(), mean.contiguous()
    numbered = task.numbers_of_distances if learned else None
    launch(
        _of_queries, task.rows, q.device, q, k, v, g, d_q, logs, mean, None, sums, *task.of_rows, numbered,
        *task.strides, *_steps(g), *task.sizes, **task.constants, COUNT=count,
    )  # fmt: skip
    launch(
        _of_keys, task.columns, q.device, q, k, v, g, logs, mean, d_k, d_v, *task.of_columns,
        *task.strides, *_steps(g), *task.sizes, **task.constants,
    )  # fmt: skip
    if sums is None:
        return d_q, d_k, d_v, None
    totals = sums.sum((0, 2))[:, : numbers.shape[1]]
    if bias.kind in ("log", "power"):  # the first number was in base 2, and the gradient of the second is its multiple
        totals[:, 1] *= LN_2
    return d_q, d_k, d_v, totals


class _Task:
    """What the kernels are given beside the tensors of attention."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: FlashMask,
        bias: ByDistance,
        numbers: Tensor,
        scale: float,
        tiles: dict[int, tuple[int, int, int, int]],
    ) -> None:
        (batch, heads, queries, features), (_, key_heads, keys, _), values = q.shape, k.shape, v.shape[-1]
        rows, columns, warps, stages = next(tile for most, tile in tiles.items() if max(features, values) <= most)
        lists = mask.lists(rows, columns)
        self.row_tiles, column_tiles = lists.of_rows.shape[1:]
        self.rows, self.columns = (batch * heads * self.row_tiles,), (batch * key_heads * column_tiles,)
        low, distances = 0, 1
        line = pairs = self.numbers_of_distances = mask.queries  # where a kernel reads none
        if bias.rows is not None:
            low, distances = bias.low, len(bias.rows)
            line, self.numbers_of_distances = (numbers[:, bias.rows] / LN_2).contiguous(), bias.rows.to(torch.int32)
        elif bias.kind != "none":
            pairs = torch.stack([numbers[:, 0] / LN_2, numbers[:, -1]], 1)
        self.of_rows = (mask.queries, mask.keys, lists.of_rows, lists.row_counts, line, pairs)
        self.of_columns = (mask.queries, mask.keys, lists.of_columns, lists.column_counts, line, pairs)
        self.strides = (*_steps(q), *_steps(k), *_steps(v))
        sizes = (heads, heads // key_heads, queries, keys, self.row_tiles, column_tiles)
        self.sizes = (*sizes, scale / LN_2, float(scale), mask.size, low, low + distances - 1)
        self.constants: dict[str, Any] = {
            "M": rows, "N": columns, "FEATURES": features, "BLOCK": max(16, covering(features, 256)),
            "VALUES": values, "VALUE_BLOCK": max(16, covering(values, 256)), "KIND": bias.kind, "CAUSAL": mask.causal,
            "DOCUMENTS": mask.documents, "WINDOW": mask.window, "FIRST": mask.first,
            "SHARED": mask.queries.shape[0] == 1, "num_warps": warps, "num_stages": stages,
        }  # fmt: skip


def _steps(x: Tensor) -> tuple[int, ...]:
    return x.stride()[:3]


@triton.jit
@no_type_check
def _rows(base, first, step, end, SIZE: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr, ENDS: tl.constexpr):
    # SIZE tokens from the first one on; zeros beyond the last token, where one may be beyond, and the last feature.
    row = tl.arange(0, SIZE)[:, None]
    feature = tl.arange(0, BLOCK)[None, :]
    at = base + first.to(tl.int64) * step + row * step + feature
    if ENDS:
        x = tl.load(at, mask=(first + row < end) & (feature < FEATURES), other=0.0)
    elif FEATURES < BLOCK:
        x = tl.load(at, mask=feature < FEATURES, other=0.0)
    else:
        x = tl.load(at)
    return x


@triton.jit
@no_type_check
def _each(table, which, first, tokens, SIZE: tl.constexpr, AXIS: tl.constexpr):
    # A number of each token, along the other axis than AXIS; tokens beyond the end have that of the last one.
    slot = tl.minimum(first + tl.arange(0, SIZE), tokens - 1)
    return tl.expand_dims(tl.load(table + which * tokens + slot), AXIS)


@triton.jit
@no_type_check
def _masked(
    s, q_table, k_table, i, j, queries, keys, size,
    M: tl.constexpr, N: tl.constexpr, ACROSS: tl.constexpr,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    # ACROSS is 1 where queries are the rows of a tile, 0 where they are its columns.
    seen = tl.expand_dims(j + tl.arange(0, N), 1 - ACROSS) < keys
    if CAUSAL:
        seen = seen & (_each(k_table, 1, j, keys, N, 1 - ACROSS) <= _each(q_table, 1, i, queries, M, ACROSS))
    if DOCUMENTS:
        document = _each(k_table, 2, j, keys, N, 1 - ACROSS)
        seen = seen & (document == _each(q_table, 2, i, queries, M, ACROSS)) & (document >= 0)
    if WINDOW != "none":
        back = _each(q_table, 3, i, queries, M, ACROSS) - _each(k_table, 3, j, keys, N, 1 - ACROSS)
        near = tl.abs(back) < size if WINDOW == "sliding" else back == 0
        if FIRST:
            near = near | (_each(k_table, 4, j, keys, N, 1 - ACROSS) > 0)
        seen = seen & near
    return tl.where(seen, s, float("-inf"))


@triton.jit
@no_type_check
def _curve(distance, second, KIND: tl.constexpr):
    # What the first number of a head multiplies.
    if KIND == "linear":
        x = distance
    elif KIND == "log":
        x = tl.log(1.0 + second * distance)
    else:
        x = tl.where(distance > 0, tl.exp2(second * tl.log2(tl.maximum(distance, 1.0))), 0.0)
    return x


@triton.jit
@no_type_check
def _far(x_q, x_k, low, high):
    # Index in a line of distances where all pairs of a tile have one number, else -1.
    nearest = tl.min(x_q) - tl.max(x_k)
    farthest = tl.max(x_q) - tl.min(x_k)
    return tl.where(nearest >= high, high - low, tl.where(farthest <= low, 0, -1))


@triton.jit
@no_type_check
def _biased(s, x_q, x_k, line, first, second, low, high, KIND: tl.constexpr):
    if KIND == "rows":
        far = _far(x_q, x_k, low, high)
        if far >= 0:
            s += tl.load(line + far)
        else:
            s += tl.load(line + (tl.minimum(tl.maximum(x_q - x_k, low), high) - low))
    elif KIND != "none":
        s -= first * _curve(tl.abs(x_q - x_k).to(tl.float32), second, KIND)
    return s


@triton.jit
@no_type_check
def _pair(pairs, head, KIND: tl.constexpr):
    if (KIND == "none") | (KIND == "rows"):
        first = 0.0
        second = 0.0
    else:
        first = tl.load(pairs + 2 * head)
        second = tl.load(pairs + 2 * head + 1)
    return first, second


@triton.jit
@no_type_check
def _store(to, at, x, inside, FEATURES: tl.constexpr, BLOCK: tl.constexpr):
    # Rows of a dense tensor.
    feature = tl.arange(0, BLOCK)[None, :]
    rounded = x.to(to.dtype.element_ty)
    tl.store(to + at[:, None] * FEATURES + feature, rounded, mask=inside[:, None] & (feature < FEATURES))


@triton.jit
@no_type_check
def _summed(
    totals, d_s, x_q, x_k, first, second, numbers_of_distances, low, high, KIND: tl.constexpr, COUNT: tl.constexpr
):
    # Add the gradients of a tile's scores by the number that each pair reads: (rows, COUNT).
    number = tl.arange(0, COUNT)[None, :]
    if KIND == "rows":
        far = _far(x_q, x_k, low, high)
        if far >= 0:
            part = tl.sum(d_s, 1)
            totals += tl.where(number == tl.load(numbers_of_distances + far), part[:, None], 0.0)
        else:
            each = tl.load(numbers_of_distances + (tl.minimum(tl.maximum(x_q - x_k, low), high) - low))
            for n in range(tl.min(each), tl.max(each) + 1):
                part = tl.sum(tl.where(each == n, d_s, 0.0), 1)
                totals += tl.where(number == n, part[:, None], 0.0)
    else:  # all pairs read both numbers of a curve
        distance = tl.abs(x_q - x_k).to(tl.float32)
        value = _curve(distance, second, KIND)
        if KIND == "linear":
            slope = 0.0 * value
        elif KIND == "log":
            slope = first * distance / (1.0 + second * distance)
        else:
            slope = first * value * tl.log(tl.maximum(distance, 1.0))
        of_first = tl.sum(d_s * value, 1)
        of_second = tl.sum(d_s * slope, 1)
        totals -= tl.where(number == 0, of_first[:, None], of_second[:, None])
    return totals


@triton.jit
@no_type_check
def _of_queries(
    q, k, v, g, y, logs, mean, sink, sums, q_table, k_table, tiles, counts, line, pairs, numbers_of_distances,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, g_batch, g_head, g_token,
    heads, group, queries, keys, row_tiles, column_tiles, scale, natural_scale, size, low, high,
    M: tl.constexpr, N: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr,
    VALUES: tl.constexpr, VALUE_BLOCK: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr, SHARED: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    # Without g, the forward pass: y are the outputs, and logs are written. With it, the backward pass: y are the
    # gradients of q, logs are read, and sums are written where the numbers are learned.
    tile = row_tiles - 1 - tl.program_id(0) % row_tiles  # the last see the most keys, so they begin first
    head = (tl.program_id(0) // row_tiles % heads).to(tl.int64)
    batch = (tl.program_id(0) // row_tiles // heads).to(tl.int64)
    if not SHARED:
        q_table += batch * 4 * queries
        k_table += batch * 5 * keys
        tiles += batch * row_tiles * column_tiles
        counts += batch * row_tiles * 2
    i = tile * M
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    line += head * (high - low + 1)
    first, second = _pair(pairs, head, KIND)
    x_q = _each(q_table, 0, i, queries, M, 1)
    of_q = _rows(q + batch * q_batch + head * q_head, i, q_token, queries, M, FEATURES, BLOCK, True)
    row = i + tl.arange(0, M)
    at = (batch * heads + head) * queries + row
    if g is None:
        most = tl.full((M,), float("-inf"), tl.float32)
        total = tl.full((M,), 0.0, tl.float32)
        out = tl.zeros((M, VALUE_BLOCK), tl.float32)
    else:
        of_g = _rows(g + batch * g_batch + head * g_head, i, g_token, queries, M, VALUES, VALUE_BLOCK, True)
        log = tl.load(logs + at, mask=row < queries, other=float("inf"))
        middle = tl.load(mean + at, mask=row < queries, other=0.0)
        out = tl.zeros((M, BLOCK), tl.float32)
        totals = tl.zeros((M, COUNT), tl.float32)
    mixed = tl.load(counts + 2 * tile)
    every = tl.load(counts + 2 * tile + 1)
    for whole in tl.static_range(2):  # tiles with masked pairs, then those without
        for n in range(mixed * whole, mixed + (every - mixed) * whole):
            j = tl.load(tiles + tile * column_tiles + n) * N
            of_k = _rows(k, j, k_token, keys, N, FEATURES, BLOCK, whole == 0)
            x_k = _each(k_table, 0, j, keys, N, 0)
            s = _biased(tl.dot(of_q, tl.trans(of_k)) * scale, x_q, x_k, line, first, second, low, high, KIND)
            if whole == 0:
                s = _masked(s, q_table, k_table, i, j, queries, keys, size, M, N, 1, CAUSAL, DOCUMENTS, WINDOW, FIRST)
            of_v = _rows(v, j, v_token, keys, N, VALUES, VALUE_BLOCK, whole == 0)
            if g is None:
                highest = tl.maximum(most, tl.max(s, 1))
                shift = tl.where(highest == float("-inf"), 0.0, highest)  # a row may have no visible key yet
                weights = tl.exp2(s - shift[:, None])
                kept = tl.exp2(most - shift)
                total = total * kept + tl.sum(weights, 1)
                out = tl.dot(weights.to(of_v.dtype), of_v, out * kept[:, None])
                most = highest
            else:
                weights = tl.exp2(s - log[:, None])
                d_s = weights * (tl.dot(of_g, tl.trans(of_v)) - middle[:, None])
                out = tl.dot(d_s.to(of_k.dtype), of_k, out)
                if sums is not None:
                    totals = _summed(totals, d_s, x_q, x_k, first, second, numbers_of_distances, low, high, KIND, COUNT)
    if g is None:
        if sink is not None:
            extra = tl.load(sink + head)
            highest = tl.maximum(tl.maximum(most, extra), -3.0e38)  # which is not minus infinity, as both may be
            kept = tl.exp2(most - highest)
            total = total * kept + tl.exp2(extra - highest)
            out = out * kept[:, None]
            most = highest
        sees = total > 0
        total = tl.where(sees, total, 1.0)
        tl.store(logs + at, tl.where(sees, most + tl.log2(total), float("-inf")), mask=row < queries)
        _store(y, at, out / total[:, None], row < queries, VALUES, VALUE_BLOCK)
    else:
        _store(y, at, out * natural_scale, row < queries, FEATURES, BLOCK)
        if sums is not None:
            block = ((batch * heads + head) * row_tiles + tile) * COUNT
            tl.store(sums + block + tl.arange(0, COUNT), tl.sum(totals, 0))


@triton.jit
@no_type_check
def _of_keys(
    q, k, v, g, logs, mean, d_k, d_v, q_table, k_table, tiles, counts, line, pairs,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, g_batch, g_head, g_token,
    heads, group, queries, keys, row_tiles, column_tiles, scale, natural_scale, size, low, high,
    M: tl.constexpr, N: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr,
    VALUES: tl.constexpr, VALUE_BLOCK: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0) % column_tiles
    key_head = (tl.program_id(0) // column_tiles % (heads // group)).to(tl.int64)
    batch = (tl.program_id(0) // column_tiles // (heads // group)).to(tl.int64)
    if not SHARED:
        q_table += batch * 4 * queries
        k_table += batch * 5 * keys
        tiles += batch * row_tiles * column_tiles
        counts += batch * column_tiles * 2
    j = tile * N
    x_k = _each(k_table, 0, j, keys, N, 1)
    of_k = _rows(k + batch * k_batch + key_head * k_head, j, k_token, keys, N, FEATURES, BLOCK, True)
    of_v = _rows(v + batch * v_batch + key_head * v_head, j, v_token, keys, N, VALUES, VALUE_BLOCK, True)
    slopes = tl.zeros((N, BLOCK), tl.float32)
    of_values = tl.zeros((N, VALUE_BLOCK), tl.float32)
    mixed = tl.load(counts + 2 * tile)
    every = tl.load(counts + 2 * tile + 1)
    for member in range(group):
        head = key_head * group + member
        first, second = _pair(pairs, head, KIND)
        of_head = line + head * (high - low + 1)
        q_rows = q + batch * q_batch + head * q_head
        g_rows = g + batch * g_batch + head * g_head
        start = (batch * heads + head) * queries
        for whole in tl.static_range(2):
            for n in range(mixed * whole, mixed + (every - mixed) * whole):
                i = tl.load(tiles + tile * row_tiles + n) * M
                of_q = _rows(q_rows, i, q_token, queries, M, FEATURES, BLOCK, whole == 0)
                of_g = _rows(g_rows, i, g_token, queries, M, VALUES, VALUE_BLOCK, whole == 0)
                row = i + tl.arange(0, M)
                log = tl.load(logs + start + row, mask=row < queries, other=float("inf"))
                middle = tl.load(mean + start + row, mask=row < queries, other=0.0)
                x_q = _each(q_table, 0, i, queries, M, 0)
                s = _biased(tl.dot(of_k, tl.trans(of_q)) * scale, x_q, x_k, of_head, first, second, low, high, KIND)
                if whole == 0:
                    s = _masked(
                        s, q_table, k_table, i, j, queries, keys, size, M, N, 0, CAUSAL, DOCUMENTS, WINDOW, FIRST
                    )
                weights = tl.exp2(s - log[None, :])
                of_values = tl.dot(weights.to(of_g.dtype), of_g, of_values)
                d_s = weights * (tl.dot(of_v, tl.trans(of_g)) - middle[None, :])
                slopes = tl.dot(d_s.to(of_q.dtype), of_q, slopes)
    row = j + tl.arange(0, N)
    at = (batch * (heads // group) + key_head) * keys + row
    _store(d_k, at, slopes * natural_scale, row < keys, FEATURES, BLOCK)
    _store(d_v, at, of_values, row < keys, VALUES, VALUE_BLOCK)
