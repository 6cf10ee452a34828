"""Decoding: the position work of one new token, and a whole step of a model."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import fallback, largest_difference, sampled
from benchmarks.peers import compiled, load
from whatwhere import Rotary, Where, bind, positions

INDEXING = "plain torch, rows of a table"
MODEL = "plain torch, a whole step"
LAYERS = 4
_THETA = 10_000.0


def variants(scale: Scale) -> list[Variant]:
    """Return one token of one sequence: its rotation in both dtypes, and a step of a model.

    Args:
        scale: quick or full, and the device.
    """
    heads, key_heads, head_dim, cached = (2, 1, 8, 16) if scale.quick else (32, 8, 128, 4095)

    def rotations(dtype: torch.dtype) -> list[Candidate]:
        return _Inputs(heads, key_heads, head_dim, cached, dtype, scale.device).candidates()

    of_model = (2, 16) if scale.quick else (8, 1023)
    name = f"a step of {LAYERS} layers, dim {of_model[0] * _Step.head_dim}, {of_model[1]:,} keys in the cache"
    error = "largest absolute difference from float64"
    return [
        *(
            Variant(
                f"{str(dtype).removeprefix('torch.')}, {cached:,} keys in the cache",
                limit=INDEXING,
                prepare=partial(rotations, dtype),
                error=error,
            )
            for dtype in (torch.float32, torch.bfloat16)
        ),
        Variant(name, MODEL, lambda: _Step(*of_model, scale.device).candidates(), error),
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
        angles = self.cached * _frequencies(self.head_dim)
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
        angles = torch.outer(torch.arange(self.cached + 1, dtype=torch.float64), _frequencies(self.head_dim))
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


class _Step:
    """One step of decoding of a small Transformer: what a user would write with plain PyTorch, and with whatwhere."""

    head_dim = 64

    def __init__(self, heads: int, cached: int, device: str) -> None:
        self.heads, self.cached, self.device, self.dim = heads, cached, device, heads * self.head_dim
        shapes = ((self.dim, 3 * self.dim), (self.dim, self.dim), (self.dim, 4 * self.dim), (4 * self.dim, self.dim))
        caches = sampled(LAYERS, 2, 1, heads, cached + 1, self.head_dim, seed=98, device=device)
        weights = [
            [sampled(*shape, seed=4 * n + m, device=device) * shape[0] ** -0.5 for m, shape in enumerate(shapes)]
            for n in range(LAYERS)
        ]
        self.layers = [[*each, *kept] for each, kept in zip(weights, caches, strict=True)]
        self.x = sampled(1, 1, self.dim, seed=99, device=device)
        self.truth = cache(self._truth)

    def candidates(self) -> list[Candidate]:
        ways: list[tuple[str, Callable[[], Run]]] = [
            (MODEL, lambda: torch.inference_mode()(self._plain())),
            ("whatwhere", lambda: torch.inference_mode()(self._ours())),
            ("whatwhere, with the cache", self._cached),
            ("whatwhere, fallback", lambda: torch.inference_mode()(fallback(self._ours()))),
        ]
        if self.device == "cuda":
            ways += [
                ("whatwhere, CUDA graph", lambda: _graph(torch.no_grad()(self._ours()))),
                ("plain torch, CUDA graph", lambda: _graph(torch.no_grad()(self._plain()))),
                ("whatwhere, torch.compile", lambda: torch.no_grad()(compiled(self._ours()))),
                ("plain torch, torch.compile", lambda: torch.no_grad()(compiled(self._plain()))),
            ]
        return [
            Candidate(name, make, lambda run: largest_difference(run(), [self.truth()]), "compile" in name)
            for name, make in ways
        ]

    def _model(self, x: Tensor, layers: list[list[Tensor]], attend: Callable[..., Tensor]) -> Tensor:
        """Run the layers; `attend` gets the number of the layer, q, k and v of the token, and the layer's caches."""
        for n, (into, out, up, down, keys, values) in enumerate(layers):
            q, k, v = (F.rms_norm(x, x.shape[-1:]) @ into).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + attend(n, q, k, v, keys, values).transpose(1, 2).reshape(x.shape) @ out
            x = x + F.gelu(F.rms_norm(x, x.shape[-1:]) @ up) @ down
        return x

    def _plain(self, dtype: torch.dtype = torch.float32) -> Run:
        angles = torch.outer(torch.arange(self.cached + 1, dtype=torch.float64), _frequencies(self.head_dim))
        tables = torch.stack([angles.cos(), angles.sin()]).repeat(1, 1, 2).to(device=self.device, dtype=dtype)
        x, layers = self.x.to(dtype), [[each.to(dtype) for each in layer] for layer in self.layers]

        def run() -> Tensor:
            cos, sin = tables[:, self.cached]

            def attend(n: int, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
                keys[:, :, self.cached], values[:, :, self.cached] = (k * cos + _half(k) * sin)[:, :, 0], v[:, :, 0]
                return F.scaled_dot_product_attention(q * cos + _half(q) * sin, keys, values)

            return self._model(x, layers, attend)

        return run

    def _truth(self) -> Tensor:
        result: Tensor = torch.no_grad()(self._plain(torch.float64))().cpu()
        return result

    def _ours(self) -> Run:
        wheres = [Where(Rotary(self.head_dim, _THETA))] * LAYERS
        before = positions(self.cached, device=self.device)

        def run() -> Tensor:
            step = before.next()
            heres = bind(wheres, step, before.append(step))

            def attend(n: int, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
                q, k = heres[n].query_key(q, k)
                keys[:, :, self.cached], values[:, :, self.cached] = k[:, :, 0], v[:, :, 0]
                return heres[n].attention(q, keys, values)

            return self._model(self.x, self.layers, attend)

        return run

    def _cached(self) -> Run:
        wheres = [Where(Rotary(self.head_dim, _THETA))] * LAYERS
        caches = []
        for where, (*_, keys, values) in zip(wheres, self.layers, strict=True):
            caches.append(where.cache(capacity=self.cached + 1))
            caches[-1].append(
                positions(self.cached, device=self.device), keys[:, :, : self.cached], values[:, :, : self.cached]
            )
        before = caches[0].positions

        @torch.inference_mode()
        def run() -> Tensor:
            step = before.next()
            heres = bind(wheres, step, before.append(step))

            def attend(n: int, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
                q, k = heres[n].query_key(q, k)
                caches[n].positions = before  # each run is the same step
                return heres[n].attention(q, *caches[n].append(heres[n], k, v))

            return self._model(self.x, self.layers, attend)

        return run


def _graph(run: Run) -> Run:
    """Record a step in a CUDA graph, after a few on another stream, as PyTorch requires; its position stays."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def _frequencies(head_dim: int) -> Tensor:
    return _THETA ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def _half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


CASE = Case(
    "decoding",
    "one new token: its position bound, q (1, 32, 1, 128) and k (1, 8, 1, 128) rotated; and a step of a model",
    "Nothing large is moved here: what is measured is the overhead of each call. Everything is divided by plain torch, "
    "which reads its row from tables made beforehand. whatwhere binds the new token and all keys of the KV cache in "
    "each call; in a model all layers share that, as the last variant shows: a step of four layers with their "
    "projections, `next`, `append`, `bind`, the cache and attention.",
    variants,
)
