"""Attention within a sliding window: what it costs as sequences grow, beside a mask of all pairs."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import largest_relative_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import Sink, Where, Window, positions

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
FLOOR = "attention without a window (SDPA, causal)"
MASKED = "SDPA, mask of all pairs, kept"
_ROWS = 256
"""Queries of the float64 truth, the last ones."""


def variants(scale: Scale) -> list[Variant]:
    """Return three lengths with one window, forward, and the second with its backward pass too; on a GPU bfloat16 too.

    Args:
        scale: quick or full, and the device.
    """
    heads, head_dim, window, lengths = (2, 8, 4, (16,)) if scale.quick else (8, 64, 512, (2048, 4096, 8192))
    sizes = [(torch.float32, tokens, False) for tokens in lengths] + [(torch.float32, lengths[len(lengths) // 2], True)]
    if scale.device == "cuda":
        long = lengths if scale.quick else (4096, 16_384)
        sizes += [(torch.bfloat16, tokens, backward) for tokens in long for backward in (False, True)]
    return [
        Variant(
            f"{str(dtype).removeprefix('torch.')}, {tokens:,} tokens, window {window}, "
            f"{'forward with backward' if backward else 'forward'}",
            limit=FLOOR,
            prepare=partial(_prepare, (1, heads, tokens, head_dim), window, dtype, backward, scale.device),
            error=f"largest distance from float64, as a share of the largest number, of "
            f"{'gradients of the queries' if backward else 'outputs'}; the last {_ROWS} queries",
            unit=tokens * tokens,
        )
        for dtype, tokens, backward in sizes
    ]


def _prepare(shape: tuple[int, int, int, int], *settings: Any) -> list[Candidate]:
    return _Inputs(shape, *settings).candidates()


class _Inputs:
    """The tensors of a variant, and the candidates."""

    def __init__(
        self, shape: tuple[int, int, int, int], window: int, dtype: torch.dtype, backward: bool, device: str
    ) -> None:
        self.shape, self.window, self.dtype, self.backward, self.device = shape, window, dtype, backward, device
        self.tokens = shape[2]
        self.q, self.k, self.v, self.upstream = (sampled(*shape, seed=n, dtype=dtype, device=device) for n in range(4))
        self.p = positions(self.tokens, device=device)
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        heads, size = self.shape[1], self.window
        ways: dict[str, Callable[[], Attend]] = {
            "whatwhere": partial(self._ours, Where(window=size)),
            "whatwhere, torch.compile": lambda: compiled(self._ours(Where(window=size))),
            "whatwhere, chunks of that size": partial(self._ours, Where(chunk=size)),
            "whatwhere, and 4 first tokens": partial(self._ours, Where(window=Window(size, first=4))),
            "whatwhere, and a sink": partial(self._ours, Where(window=size, sink=Sink(heads, device=self.device))),
            MASKED: self._masked,
        }
        if not self.backward or self.device != "cpu":  # on the CPU it has no backward
            ways["flex_attention, torch.compile, block mask kept"] = self._flex
        if (self.dtype, self.device) == (torch.bfloat16, "cuda"):
            ways["flash-attn"] = self._flash
        checked = ("whatwhere", "whatwhere, torch.compile", MASKED, "flex_attention, torch.compile, block mask kept")
        floor = Candidate(FLOOR, lambda: self._run(partial(F.scaled_dot_product_attention, is_causal=True)))
        return [floor] + [
            Candidate(name, partial(self._made, way), self._error if name in checked else None, "compile" in name)
            for name, way in ways.items()
        ]

    def _made(self, way: Callable[[], Attend]) -> Run:
        return self._run(way())

    def _run(self, attend: Attend) -> Run:
        inputs = [x.detach().requires_grad_(self.backward) for x in (self.q, self.k, self.v)]

        def run() -> list[Tensor]:
            if self.backward:
                return list(torch.autograd.grad(attend(*inputs), inputs, self.upstream))
            with torch.no_grad():
                return [attend(*inputs)]

        return run

    def _error(self, run: Run) -> float:
        return largest_relative_difference(run()[0][:, :, -_ROWS:], self.truth())

    def _truth(self) -> list[Tensor]:
        """Compute attention of the last queries in float64."""
        q, k, v, upstream = (x.cpu().double() for x in (self.q, self.k, self.v, self.upstream))
        slots = torch.arange(self.tokens)
        rows = slots[-_ROWS:, None]
        seen = (slots <= rows) & (slots > rows - self.window)
        q = q[:, :, -_ROWS:].requires_grad_(self.backward)
        y = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v
        return [*torch.autograd.grad(y, q, upstream[:, :, -_ROWS:])] if self.backward else [y]

    def _ours(self, where: Where) -> Attend:
        return lambda q, k, v: where.at(self.p).attention(q, k, v)

    def _masked(self) -> Attend:
        mask = self.p.mask() & Window(self.window).mask(self.p)
        return partial(F.scaled_dot_product_attention, attn_mask=mask)

    def _flash(self) -> Attend:
        peer: Any = load("flash_attn")

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            rows = (x.transpose(1, 2) for x in (q, k, v))  # its tensors are (batch, tokens, heads, head_dim)
            y: Tensor = peer.flash_attn_func(*rows, causal=True, window_size=(self.window - 1, 0)).transpose(1, 2)
            return y

        return attend

    def _flex(self) -> Attend:
        window = self.window
        mask = create_block_mask(
            lambda b, h, i, j: (j <= i) & (i - j < window), None, None, self.tokens, self.tokens, device=self.device
        )
        return partial(compiled(flex_attention), block_mask=mask)


CASE = Case(
    "window",
    "causal attention within a sliding window, 8 heads of 64",
    "Positions are bound in each call of whatwhere; masks of the others are made beforehand. The limit is PyTorch's "
    "causal attention without a window, which reads all earlier keys.",
    variants,
)
