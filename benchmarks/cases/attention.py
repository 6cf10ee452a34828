"""Attention with a bias: what the bias costs over plain causal attention, in time and in memory."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_relative_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import FIRE, KERPLE, T5, ALiBi, ScoreBias, Where, positions
from whatwhere.where.attention import Engine

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
_ON_GPU = (torch.bfloat16, "cuda")
_BLOCK = 256
"""Queries of the float64 truth that are computed at once."""
_FEW = 1024
"""Up to so many tokens every scheme's table is made, and errors are of everything."""
_MANY = 4096
"""Up to so many tokens a table of all pairs is made at all."""
_FLOOR = "attention without bias (SDPA, causal)"


def variants(scale: Scale) -> list[Variant]:
    """Return two lengths, both dtypes, forward alone and with backward; on a GPU a third length in bfloat16.

    Long bfloat16 is left out on a CPU: one round takes minutes.

    Args:
        scale: quick or full, and the device.
    """
    batch, heads, head_dim, lengths = (1, 2, 8, (16,)) if scale.quick else (2, 8, 64, (1024, 4096, 16_384))
    return [
        _variant((batch, heads, tokens, head_dim), dtype, backward, scale.device)
        for tokens in lengths
        for dtype in (torch.float32, torch.bfloat16)
        for backward in (False, True)
        if (dtype == torch.float32 and tokens <= _MANY) or tokens <= _FEW or (dtype, scale.device) == _ON_GPU
    ]


def _variant(shape: tuple[int, int, int, int], dtype: torch.dtype, backward: bool, device: str) -> Variant:
    kind = "forward with backward" if backward else "forward"
    of = "gradients, of the bias too" if backward else "outputs"
    if shape[2] > _FEW:
        of = f"{'gradients' if backward else 'outputs'} of the last {_BLOCK} queries"
    return Variant(
        f"{str(dtype).removeprefix('torch.')}, {shape[2]:,} tokens, {kind}",
        limit=_FLOOR,
        prepare=lambda: _Inputs(shape, dtype, backward, device).candidates(),
        error=f"largest distance from float64, as a share of the largest number of that tensor; {of}",
        unit=shape[2] ** 2 * dtype.itemsize,
    )


class _Inputs:
    """The tensors of a variant, and the candidates."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype, backward: bool, device: str) -> None:
        self.shape, self.dtype, self.backward, self.device = shape, dtype, backward, device
        self.q, self.k, self.v, self.upstream = (sampled(*shape, seed=n, dtype=dtype, device=device) for n in range(4))
        heads, self.tokens = shape[1:3]
        torch.manual_seed(0)
        # T5's softmax scale is 1; a scale of 1 / sqrt(head_dim) lets all share the floor.
        self.schemes: dict[str, ScoreBias] = {
            "ALiBi": ALiBi(heads),
            "T5": T5(heads, scale=None, std=0.5, device=device),
            "KERPLE": KERPLE(heads, device=device),
            "FIRE": FIRE(heads, device=device),
        }
        self.p = positions(self.tokens, device=device)
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        candidates = [Candidate(_FLOOR, partial(self._run, lambda: _plain, ()))]
        for name, scheme in self.schemes.items():
            weights = tuple(scheme.parameters())
            for way, attend in self._ways(name, scheme):
                make = partial(self._run, attend, weights)
                candidates.append(Candidate(f"{name}: {way}", make, partial(self._error, name), "compile" in way))
            if self._few:
                ours = partial(self._run, partial(self._ours, scheme), weights)
                candidates.append(
                    Candidate(f"{name}: whatwhere, fallback", partial(_fallback, ours), partial(self._error, name))
                )
        return candidates

    def _ways(self, name: str, scheme: ScoreBias) -> list[tuple[str, Callable[[], Attend]]]:
        ways: list[tuple[str, Callable[[], Attend]]] = [("whatwhere", partial(self._ours, scheme))]
        if name == "ALiBi" or self.device == "cuda":
            ways.append(("whatwhere, torch.compile", lambda: compiled(self._ours(scheme))))
        if self.device != "cpu":  # on a GPU `auto` takes one of these two, by which is faster here
            ways.append(("whatwhere, engine='flex', torch.compile", partial(self._ours, scheme, "flex")))
            if self.dtype != torch.float32 and name != "FIRE":
                ways.append(("whatwhere, engine='flash'", partial(self._ours, scheme, "flash")))
        if self.tokens > _MANY:  # a table of all pairs takes gigabytes
            return ways + self._flash(name)
        if self._few or name in ("ALiBi", "T5"):
            ways.append(("SDPA, bias made in each call", partial(self._masked, scheme)))
        if name == "ALiBi":
            ways.append(("SDPA, bias kept", partial(self._kept, scheme)))
            ways.append(("matmul, bias, softmax, as transformers", self._eager_alibi))
            if not self.backward or self.device != "cpu":  # on the CPU it has no backward
                ways.append(("flex_attention, torch.compile", self._flex))
        if name == "T5":
            ways.append(("matmul, bias, softmax, as transformers", partial(self._eager_t5, scheme)))
        ways += self._flash(name)
        return ways

    @property
    def _few(self) -> bool:
        """Return whether every scheme's table is made; for many tokens two schemes are enough to show what it costs."""
        return self.tokens <= _FEW

    def _run(self, make: Callable[[], Attend], weights: Sequence[Tensor]) -> Run:
        attend = make()
        inputs = [x.detach().requires_grad_(self.backward) for x in (self.q, self.k, self.v)]

        def run() -> Any:
            if self.backward:
                return torch.autograd.grad(attend(*inputs), [*inputs, *weights], self.upstream)
            with torch.no_grad():
                return [attend(*inputs)]

        return run

    def _error(self, name: str, run: Run) -> float:
        result = run()
        if not self._few:
            return largest_relative_difference(result[0][:, :, -_BLOCK:], self.truth(name))
        return largest_relative_difference(_gathered(result), self.truth(name))

    def _truth(self, name: str) -> list[Tensor]:
        """Compute attention in float64, a block of queries at a time, with the bias by its formula.

        For many tokens only the last block: the rest would take a minute for each scheme.
        """
        scheme = deepcopy(self.schemes[name]).cpu().double()
        q, k, v = (x.cpu().double().requires_grad_(self.backward) for x in (self.q, self.k, self.v))
        p = positions(self.tokens)
        slots = torch.arange(self.tokens)
        heads = torch.arange(self.shape[1])[:, None, None]
        parts = []
        for rows in slots.split(_BLOCK)[slice(None) if self._few else slice(-1, None)]:
            with torch.set_grad_enabled(self.backward):
                bias = scheme.bind(p, p)(torch.zeros(()).long(), heads, rows[:, None], slots)
                scores = q[:, :, rows] @ k.mT * q.shape[-1] ** -0.5 + bias
                part = scores.masked_fill(slots > rows[:, None], -torch.inf).softmax(-1) @ v
            if self.backward:
                part.backward(self.upstream[:, :, rows].cpu().double())
            parts.append(part.detach())
        if not self.backward:
            return [torch.cat(parts, 2)]
        if not self._few:
            assert q.grad is not None
            return [q.grad[:, :, -_BLOCK:]]
        return _gathered([x.grad for x in (q, k, v, *scheme.parameters()) if x.grad is not None])

    def _ours(self, scheme: ScoreBias, engine: Engine = "auto") -> Attend:
        where = Where(score=scheme)
        return lambda q, k, v: where.at(self.p).attention(q, k, v, engine=engine)

    def _masked(self, scheme: ScoreBias) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, scheme(self.p, causal=True, dtype=self.dtype))

        return attend

    def _kept(self, scheme: ScoreBias) -> Attend:
        table = scheme(self.p, causal=True, dtype=self.dtype)
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, table)

    def _eager_alibi(self) -> Attend:
        """Compute attention as transformers' BLOOM does; its bias and mask are made once for all layers."""
        bias = self._slopes()[:, None, None] * torch.arange(self.tokens, device=self.device)
        return partial(_eager, bias=bias.to(self.dtype), mask=self._later())

    def _eager_t5(self, scheme: ScoreBias) -> Attend:
        """Compute attention as transformers' T5 does; here buckets are kept, and each call only reads the table."""
        assert isinstance(scheme, T5)
        slots = torch.arange(self.tokens, device=self.device)
        buckets, mask = scheme.buckets((slots[:, None] - slots).clamp(min=0)), self._later()

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            bias = F.embedding(buckets, scheme.weight).permute(2, 0, 1).to(self.dtype)
            return _eager(q, k, v, bias=bias, mask=mask)

        return attend

    def _flex(self) -> Attend:
        slopes = self._slopes()
        mask = create_block_mask(_earlier, None, None, self.tokens, self.tokens, device=self.device)
        flex = compiled(flex_attention)

        def bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score - slopes[h] * (i - j)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            y = flex(q, k, v, score_mod=bias, block_mask=mask)
            assert isinstance(y, Tensor)
            return y

        return attend

    def _flash(self, name: str) -> list[tuple[str, Callable[[], Attend]]]:
        """Return flash-attn, which has slopes and 16 bits, where it may be: on a GPU."""
        if name != "ALiBi" or (self.dtype, self.device) != _ON_GPU:
            return []

        def make() -> Attend:
            peer: Any = load("flash_attn")

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                rows = (x.transpose(1, 2) for x in (q, k, v))  # its tensors are (batch, tokens, heads, head_dim)
                y: Tensor = peer.flash_attn_func(*rows, causal=True, alibi_slopes=self._slopes()).transpose(1, 2)
                return y

            return attend

        return [("flash-attn", make)]

    def _slopes(self) -> Tensor:
        heads = self.shape[1]
        return 2.0 ** (-8 * torch.arange(1, heads + 1, device=self.device) / heads)

    def _later(self) -> Tensor:
        ones = torch.ones(self.tokens, self.tokens, dtype=torch.bool, device=self.device)
        return torch.zeros_like(ones, dtype=self.dtype).masked_fill(ones.triu(1), torch.finfo(self.dtype).min)


def _gathered(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Put the gradients of a scheme's weights into one: a bias that all keys share has gradient zero by itself."""
    weights = [x.flatten() for x in tensors[3:]]
    return [*tensors[:3], torch.cat(weights)] if weights else list(tensors)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _fallback(make: Callable[[], Run]) -> Run:
    return fallback(make())


def _eager(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5 + bias + mask
    weights: Tensor = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return weights @ v


def _earlier(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


CASE = Case(
    "attention",
    "causal attention with a bias, batch 2, 8 heads of 64",
    "Positions are bound in each call. The limit is PyTorch's causal attention without a bias, and memory is what "
    "counts: a table of all pairs is 64 MiB a head at 4,096 tokens in float32. Gradients reach the numbers of the "
    "learned schemes.",
    variants,
)
