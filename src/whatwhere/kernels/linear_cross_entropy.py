"""The loss of an output projection, and its gradients, whose logits are in memory a part at a time.

For each token there is a row of numbers: log-sum-exp of its logits, their sum if labels are smoothed, and those of some
ids. The loss is differentiable in them, and they are in the vectors and the table: *by tokens*, with gradients at once,
in three products, or *by rows of the table*, once forward and once backward, in four. By rows, the gradient of a table
of bfloat16 or float16 is summed in float32 and rounded once, and upstream gradients may be known later.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.kernels.backend import full_precision

_ROOM = {"cpu": 1 << 26}
"""Bytes of the logits that are in memory at a time, by device."""
_ROOM_ELSEWHERE = 1 << 28
_MOST, _FEWEST = 4096, 32
"""Tokens at a time: by rows of the table, where more leave room for few rows, and by tokens, where fewer are slow."""
Upstream = Callable[[Tensor, slice], Tensor]


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


def _product_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that is multiplied: float32 where a CPU has no products of fewer bits, and PyTorch is slow."""
    if x.device.type != "cpu" or x.dtype == wide(x.dtype):
        return x.dtype
    name = "_is_mkldnn_bf16_supported" if x.dtype == torch.bfloat16 else "_is_mkldnn_fp16_supported"
    return x.dtype if torch.backends.mkldnn.is_available() and getattr(torch.ops.mkldnn, name)() else wide(x.dtype)


def _operand(values: Tensor, x: Tensor) -> Tensor:
    """Round values to the dtype of the vectors, as autocast does, in the dtype that is multiplied."""
    return values.to(x.dtype).to(_product_dtype(x))


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to a total in float32 at least; a GPU does not round it before."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += torch.mm(a, b, out_dtype=total.dtype) if a.is_cuda else a @ b


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


class _Part:
    """Logits of some tokens for some rows of the table, in the memory of the last ones; how many of both fit."""

    def __init__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, by_tokens: bool = False
    ) -> None:
        room = _ROOM.get(x.device.type, _ROOM_ELSEWHERE) // wide(x.dtype).itemsize
        most = max(_FEWEST, room // max(1, len(weight))) if by_tokens else _MOST
        self.tokens = max(1, min(len(x), most))
        self.rows = max(1, len(weight) if by_tokens else min(len(weight), room // self.tokens))
        self.memory = x.new_empty(self.tokens * self.rows, dtype=wide(x.dtype))
        self.bias, self.padding, self.softcap = bias, padding, softcap

    def logits(self, x: Tensor, block: Tensor, first: int) -> tuple[Tensor, Tensor | None]:
        """Return logits of rows from `first` on, and their derivatives by those before the softcap."""
        z, slope = self.memory[: len(x) * len(block)].view(len(x), len(block)), None
        if x.dtype == z.dtype:
            torch.mm(x, block.T, out=z)
        else:
            _add_product(z.zero_(), x, block.T)
        if self.bias is not None:
            z += self.bias[first : first + len(block)]
        if self.softcap:
            slope = 1 - z.div_(self.softcap).tanh_().square()
            z.mul_(self.softcap)
        return self.without_padding(z, first), slope

    def without_padding(self, z: Tensor, first: int) -> Tensor:
        """Set the logits of the padding row to zero, or their gradients."""
        if first <= self.padding < first + z.shape[1]:
            z[:, self.padding - first] = 0
        return z


def _slots(ids: Tensor, first: int, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of ids, and which are inside."""
    slots = (ids - first).clamp(0, z.shape[1] - 1)
    return slots, slots == ids - first


def _no_numbers(x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    numbers = x.new_zeros(len(x), 2 + ids.shape[1], dtype=wide(x.dtype))
    return numbers, torch.full_like(numbers[:, :1], torch.finfo(numbers.dtype).min)


def _read(z: Tensor, first: int, ids: Tensor, numbers: Tensor, largest: Tensor, summed: bool) -> None:
    """Add logits to numbers, the first of which are sums of exponentials, over that of the largest logit so far.

    The logits become these exponentials.
    """
    slots, inside = _slots(ids, first, z)
    numbers[:, 2:] += torch.where(inside, z.gather(1, slots), 0)
    if summed:
        numbers[:, 1] += z.sum(1)
    before = largest.clone()
    largest.copy_(torch.maximum(before, z.amax(1, keepdim=True)))
    numbers[:, :1].mul_((before - largest).exp()).add_(z.sub_(largest).exp_().sum(1, keepdim=True))


def _gradients(
    part: _Part, x: Tensor, weight: Tensor, ids: Tensor, needs: Sequence[bool], summed: bool, upstream: Upstream
) -> list[Tensor]:
    """Return the gradients of vectors, weight and bias: in float32 at least, but that of the weight in its dtype.

    `upstream` returns the gradients of the numbers of some tokens, and turns their logits into probabilities times the
    gradient of log-sum-exp.
    """
    of_sums, vectors = wide(x.dtype), _operand(x, x)
    wanted = zip((x, weight, weight[:, 0]), (of_sums, weight.dtype, of_sums), needs, strict=True)
    dx, dw, db = (x.new_zeros(like.shape if need else (0,), dtype=of) for like, of, need in wanted)
    with full_precision(x.device):
        for rows in _parts(len(weight), part.rows):
            block = _operand(weight[rows], x)
            of_block = dw[rows] if dw.dtype == of_sums else torch.zeros_like(dw[rows], dtype=of_sums)
            for tokens in _parts(len(x), part.tokens):
                z, slope = part.logits(vectors[tokens], block, rows.start)
                of_numbers = upstream(z, tokens)
                slots, inside = _slots(ids[tokens], rows.start, z)
                z.scatter_add_(1, slots, torch.where(inside, of_numbers[:, 2:], 0))
                z = z.add_(of_numbers[:, 1:2]) if summed else z
                z = part.without_padding(z if slope is None else z.mul_(slope), rows.start)
                if needs[2]:
                    db[rows] += z.sum(0)
                z = z.to(block.dtype)
                if needs[0]:
                    _add_product(dx[tokens], z, block)
                if needs[1]:
                    _add_product(of_block, z.T, vectors[tokens])
            if needs[1] and dw.dtype != of_sums:
                dw[rows] = of_block
    return [dx, dw, db]


@torch.library.custom_op("whatwhere::linear_cross_entropy", mutates_args=())
def numbers_by_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, ids: Tensor, summed: bool
) -> Tensor:
    """Return the numbers of each token, (tokens, 2 + k) for k ids of it, of which those outside of the rows have none.

    x: (tokens, dim), in whose dtype numbers are rounded for products; padding: -1 for none; softcap: 0 for none.
    """
    part, (numbers, largest) = _Part(x, weight, bias, padding, softcap), _no_numbers(x, ids)
    with full_precision(x.device):
        for rows in _parts(len(weight), part.rows):
            block = _operand(weight[rows], x)
            for tokens in _parts(len(x), part.tokens):
                z, _ = part.logits(_operand(x[tokens], x), block, rows.start)
                _read(z, rows.start, ids[tokens], numbers[tokens], largest[tokens], summed)
    numbers[:, :1].log_().add_(largest)
    return numbers


@torch.library.custom_op("whatwhere::linear_cross_entropy_backward", mutates_args=())
def _gradients_by_rows(
    tensors: list[Tensor], bias: Tensor | None, padding: int, softcap: float, summed: bool, needs: list[bool]
) -> list[Tensor]:
    x, weight, ids, numbers, of_numbers = tensors

    def upstream(z: Tensor, tokens: slice) -> Tensor:
        z.sub_(numbers[tokens, :1]).exp_().mul_(of_numbers[tokens, :1])
        return of_numbers[tokens]

    return _gradients(_Part(x, weight, bias, padding, softcap), x, weight, ids, needs, summed, upstream)


@numbers_by_rows.register_fake
def _(x: Tensor, weight: Tensor, bias: Any, padding: int, softcap: float, ids: Tensor, summed: bool) -> Tensor:
    return x.new_empty(x.shape[0], 2 + ids.shape[1], dtype=wide(x.dtype))


@_gradients_by_rows.register_fake
def _(tensors: list[Tensor], *given: Any) -> list[Tensor]:
    (x, weight, _, numbers, _), needs = tensors, given[-1]
    made = numbers.new_empty(x.shape), weight.new_empty(weight.shape), numbers.new_empty(weight.shape[0])
    return [each if need else each.new_empty(0) for each, need in zip(made, needs, strict=True)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.padding, ctx.softcap, ids, ctx.summed = inputs
    ctx.save_for_backward(x, weight, bias, ids, output)


def _backward(ctx: Any, of_numbers: Tensor) -> tuple[Tensor | None, ...]:
    _refuse_second_derivative()
    (x, weight, bias, ids, numbers), needs = ctx.saved_tensors, list(ctx.needs_input_grad[:3])
    tensors = [x, weight, ids, numbers, of_numbers]
    made = _gradients_by_rows(tensors, bias, ctx.padding, ctx.softcap, ctx.summed, needs)
    return *(each if need else None for each, need in zip(made, needs, strict=True)), *[None] * 4


numbers_by_rows.register_autograd(_backward, setup_context=_setup)


def _refuse_second_derivative() -> None:
    if torch.is_grad_enabled():
        raise SettingError(
            "the second derivative of this loss is not computed (create_graph=True): it needs all logits at once.\n"
            "Use F.cross_entropy(tokens.readout(hidden), targets), or a transform of torch.func, which does so."
        )


class SumByTokens(torch.autograd.Function):
    """The sum of all losses times `share`, and its gradients in the same pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *given: Any) -> Tensor:
        """Compute both, of the operands of numbers_by_rows, ids, `share` and the settings of loss_of."""
        padding, softcap, ids, share, settings = given
        ctx.save_for_backward(x, weight, bias, ids)
        ctx.given, total, summed = given, x.new_zeros(()), settings["label_smoothing"] > 0

        def upstream(z: Tensor, tokens: slice) -> Tensor:
            numbers, largest = _no_numbers(x[tokens], ids[tokens])
            _read(z, 0, ids[tokens], numbers, largest, summed)
            sums = numbers[:, :1].clone()
            numbers[:, :1].log_().add_(largest)
            with torch.enable_grad():
                loss = share * loss_of(numbers.requires_grad_(), **settings).sum()
            (of_numbers,) = torch.autograd.grad(loss, numbers)
            total.add_(loss.detach())
            z.mul_(of_numbers[:, :1] / sums)
            return of_numbers

        part = _Part(x, weight, bias, padding, softcap, by_tokens=True)
        ctx.made = _gradients(part, x, weight, ids, ctx.needs_input_grad[:3], summed, upstream)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients themselves, so that they can become `grad`; compute them again for a retained graph."""
        _refuse_second_derivative()
        *tensors, ids = ctx.saved_tensors
        padding, softcap, _, share, settings = ctx.given
        made, ctx.made, needs = ctx.made, None, ctx.needs_input_grad[:3]
        if made is None:
            leaves = [None if each is None else each.detach().requires_grad_() for each in tensors]
            with torch.enable_grad():
                numbers = numbers_by_rows(*leaves, padding, softcap, ids, settings["label_smoothing"] > 0)
                loss = share * loss_of(numbers, **settings).sum()
            made = [*torch.autograd.grad(loss, [each for each in leaves if each is not None]), None][:3]
        return *(each.mul_(upstream[0]) if need else None for each, need in zip(made, needs, strict=True)), *[None] * 5


@torch.library.custom_op("whatwhere::largest_logits", mutates_args=())
def largest_logits(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, softcap: float, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k largest logits of each token and their ids, (tokens, k); -inf where there are fewer rows."""
    part = _Part(x, weight, bias, padding, softcap)
    best = part.memory.new_full((len(x), k), -math.inf)
    ids = torch.zeros_like(best, dtype=torch.long)
    with full_precision(x.device):
        for rows in _parts(len(weight), part.rows):
            block = _operand(weight[rows], x)
            for tokens in _parts(len(x), part.tokens):
                z, _ = part.logits(_operand(x[tokens], x), block, rows.start)
                values, at = z.topk(min(k, z.shape[1]))
                best[tokens], slots = torch.cat([best[tokens], values], 1).topk(k)
                ids[tokens] = torch.cat([ids[tokens], at + rows.start], 1).gather(1, slots)
    return best, ids


@largest_logits.register_fake
def _(x: Tensor, weight: Tensor, bias: Any, padding: int, softcap: float, k: int) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], k, dtype=wide(x.dtype)), x.new_empty(x.shape[0], k, dtype=torch.long)
