"""The input layer: rows looked up, scaled, and the positions added."""

from collections.abc import Callable
from functools import cache, partial
from math import sqrt
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import InputLayer, Learned, Sinusoidal, positions


def variants(scale: Scale) -> list[Variant]:
    """Return a small and a large dim, fixed and learned positions.

    Args:
        scale: quick or full, and the device.
    """
    sizes = [(768, torch.float32), (4096, torch.float32), (4096, torch.bfloat16)]
    batch, tokens, vocab_size = 8, 1024, 50_257
    if scale.quick:
        sizes, (batch, tokens, vocab_size) = [(16, torch.float32), (16, torch.bfloat16)], (2, 8, 50)
    return [
        _variant(batch, tokens, vocab_size, dim, dtype, learned, scale.device)
        for dim, dtype in sizes
        for learned in (False, True)
    ]


def _variant(
    batch: int, tokens: int, vocab_size: int, dim: int, dtype: torch.dtype, learned: bool, device: str
) -> Variant:
    def prepare() -> list[Candidate]:
        ids = torch.randint(vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(0))
        return _Inputs(ids.to(device), vocab_size, dim, dtype, learned, device).candidates()

    kind = "learned" if learned else "sinusoidal"
    return Variant(
        f"{str(dtype).removeprefix('torch.')}, dim {dim}, {kind}",
        limit="copy of the vectors",
        prepare=prepare,
        error="largest absolute difference from float64",
        unit=batch * tokens * dim * dtype.itemsize,
    )


class _Inputs:
    """The tables of a variant, and the candidates."""

    def __init__(self, ids: Tensor, vocab_size: int, dim: int, dtype: torch.dtype, learned: bool, device: str) -> None:
        self.ids, self.dim, self.learned, self.scale = ids, dim, learned, sqrt(dim)
        self.weight = sampled(vocab_size, dim, seed=0, dtype=dtype, device=device).div_(self.scale)
        self.tokens = ids.shape[1]
        if learned:
            self.added = sampled(self.tokens, dim, seed=1, dtype=dtype, device=device)
        else:
            self.added = _sinusoid(self.tokens, dim).to(device=device, dtype=dtype)
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        peers: list[tuple[str, Callable[[], Run]]] = [
            ("plain torch, embedding * s + positions", self._plain),
            ("plain torch, torch.compile", lambda: compiled(self._plain())),
        ]
        if self.learned:
            peers.append(("plain torch, wte * s + wpe, as GPT-2", self._gpt2))
            peers.append(("plain torch, wte * s + wpe, torch.compile", lambda: compiled(self._gpt2())))
        else:
            peers.append(("positional-encodings, Summer", self._positional_encodings))
        return [
            Candidate("copy of the vectors", self._copy),
            Candidate("whatwhere", self._bound, self._error),
            Candidate("whatwhere, bound in each call", self._unbound, self._error),
            Candidate("whatwhere, bound in each call, torch.compile", self._compiled, self._error, compiled=True),
            Candidate("whatwhere, fallback", lambda: fallback(self._bound()), self._error),
            *(
                Candidate(name, partial(_without_gradient, make), self._error, "compile" in name)
                for name, make in peers
            ),
            Candidate("plain torch, embedding alone", partial(_without_gradient, self._rows)),
        ]

    def _error(self, run: Run) -> float:
        return largest_difference(run()[:1], self.truth())

    def _truth(self) -> list[Tensor]:
        """Add in float64; the scale and a fixed scheme's sinusoid are exact numbers, whatever the dtype."""
        added = self.added.cpu().double() if self.learned else _sinusoid(self.tokens, self.dim)
        return [self.weight[self.ids[:1]].cpu().double() * self.scale + added]

    def _copy(self) -> Run:
        vectors = self.weight[self.ids]
        out = torch.empty_like(vectors)
        return lambda: out.copy_(vectors)

    def _layer(self) -> InputLayer:
        # On meta nothing is sampled: the tables are about to be replaced by those of the variant.
        scheme = Learned(self.dim, self.tokens, device="meta") if self.learned else Sinusoidal(self.dim)
        layer = InputLayer(self.weight.shape[0], self.dim, scheme, scale="sqrt_dim", device="meta")
        layer.tokens.weight = nn.Parameter(self.weight, requires_grad=False)
        if isinstance(scheme, Learned):
            scheme.weight = nn.Parameter(self.added, requires_grad=False)
        return layer

    def _bound(self) -> Run:
        layer = self._layer()
        here = layer.where.at(positions(self.tokens, device=self.ids.device))

        @torch.no_grad()
        def run() -> Tensor:
            vectors: Tensor = layer(self.ids, here)
            return vectors

        return run

    def _unbound(self) -> Run:
        layer = self._layer()

        @torch.no_grad()
        def run() -> Tensor:
            vectors: Tensor = layer(self.ids)
            return vectors

        return run

    def _compiled(self) -> Run:
        layer = self._layer()
        fast = compiled(layer.forward)
        return torch.no_grad()(lambda: fast(self.ids))

    def _rows(self) -> Run:
        return lambda: F.embedding(self.ids, self.weight)

    def _plain(self) -> Run:
        def run() -> Tensor:
            return F.embedding(self.ids, self.weight) * self.scale + self.added

        return run

    def _gpt2(self) -> Run:
        at = torch.arange(self.tokens, device=self.ids.device)[None]

        def run() -> Tensor:
            return F.embedding(self.ids, self.weight) * self.scale + F.embedding(at, self.added)

        return run

    def _positional_encodings(self) -> Run:
        peer: Any = load("positional_encodings.torch_encodings")
        add = peer.Summer(peer.PositionalEncoding1D(self.dim)).to(self.ids.device)
        return lambda: add(F.embedding(self.ids, self.weight) * self.scale)


def _without_gradient(make: Callable[[], Run]) -> Run:
    run: Run = torch.no_grad()(make())
    return run


def _sinusoid(tokens: int, dim: int) -> Float64[Tensor, "tokens dim"]:
    """Return sines and cosines in float64, written out here so that the truth owes nothing to the library."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * 10_000.0**-exponents
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


CASE = Case(
    "lookup",
    "8 x 1,024 ids to vectors: rows of 50,257, times sqrt(dim), plus positions",
    "Ids are uniform, without gradient. Positions are bound or tabulated beforehand for everybody; only `bound in "
    "each call` makes them anew. `Embedding alone` neither scales nor adds. The limit copies the vectors into a "
    "tensor that exists already.",
    variants,
)
