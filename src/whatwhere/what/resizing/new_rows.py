"""The rows of a new table, computed from those of an old one: the same for modules in memory and for files."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import ShapeError, TokenError
from whatwhere.long_work import counted

Draw = Literal["mean", "noise", "covariance"]
DRAWS: tuple[Draw, ...] = ("mean", "noise", "covariance")
Mixture = tuple[Sequence[int], Sequence[float]]  # ids of old rows, and their weights

MAX_ROWS = (1 << 31) - 1  # many formats and tools store ids in 32 bits

_BLOCK = 4096
_TARGETS = 256  # targets that are decomposed at once
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Rearrangement:
    """Each row of a new table as an old row, a mixture of old rows, or an initial value.

        new[n] = old[source[n]]                     where source[n] >= 0, to the bit
        new[n] = sum_i w_i old[id_i]                where a mixture (ids, weights) is given
        new[n] ~ draw                               else, from mean m and covariance of the old rows

    `mean` is m itself: a new token then gets no more probability than the average one, Hewitt 2021,
    https://nlp.stanford.edu/~johnhew/vocab-expansion.html. `noise` is N(m_j, s_j^2), each feature j with the standard
    deviation of its own column. `covariance` is N(m, S) with the covariance S of the old rows, Hewitt's noise
    unscaled: transformers samples from N(m, 1e-9 S), which is `mean` but for rounding.

    Args:
        source: for each new row the index of the old one, or -1.
        rows: of the old table.
        mixtures: new row -> old ids and weights.
        draw: the distribution of other new rows.
        seed: for sampling; equal tables stay equal.
        known: the number of old rows that enter mean and covariance; later ones are padding. None is all.
        padding: new rows that get the mean whatever `draw` is, for they belong to no token.

    Raises:
        ShapeError: If a mixture has no ids, or not as many weights.
        TokenError: If an id is not in the old table.

    Examples:
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
    padding: Collection[int] = ()

    def __post_init__(self) -> None:
        require_choice("surgery", "draw", self.draw, DRAWS)
        require_whole("surgery", rows=self.rows, new_rows=len(self.source))
        self._require_inside(self.source[self.source != -1], "row")
        for n, (ids, weights) in self.mixtures.items():
            if not 0 <= n < len(self.source) or self.source[n] != -1 or not len(ids) or len(ids) != len(weights):
                raise ShapeError(
                    f"the mixture of new row {n} has {len(ids)} ids and {len(weights)} weights, but needs as many of "
                    "both, at least one, and a row that is not an old one (source -1)."
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
        """Create a change of the number of rows: the first ones stay, the last ones are removed or new.

        Args:
            rows, vocab_size: old and new.
            pieces: new row -> old ids whose mean it is, such as those of its sub-tokens; existing rows, as in a padded
                vocabulary, may be replaced too.
            draw, seed, known: as above.

        Raises:
            ShapeError: If there are more than 2^31 - 1 rows.
            TokenError: If an id is out of range.
        """
        require_whole("resize", vocab_size=vocab_size)
        if vocab_size > MAX_ROWS:
            raise ShapeError(
                f"vocab_size={vocab_size:,} is more than the {MAX_ROWS:,} rows that a table can have.\n"
                "Pass a smaller number."
            )
        source = np.arange(vocab_size, dtype=np.int64)
        source[rows:] = -1
        mixtures = {n: (list(ids), [1 / len(ids)] * len(ids)) for n, ids in (pieces or {}).items() if len(ids)}
        if outside := [n for n in mixtures if not 0 <= n < vocab_size]:
            raise TokenError(f"pieces are given for row {outside[0]}, but the new table has 0..{vocab_size - 1}.")
        source[list(mixtures)] = -1
        return cls(source, rows, mixtures, draw, seed, known)

    @classmethod
    def kept(cls, rows: int, ids: Sequence[int] | np.ndarray) -> "Rearrangement":
        """Create a change of a table of so many rows that keeps some of them, in the given order.

        Raises:
            TokenError: If there are no ids, or an id is out of range or occurs twice.
        """
        chosen = np.asarray(ids)
        if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
            raise TokenError(f"ids to keep are whole numbers, at least one, but got {str(ids)[:80]}.")
        if len(np.unique(chosen)) < len(chosen):
            raise TokenError("ids to keep contain one twice, but a token has one row.\nPass sorted(set(ids)).")
        if chosen.min() < 0:
            raise TokenError(f"id {chosen.min()} is outside the vocabulary, which has ids 0..{rows - 1}.")
        return cls(chosen.astype(np.int64), rows)

    @classmethod
    def shifted(cls, rows: int, shift: int) -> "Rearrangement":
        """Create a change to a table of rows + shift rows that shifts all of them: towards the beginning if negative.

        Rows at the beginning are removed, or new.
        """
        return cls(np.maximum(np.arange(rows + shift, dtype=np.int64) - shift, -1), rows)

    def of_rows(self, rows: int) -> "Rearrangement":
        """Return this change for a table with another number of rows, where later ids read row 0, as in Gemma 3n."""
        if rows == self.rows:
            return self
        source = np.where(self.source < rows, self.source, 0)
        mixtures = {n: ([i if i < rows else 0 for i in ids], weights) for n, (ids, weights) in self.mixtures.items()}
        known = None if self.known is None else min(self.known, rows)
        return replace(self, source=source, rows=rows, mixtures=mixtures, known=known)

    @property
    def sampled(self) -> Bool[np.ndarray, " new_rows"]:
        """Which new rows are initialized by `draw`: those that are neither old rows nor mixtures."""
        mask: np.ndarray = self.source == -1
        mask[list(self.mixtures)] = False
        return mask

    def new_id(self, old: int) -> int | None:
        """Return the new id of a token, or None where it is removed."""
        rows = np.flatnonzero(self.source == old)
        return int(rows[0]) if len(rows) else None

    def apply(self, table: Float[Tensor, "rows ..."]) -> Float[Tensor, "new_rows ..."]:
        """Compute the new table, in the dtype of the old one; ShapeError if it has other rows, or none that is finite.

        A bias is a table of one column.
        """
        self._require_fit(table)
        flat = table.detach().reshape(self.rows, -1)
        new = self._copied(flat)
        if new.device.type != "meta":
            padding = np.isin(np.arange(len(self.source)), list(self.padding))
            for draw, own in ((self.draw, self.sampled & ~padding), ("mean", self.sampled & padding)):
                if own.any():
                    rows = torch.from_numpy(np.flatnonzero(own)).to(new.device)
                    _put(new, rows, self._sample(flat, len(rows), draw))
            for begin in range(0, len(self.mixtures), _BLOCK):
                some = dict(list(self.mixtures.items())[begin : begin + _BLOCK])
                _put(new, torch.tensor(list(some), device=new.device), _mixed(flat, some))
        return new.reshape(-1, *table.shape[1:])

    def carry(self, state: Float[Tensor, "rows ..."]) -> Float[Tensor, "new_rows ..."]:
        """Rearrange optimizer state like the table, with zeros for new rows; ShapeError if it has other rows."""
        self._require_fit(state)
        return self._copied(state.detach().reshape(self.rows, -1)).reshape(-1, *state.shape[1:])

    def _copied(self, flat: Tensor) -> Tensor:
        """Copy old rows bit for bit, whatever their type; the others are zero."""
        bits = flat.contiguous().view(_BITS[flat.element_size()])
        new = torch.zeros((len(self.source), flat.shape[1]), dtype=bits.dtype, device=flat.device)
        rows = np.flatnonzero(self.source != -1)
        for begin in range(0, len(rows), _BLOCK):
            block = rows[begin : begin + _BLOCK]
            target, origin = (torch.from_numpy(one).to(flat.device) for one in (block, self.source[block]))
            new[target] = bits[origin]
        return new.view(flat.dtype)

    def _sample(self, flat: Tensor, count: int, draw: str) -> Float64[Tensor, "count dim"]:
        zero = torch.zeros(flat.shape[1], dtype=torch.float64, device=flat.device)
        blocks = list(flat[: self.known].split(_BLOCK))
        number, total = 0, zero
        for block in blocks:
            rows = _finite(block)
            number, total = number + len(rows), total + rows.sum(0)
        if not number:
            raise ShapeError("new rows are initialized from the old ones, but the table has none that is finite.")
        mean = total / number
        if draw == "mean":
            return mean.expand(count, -1)
        generator = torch.Generator().manual_seed(self.seed)

        def normal(columns: int) -> Tensor:
            # On the CPU, so that a seed gives the same rows on every device.
            return torch.randn(count, columns, generator=generator, dtype=torch.float64).to(flat.device)

        if draw == "noise":
            squares = sum(((_finite(block) - mean).square().sum(0) for block in blocks), zero)
            return mean + normal(flat.shape[1]) * (squares / number).sqrt()
        # A sum of the rows' deviations, each times a normal factor, has exactly their covariance.
        new = zero.repeat(count, 1)
        for block in blocks:
            rows = _finite(block) - mean
            new += normal(len(rows)) @ rows
        sampled: Tensor = mean + new / number**0.5
        return sampled

    def _require_inside(self, ids: np.ndarray, what: str) -> None:
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.rows:
            outside = int(ids.max() if ids.max() >= self.rows else ids.min())
            raise TokenError(f"a {what} refers to id {outside}, but the old table has the ids 0..{self.rows - 1}.")

    def _require_fit(self, table: Tensor) -> None:
        if table.dim() < 1 or table.shape[0] != self.rows:
            raise ShapeError(f"a table of {self.rows} rows is needed, but this one has the shape {tuple(table.shape)}.")


def _finite(block: Tensor) -> Float64[Tensor, "rows dim"]:
    """Return the rows in which all numbers are finite, in float64: one with NaN would make every new row NaN."""
    rows = block.double()
    finite = rows.sum(1).isfinite()
    return rows if finite.all() else rows[rows.isfinite().all(1)]


def _put(new: Tensor, rows: Int64[Tensor, " rows"], values: Tensor) -> None:
    bits = _BITS[new.element_size()]  # torch cannot index 8-bit floating-point types
    new.view(bits)[rows] = values.to(new.dtype).contiguous().view(bits)


def _mixed(flat: Float[Tensor, "rows dim"], mixtures: Mapping[int, Mixture]) -> Float64[Tensor, "mixtures dim"]:
    each = [(n, *pair) for n, (ids, shares) in enumerate(mixtures.values()) for pair in zip(ids, shares, strict=True)]
    targets, ids, weights = (torch.from_numpy(np.array(column)).to(flat.device) for column in zip(*each, strict=True))
    out = torch.zeros(len(mixtures), flat.shape[1], dtype=torch.float64, device=flat.device)
    bits = flat.contiguous().view(_BITS[flat.element_size()])
    for block, weight, target in zip(ids.split(_BLOCK), weights.split(_BLOCK), targets.split(_BLOCK), strict=True):
        out.index_add_(0, target, bits[block].view(flat.dtype).double() * weight[:, None])
    return out


def pursue(
    atoms: Float[Tensor, "atoms dim"], targets: Float[Tensor, "targets dim"], most: int = 64
) -> tuple[Int64[Tensor, "targets most"], Float64[Tensor, "targets most"]]:
    """Decompose each target into at most `most` atoms, by orthogonal matching pursuit: ids and coefficients.

        r <- t;  repeat: n = argmax |<r, a_n>| / |a_n|;  c = argmin |t - sum_i c_i a_i|;  r = t - sum_i c_i a_i

    Pati, Rezaiifar and Krishnaprasad 1993, https://doi.org/10.1109/ACSSC.1993.342465. Goddard and Fernandes Neto 2025,
    https://arxiv.org/abs/2506.06607, transplant tokenizers with it: a new token is decomposed into shared tokens in the
    table of the donor model, and the same sum is taken in the own table; they use 64 atoms.

    Args:
        atoms: the dictionary.
        targets: to decompose.
        most: atoms of a sum, at least 1; at most the number of atoms and of features. Where fewer are enough, the other
            coefficients are zero.

    Raises:
        ShapeError: If atoms and targets are not matrices of one dim, or there are no atoms.

    Examples:
        >>> ids, coefficients = pursue(torch.eye(3), torch.tensor([[0.0, 2.0, -5.0]]), most=2)
        >>> ids.tolist(), coefficients.tolist()
        ([[2, 1]], [[-5.0, 2.0]])
    """
    require_whole("pursue", most=most)
    if atoms.dim() != 2 or targets.dim() != 2 or atoms.shape[1] != targets.shape[1] or not len(atoms):
        raise ShapeError(
            f"atoms have shape (atoms, dim) and targets (targets, dim), but got {tuple(atoms.shape)} and "
            f"{tuple(targets.shape)}."
        )
    most = min(most, *atoms.shape)
    atoms = atoms.detach().float()
    norms = atoms.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    sums = []
    with counted("decomposing tokens by matching pursuit", len(targets), "tokens") as advance:
        for block in targets.split(_TARGETS):
            sums.append(_pursue(atoms, norms, block.detach(), most))
            advance(len(block))
    if not sums:
        return torch.zeros(0, most, dtype=torch.int64), torch.zeros(0, most, dtype=torch.float64)
    return torch.cat([ids for ids, _ in sums]), torch.cat([coefficients for _, coefficients in sums])


def _pursue(atoms: Tensor, norms: Tensor, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Extend an orthonormal basis of the selected atoms, so that each step costs one product with all atoms."""
    count, dim = targets.shape
    residual = targets.double()
    tolerance = residual.norm(dim=1) * 1e-6
    ids = torch.zeros(count, most, dtype=torch.int64, device=atoms.device)
    basis = torch.zeros(count, most, dim, dtype=torch.float64, device=atoms.device)
    upper = torch.eye(most, dtype=torch.float64, device=atoms.device).repeat(count, 1, 1)
    along = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
    available = torch.ones(count, len(atoms), dtype=torch.bool, device=atoms.device)
    for step in range(most):
        scores = (residual.float() @ atoms.T).abs() / norms
        selected = scores.masked_fill(~available, -1.0).argmax(1)
        available[torch.arange(count), selected] = False
        new = atoms[selected].double()
        part = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
        for _ in range(2):  # the second pass removes what rounding has left
            projection = torch.einsum("nkd,nd->nk", basis, new)
            new, part = new - torch.einsum("nkd,nk->nd", basis, projection), part + projection
        norm = new.norm(dim=1)
        # An atom in the span of the others adds nothing, nor does any once the target is reached.
        adds = (norm > 1e-6 * norms[selected]) & (residual.norm(dim=1) > tolerance)
        new = torch.where(adds[:, None], new / norm.clamp_min(1e-300)[:, None], torch.zeros_like(new))
        upper[:, :, step] = torch.where(adds[:, None], part, upper[:, :, step])
        upper[:, step, step] = torch.where(adds, norm, torch.ones_like(norm))
        along[:, step] = (residual * new).sum(1)
        basis[:, step] = new
        residual = residual - along[:, step, None] * new
        ids[:, step] = selected
    return ids, torch.linalg.solve_triangular(upper, along[:, :, None], upper=True)[:, :, 0]


def change_of_positions(name: str, rows: int, shift: int) -> Rearrangement:
    """Return the change of a position table by its name: shifted, but LUKE counts entities from 0."""
    return Rearrangement.enlarged(rows, rows + shift) if "entity" in name else Rearrangement.shifted(rows, shift)
