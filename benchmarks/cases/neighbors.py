"""Search: the ten nearest rows of one query and of a thousand."""

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from benchmarks.peers import load
from whatwhere.analysis.nearest_neighbors import Search

GENSIM = "gensim"
LIMIT = "product of table and queries, numpy"
_NEAREST = 10
_BLOCK = 4096


def variants(scale: Scale) -> list[Variant]:
    """Return two numbers of queries over one table.

    Args:
        scale: quick or full, and the device.
    """
    rows, dim = (300, 16) if scale.quick else (128_256, 1024)
    tables = []
    for queries in (1, 20 if scale.quick else 1000):
        inputs = _Queries(rows, dim, queries)
        named = "one query" if queries == 1 else f"{queries:,} queries"
        tables.append(
            Variant(
                f"{named}, {rows:,} rows, dim {dim:,}",
                limit=LIMIT,
                prepare=inputs.candidates,
                error=f"share of the {_NEAREST} nearest in float64 that are missing",
            )
        )
    return tables


class _Rows:
    """A random table, and what reads it."""

    def __init__(self, rows: int, dim: int) -> None:
        self.rows, self.dim = rows, dim

    @cached_property
    def table(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((self.rows, self.dim), dtype=np.float32)

    def vectors(self) -> Any:
        """Return gensim's table; its norms are computed here, as ours are when a search is made."""
        vectors = load("gensim.models").KeyedVectors(self.dim, count=self.rows, dtype=np.float32)
        vectors.index_to_key = [f"w{n}" for n in range(self.rows)]
        vectors.key_to_index = {word: n for n, word in enumerate(vectors.index_to_key)}
        vectors.vectors = self.table
        vectors.fill_norms()
        return vectors

    def units(self) -> Iterator[tuple[int, np.ndarray]]:
        """Return rows of norm 1 in float64, a block at a time, with the number of the first."""
        for first in range(0, self.rows, _BLOCK):
            rows = self.table[first : first + _BLOCK].astype(np.float64)
            yield first, rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def multiply(self, queries: np.ndarray) -> Run:
        step = max(_BLOCK, _BLOCK * 1024 // len(queries))
        room = np.empty(len(queries) * step, np.float32)

        def run() -> None:
            for first in range(0, self.rows, step):
                part = self.table[first : first + step]
                products = room[: len(queries) * len(part)].reshape(len(queries), len(part))
                np.matmul(queries, part.T, out=products)

        return run


class _Queries(_Rows):
    """Queries near some of the rows, and the candidates; each returns ids."""

    def __init__(self, rows: int, dim: int, queries: int) -> None:
        super().__init__(rows, dim)
        self.count = queries
        self.truth = cache(self._truth)

    @cached_property
    def queries(self) -> np.ndarray:
        g = np.random.default_rng(1)
        near = self.table[g.integers(0, self.rows, self.count)]
        return near + g.standard_normal(near.shape, dtype=np.float32)

    def candidates(self) -> list[Candidate]:
        ways: list[tuple[str, Callable[[], Run]]] = [
            ("whatwhere", self._ours),
            ("whatwhere, a new search for each call", self._anew),
            (GENSIM, self._gensim),
            ("plain torch, product and topk", self._torch),
        ]
        listed = [Candidate(LIMIT, lambda: self.multiply(self.queries))]
        return listed + [Candidate(name, make, self._missing) for name, make in ways]

    def _ours(self) -> Run:
        search = Search(self.table)
        return lambda: search.nearest(self.queries, _NEAREST).ids

    def _anew(self) -> Run:
        return lambda: Search(self.table).nearest(self.queries, _NEAREST).ids

    def _gensim(self) -> Run:
        vectors = self.vectors()
        ids = vectors.key_to_index

        def run() -> np.ndarray:
            answers = [vectors.most_similar(positive=[query], topn=_NEAREST) for query in self.queries]
            return np.array([[ids[word] for word, _ in words] for words in answers])

        return run

    def _torch(self) -> Run:
        import torch

        table = torch.nn.functional.normalize(torch.from_numpy(self.table))
        queries = torch.from_numpy(self.queries)
        return lambda: (queries @ table.T).topk(_NEAREST).indices.numpy()

    def _missing(self, timed: Run) -> float:
        pairs = zip(timed(), self.truth(), strict=True)
        return 1 - float(np.mean([len(set(answer) & set(true)) / _NEAREST for answer, true in pairs]))

    def _truth(self) -> np.ndarray:
        queries = self.queries.astype(np.float64)
        ids, scores = np.empty((self.count, 0), np.int64), np.empty((self.count, 0))
        for first, rows in self.units():
            these = np.arange(first, first + len(rows))
            ids = np.concatenate([ids, np.broadcast_to(these, (self.count, len(rows)))], axis=1)
            scores = np.concatenate([scores, queries @ rows.T], axis=1)
            best = np.argpartition(-scores, _NEAREST, axis=1)[:, :_NEAREST]
            ids, scores = np.take_along_axis(ids, best, axis=1), np.take_along_axis(scores, best, axis=1)
        return ids


CASE = Case(
    "neighbors",
    "the nearest rows of a token table, exact",
    "Cosines; tables are float32 and random, and what each package makes of a table once is made before. The "
    "limit multiplies table and queries in float32 and selects nothing.",
    variants,
    regimes=("fresh",),
    devices=("cpu",),
)
