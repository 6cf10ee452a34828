"""The loss of an output projection, and its gradients, whose logits are in memory a part at a time.

For each token there is a row of numbers: log-sum-exp of its logits, their sum if labels are smoothed, and those of some
ids. The loss is differentiable in them, and they are in the vectors and the table: *by tokens*, with gradients at once,
in three products, or *by rows of the table*, once forward and once backward, in four. By rows, the gradient of a table
of bfloat16 or float16 is summed in float32 and rounded once, and upstream gradients may be known later.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.kernels.backend import differentiable_once, full_precision

_ROOM = {"cpu": (1 << 23, 1 << 26)}
"""Bytes of the logits that are in memory at a time, by device: by rows, and by tokens, of which few have as many."""
_ROOM_ELSEWHERE = (1 << 28, 1 << 28)
_NO_SECOND_DERIVATIVE = (
    "the second derivative of this loss is not computed (create_graph=True): it needs all logits at once.\n"
    "Use F.cross_entropy(tokens.readout(hidden), targets), or a transform of torch.func, which does so."
)
_is_retained = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
"""Whether gradients may be needed again; a PyTorch that does not say so gets copies."""
_MOST, _FEWEST = 4096, 32
"""Tokens at a time: by rows of the table, where more leave room for few rows, and by tokens, where fewer are slow."""


def loss_of(numbers: Tensor, vocab_size: int, z_loss: float = 0.0, label_smoothing: float = 0.0) -> Tensor:
    """Return the loss of each token, of its numbers."""
    lse, total, target = numbers.unbind(1)
    losses = lse - (1 - label_smoothing) * target
    if label_smoothing:
        losses = losses - label_smoothing / vocab_size * total
    return losses + z_loss * lse.square() if z_loss else losses


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def _operand(values: Tensor, x: Tensor) -> Tensor:
    """Round values to the dtype of the vectors, as autocast does, in the dtype that is multiplied.

    It is float32 where a CPU has no products of fewer bits, and PyTorch is slow.
    """
    dtype = x.dtype
    if x.device.type == "cpu" and dtype != wide(dtype):
        name = "_is_mkldnn_bf16_supported" if dtype == torch.bfloat16 else "_is_mkldnn_fp16_supported"
        if not (torch.backends.mkldnn.is_available() and getattr(torch.ops.mkldnn, name)()):
            dtype = wide(dtype)
    return values.to(x.dtype).to(dtype)


def _multiply(total: Tensor, a: Tensor, b: Tensor, add: bool = True) -> None:
    """Add a @ b to a total in float32 at least, or replace it; a GPU does not round the product before."""
    if total.dtype == a.dtype:
        total.addmm_(a, b, beta=int(add))
    else:
        product = torch.mm(a, b, out_dtype=total.dtype) if a.is_cuda else a @ b
        total.add_(product) if add else total.copy_(product)


class _Part(NamedTuple):
    """Some tokens and rows of the table, the operands of their product, and the logits, which may be overwritten."""

    tokens: slice
    rows: slice
    x: Tensor
    weight: Tensor
    z: Tensor

    def columns(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns of the ids of these tokens, and which of them are among the rows."""
        at = ids[self.tokens] - self.rows.start
        columns = at.clamp(0, self.z.shape[1] - 1)
        return columns, columns == at

    def clear(self, padding: int) -> None:
        """Set the logits of the padding row to zero, or their gradients."""
        if self.rows.start <= padding < self.rows.stop:
            self.z[:, padding - self.rows.start] = 0


def _parts(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, by_tokens: bool = False
) -> Iterator[_Part]:
    """Yield the logits of all tokens and rows, each part in the memory of the one before; tokens are the inner loop."""
    dtype = wide(x.dtype)
    room = _ROOM.get(x.device.type, _ROOM_ELSEWHERE)[by_tokens] // dtype.itemsize
    count = max(_FEWEST, room // max(1, len(weight))) if by_tokens else _MOST
    count = max(1, min(len(x), count))
    # Copies of rows in another dtype, and their gradient, have as many bytes as the logits at most.
    size = max(1, len(weight) if by_tokens else min(len(weight), room // max(count, x.shape[1])))
    memory = x.new_empty(count * size, dtype=dtype)
    for first in range(0, len(weight), size):
        rows = slice(first, min(first + size, len(weight)))
        block = _operand(weight[rows], x)
        for start in range(0, len(x), count):
            tokens = slice(start, min(start + count, len(x)))
            vectors = _operand(x[tokens], x)
            z = memory[: len(vectors) * len(block)].view(len(vectors), len(block))
            _multiply(z, vectors, block.T, add=False)
            if bias is not None:
                z += bias[rows]
            if softcap:
                z.div_(softcap).tanh_().mul_(softcap)
            part = _Part(tokens, rows, vectors, block, z)
            part.clear(padding)
            yield part


def _no_numbers(x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    numbers = x.new_zeros(x.shape[0], 2 + ids.shape[1], dtype=wide(x.dtype))
    return numbers, torch.full_like(numbers[:, :1], torch.finfo(numbers.dtype).min)


def _no_gradients(x: Tensor, weight: Tensor, needs: Sequence[bool]) -> list[Tensor]:
    """Return zeros for vectors, weight and bias: in float32 at least, but of the weight in its dtype; or no numbers."""
    of_sums = wide(x.dtype)
    wanted = zip((x.shape, weight.shape, weight.shape[:1]), (of_sums, weight.dtype, of_sums), needs, strict=True)
    return [x.new_zeros(shape if need else (0,), dtype=dtype) for shape, dtype, need in wanted]


def _read(part: _Part, ids: Tensor, numbers: Tensor, largest: Tensor, summed: bool) -> None:
    """Add logits to numbers, the first of which are sums of exponentials, over that of the largest logit so far.

    The logits become these exponentials.
    """
    z, (columns, inside) = part.z, part.columns(ids)
    numbers[:, 2:] += torch.where(inside, z.gather(1, columns), 0)
    if summed:
        numbers[:, 1] += z.sum(1)
    before = largest.clone()
    largest.copy_(torch.maximum(before, z.amax(1, keepdim=True)))
    numbers[:, :1].mul_((before - largest).exp()).add_(z.sub_(largest).exp_().sum(1, keepdim=True))


def _gradients(
    given: tuple[Tensor, Tensor, Tensor | None, int, float],
    ids: Tensor,
    needs: Sequence[bool],
    summed: bool,
    upstream: Callable[[_Part], Tensor],
    by_tokens: bool = False,
) -> list[Tensor]:
    """Return the gradients of vectors, weight and bias; the weight's are summed in float32 and rounded once.

    `upstream` returns the gradients of the numbers of some tokens, and turns their logits into probabilities times the
    gradient of log-sum-exp.
    """
    x, weight, _, padding, softcap = given
    dx, dw, db = _no_gradients(x, weight, needs)
    of_rows = dw
    with full_precision(x.device):
        for part in _parts(*given, by_tokens):
            z, (columns, inside) = part.z, part.columns(ids)
            slope = (z / softcap).square_().sub_(1).neg_() if softcap else None
            of_numbers = upstream(part)
            z.scatter_add_(1, columns, torch.where(inside, of_numbers[:, 2:], 0))
            if summed:
                z += of_numbers[:, 1:2]
            if slope is not None:
                z *= slope
            part.clear(padding)
            if needs[2]:
                db[part.rows] += z.sum(0)
            z = z.to(part.weight.dtype)
            if needs[0]:
                _multiply(dx[part.tokens], z, part.weight)
            if needs[1]:
                if part.tokens.start == 0:
                    of_rows = dw[part.rows].to(wide(x.dtype))  # which are zeros, or these rows themselves
                _multiply(of_rows, z.T, part.x)
                if part.tokens.stop == len(x) and dw.dtype != of_rows.dtype:
                    dw[part.rows] = of_rows
    return [dx, dw, db]


@torch.library.custom_op("whatwhere::linear_cross_entropy", mutates_args=())
def numbers_by_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, ids: Tensor, summed: bool
) -> Tensor:
    """Return the numbers of each token, (tokens, 2 + k) for k ids of it, of which those outside of the rows have none.

    x: (tokens, dim), in whose dtype numbers are rounded for products; padding: -1 for none; softcap: 0 for none.
    """
    numbers, largest = _no_numbers(x, ids)
    with full_precision(x.device):
        for part in _parts(x, weight, bias, padding, softcap):
            _read(part, ids, numbers[part.tokens], largest[part.tokens], summed)
    numbers[:, :1].log_().add_(largest)
    return numbers


@torch.library.custom_op("whatwhere::linear_cross_entropy_backward", mutates_args=())
def _gradients_by_rows(
    tensors: list[Tensor], bias: Tensor | None, padding: int, softcap: float, summed: bool, needs: list[bool]
) -> list[Tensor]:
    x, weight, ids, numbers, of_numbers = tensors

    def upstream(part: _Part) -> Tensor:
        own = of_numbers[part.tokens]
        part.z.sub_(numbers[part.tokens, :1]).exp_().mul_(own[:, :1])
        return own

    return _gradients((x, weight, bias, padding, softcap), ids, needs, summed, upstream)


numbers_by_rows.register_fake(lambda x, weight, bias, padding, softcap, ids, summed: _no_numbers(x, ids)[0])
_gradients_by_rows.register_fake(lambda tensors, *given: _no_gradients(tensors[0], tensors[1], given[-1]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.padding, ctx.softcap, ids, ctx.summed = inputs
    ctx.save_for_backward(x, weight, bias, ids, output)


def _backward(ctx: Any, of_numbers: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:3])

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_gradients_by_rows([x, weight, *tensors], bias, ctx.padding, ctx.softcap, ctx.summed, needs))

    made = differentiable_once(compute, _NO_SECOND_DERIVATIVE, *ctx.saved_tensors, of_numbers)
    return *(each if need else None for each, need in zip(made, needs, strict=True)), *[None] * 4


numbers_by_rows.register_autograd(_backward, setup_context=_setup)


class SumByTokens(torch.autograd.Function):
    """The sum of all losses, and its gradients in the same pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:
        """Compute both, of the operands of numbers_by_rows, ids and the settings of loss_of."""
        operands, (ids, settings) = (x, *given[:4]), given[4:]
        total, summed = x.new_zeros(()), settings["label_smoothing"] > 0

        def upstream(part: _Part) -> Tensor:
            numbers, largest = _no_numbers(part.x, ids[part.tokens])
            _read(part, ids, numbers, largest, summed)
            sums = numbers[:, :1].clone()
            numbers[:, :1].log_().add_(largest)
            with torch.enable_grad():
                loss = loss_of(numbers.requires_grad_(), **settings).sum()
            (of_numbers,) = torch.autograd.grad(loss, numbers)
            total.add_(loss.detach())
            part.z.mul_(of_numbers[:, :1] / sums)
            return of_numbers

        ctx.save_for_backward(*_gradients(operands, ids, ctx.needs_input_grad[:3], summed, upstream, by_tokens=True))
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients themselves, so that they can become `grad`; copies where the graph is retained."""
        if torch.is_grad_enabled():
            raise SettingError(_NO_SECOND_DERIVATIVE)
        batched = not torch._C._has_storage(upstream[0])
        multiply = Tensor.mul if batched or _is_retained() else Tensor.mul_
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad[:3], strict=True)
        return *(multiply(each, upstream[0]) if need else None for each, need in pairs), *[None] * 4


@torch.library.custom_op("whatwhere::largest_logits", mutates_args=())
def largest_logits(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k largest logits of each token and their ids, (tokens, k); -inf where there are fewer rows."""
    best = x.new_full((len(x), k), -math.inf, dtype=wide(x.dtype))
    ids = torch.zeros_like(best, dtype=torch.long)
    with full_precision(x.device):
        for part in _parts(x, weight, bias, padding, softcap):
            values, at = part.z.topk(min(k, part.z.shape[1]))
            best[part.tokens], slots = torch.cat([best[part.tokens], values], 1).topk(k)
            ids[part.tokens] = torch.cat([ids[part.tokens], at + part.rows.start], 1).gather(1, slots)
    return best, ids


@largest_logits.register_fake
def _(x: Tensor, weight: Tensor, bias: Any, padding: int, softcap: float, k: int) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], k, dtype=wide(x.dtype)), x.new_empty(x.shape[0], k, dtype=torch.long)
