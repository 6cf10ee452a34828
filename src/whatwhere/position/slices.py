"""The fields of `Positions`, and some of their tokens: slices, chosen slots, and shards of a sequence.

The fields of a part are computed when they are first read: a step of decoding reads few of them.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import PositionError, ShapeError
from whatwhere.position.coordinates import end_of, is_run, largest_in_document
from whatwhere.tensor_checks import readable, require_range

Made = TypeVar("Made", bound="PositionSlices")  # Self, which run-time checks of annotations do not know

ShardOrder = Literal["contiguous", "zigzag", "striped"]
SHARD_ORDERS: tuple[ShardOrder, ...] = ("contiguous", "zigzag", "striped")

_FIELDS = (
    "index",
    "order",
    "segment",
    "run",
    "max_length",
    "document_length",
    "document_start",
    "numbering",
    "whole_length",
    "position_ids",
)


@dataclass(frozen=True, eq=False)
class PositionSlices:
    """The fields of `Positions`, and its slices and shards."""

    index: Int64[Tensor, "axes batch tokens"] | Float64[Tensor, "axes batch tokens"]
    order: Int64[Tensor, "batch tokens"] = None  # type: ignore[assignment]
    segment: Int64[Tensor, "batch tokens"] | None = None
    run: bool = False
    max_length: int | None = None
    document_length: Int64[Tensor, "batch tokens"] | None = None
    document_start: Int64[Tensor, "batch tokens"] | None = None
    numbering: int | None = None
    whole_length: Int64[Tensor, "batch tokens"] | None = None
    position_ids: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not made by a constructor, and coordinates that schemes would take for whole positions."""
        if not isinstance(self.index, Tensor) or self.order is None:
            raise PositionError(
                f"Positions got {type(self.index).__name__} alone, but needs tensors of coordinates and of order.\n"
                "For the first n tokens write positions(n); a tensor of positions is passed as it is, where.at(tensor)."
            )
        if self.index.dtype not in (torch.int64, torch.float64):
            raise PositionError(
                f"Positions got an index of dtype {self.index.dtype}, but needs int64, or float64 for real coordinates."
                "\nMake them by Positions.from_coordinates(index), which checks them."
            )

    @property
    def real(self) -> bool:
        """Whether the coordinates are real numbers, as the centers of image patches are; else they are whole."""
        return self.index.is_floating_point()

    @property
    def axes(self) -> int:
        """How many coordinates a token has."""
        return self.index.shape[0]

    @property
    def batch(self) -> int:
        """How many sequences; 1 serves any number of sequences with the same positions."""
        return self.index.shape[1]

    @property
    def tokens(self) -> int:
        """How many tokens a sequence has."""
        fields = self.__dict__
        if "index" in fields or torch.compiler.is_compiling():
            return self.index.shape[2]
        count: int = fields["_count"]
        return count

    @property
    def device(self) -> torch.device:
        """The device of the coordinates."""
        return self.index.device

    def __getitem__(self: Made, tokens: slice | Int64[Tensor, " some"]) -> Made:
        """Return the positions of a slice of the tokens, `p[a:b]`: a step of decoding is at `p[t : t + 1]`.

        A slice may be a text so far, or a part of a longer one: its `lengths` are what its tokens say, and schemes that
        follow the length refuse it, without `regime_length`, where the whole text's would change them. A tensor of
        slots chooses single tokens of a longer text, as `take` does.

        Raises:
            PositionError: If the index is neither, its step is below 1, or a slot is outside of the sequence.

        Examples:
            >>> from whatwhere import positions
            >>> positions(8, start=40)[-1:].index.item()
            47
            >>> positions(8)[torch.tensor([0, 6, 7])].index
            tensor([[[0, 6, 7]]])
        """
        if isinstance(tokens, Tensor) and tokens.dim() == 1 and tokens.dtype == torch.int64:
            return self.take(tokens)
        if not isinstance(tokens, slice) or (tokens.step is not None and tokens.step < 1):
            raise PositionError(
                f"Positions are sliced along tokens, but were indexed with {tokens!r}.\n"
                "For one token pass p[t : t + 1], for some slots a tensor of them; for some axes or rows, index "
                "p.index itself."
            )
        if torch.compiler.is_compiling():
            return type(self)(*(_sliced(self, tokens, name) for name in _FIELDS))
        chosen, fields, whole = range(self.tokens)[tokens], self.__dict__, self
        first, step, count = chosen.start, chosen.step, len(chosen)
        if "_first" in fields:  # a slice of a slice is one of the whole
            whole, first, step = fields["_whole"], fields["_first"] + first * fields["_step"], step * fields["_step"]
        part = object.__new__(type(self))
        part.__dict__.update(_whole=whole, _first=first, _count=count, _step=step)
        return part

    def take(self: Made, slots: Int64[Tensor, " some"]) -> Made:
        """Return the positions of the tokens at some slots, in any order: a shard of the sequence, or a KV cache.

        They remember the length and the first token of each document of these positions, so that DynamicNTK, LongRoPE
        and windows see the same on every shard.

        Args:
            slots: of the tokens, in every sequence, from 0 on.

        Raises:
            PositionError: If slots are no list of whole numbers in int64, or outside of the sequence.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.packed([3, 2]).take(torch.tensor([4, 0]))
            >>> p.index.tolist(), p.segment.tolist(), p.lengths().tolist()
            ([[[1, 0]]], [[1, 0]], [[2, 3]])
        """
        if not isinstance(slots, Tensor) or slots.dim() != 1 or slots.dtype != torch.int64:
            raise PositionError(
                f"take needs the slots of tokens in a tensor of one dimension and dtype int64, but got {slots!r}.\n"
                "Pass torch.tensor([...]); for a range of tokens slice: p[a:b]."
            )
        require_range(slots, self.tokens, _outside)
        if torch.compiler.is_compiling():
            return type(self)(*(_taken(self, slots, name) for name in _FIELDS))
        part = object.__new__(type(self))
        part.__dict__.update(_whole=self, _slots=slots, _count=len(slots))
        return part

    def shard_slots(self, n: int, order: ShardOrder = "contiguous") -> Int64[Tensor, "n some"]:
        """Return the slots of the tokens of each of n shards: `ids[:, slots[rank]]` are the tokens of a rank.

            contiguous    rank r has the r-th of n parts
            zigzag        of 2 n parts, rank r has the r-th and the r-th from the end: under a causal mask, equal work
            striped       rank r has each n-th token, from token r on

        What ranks compute is put back in the order of the sequence by `x[..., slots.flatten().argsort(), :]`. Keys and
        values that are gathered need not be: bind `p.take(slots.flatten())` as the positions of the keys.

        Args:
            n: shards.
            order: which tokens a shard has.

        Raises:
            ShapeError: If n is not a whole number of at least 1, or the tokens do not divide evenly.
            SettingError: If the order is unknown.

        Examples:
            >>> from whatwhere import positions
            >>> positions(8).shard_slots(2, "zigzag")
            tensor([[0, 1, 6, 7],
                    [2, 3, 4, 5]])
            >>> positions(6).shard_slots(2, "striped")
            tensor([[0, 2, 4],
                    [1, 3, 5]])
        """
        require_whole("shards", n=n)
        require_choice("shards", "order", order, SHARD_ORDERS)
        parts = 2 * n if order == "zigzag" else n
        if self.tokens % parts:
            raise ShapeError(
                f"{self.tokens} tokens do not divide into {n} {order} shards, which need a multiple of {parts}.\n"
                "Pad the sequences on the right: Positions.from_mask(mask)."
            )
        slots = torch.arange(self.tokens, device=self.device)
        if order == "striped":
            return slots.view(-1, n).T.contiguous()
        parts_of = slots.view(parts, -1)
        return parts_of if order == "contiguous" else torch.cat([parts_of[:n], parts_of[n:].flip(0)], dim=1)

    def shards(self: Made, n: int, order: ShardOrder = "contiguous") -> list[Made]:
        """Return the positions of the tokens of each of n shards of the sequence, for context parallelism.

        Args:
            n: shards.
            order: which tokens a shard has, see `shard_slots`.

        Raises:
            ShapeError: If n is not a whole number of at least 1, or the tokens do not divide evenly.
            SettingError: If the order is unknown.

        Examples:
            >>> from whatwhere import positions
            >>> first, second = positions(8).shards(2, "zigzag")
            >>> first.index.tolist(), first.lengths().tolist()
            ([[[0, 1, 6, 7]]], [[8, 8, 8, 8]])
        """
        return [self.take(slots) for slots in self.shard_slots(n, order)]

    def lengths(self, *present: "PositionSlices") -> Int64[Tensor, "batch tokens"]:
        """Return the length of each token's document: its largest coordinate, plus 1.

        It is that of the whole document where these tokens were taken from a sequence (`take`, `shards`), and else as
        far as it is present.

        Args:
            present: further positions with tokens of these documents, such as the keys of a cache.

        Raises:
            PositionError: If the coordinates are real numbers, which count no tokens.
            ShapeError: If batches differ, and none of them is 1.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.packed([3, 2]).lengths()
            tensor([[3, 3, 3, 2, 2]])
        """
        return self._largest(present, [p.known_ends() for p in self._whole_numbered(present)])

    def whole_lengths(self, *present: "PositionSlices") -> Int64[Tensor, "batch tokens"] | None:
        """Return the lengths where slices count as parts of the texts that they were sliced from; None without slices.

        Args:
            present: as in `lengths`.

        Examples:
            >>> from whatwhere import positions
            >>> p = positions(8)[:3]
            >>> p.lengths().tolist(), p.whole_lengths().tolist()
            ([[3, 3, 3]], [[8, 8, 8]])
        """
        everything = self._whole_numbered(present)
        if all(p.whole_length is None for p in everything):
            return None
        return self._largest(
            present, [p.known_ends() if p.whole_length is None else p.whole_length for p in everything]
        )

    def _whole_numbered(self, present: tuple["PositionSlices", ...]) -> tuple["PositionSlices", ...]:
        """Return these and other positions; raise PositionError if the coordinates of some are real numbers."""
        if any(p.real for p in (self, *present)):
            raise PositionError("real coordinates count no tokens, so they have no length.\nPass regime_length=.")
        return self, *present

    def _largest(self, present: tuple["PositionSlices", ...], ends: list[Tensor]) -> Tensor:
        """Return the largest of some numbers of these and other tokens, within each token's document."""
        largest = [
            largest_in_document(self.segment, self.order, other.segment, of_other, common_batch(self, other))
            for other, of_other in zip((self, *present), ends, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*largest)).amax(0)

    def order_in_document(self, *present: "PositionSlices") -> Int64[Tensor, "batch tokens"]:
        """Return the order of each token from the first of its document.

        That is the first one that is present, or of the whole document where these tokens are a part of a sequence
        (a slice, `take`, `shards`). Without documents it is the order itself, as a part of a text does not say where it
        begins.

        Args:
            present: further positions with tokens of these documents, such as the keys of a cache.

        Raises:
            ShapeError: If batches differ, and none of them is 1.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.packed([3, 2]).order_in_document()
            tensor([[0, 1, 2, 0, 1]])
        """
        everything = (self, *(p for p in present if p is not self))
        if self.tokens == 0 or all(p.segment is None for p in everything):
            return self.order
        last = torch.stack([p.order.amax() for p in everything if p.tokens]).amax()
        backward = torch.broadcast_tensors(
            *(
                largest_in_document(
                    self.segment, self.order, other.segment, last + 1 - other.known_starts(), common_batch(self, other)
                )
                for other in everything
            )
        )
        return self.order - (last + 1 - torch.stack(backward).amax(0))

    def known_ends(self) -> Int64[Tensor, "batch tokens"]:
        """Return how long each token's document is at least: that of the whole, or up to the token."""
        return self.index.amax(0) + 1 if self.document_length is None else self.document_length

    def known_starts(self) -> Int64[Tensor, "batch tokens"]:
        """Return an order at which each token's document has begun: that of the whole's first token, or its own."""
        return self.order if self.document_start is None else self.document_start

    def __getattr__(self, name: str) -> Any:
        """Return a field of a part, computed when it is first read: a step of decoding reads few of them."""
        fields = self.__dict__
        if name not in _FIELDS or "_whole" not in fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        if "_slots" in fields:
            value = _taken(fields["_whole"], fields["_slots"], name)
        else:
            first, step = fields["_first"], fields["_step"]
            value = _sliced(fields["_whole"], slice(first, first + fields["_count"] * step, step), name)
        if not torch.compiler.is_compiling():
            fields[name] = value
        return value


# A field that a slice has not computed yet goes to __getattr__, which a class attribute of its default would hide.
for _field in fields(PositionSlices):
    if _field.default is not MISSING:
        delattr(PositionSlices, _field.name)


def common_batch(queries: PositionSlices, keys: PositionSlices) -> int:
    """Return the batch size of queries and keys together: a batch of 1 is broadcast, also to a batch of 0.

    Args:
        queries: positions of the queries.
        keys: positions of the keys.

    Raises:
        ShapeError: If they differ and neither is 1.

    Examples:
        >>> from whatwhere import positions
        >>> common_batch(positions(3), positions(3, start=torch.tensor([0, 5, 7, 9])))
        4
    """
    if queries.batch != keys.batch and 1 not in (queries.batch, keys.batch):
        raise ShapeError(
            f"the queries' positions have batch {queries.batch} and the keys' {keys.batch}: equal batches, or 1, are "
            "needed.\nMake both for one batch of sequences."
        )
    return keys.batch if queries.batch == 1 else queries.batch


def require_one_numbering(queries: PositionSlices, keys: PositionSlices) -> None:
    """Check that segments of two positions mean the same documents.

    Args:
        queries, keys: positions that are bound or joined.

    Raises:
        PositionError: If `from_position_ids` counted the documents of one of them, and the other's are another count.
    """
    if torch.compiler.is_compiling() or queries.numbering == keys.numbering:
        return
    if not queries.tokens or not keys.tokens:
        return
    raise PositionError(
        "the documents of these positions were counted by Positions.from_position_ids, each count from the first token "
        "that it was given, so nothing says which documents of both are the same.\n"
        "Make positions of the whole sequence once and take parts: p = Positions.from_position_ids(ids); "
        "where.at(p[a:b], p), or p.shards(n)."
    )


def _sliced(p: PositionSlices, tokens: slice, name: str) -> Any:
    """Return a field of a slice of the tokens."""
    if name == "run":
        return p.run and tokens.step in (None, 1)
    if name == "max_length":
        # A slice may be shorter than what it was taken from; reading that where it is free refuses no table in vain.
        return end_of(p.index[..., tokens]) if readable(p.index) and not p.real else p.max_length
    if name == "document_start":
        return _starts(p)[..., tokens]
    if name == "whole_length" and p.whole_length is None:
        return None if p.real or p.document_length is not None else p.lengths()[..., tokens]
    values = getattr(p, name)
    return values[..., tokens] if isinstance(values, Tensor) else values


def _starts(p: PositionSlices) -> Tensor:
    """Return the order of the first token of each one's document."""
    if p.document_start is not None or p.tokens == 0:
        return p.known_starts()
    if p.segment is None:  # which may begin later than 0, as a batch of other starts does
        return p.order.amin(-1, keepdim=True).expand_as(p.order)
    return p.order - p.order_in_document()


def _taken(p: PositionSlices, slots: Tensor, name: str) -> Any:
    """Return a field of the tokens at some slots."""
    if name == "run":
        return p.run and readable(slots) and is_run(slots[None])
    if name == "max_length":
        return end_of(p.index[..., slots]) if readable(p.index) and not p.real else p.max_length
    if name == "document_length":
        return None if p.real else p.lengths()[..., slots]
    if name == "document_start":
        return _starts(p)[..., slots]
    if name == "whole_length":
        return None  # it is the document_length
    values = getattr(p, name)
    return values[..., slots] if isinstance(values, Tensor) else values


def _outside(value: int, slot: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"slot {value} at {slot} is outside of the sequence.\nSlots count from 0; from the end: p.tokens - 1."
    )
