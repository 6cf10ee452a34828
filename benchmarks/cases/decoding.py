"""Decoding: the position work of one new token."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_difference, sampled
from benchmarks.peers import load
from whatwhere import Rotary, Where, positions

INDEXING = "plain torch, rows of a table"
_THETA = 10_000.0


def variants(scale: Scale) -> list[Variant]:
    """Return one token, one sequence, both dtypes.

    Args:
        scale: quick or full, and the device.
    """
    heads, key_heads, head_dim, cached = (2, 1, 8, 16) if scale.quick else (32, 8, 128, 4095)
    return [
        Variant(
            f"{str(dtype).removeprefix('torch.')}, {cached:,} keys in the cache",
            limit=INDEXING,
            prepare=_Inputs(heads, key_heads, head_dim, cached, dtype, scale.device).candidates,
            error="largest absolute difference from float64",
        )
        for dtype in (torch.float32, torch.bfloat16)
    ]


class _Inputs:
    """The query and key of the new token, and the candidates."""

    def __init__(self, heads: int, key_heads: int, head_dim: int, cached: int, dtype: torch.dtype, device: str) -> None:
        self.head_dim, self.cached, self.dtype, self.device = head_dim, cached, dtype, device
        self.q = sampled(1, heads, 1, head_dim, seed=0, dtype=dtype, device=device)
        self.k = sampled(1, key_heads, 1, head_dim, seed=1, dtype=dtype, device=device)
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        ways = [
            (INDEXING, self._indexing),
            ("whatwhere", self._ours),
            ("whatwhere, bound before, as every layer after the first", self._later_layers),
            ("whatwhere, fallback", lambda: fallback(self._ours())),
            ("transformers", self._transformers),
        ]
        return [Candidate(name, make, self._error) for name, make in ways]

    def _error(self, run: Run) -> float:
        return largest_difference(run(), self.truth())

    def _truth(self) -> list[Tensor]:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        angles = self.cached * _THETA**-exponents
        rotated = []
        for x in (self.q, self.k):
            a, b = x.cpu().double().chunk(2, -1)
            cos, sin = angles.cos(), angles.sin()
            rotated.append(torch.cat([a * cos - b * sin, a * sin + b * cos], -1))
        return rotated

    def _ours(self) -> Run:
        where = Where(query_key=Rotary(self.head_dim, _THETA))
        p, n = positions(self.cached + 1, device=self.device), self.cached
        return lambda: where.at(p[n : n + 1], p[: n + 1]).query_key(self.q, self.k)

    def _later_layers(self) -> Run:
        where = Where(query_key=Rotary(self.head_dim, _THETA))
        p, n = positions(self.cached + 1, device=self.device), self.cached
        here = where.at(p[n : n + 1], p[: n + 1])
        return lambda: here.query_key(self.q, self.k)

    def _indexing(self) -> Run:
        """Read the row of a table that is as wide as a head, and rotate as rotate_half does."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        angles = torch.outer(torch.arange(self.cached + 1, dtype=torch.float64), _THETA**-exponents)
        wide = torch.cat([angles, angles], -1)
        cos_table, sin_table = (part.to(device=self.device, dtype=self.dtype) for part in (wide.cos(), wide.sin()))

        def run() -> tuple[Tensor, Tensor]:
            cos, sin = cos_table[self.cached], sin_table[self.cached]
            return self.q * cos + _half(self.q) * sin, self.k * cos + _half(self.k) * sin

        return run

    def _transformers(self) -> Run:
        peer: Any = load("transformers.models.llama.modeling_llama")
        config = peer.LlamaConfig(
            hidden_size=self.head_dim,
            num_attention_heads=1,
            max_position_embeddings=self.cached + 1,
            rope_parameters={"rope_type": "default", "rope_theta": _THETA},
        )
        module = peer.LlamaRotaryEmbedding(config).to(self.device)
        at = torch.tensor([[self.cached]], device=self.device)
        return lambda: peer.apply_rotary_pos_emb(self.q, self.k, *module(self.q, at))


def _half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


CASE = Case(
    "decoding",
    "one new token: its position bound, q (1, 32, 1, 128) and k (1, 8, 1, 128) rotated",
    "Nothing large is moved here: what is measured is the overhead of each call. Everything is divided by plain torch, "
    "which reads its row from tables made beforehand. whatwhere binds the new token and all keys of the KV cache in "
    "each call; in a model all layers share that.",
    variants,
)
