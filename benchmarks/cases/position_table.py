"""The table of rotary positions: cosine and sine of every angle."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_difference
from benchmarks.peers import load
from whatwhere import Rotary, positions

_LAST = 1_048_575
_THETA = 10_000.0


def variants(scale: Scale) -> list[Variant]:
    """Return one table, as long as the context of the models with the longest.

    Args:
        scale: quick or full, and the device.
    """
    tokens, head_dim = (32, 8) if scale.quick else (131_072, 128)
    return [
        Variant(
            f"{tokens:,} positions, {head_dim // 2} pairs",
            limit="copy of the table",
            prepare=_Inputs(tokens, head_dim, scale.device).candidates,
            error=f"largest absolute difference from float64 in the table that ends at position {_LAST:,}",
            unit=tokens * head_dim * 4,
        )
    ]


class _Inputs:
    """The sizes of a table, and the candidates that make it; each maker takes the first position."""

    def __init__(self, tokens: int, head_dim: int, device: str) -> None:
        self.tokens, self.head_dim, self.device = tokens, head_dim, device
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        makers: list[tuple[str, Callable[[int], Run]]] = [
            ("whatwhere", self._ours),
            ("whatwhere, fallback", lambda first: fallback(self._ours(first))),
            ("plain torch, float32 angles", partial(self._plain, torch.float32)),
            ("plain torch, float64 angles", partial(self._plain, torch.float64)),
            ("transformers (each number twice)", self._transformers),
        ]
        listed = [Candidate("copy of the table", self._copy)]
        listed += [Candidate(name, partial(make, 0), partial(self._error, make)) for name, make in makers]
        return listed

    def _error(self, make: Callable[[int], Run], timed: Run) -> float:
        far = make(_LAST + 1 - self.tokens)()
        pairs = self.head_dim // 2
        return largest_difference([part.reshape(self.tokens, -1)[:, :pairs] for part in far], self.truth())

    def _truth(self) -> list[Tensor]:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        at = torch.arange(_LAST + 1 - self.tokens, _LAST + 1, dtype=torch.float64)
        angles = at[:, None] * _THETA**-exponents
        return [angles.cos(), angles.sin()]

    def _copy(self) -> Run:
        table = torch.ones(self.tokens, self.head_dim, device=self.device)
        to = torch.empty_like(table)
        return lambda: to.copy_(table)

    def _ours(self, first: int) -> Run:
        rope, p = Rotary(self.head_dim, _THETA), positions(self.tokens, start=first, device=self.device)
        return lambda: rope.bind(p)

    def _plain(self, dtype: torch.dtype, first: int) -> Run:
        at = torch.arange(first, first + self.tokens, device=self.device).to(dtype)
        pairs = torch.arange(0, self.head_dim, 2, device=self.device).to(dtype)
        frequencies = 1.0 / (_THETA ** (pairs / self.head_dim))

        def run() -> tuple[Tensor, Tensor]:
            angles = torch.outer(at, frequencies)
            return angles.cos().float(), angles.sin().float()

        return run

    def _transformers(self, first: int) -> Run:
        peer: Any = load("transformers.models.llama.modeling_llama")
        config = peer.LlamaConfig(
            hidden_size=self.head_dim,
            num_attention_heads=1,
            max_position_embeddings=self.tokens,
            rope_parameters={"rope_type": "default", "rope_theta": _THETA},
        )
        module = peer.LlamaRotaryEmbedding(config).to(self.device)
        x = torch.empty(1, device=self.device)
        at = torch.arange(first, first + self.tokens, device=self.device)[None]
        return lambda: module(x, at)


CASE = Case(
    "position-table",
    "cosines and sines of 131,072 positions, head_dim 128",
    "float32 tables. The limit copies a table into one that exists already.",
    variants,
)
