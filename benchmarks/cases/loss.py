"""The loss of a language model: the output projection of all tokens and its cross-entropy, forward with backward."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Absent, Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import largest_relative_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import TokenEmbedding, linear_cross_entropy

PLAIN = "plain torch, F.linear and F.cross_entropy"


def variants(scale: Scale) -> list[Variant]:
    """Return a small and a large vocabulary, float32 and bfloat16.

    Args:
        scale: quick or full, and the device.
    """
    tokens, dim, sizes = (12, 8, (40, 90)) if scale.quick else (1024, 256, (8192, 128_256))
    return [
        Variant(
            f"{str(dtype).removeprefix('torch.')}, {rows:,} rows",
            limit=PLAIN,
            prepare=_Inputs(tokens, dim, rows, dtype, scale.device).candidates,
            error="largest difference of loss or gradients from float64, relative to the largest number of each",
            unit=tokens * rows * dtype.itemsize,
        )
        for dtype in (torch.float32, torch.bfloat16)
        for rows in sizes
    ]


class _Inputs:
    """The vectors, table and targets of a variant, which are made when they are first used, and the candidates."""

    def __init__(self, tokens: int, dim: int, rows: int, dtype: torch.dtype, device: str) -> None:
        self.shape, self.dtype, self.device = (tokens, dim, rows), dtype, device
        self.made, self.truth = cache(self._made), cache(self._truth)

    def candidates(self) -> list[Candidate]:
        ways: list[tuple[str, Callable[[], Run]]] = [
            (PLAIN, lambda: self._run(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))),
            ("whatwhere", self._ours),
            ("whatwhere, a loss of each token", lambda: self._run(_of_each)),
            ("plain torch, logits in float32", lambda: self._run(_as_transformers)),
            ("plain torch, torch.compile", lambda: self._run(compiled(_as_transformers))),
            ("F.linear_cross_entropy, chunked", self._chunked),
            ("liger-kernel", self._liger),
            ("cut-cross-entropy", self._cut),
        ]
        return [Candidate(name, make, self._error, "compile" in name) for name, make in ways]

    def _made(self) -> tuple[Tensor, Tensor, Tensor]:
        tokens, dim, rows = self.shape
        x = sampled(tokens, dim, seed=0, dtype=self.dtype, device=self.device)
        weight = sampled(rows, dim, seed=1, dtype=self.dtype, device=self.device).mul_(0.02)
        targets = torch.randint(rows, (tokens,), generator=torch.Generator().manual_seed(2))
        return x.requires_grad_(), nn.Parameter(weight), targets.to(self.device)

    def _truth(self) -> list[Tensor]:
        """Compute 64 tokens at a time: all logits in float64 would need gigabytes."""
        x, weight, targets = (each.detach().cpu() for each in self.made())
        x, weight = x.double(), weight.double()
        loss, of_weight, of_x = torch.zeros((), dtype=torch.float64), torch.zeros_like(weight), torch.zeros_like(x)
        for some, rows, aimed in zip(of_x.split(64), x.split(64), targets.split(64), strict=True):
            logits = rows @ weight.T
            loss -= logits.log_softmax(1).gather(1, aimed[:, None]).sum() / len(x)
            slope = (logits.softmax(1) - F.one_hot(aimed, len(weight))) / len(x)
            some += slope @ weight
            of_weight += slope.T @ rows
        return [loss, of_x, of_weight]

    def _error(self, run: Run) -> float:
        return largest_relative_difference(run(), self.truth())

    def _run(self, loss_of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Run:
        x, weight, targets = self.made()

        def run() -> tuple[Tensor, ...]:
            loss = loss_of(x, weight, targets)
            return loss, *torch.autograd.grad(loss, (x, weight))

        return run

    def _ours(self) -> Run:
        table = TokenEmbedding(self.shape[2], self.shape[1], device="meta")
        table.weight = self.made()[1]
        return self._run(lambda x, w, t: table.loss(x, t))

    def _chunked(self) -> Run:
        options: Any = getattr(torch.nn, "LinearCrossEntropyOptions", None)
        if options is None:
            raise Absent(f"not measured: PyTorch {torch.__version__} has none")
        if self.device == "cpu" and self.shape[2] > 10_000:
            raise Absent("not measured: a step takes most of a minute on a CPU, some 20 times plain torch's")
        peer: Any = F
        return self._run(lambda x, w, t: peer.linear_cross_entropy(x, w, t, options=options()))

    def _liger(self) -> Run:
        if self.device == "cpu":
            raise Absent("not measured: it has kernels for GPUs only")
        peer: Any = load("liger_kernel.transformers.functional")
        return self._run(lambda x, w, t: peer.liger_fused_linear_cross_entropy(x, w, t))

    def _cut(self) -> Run:
        if self.device == "cpu":
            raise Absent("not measured: it has kernels for GPUs only")
        peer: Any = load("cut_cross_entropy")
        return self._run(lambda x, w, t: peer.linear_cross_entropy(x, w, t))


def _of_each(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(x, weight, targets, reduction="none").mean()


def _as_transformers(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight).float(), targets)


CASE = Case(
    "loss",
    "the loss of 1,024 tokens of 256 features with a table of 8,192 and 128,256 rows, forward with backward",
    "Vectors and table get gradients; targets are uniform. Everything is divided by plain PyTorch, whose logits are a "
    "tensor, as are their softmax and its gradient. In bfloat16 transformers computes the loss from logits in float32.",
    variants,
)
