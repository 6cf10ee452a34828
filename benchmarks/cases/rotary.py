"""Rotary positions: q and k rotated by tables that are bound once for all layers."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import Rotary, Where, positions

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_THETA = 10_000.0


def variants(scale: Scale) -> list[Variant]:
    """Return both layouts, both dtypes, forward alone and with backward.

    Args:
        scale: quick or full, and the device.
    """
    batch, heads, key_heads, tokens, head_dim = (1, 4, 2, 16, 8) if scale.quick else (8, 32, 8, 1024, 128)
    shapes = (batch, heads, tokens, head_dim), (batch, key_heads, tokens, head_dim)
    return [
        _variant(shapes, dtype, interleaved, backward, scale.device)
        for interleaved in (False, True)
        for dtype in (torch.float32, torch.bfloat16)
        for backward in (False, True)
    ]


def _variant(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, interleaved: bool, backward: bool, device: str
) -> Variant:
    name = [str(dtype).removeprefix("torch."), "interleaved" if interleaved else "half"]
    name.append("forward with backward" if backward else "forward")
    numbers = sum(torch.Size(shape).numel() for shape in shapes)

    def prepare() -> list[Candidate]:
        return _Inputs(shapes, dtype, interleaved, backward, device).candidates()

    return Variant(
        ", ".join(name),
        limit="copy of q and k" + (", twice" if backward else ""),
        prepare=prepare,
        error="largest absolute difference from float64" + (", of gradients" if backward else ""),
        unit=numbers * dtype.itemsize,
    )


class _Inputs:
    """The tensors of a variant, and the candidates."""

    def __init__(
        self,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        dtype: torch.dtype,
        interleaved: bool,
        backward: bool,
        device: str,
    ) -> None:
        self.q, self.k = (sampled(*shape, seed=n, dtype=dtype, device=device) for n, shape in enumerate(shapes))
        self.upstream = [sampled(*shape, seed=7 + n, dtype=dtype, device=device) for n, shape in enumerate(shapes)]
        self.interleaved, self.backward, self.device, self.dtype = interleaved, backward, device, dtype
        self.tokens, self.head_dim = self.q.shape[-2:]
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        peers: list[tuple[str, Callable[[], Rotate]]] = [
            ("transformers", self._transformers),
            ("transformers, torch.compile", lambda: compiled(self._transformers())),
        ]
        if self.interleaved:
            peers += [
                ("plain torch, complex", self._complex),
                ("rotary-embedding-torch", self._rotary_embedding_torch),
                ("x-transformers", self._x_transformers),
                ("torchtune", self._torchtune),
            ]
        if self.device == "cuda":
            peers += [("flash-attn", self._flash)]
            peers += [] if self.interleaved else [("liger-kernel", self._liger)]
        in_place = [] if self.backward else [Candidate("whatwhere, in place", self._in_place, self._error)]
        return [
            Candidate("copy of q and k", self._copy),
            Candidate("whatwhere", partial(self._run, self._bound), self._error),
            *in_place,
            Candidate("whatwhere, bound in each call", partial(self._run, self._unbound), self._error),
            Candidate(
                "whatwhere, torch.compile", partial(self._run, lambda: compiled(self._bound())), self._error, True
            ),
            Candidate(
                "whatwhere, bound in each call, torch.compile",
                partial(self._run, lambda: compiled(self._unbound())),
                self._error,
                True,
            ),
            Candidate("whatwhere, fallback", lambda: fallback(self._run(self._bound)), self._error),
            *(Candidate(name, partial(self._run, rotate), self._error, "compile" in name) for name, rotate in peers),
        ]

    def _run(self, make: Callable[[], Rotate]) -> Run:
        rotate = make()
        # liger-kernel rotates in place: it gets tensors of its own.
        mine = [x.clone() if make == self._liger else x.detach() for x in (self.q, self.k)]
        q, k = (x.requires_grad_(self.backward) for x in mine)

        def run() -> Any:
            rotated = rotate(q, k)
            return torch.autograd.grad(rotated, (q, k), self.upstream) if self.backward else rotated

        return run

    def _error(self, run: Run) -> float:
        return largest_difference([x[:1] for x in run()], self.truth())

    def _truth(self) -> list[Tensor]:
        """Rotate the first sequence in float64; a gradient is rotated back."""
        sign = -1 if self.backward else 1
        cos, sin = (part.cpu() for part in _angles(self.tokens, self.head_dim))
        inputs = self.upstream if self.backward else [self.q, self.k]
        return [_rotate64(x[:1].cpu().double(), cos, sign * sin, self.interleaved) for x in inputs]

    def _copy(self) -> Run:
        passes = 2 if self.backward else 1
        out = [torch.empty_like(x) for x in (self.q, self.k)]

        def run() -> None:
            for _ in range(passes):
                for to, x in zip(out, (self.q, self.k), strict=True):
                    to.copy_(x)

        return run

    def _where(self) -> Where:
        return Where(query_key=Rotary(self.head_dim, _THETA, interleaved=self.interleaved))

    def _bound(self) -> Rotate:
        return self._where().at(positions(self.tokens, device=self.device)).query_key

    def _unbound(self) -> Rotate:
        rope, p = self._where().query_key, positions(self.tokens, device=self.device)
        assert rope is not None
        return lambda q, k: rope(q, k, p)

    def _in_place(self) -> Run:
        here = self._where().at(positions(self.tokens, device=self.device))
        q, k = self.q.clone(), self.k.clone()
        return lambda: here.query_key(q, k, in_place=True)

    def _transformers(self) -> Rotate:
        """Pairs of layout half are as in Llama, interleaved ones as in Cohere."""
        family = "cohere" if self.interleaved else "llama"
        peer = load(f"transformers.models.{family}.modeling_{family}")
        cos, sin = self._tables(self.interleaved)
        return lambda q, k: peer.apply_rotary_pos_emb(q, k, cos, sin)

    def _tables(self, interleaved: bool) -> tuple[Tensor, Tensor]:
        """Return cos and sin as transformers makes them: as wide as a head, in the dtype of q; from float64 angles."""
        parts = [part.repeat_interleave(2, -1) if interleaved else torch.cat([part, part], -1) for part in self._wide()]
        cos, sin = (part[None].to(self.dtype) for part in parts)
        return cos, sin

    def _wide(self) -> list[Tensor]:
        return [part.to(self.device) for part in _angles(self.tokens, self.head_dim)]

    def _complex(self) -> Rotate:
        """Multiply complex numbers, as Meta's Llama code does."""
        cos, sin = self._wide()
        rotations = torch.complex(cos.float(), sin.float())

        def rotate(x: Tensor) -> Tensor:
            pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * rotations).flatten(-2).type_as(x)

        return lambda q, k: (rotate(q), rotate(k))

    def _rotary_embedding_torch(self) -> Rotate:
        rope = load("rotary_embedding_torch").RotaryEmbedding(self.head_dim, theta=_THETA).to(self.device)
        return lambda q, k: (rope.rotate_queries_or_keys(q), rope.rotate_queries_or_keys(k))

    def _x_transformers(self) -> Rotate:
        peer = load("x_transformers.x_transformers")
        freqs, scale = peer.RotaryEmbedding(self.head_dim).to(self.device).forward_from_seq_len(self.tokens)

        def rotate(x: Tensor) -> Tensor:
            rotated: Tensor = peer.apply_rotary_pos_emb(x, freqs, scale)
            return rotated

        return lambda q, k: (rotate(q), rotate(k))

    def _torchtune(self) -> Rotate:
        rope = load("torchtune.modules").RotaryPositionalEmbeddings(self.head_dim, self.tokens).to(self.device)
        # Its tensors are (batch, tokens, heads, head_dim).
        return lambda q, k: (rope(q.transpose(1, 2)).transpose(1, 2), rope(k.transpose(1, 2)).transpose(1, 2))

    def _liger(self) -> Rotate:
        peer = load("liger_kernel.transformers.rope")
        cos, sin = self._tables(interleaved=False)
        return lambda q, k: peer.liger_rotary_pos_emb(q, k, cos, sin)

    def _flash(self) -> Rotate:
        peer = load("flash_attn.layers.rotary")
        cos, sin = (part.to(self.dtype) for part in self._wide())

        def rotate(x: Tensor) -> Tensor:
            # Its tensors are (batch, tokens, heads, head_dim).
            rotated: Tensor = peer.apply_rotary_emb(x.transpose(1, 2), cos, sin, self.interleaved).transpose(1, 2)
            return rotated

        return lambda q, k: (rotate(q), rotate(k))


def _angles(tokens: int, head_dim: int) -> tuple[Float64[Tensor, "tokens pairs"], Float64[Tensor, "tokens pairs"]]:
    """Return cos and sin in float64, written out here so that the truth owes nothing to the library."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * _THETA**-exponents
    return angles.cos(), angles.sin()


def _rotate64(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, -1)
    rotated = [a * cos - b * sin, a * sin + b * cos]
    return torch.stack(rotated, -1).flatten(-2) if interleaved else torch.cat(rotated, -1)


CASE = Case(
    "rotary",
    "rotary positions of q (8, 32, 1024, 128) and k (8, 8, 1024, 128)",
    "Tables of cosines and sines are made beforehand for everybody; only `bound in each call` makes them anew. The "
    "limit copies q and k into tensors that exist already, twice where there is a backward pass.",
    variants,
)
