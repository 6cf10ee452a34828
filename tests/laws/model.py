"""A small decoder with grouped queries, and one layer of attention on given vectors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import whatwhere as ww

from .cases import DIM, HEADS, KEY_HEADS, MAX_LENGTH, Case

VOCAB_SIZE, HEAD_DIM = 50, DIM // HEADS


@dataclass
class Cache:
    """What one layer keeps while decoding: keys, values and gates of all tokens so far."""

    k: Tensor | None = None
    v: Tensor | None = None
    gates: Tensor | None = None
    increments: Tensor | None = None

    def grow(self, **new: Tensor | None) -> list[Any]:
        """Append what is new of each of these tensors, if anything is, and return them."""
        for name, tensor in new.items():
            if tensor is not None:
                before = getattr(self, name)
                setattr(self, name, tensor if before is None else torch.cat([before, tensor], dim=2))
        return [getattr(self, name) for name in new]

    def keep(self, slots: Tensor) -> None:
        self.k, self.v = self.k[:, :, slots], self.v[:, :, slots]
        self.gates = None if self.gates is None else self.gates[:, :, slots]


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, where: ww.Where) -> None:
        super().__init__()
        self.where = where
        self.norm, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, DIM)
        self.query, self.key_value = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * KEY_HEADS * HEAD_DIM)
        self.feedforward = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM))

    def forward(self, x: Tensor, here: ww.Here, cache: Cache | None, **how: Any) -> Tensor:
        inner = self.norm(x)
        q = self.query(inner).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        k, v = self.key_value(inner).unflatten(-1, (2, KEY_HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        increments = here.increments(inner)
        if cache is not None:
            (increments,) = cache.grow(increments=increments)
        q, k = here.query_key(q, k, increments=increments)
        gates = here.gates(inner)
        if cache is not None:
            k, v, gates = cache.grow(k=k, v=v, gates=gates)
        y = here.attention(q, k, v, gates=gates, **how)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.feedforward(x)


class Model(nn.Module):
    """Two blocks over an input layer; each block has a Where of its own.

    It states the case's regime, where there is one; `regime_length = None` leaves the length to each sequence.
    """

    def __init__(self, case: Case, max_length: int = MAX_LENGTH) -> None:
        super().__init__()
        self.regime_length = case.regime
        wheres = [case.build(max_length=max_length) for _ in range(2)]
        self.input_layer = ww.InputLayer(VOCAB_SIZE, DIM, wheres[0].input, init=1.0)
        self.blocks = nn.ModuleList(Block(where) for where in wheres)

    def forward(
        self,
        ids: Tensor,
        queries: ww.Positions | Tensor | None = None,
        keys: ww.Positions | None = None,
        caches: list[Cache] | None = None,
        **how: Any,
    ) -> Tensor:
        queries = ww.positions(ids.shape[1], device=ids.device) if queries is None else queries
        heres = ww.bind([block.where for block in self.blocks], queries, keys, regime_length=self.regime_length)
        x = self.input_layer(ids, heres[0])
        for n, block in enumerate(self.blocks):
            x = block(x, heres[n], None if caches is None else caches[n], **how)
        return x


def model(case: Case, seed: int = 0, max_length: int = MAX_LENGTH) -> Model:
    """Build the small model from a seed; what a scheme starts at zero is drawn, so that nothing is without effect."""
    torch.manual_seed(seed)
    small = Model(case, max_length).eval()
    with torch.no_grad():
        for block in small.blocks:
            for weights in block.where.parameters():
                if not bool(weights.any()):
                    weights.normal_(std=0.5)
    return small


def random_ids(batch: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB_SIZE, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def decode(small: Model, ids: Tensor, p: ww.Positions, first: int) -> Tensor:
    """Read the first tokens at once, then one at a time with a cache; give the vectors of all."""
    caches = [Cache(), Cache()]
    steps = [(0, first), *((t, t + 1) for t in range(first, ids.shape[1]))]
    return torch.cat([small(ids[:, a:b], p[a:b], p[:b], caches) for a, b in steps], dim=1)


def decode_forgetting(small: Model, ids: Tensor, p: ww.Positions, first: int) -> tuple[Tensor, int]:
    """Decode with caches that lose what no later query can see; give the vectors, and the most keys of a step."""
    caches, keys, most, rows = [Cache(), Cache()], p[:0], 0, []
    for a, b in [(0, first), *((t, t + 1) for t in range(first, ids.shape[1]))]:
        keys = keys.append(p[a:b])
        most = max(most, keys.tokens) if a else most
        rows.append(small(ids[:, a:b], p[a:b], keys, caches))
        slots = small.blocks[0].where.kept(keys)
        keys = keys[slots]
        for cache in caches:
            cache.keep(slots)
    return torch.cat(rows, dim=1), most


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attend(
    where: ww.Where,
    p: ww.Positions,
    given: Tensor | None = None,
    *,
    batch: int = 2,
    dtype: torch.dtype = torch.float32,
    regime_length: int | None = None,
    **how: Any,
) -> Tensor:
    """One layer of attention on given vectors, or on some that do not depend on the positions."""
    here = where.at(p, regime_length=regime_length)
    x = here.input(draw(batch, p.tokens, DIM, seed=1, dtype=dtype).to(p.device) if given is None else given)
    heads = x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    q, k = here.query_key(heads, heads[:, :KEY_HEADS].flip(-1), increments=here.increments(x))
    v = heads[:, -KEY_HEADS:]
    return here.attention(q, k, v, gates=here.gates(x), **how)


def numbers(where: ww.Where, p: ww.Positions) -> list[Tensor]:
    """Everything that the schemes give for positions alone, in float32."""
    made = []
    if where.input is not None:
        made.append(where.input(p))
    if where.query_key is not None and not where.query_key.by_content:
        q, k = (draw(p.batch, heads, p.tokens, HEAD_DIM, seed=heads).to(p.device) for heads in (HEADS, KEY_HEADS))
        made.extend(where.query_key(q, k, p))
    if where.score is not None and not where.score.by_content:
        made.extend(where.score(p, causal=causal) for causal in {True, where.score.causal_only})
    return made
