"""What the rows of a new table are, made from those of an old one; live modules and files share it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import ShapeError, TokenError

Draw = Literal["mean", "noise", "covariance"]
DRAWS: tuple[Draw, ...] = ("mean", "noise", "covariance")
Mixture = tuple[Sequence[int], Sequence[float]]
"""Ids of old rows, and what each is multiplied by."""

_BLOCK = 4096
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Rearrangement:
    """Say what each row of a new table is: an old row, a mixture of old rows, or drawn.

        new[n] = old[source[n]]                     where source[n] >= 0, to the bit
        new[n] = sum_i w_i old[id_i]                where a mixture (ids, weights) is given
        new[n] ~ draw                               else, from the mean m of the old rows and what they spread by

    `mean` is m itself: a new token then takes no more probability than the average one, Hewitt 2021,
    https://nlp.stanford.edu/~johnhew/vocab-expansion.html. `noise` is N(m_j, s_j^2), each feature j with the standard
    deviation of its own column. `covariance` is N(m, S) with the covariance S of the old rows, Hewitt's noise in full
    size: transformers draws from N(m, 1e-9 S), which is `mean` but for rounding.

    Args:
        source: for each new row the old one that it is, or -1.
        rows: of the old table.
        mixtures: new row -> old ids and weights.
        draw: see above.
        seed: of the draw; tables that are equal before are equal after.
        known: the first so many old rows count for mean and spread; rows beyond are padding. None is all.

    >>> table = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    >>> Rearrangement(np.array([1, 0, -1]), rows=2).apply(table)
    tensor([[3., 2.],
            [1., 0.],
            [2., 1.]])
    """

    source: Int64[np.ndarray, " new_rows"]
    rows: int
    mixtures: Mapping[int, Mixture] = field(default_factory=dict)
    draw: Draw = "mean"
    seed: int = 0
    known: int | None = None

    def __post_init__(self) -> None:
        require_choice("surgery", "draw", self.draw, DRAWS)
        require_whole("surgery", rows=self.rows, new_rows=len(self.source))
        self._require_inside(self.source[self.source != -1], "row")
        for n, (ids, weights) in self.mixtures.items():
            if not 0 <= n < len(self.source) or self.source[n] != -1 or not len(ids) or len(ids) != len(weights):
                raise ShapeError(
                    f"the mixture of new row {n} has {len(ids)} ids and {len(weights)} weights, but as many of both "
                    "are needed, at least one, and a row that is no old one (source -1)."
                )
            self._require_inside(np.asarray(ids), "mixture")

    @classmethod
    def enlarged(
        cls,
        rows: int,
        vocab_size: int,
        pieces: Mapping[int, Sequence[int]] | None = None,
        draw: Draw = "mean",
        seed: int = 0,
        known: int | None = None,
    ) -> "Rearrangement":
        """Give a table another number of rows: the first stay, the last are cut off or new.

        Args:
            rows, vocab_size: old and new.
            pieces: new row -> old ids whose mean it is, such as those of its sub-tokens. A row that is there already,
                as in a padded vocabulary, may be given one too.
            draw, seed, known: as above.

        >>> Rearrangement.enlarged(2, 3, pieces={2: [0, 0, 1]}).apply(torch.tensor([[0.0], [3.0]])).flatten()
        tensor([0., 3., 1.])
        """
        require_whole("resize", vocab_size=vocab_size)
        source = np.arange(vocab_size, dtype=np.int64)
        source[rows:] = -1
        mixtures = {n: (list(ids), [1 / len(ids)] * len(ids)) for n, ids in (pieces or {}).items() if len(ids)}
        if outside := [n for n in mixtures if not 0 <= n < vocab_size]:
            raise TokenError(f"pieces are given for row {outside[0]}, but the new table has 0..{vocab_size - 1}.")
        source[list(mixtures)] = -1
        return cls(source, rows, mixtures, draw, seed, known)

    @classmethod
    def kept(cls, rows: int, ids: Sequence[int] | np.ndarray) -> "Rearrangement":
        """Keep some rows, in the order in which they are given.

        >>> Rearrangement.kept(4, [3, 1]).apply(torch.arange(4.0)[:, None]).flatten()
        tensor([3., 1.])
        """
        chosen = np.asarray(ids)
        if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
            raise TokenError(f"ids to keep are whole numbers, at least one, but got {str(ids)[:80]}.")
        if len(np.unique(chosen)) < len(chosen):
            raise TokenError("ids to keep hold one twice: a token has one row.\nPass sorted(set(ids)).")
        if chosen.min() < 0:
            raise TokenError(f"id {chosen.min()} is outside the vocabulary, which has ids 0..{rows - 1}.")
        return cls(chosen.astype(np.int64), rows)

    @property
    def drawn(self) -> Bool[np.ndarray, " new_rows"]:
        """Which new rows are neither old ones nor mixtures."""
        found: np.ndarray = self.source == -1
        found = found.copy()
        found[list(self.mixtures)] = False
        return found

    def where(self, old: int) -> int | None:
        """Give the new place of an old row, or None."""
        found = np.flatnonzero(self.source == old)
        return int(found[0]) if len(found) else None

    def apply(self, table: Float[Tensor, "rows ..."]) -> Float[Tensor, "new_rows ..."]:
        """Make the new table, in the old one's type; a bias is a table of one column."""
        self._require_fit(table)
        flat = table.detach().reshape(self.rows, -1)
        new = self._moved(flat)
        if new.device.type != "meta":
            if self.drawn.any():
                places = torch.from_numpy(np.flatnonzero(self.drawn)).to(new.device)
                _put(new, places, self._draw(flat, len(places)))
            for begin in range(0, len(self.mixtures), _BLOCK):
                some = dict(list(self.mixtures.items())[begin : begin + _BLOCK])
                _put(new, torch.tensor(list(some), device=new.device), _mixed(flat, some))
        return new.reshape(-1, *table.shape[1:])

    def carry(self, moments: Float[Tensor, "rows ..."]) -> Float[Tensor, "new_rows ..."]:
        """Move what an optimizer keeps of each row; of new rows it has kept nothing yet, which is zero."""
        self._require_fit(moments)
        return self._moved(moments.detach().reshape(self.rows, -1)).reshape(-1, *moments.shape[1:])

    def _moved(self, flat: Tensor) -> Tensor:
        """Copy old rows bit for bit, whatever their type, and leave the others zero."""
        bits = flat.contiguous().view(_BITS[flat.element_size()])
        new = torch.zeros((len(self.source), flat.shape[1]), dtype=bits.dtype, device=flat.device)
        places = np.flatnonzero(self.source != -1)
        for begin in range(0, len(places), _BLOCK):
            some = places[begin : begin + _BLOCK]
            into, origin = (torch.from_numpy(one).to(flat.device) for one in (some, self.source[some]))
            new[into] = bits[origin]
        return new.view(flat.dtype)

    def _draw(self, flat: Tensor, count: int) -> Float64[Tensor, "count dim"]:
        zero = torch.zeros(flat.shape[1], dtype=torch.float64, device=flat.device)
        blocks = list(flat[: self.known].split(_BLOCK))
        number, total = 0, zero
        for block in blocks:
            rows = _finite(block)
            number, total = number + len(rows), total + rows.sum(0)
        if not number:
            raise ShapeError("new rows are drawn like the old ones, but the table has none with finite numbers.")
        mean = total / number
        if self.draw == "mean":
            return mean.expand(count, -1)
        generator = torch.Generator().manual_seed(self.seed)

        def normal(columns: int) -> Tensor:
            drawn = torch.randn(count, columns, generator=generator, dtype=torch.float64)
            return drawn.to(flat.device)

        if self.draw == "noise":
            squares = sum(((_finite(block) - mean).square().sum(0) for block in blocks), zero)
            return mean + normal(flat.shape[1]) * (squares / number).sqrt()
        # A sum of the rows' own deviations, each with a normal factor, has exactly their covariance.
        new = zero.repeat(count, 1)
        for block in blocks:
            rows = _finite(block) - mean
            new += normal(len(rows)) @ rows
        found: Tensor = mean + new / number**0.5
        return found

    def _require_inside(self, ids: np.ndarray, what: str) -> None:
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.rows:
            outside = int(ids.max() if ids.max() >= self.rows else ids.min())
            raise TokenError(f"a {what} asks for id {outside}, but the old table has the ids 0..{self.rows - 1}.")

    def _require_fit(self, table: Tensor) -> None:
        if table.dim() < 1 or table.shape[0] != self.rows:
            raise ShapeError(f"a table of {self.rows} rows is rearranged, but this one has {tuple(table.shape)}.")


def _finite(block: Tensor) -> Float64[Tensor, "rows dim"]:
    """Give the rows that hold finite numbers alone, in float64: one with NaN would spoil every new row."""
    rows = block.double()
    whole = rows.sum(1).isfinite()
    return rows if whole.all() else rows[rows.isfinite().all(1)]


def _put(new: Tensor, places: Int64[Tensor, " rows"], values: Tensor) -> None:
    """Write rows; types of eight bits are only moved as bits."""
    rounded = values.to(new.dtype)
    bits = _BITS[new.element_size()]
    new.view(bits)[places] = rounded.contiguous().view(bits)


def _mixed(flat: Float[Tensor, "rows dim"], mixtures: Mapping[int, Mixture]) -> Float64[Tensor, "mixtures dim"]:
    """Sum old rows with their weights, in float64."""
    ids = torch.tensor([number for ids, _ in mixtures.values() for number in ids], device=flat.device)
    weights = torch.tensor(
        [weight for _, weights in mixtures.values() for weight in weights], dtype=torch.float64, device=flat.device
    )
    lengths = torch.tensor([len(ids) for ids, _ in mixtures.values()], device=flat.device)
    into = torch.repeat_interleave(torch.arange(len(lengths), device=flat.device), lengths)
    out = torch.zeros(len(lengths), flat.shape[1], dtype=torch.float64, device=flat.device)
    bits = flat.contiguous().view(_BITS[flat.element_size()])
    for some, weight, place in zip(ids.split(_BLOCK), weights.split(_BLOCK), into.split(_BLOCK), strict=True):
        out.index_add_(0, place, bits[some].view(flat.dtype).double() * weight[:, None])
    return out
