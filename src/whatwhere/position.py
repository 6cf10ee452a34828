"""Positions of tokens: the coordinates that schemes see, the order of tokens, and the documents they belong to.

A position is a coordinate that schemes see (`index`). Which token is later is another fact (`order`), and which
document a token belongs to is a third (`segment`). The causal mask comes from the last two, never from the coordinate:
image patches, abacus digits and packed documents have coordinates that repeat or run backwards.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import torch
from jaxtyping import Bool, Int64, Integer
from torch import Tensor
from torch.utils import _pytree

from whatwhere import random_positions
from whatwhere.checks import as_whole, readable, require_range, require_whole
from whatwhere.errors import PositionError, ShapeError

Allowed = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`allowed(batch, head, query_slot, key_slot)` -> bool: may this query attend to this key?"""


@dataclass(frozen=True, eq=False)
class Positions:
    """The position of each token of each sequence: its coordinate, its order, and its document.

    Positions are data that a model is given. For packed documents, left padding or a KV cache you pass different
    positions; the model code stays the same. `positions(n)` counts n tokens. Other positions come from `packed`,
    `from_mask`, `from_position_ids`, `grid`, `from_coordinates`, `randomized`, `random_offset` and `abacus`.

    Attributes:
        index: the coordinates that schemes see; one axis for text, more for images and video. Batch may be 1.
        order: which token is later: a query may attend to a key of its own or a lower order.
        segment: the document that a token belongs to, -1 for padding; None where all tokens are of document 0.
        run: whether the order is n, n+1, n+2, ... without segments, so that a plain causal kernel is legal.
        max_length: all coordinates lie in 0..max_length-1, where this is known without reading a device; else None.

    Examples:
        >>> p = positions(5)
        >>> p[3:].index
        tensor([[[3, 4]]])
        >>> Positions.packed([3, 2]).append(1)
        Positions.packed([3, 3])
    """

    index: Int64[Tensor, "axes batch tokens"]
    order: Int64[Tensor, "batch tokens"]
    # Defaults by a call leave nothing at the class, so that what lacks a field comes to __getattr__.
    segment: Int64[Tensor, "batch tokens"] | None = field(default_factory=lambda: None)
    run: bool = field(default_factory=bool)
    max_length: int | None = field(default_factory=lambda: None)

    @classmethod
    def packed(cls, lengths: Iterable[SupportsIndex], device: torch.device | str | None = None) -> "Positions":
        """Return positions of documents packed into one sequence; each counts from 0 and attends to itself alone.

        Args:
            lengths: tokens of each document, each at least 1; a list, an array or a tensor of integers of any type.
            device: where to put them.

        Raises:
            PositionError: for no document, an empty one, or anything but a list of integers.

        Examples:
            >>> p = Positions.packed([3, 2])
            >>> p.index[0, 0].tolist(), p.segment[0].tolist()
            ([0, 1, 2, 0, 1], [0, 0, 0, 1, 1])
        """
        if (number := as_whole(lengths)) is not None and getattr(lengths, "ndim", 0) == 0:
            raise PositionError(
                f"Positions.packed got {number}, but needs the tokens of each document in a list.\n"
                f"For one document pass [{number}]."
            )
        given = list(lengths) if isinstance(lengths, Iterable) else []
        sizes = [n for n in map(as_whole, given) if n is not None and n > 0]
        if not sizes or len(sizes) < len(given) or getattr(lengths, "ndim", 1) != 1:
            raise PositionError(
                f"Positions.packed got {lengths!r}, but needs at least one document, each of at least one token.\n"
                "Leave empty documents out."
            )
        index = torch.cat([torch.arange(n, device=device) for n in sizes])[None]
        order = torch.arange(sum(sizes), device=device)[None]
        segment = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(order.device)[None]
        return cls(index[None], order, segment if len(sizes) > 1 else None, len(sizes) == 1, max(sizes))

    @classmethod
    def from_mask(cls, mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"]) -> "Positions":
        """Return positions that count the real tokens of padded sequences, wherever the padding is.

        Padding gets coordinate 0 or its last neighbor's, and no query attends to it. While decoding, append new tokens
        with `append`, or let the mask grow and take the new token with `p[-1:]`.

        Args:
            mask: the `attention_mask` of Hugging Face tokenizers: True (or 1) at tokens, False (or 0) at padding, on
                the left, on the right or between; (tokens) or (batch, tokens).

        Raises:
            PositionError: for a mask of other values than 0 and 1.
            ShapeError: for a mask of other than one or two dimensions.

        Examples:
            >>> Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1]])).index
            tensor([[[0, 0, 0, 1, 2]]])
        """
        _require_tensor("a mask", mask, "mask")
        if mask.dim() not in (1, 2):
            raise ShapeError(
                f"a mask needs shape (tokens) or (batch, tokens), but this one has {tuple(mask.shape)}.\n"
                "From a mask of all pairs take the part that says which keys are real."
            )
        rows = mask if mask.dim() == 2 else mask[None]
        if rows.dtype != torch.bool:
            _require_integral(rows)
            require_range(rows, 2, _not_a_mask)
        real = rows.bool()
        index = (real.long().cumsum(-1) - 1).clamp(min=0)
        max_length = _end(index) if readable(index) else rows.shape[-1]
        if readable(real) and bool(real.all()):
            return cls(index[None], index, None, True, max_length)
        return cls(index[None], index, real.long() - 1, False, max_length)

    @classmethod
    def from_position_ids(cls, ids: Integer[Tensor, "*axes_batch tokens"]) -> "Positions":
        """Return positions that are given as the `position_ids` of Hugging Face models.

        With one axis a new document begins wherever the number does not grow, and order is the number itself, so packed
        and padded position ids mean what they mean there. With several axes (M-RoPE) a number that falls begins no
        document: all tokens are of one, in the order of the sequence.

        Args:
            ids: (tokens), (batch, tokens) or (axes, batch, tokens), each 0 or more; integers of any type.

        Raises:
            PositionError: for a negative position, or one that is no whole number.
            ShapeError: for more than three dimensions, or none.

        Examples:
            >>> p = Positions.from_position_ids(torch.tensor([0, 1, 2, 0, 1]))
            >>> p.segment
            tensor([[0, 0, 0, 1, 1]])
        """
        index = _coordinates(ids)
        max_length = _end(index) if readable(index) else None
        if index.shape[0] > 1:
            return cls(index, _slots(index), None, True, max_length)
        order = index[0]
        falls = torch.nn.functional.pad(order.diff(dim=-1) <= 0, (1, 0))
        if readable(falls) and not bool(falls.any()):
            return cls(index, order, None, _is_run(order), max_length)
        return cls(index, order, falls.long().cumsum(-1), False, max_length)

    @classmethod
    def from_coordinates(
        cls,
        index: Integer[Tensor, "*axes_batch tokens"],
        order: Integer[Tensor, "*batch tokens"] | None = None,
        segment: Integer[Tensor, "*batch tokens"] | None = None,
    ) -> "Positions":
        """Return positions with any coordinates; they may repeat, fall and jump without beginning a new document.

        Position coupling (Cho et al. 2024, https://arxiv.org/abs/2405.20671), for example, gives digits of equal
        significance one number.

        Args:
            index: (tokens), (batch, tokens) or (axes, batch, tokens), each 0 or more.
            order: (tokens) or (batch, tokens), which token is later; None is the order of the sequence.
            segment: likewise the document of each token, -1 for padding; None is one document. For padded batches take
                order and segment of `Positions.from_mask(mask)`.

        Raises:
            PositionError: for a negative coordinate, a segment below -1, or what is no whole number.
            ShapeError: for an order or a segment of other tokens or sequences than the index.

        Examples:
            >>> p = Positions.from_coordinates(torch.tensor([3, 2, 1, 0, 3, 2, 1]))  # 653+142, by significance
            >>> p.index[0, 0].tolist(), p.order[0].tolist()
            ([3, 2, 1, 0, 3, 2, 1], [0, 1, 2, 3, 4, 5, 6])
        """
        coordinates = _coordinates(index)
        orders = None if order is None else _rows_like(coordinates, "order", order)
        segments = None if segment is None else _rows_like(coordinates, "segment", segment)
        if segments is not None:
            require_range(segments + 1, torch.iinfo(torch.int64).max, _not_a_document)
        return cls(
            coordinates,
            _slots(coordinates) if orders is None else orders,
            segments,
            orders is None and segments is None,
            _end(coordinates) if readable(coordinates) else None,
        )

    @classmethod
    def grid(cls, *sizes: SupportsIndex, device: torch.device | str | None = None) -> "Positions":
        """Return positions on a grid, the last axis fastest: grid(height, width), grid(frames, height, width).

        Args:
            sizes: tokens along each axis, each at least 1; integers of any type.
            device: where to put them.

        Raises:
            ShapeError: for no size, or one that is not a whole number of at least 1.

        Examples:
            >>> Positions.grid(2, 3).index[:, 0]
            tensor([[0, 0, 0, 1, 1, 1],
                    [0, 1, 2, 0, 1, 2]])
        """
        if not sizes:
            raise ShapeError(
                "Positions.grid got no size, but needs at least one.\nPass that of each axis: Positions.grid(14, 14)."
            )
        whole: list[Any] = [size if (n := as_whole(size)) is None else n for size in sizes]
        require_whole("Positions.grid", **{f"axis_{n}": size for n, size in enumerate(whole)})
        lines = [torch.arange(size, device=device) for size in whole]
        index = torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])[:, None]
        return cls(index, _slots(index), None, True, max(whole))

    @classmethod
    def randomized(
        cls, n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> "Positions":
        """Return n positions sampled from 0..max_length-1 without repetition, in increasing order, for each sequence.

        Trained so, a model has seen every position and every distance up to `max_length`, while it reads short
        sequences only (randomized positional encodings, Ruoss et al. 2023, https://arxiv.org/abs/2305.16843). To
        decode, sample once for the final length and slice; evaluate with sampled positions too: at 0..n-1 such a model
        does worse.

        Args:
            n: tokens, at most max_length.
            max_length: how many positions to sample from.
            batch: sequences, each with a sample of its own.
            generator: to sample with, on its device; None is PyTorch's global random state.

        Raises:
            PositionError: for more tokens than positions, or more random numbers than are sampled at once.
            ShapeError: for a max_length or batch that is not a whole number of at least 1.

        Examples:
            >>> p = Positions.randomized(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> p.tokens, bool((p.index.diff() > 0).all())
            (4, True)
        """
        index = random_positions.sample_increasing(n, max_length, batch, generator)[None]
        return cls(index, _slots(index), None, True, max_length)

    @classmethod
    def random_offset(
        cls, n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> "Positions":
        """Return n positions that count from a random start, sampled for each sequence, all within 0..max_length-1.

        Trained so, a model has seen every position up to `max_length`, but no other distances than those of short
        sequences (SHAPE, Kiyono et al. 2021, https://arxiv.org/abs/2109.05644). For schemes that see distances only it
        changes nothing.

        Args:
            n: tokens, at most max_length.
            max_length: how many positions there are.
            batch: sequences, each with a start of its own.
            generator: to sample with, on its device; None is PyTorch's global random state.

        Raises:
            PositionError: for more tokens than positions.
            ShapeError: for a max_length or batch that is not a whole number of at least 1.

        Examples:
            >>> p = Positions.random_offset(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> (p.index - p.index[..., :1]).tolist(), p.max_length
            ([[[0, 1, 2, 3]]], 100)
        """
        starts = random_positions.sample_starts(n, max_length, batch, generator)
        index = starts[:, None] + torch.arange(n, device=starts.device)
        return cls(index[None], index, None, True, max_length)

    @classmethod
    def abacus(
        cls,
        ids: Integer[Tensor, "*batch tokens"],
        digit_ids: Sequence[int] | Integer[Tensor, " digits"],
        offset: int | Integer[Tensor, " batch"] = 0,
    ) -> "Positions":
        """Return positions that count the digits of each number from its first: 1, 2, 3, ...; other tokens are at 0.

        With the least significant digit first, digits of equal significance share a position (McLeish et al. 2024,
        https://arxiv.org/abs/2405.17399). In training the authors add one random offset to all digits, so that
        positions of long numbers are trained too: offset=torch.randint(100, (batch,)); in evaluation none.

        Args:
            ids: token ids of the whole sequence, (tokens) or (batch, tokens); to decode, slice the result.
            digit_ids: the tokens that are digits.
            offset: added to the digits' positions, 0 or more; a tensor has one for each sequence.

        Raises:
            TokenError: for digit_ids that are empty or not whole numbers.
            PositionError: for a negative offset.
            ShapeError: for ids that are no tensor of these shapes, or an offset for other sequences.

        Examples:
            >>> Positions.abacus(torch.tensor([7, 0, 5, 99, 3, 1]), digit_ids=range(10)).index  # 705+31
            tensor([[[1, 2, 3, 0, 1, 2]]])
        """
        return cls.from_coordinates(random_positions.count_digits(ids, digit_ids, offset))

    @property
    def axes(self) -> int:
        """How many coordinates a token has."""
        return self.index.shape[0]

    @property
    def batch(self) -> int:
        """How many sequences; 1 also stands for any number of sequences with the same positions."""
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

    def __repr__(self) -> str:
        """Return code that makes these positions; a summary where they are many, or not to be read without a wait."""
        if readable(self.index) and readable(self.order) and (code := _as_code(self)) is not None:
            return code
        segments = "" if self.segment is None else ", segments"
        sizes = f"axes={self.axes}, batch={self.batch}, tokens={self.tokens}"
        return f"<Positions: {sizes}{segments}, device='{self.device}'>"

    def __getitem__(self, tokens: slice) -> "Positions":
        """Return the positions of a slice of the tokens, `p[a:b]`: a step of decoding is at `p[t : t + 1]`.

        Raises:
            PositionError: for anything but a slice with a step of at least 1.

        Examples:
            >>> positions(8, start=40)[-1:].index.item()
            47
        """
        if not isinstance(tokens, slice) or (tokens.step is not None and tokens.step < 1):
            raise PositionError(
                f"Positions are sliced along tokens, but were indexed with {tokens!r}.\n"
                "For one token pass p[t : t + 1]; for some axes or rows, index p.index itself."
            )
        first, stop, step = tokens.indices(self.tokens)
        fields, whole, count = self.__dict__, self, len(range(first, stop, step))
        if torch.compiler.is_compiling():
            return Positions(*(_sliced(self, tokens, name) for name in _FIELDS))
        if "_whole" in fields:  # a slice of a slice is one of the whole
            whole, first, step = fields["_whole"], fields["_first"] + first * fields["_step"], step * fields["_step"]
        part = object.__new__(Positions)
        part.__dict__.update(_whole=whole, _first=first, _count=count, _step=step)
        return part

    def __getattr__(self, name: str) -> Any:
        """Slice a field when it is first read: a step of decoding reads few of them."""
        fields = self.__dict__
        if name not in _FIELDS or "_whole" not in fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        first, step = fields["_first"], fields["_step"]
        value = _sliced(fields["_whole"], slice(first, first + fields["_count"] * step, step), name)
        if not torch.compiler.is_compiling():
            fields[name] = value
        return value

    def next(self, n: SupportsIndex = 1) -> "Positions":
        """Return the positions of the n tokens that follow these, as in a step of decoding.

        Each sequence continues its last document: coordinate and order go on by 1 from its last real token, also
        behind padding.

        Args:
            n: tokens, 0 or more; an integer of any type.

        Returns:
            Positions of the new tokens alone; `append` joins them to those of the cache.

        Raises:
            PositionError: where the coordinates do not count on by 1, such as sampled ones or a grid: then nothing
                says how they continue.

        Examples:
            Decode after a prompt that is padded on the left. The model stores the keys and values of each layer.

            >>> p = Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 1]]))  # the prompt
            >>> for _ in range(2):
            ...     step = p.next()  # the new token's
            ...     p = p.append(step)  # all keys': bind with where.at(step, p)
            ...     step.index.flatten().tolist()
            [2, 3]
            [3, 4]
        """
        count = _require_count("n", n)
        if self.axes > 1:
            raise PositionError(
                f"positions of {self.axes} axes do not say how they continue: one number for each axis is needed.\n"
                "Make those of the whole sequence first, and slice them: p[t : t + 1]."
            )
        later = torch.arange(count, device=self.device)
        start = _next_coordinate(self)
        index = start + later
        order = self.order.amax(-1, keepdim=True) + 1 + later if self.tokens else index
        segment = None if self.segment is None else _last_document(self).expand(-1, count)
        max_length = _end(index) if readable(index) else None
        return Positions(index[None], order, segment, segment is None, max_length)

    def append(self, later: "Positions | Integer[Tensor, '...'] | int") -> "Positions":
        """Return these positions followed by others, as a KV cache grows.

        Args:
            later: positions of the new tokens, each of a higher order than all before it; a number n of tokens stands
                for `next(n)`. Tokens without a segment join the last document of their sequence.

        Raises:
            PositionError: for tokens that are not later.
            ShapeError: for another number of axes or sequences.

        Examples:
            >>> positions(3).append(positions(1, start=3)).index
            tensor([[[0, 1, 2, 3]]])
            >>> p = Positions.packed([3, 2]).append(1)  # p[-1:] is the new token's
            >>> p.index[0, 0].tolist(), p.segment[0].tolist()
            ([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
        """
        other = self.next(later) if _is_number(later) else as_positions(later)
        if self.axes != other.axes or (self.batch != other.batch and 1 not in (self.batch, other.batch)):
            raise ShapeError(
                f"positions of {other.axes} axes and batch {other.batch} cannot be appended to {self.axes} axes and "
                f"batch {self.batch}: axes must be equal, batches equal or 1.\n"
                "Make those of the whole sequence first, and slice them: p[t : t + 1]."
            )
        rows = common_batch(self, other)
        index = torch.cat([p.index.expand(-1, rows, -1) for p in (self, other)], dim=-1)
        order = torch.cat([p.order.expand(rows, -1) for p in (self, other)], dim=-1)
        if readable(order) and min(self.tokens, other.tokens) > 0:
            last, first = self.order.amax(-1), other.order.amin(-1)
            if bool((first <= last).any()):
                raise PositionError(
                    f"appended tokens must be later, but the first has order {int(first.min())} and the last before "
                    f"it {int(last.max())}.\nState where they start: positions(n, start={int(last.max()) + 1})."
                )
        segment = _join_segments(self, other, rows)
        run = self.run and other.run and readable(order) and _is_run(order)
        ends = [p.max_length for p in (self, other) if p.max_length is not None]
        return Positions(index, order, segment, run and segment is None, max(ends) if len(ends) == 2 else None)

    def to(self, device: torch.device | str) -> "Positions":
        """Return these positions on a device."""
        segment = None if self.segment is None else self.segment.to(device)
        return Positions(self.index.to(device), self.order.to(device), segment, self.run, self.max_length)

    def single_axis(self, scheme: str) -> Int64[Tensor, "batch tokens"]:
        """Return the coordinates where there is one axis.

        Args:
            scheme: named in the error.

        Raises:
            PositionError: there are several axes.
        """
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along one axis, but these positions have {self.axes}.\n"
                "Choose the axis: Positions.from_position_ids(p.index[0])."
            )
        return self.index[0]

    def on_axes(self, scheme: str, axes: int) -> Int64[Tensor, "axes batch tokens"]:
        """Return the coordinates on several axes; one axis, as of text, stands for each of them.

        Args:
            scheme: named in the error.
            axes: how many.

        Raises:
            PositionError: there are several axes, but another number of them.
        """
        if self.axes == axes:
            return self.index
        if axes == 1:
            return self.single_axis(scheme)[None]
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along {axes} axes, but these positions have {self.axes}.\n"
                f"Make a grid of {axes} sizes, Positions.grid(...), or pass one axis, which then stands for all."
            )
        return self.index.expand(axes, -1, -1)

    def is_consecutive(self) -> bool:
        """Return whether each coordinate is the one before it, plus 1; False where the values cannot be read.

        `run` says so of the order alone: coordinates may be sampled or given by the task.

        Examples:
            >>> positions(5, start=40).is_consecutive(), positions(5)[::2].is_consecutive()
            (True, False)
        """
        return self.axes == 1 and readable(self.index) and bool((self.index.diff(dim=-1) == 1).all())

    def lengths(self, *present: "Positions") -> Int64[Tensor, "batch tokens"]:
        """Return the length of each token's document, as far as it is present: its largest coordinate, plus 1.

        Args:
            present: further positions with tokens of these documents, such as the keys of a cache.

        Raises:
            ShapeError: for batches that differ, unless one is 1.

        Examples:
            >>> Positions.packed([3, 2]).lengths()
            tensor([[3, 3, 3, 2, 2]])
        """
        ends = torch.broadcast_tensors(*(_document_end(self, other) for other in (self, *present)))
        return torch.stack(ends).amax(0)

    def allowed(self, keys: "Positions", causal: bool) -> Allowed | None:
        """Return the mask as a formula by element; None where every query may attend to every key.

            allowed(b, i, j) = (order_j <= order_i, if causal) and segment_j = segment_i and segment_j >= 0

        Args:
            keys: positions of the keys; these are the queries'.
            causal: whether keys later than the query are masked.

        Raises:
            ShapeError: for batches that differ, unless one is 1.
        """
        if not causal and self.segment is None and keys.segment is None:
            return None
        common_batch(self, keys)
        query_order, key_order = self.order, keys.order
        query_segment, key_segment = self.segment, keys.segment
        if query_segment is None and key_segment is not None:
            query_segment = torch.zeros_like(query_order)
        if key_segment is None and query_segment is not None:
            key_segment = torch.zeros_like(key_order)

        def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            at_query, at_key = (b % query_order.shape[0], i), (b % key_order.shape[0], j)
            if query_segment is None or key_segment is None:
                return key_order[at_key] <= query_order[at_query]
            document = key_segment[at_key]
            same = (document == query_segment[at_query]) & (document >= 0)
            return same & (key_order[at_key] <= query_order[at_query]) if causal else same

        return rule

    def mask(self, keys: "Positions | None" = None, causal: bool = True) -> Bool[Tensor, "batch 1 queries keys"]:
        """Return the attention mask: True at (query, key) pairs of one document, the key not later if causal.

        `attn_mask=` of PyTorch's attention takes it as it is. Batch is 1 where all sequences have the same positions.

        Args:
            keys: positions of the keys; None where the queries are the keys.
            causal: whether keys later than the query are masked.

        Raises:
            ShapeError: for batches that differ, unless one is 1.

        Examples:
            >>> Positions.packed([2, 1]).mask()[0, 0].int()
            tensor([[1, 0, 0],
                    [1, 1, 0],
                    [0, 0, 1]], dtype=torch.int32)
        """
        keys = self if keys is None else keys
        rows = common_batch(self, keys)
        rule = self.allowed(keys, causal)
        if rule is None:
            return torch.ones(rows, 1, self.tokens, keys.tokens, dtype=torch.bool, device=self.device)
        b, h, i, j = (torch.arange(n, device=self.device) for n in (rows, 1, self.tokens, keys.tokens))
        return rule(b[:, None, None, None], h, i[:, None], j)  # the same for all heads: their axis stays 1


PositionsLike = Positions | Integer[Tensor, "..."] | int
"""Positions in any form that `as_positions` reads; a number n of tokens counts from 0."""

_LIMIT = (1 << 63) - 1
"""One more than the last position, so that the number after a position is one of int64 too."""

_SHOWN = 64
"""Coordinates that a repr writes out; more are summarized."""

_FIELDS = ("index", "order", "segment", "run", "max_length")


def _sliced(p: Positions, tokens: slice, name: str) -> Any:
    """Return a field of a slice of the tokens."""
    if name == "run":
        return p.run and tokens.step in (None, 1)
    if name == "max_length":
        # A slice may be shorter than what it was taken from; reading that where it is free refuses no table in vain.
        return _end(p.index[..., tokens]) if readable(p.index) else p.max_length
    values = getattr(p, name)
    return None if values is None else values[..., tokens]


def _flatten(p: Positions) -> tuple[list[Any], list[bool | int | None]]:
    # A list, not a tuple: torch.export.save writes it as JSON, and reads lists back.
    return [p.index, p.order, p.segment], [p.run, p.max_length]


def _unflatten(leaves: Any, facts: list[bool | int | None]) -> Positions:
    # Transforms rebuild the tree with placeholders in place of tensors: no check may look at them.
    p = object.__new__(Positions)
    for name, value in zip(("index", "order", "segment", "run", "max_length"), (*leaves, *facts), strict=True):
        object.__setattr__(p, name, value)
    return p


def _flatten_with_keys(p: Positions) -> tuple[list[tuple[Any, Any]], list[bool | int | None]]:
    leaves, facts = _flatten(p)
    return [
        (_pytree.GetAttrKey(name), leaf) for name, leaf in zip(("index", "order", "segment"), leaves, strict=True)
    ], facts


_pytree.register_pytree_node(
    Positions,
    _flatten,
    _unflatten,
    serialized_type_name="whatwhere.Positions",
    flatten_with_keys_fn=_flatten_with_keys,  # torch.export names its inputs by these
)


def positions(
    n: SupportsIndex, start: SupportsIndex | Integer[Tensor, " batch"] = 0, device: torch.device | str | None = None
) -> Positions:
    """Return positions that count n tokens from a start: start, start + 1, ..., start + n - 1.

    Args:
        n: tokens, 0 or more; an integer of any type.
        start: the first position, 0 or more; a tensor gives each sequence its own, as in a batch of KV caches.
        device: where to put them; the start's own device where that is a tensor.

    Returns:
        Positions of one sequence, or of one for each start.

    Raises:
        PositionError: for anything but whole numbers from 0 to 2**63 - 2.
        ShapeError: for a tensor of starts that has not one dimension.

    Examples:
        >>> positions(3, start=40).index
        tensor([[[40, 41, 42]]])
    """
    n = _require_count("n", n)
    if isinstance(start, Tensor):
        _require_integral(start)
        first = start.to(device or start.device, torch.int64)
        if first.dim() != 1:
            raise ShapeError(
                f"start has shape {tuple(start.shape)}, but needs one number, or one for each sequence: (batch).\n"
                "Pass start.flatten()."
            )
        index = first[:, None] + torch.arange(n, device=first.device)
        _require_whole_positions(index, start.dtype)
        return Positions(index[None], index, None, True, _end(index) if readable(index) else None)
    start = _require_count("start", start)
    if start + n > _LIMIT:
        raise PositionError(
            f"positions(n={n}, start={start}) goes beyond 2**63 - 2, the last position of int64.\nStart earlier."
        )
    index = torch.arange(start, start + n, device=device)[None]
    return Positions(index[None], index, None, True, start + n)


def as_positions(given: PositionsLike, device: torch.device | str | None = None) -> Positions:
    """Return positions that were given in any form.

    Args:
        given: Positions as they are; an integer tensor, read by `Positions.from_position_ids`; or a number n of tokens,
            which counts from 0.
        device: for positions made of a number.

    Raises:
        PositionError: for anything else, or positions that are negative.

    Examples:
        >>> as_positions(3).index
        tensor([[[0, 1, 2]]])
    """
    if isinstance(given, Positions):
        return given
    if isinstance(given, Tensor):
        return Positions.from_position_ids(given)
    if (n := as_whole(given)) is not None:
        return positions(n, device=device)
    raise PositionError(
        f"positions were given as {type(given).__name__}, but must be Positions, an integer tensor or a number of "
        "tokens.\nFor the first n tokens pass n; for other positions torch.tensor([...])."
    )


def of_queries_and_keys(
    queries: PositionsLike, keys: PositionsLike | None = None, device: torch.device | str | None = None
) -> tuple[Positions, Positions]:
    """Return the positions of queries and those of keys, one object where they are the same.

    Args:
        queries: positions of the queries, in any form that `as_positions` reads.
        keys: positions of the keys; None where they are the queries'.
        device: for positions made of a number.

    Raises:
        PositionError: for a number of queries beside another number of keys: the queries may be the last tokens of the
            keys, or another sequence.

    Examples:
        >>> of_queries_and_keys(positions(9)[8:], 9)
        (positions(1, start=8), positions(9))
    """
    at_queries = as_positions(queries, device)
    if keys is None or keys is queries or (_is_number(queries) and _is_number(keys) and queries == keys):
        return at_queries, at_queries
    at_keys = as_positions(keys, device)
    if _is_number(queries) and at_queries.tokens != at_keys.tokens:
        raise PositionError(
            f"{at_queries.tokens} queries and {at_keys.tokens} keys do not say whether the queries are the last tokens "
            "of the keys or another sequence.\n"
            f"For the last tokens: p = positions({at_keys.tokens}), and p[{-at_queries.tokens}:] for the queries; for "
            f"another sequence positions({at_queries.tokens})."
        )
    return at_queries, at_keys


def common_batch(queries: Positions, keys: Positions) -> int:
    """Return the batch size of queries and keys together: a batch of 1 is broadcast, also to a batch of 0.

    Args:
        queries: positions of the queries.
        keys: positions of the keys.

    Raises:
        ShapeError: if they differ and neither is 1.

    Examples:
        >>> common_batch(positions(3), positions(3, start=torch.tensor([0, 5, 7, 9])))
        4
    """
    if queries.batch != keys.batch and 1 not in (queries.batch, keys.batch):
        raise ShapeError(
            f"the queries' positions have batch {queries.batch} and the keys' {keys.batch}: equal batches, or 1, are "
            "needed.\nMake both for one batch of sequences."
        )
    return keys.batch if queries.batch == 1 else queries.batch


def _document_end(tokens: Positions, other: Positions) -> Int64[Tensor, "batch tokens"]:
    """Return the largest coordinate, plus 1, of the tokens in `other` that share each token's document; 0 if none."""
    rows = common_batch(tokens, other)
    if other.tokens == 0:
        return torch.zeros_like(tokens.order)
    ends = other.index.amax(0) + 1
    if tokens.segment is None and other.segment is None:
        return ends.amax(-1, keepdim=True).expand(rows, tokens.tokens)
    document = torch.zeros_like(tokens.order) if tokens.segment is None else tokens.segment
    others = torch.zeros_like(other.order) if other.segment is None else other.segment
    document, others, ends = (x.expand(rows, -1).contiguous() for x in (document, others, ends))
    # Sorted by document, and within one by coordinate, the last of each is its largest: no table of all pairs.
    slot = ends.argsort(dim=-1, stable=True)
    slot = slot.gather(-1, others.gather(-1, slot).argsort(dim=-1, stable=True))
    documents = others.gather(-1, slot)
    last = (torch.searchsorted(documents, document, right=True) - 1).clamp(min=0)
    return torch.where(documents.gather(-1, last) == document, ends.gather(-1, slot.gather(-1, last)), 0)


def _last_document(p: Positions) -> Int64[Tensor, "batch 1"]:
    """Return the document of the last real token of each sequence; 0 where there is none."""
    if p.segment is None or p.tokens == 0:
        return p.order.new_zeros(p.order.shape[0], 1)
    slots = torch.arange(p.tokens, device=p.device)
    last = torch.where(p.segment >= 0, slots, 0).amax(-1, keepdim=True)
    return p.segment.gather(-1, last).clamp(min=0)


def _next_coordinate(p: Positions) -> Int64[Tensor, "batch 1"]:
    """Return the coordinate after the last of each sequence's last document, whose coordinates count on by 1."""
    if p.tokens == 0:
        return p.order.new_zeros(p.order.shape[0], 1)
    index = p.index[0]
    member = torch.ones_like(index) if p.segment is None else (p.segment == _last_document(p)).long()
    count = member.cumsum(-1)
    end = torch.where(member > 0, index + 1, 0).amax(-1, keepdim=True)
    unexpected = (member > 0) & (index != end - count[..., -1:] + count - 1)
    require_range(unexpected.sum(-1), 1, _not_consecutive)
    return end


def _join_segments(before: Positions, later: Positions, batch: int) -> Int64[Tensor, "batch tokens"] | None:
    if before.segment is None and later.segment is None:
        return None
    first = torch.zeros_like(before.order) if before.segment is None else before.segment
    last = _last_document(before).expand(-1, later.tokens) if later.segment is None else later.segment
    return torch.cat([first.expand(batch, -1), last.expand(batch, -1)], dim=-1)


def _as_code(p: Positions) -> str | None:
    """Return code that makes positions, by the shortest constructor that does; None where it would be long."""
    several = p.batch > 1 or p.axes > 1
    if p.index.numel() == 0:
        return None if several else f"positions({p.tokens})"
    if p.segment is None and p.is_consecutive() and torch.equal(p.order, p.index[0]) and p.batch <= _SHOWN:
        starts = p.index[0, :, 0].tolist()
        start = f", start=torch.tensor({starts})" if several else f", start={starts[0]}" if starts[0] else ""
        return f"positions({p.tokens}{start})"
    if p.axes > 1 and _same(p, Positions.grid(*(sizes := [int(n) + 1 for n in p.index.amax(-1).amax(-1)]))):
        return f"Positions.grid({', '.join(map(str, sizes))})"
    if p.segment is not None and not several:
        lengths = torch.unique_consecutive(p.segment, return_counts=True)[1].tolist()
        if len(lengths) <= _SHOWN and _same(p, Positions.packed(lengths)):
            return f"Positions.packed({lengths})"
    if p.index.numel() > _SHOWN:
        return None
    if p.segment is not None and _same(p, Positions.from_mask(p.segment >= 0)):
        return f"Positions.from_mask({_tensor_code((p.segment >= 0).long())})"
    index = f"torch.tensor({p.index.tolist()})" if p.axes > 1 else _tensor_code(p.index[0])
    order = "" if torch.equal(p.order, _slots(p.index)) else f", order={_tensor_code(p.order)}"
    segment = "" if p.segment is None else f", segment={_tensor_code(p.segment)}"
    return f"Positions.from_coordinates({index}{order}{segment})"


def _tensor_code(rows: Int64[Tensor, "batch tokens"]) -> str:
    return f"torch.tensor({(rows if len(rows) > 1 else rows[0]).tolist()})"


def _same(p: Positions, q: Positions) -> bool:
    """Return whether two positions have the same coordinates, order and documents."""
    if p.index.shape != q.index.shape or (p.segment is None) != (q.segment is None):
        return False
    pairs = [(p.index, q.index), (p.order, q.order), (p.segment, q.segment)]
    return all(torch.equal(a, b) for a, b in pairs if a is not None and b is not None)


def _coordinates(ids: Integer[Tensor, "*axes_batch tokens"]) -> Int64[Tensor, "axes batch tokens"]:
    """Return position ids with all three axes, or raise unless they can be positions."""
    _require_tensor("position ids", ids, "ids")
    _require_integral(ids)
    if ids.dim() not in (1, 2, 3):
        raise ShapeError(
            "position ids need shape (tokens), (batch, tokens) or (axes, batch, tokens), but these have "
            f"{tuple(ids.shape)}.\nFor one token pass ids[None]; drop axes of length 1 with ids.squeeze()."
        )
    index = ids.long().reshape((1,) * (3 - ids.dim()) + tuple(ids.shape))
    _require_whole_positions(index, ids.dtype)
    return index


def _rows_like(index: Int64[Tensor, "axes batch tokens"], name: str, given: Tensor) -> Int64[Tensor, "batch tokens"]:
    """Return an order or a segment for the tokens and sequences of these coordinates."""
    _, batch, tokens = index.shape
    rows = given if given.dim() > 1 else given[None]
    if rows.dim() != 2 or rows.shape[0] not in (1, batch) or rows.shape[1] != tokens:
        raise ShapeError(
            f"{name} has shape {tuple(given.shape)}, but needs ({tokens}) or ({batch}, {tokens}): the tokens and "
            f"sequences of the index.\nMake one number for each token."
        )
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise PositionError(f"{name} needs whole numbers, but has dtype {given.dtype}.\nPass {name}.long().")
    return rows.to(index.device, torch.int64).expand(batch, -1)


def _slots(index: Int64[Tensor, "axes batch tokens"]) -> Int64[Tensor, "batch tokens"]:
    """Return the order of the sequence: 0, 1, 2, ... in each."""
    return torch.arange(index.shape[-1], device=index.device).expand(index.shape[1:])


def _end(index: Tensor) -> int:
    """Return the largest coordinate, plus 1."""
    return int(index.max()) + 1 if index.numel() else 0


def _is_run(order: Tensor) -> bool:
    return bool((order.diff(dim=-1) == 1).all())


def _is_number(given: object) -> bool:
    return not isinstance(given, Positions | Tensor) and as_whole(given) is not None


def _require_count(name: str, given: object) -> int:
    """Return a number of tokens or a start as a Python number, or raise PositionError."""
    number = as_whole(given)
    if number is None or number < 0:
        raise PositionError(
            f"positions got {name}={given!r}, but need a whole number of 0 or more.\n"
            "For padding on the left use Positions.from_mask(mask)."
        )
    return number


def _require_tensor(what: str, given: object, name: str) -> None:
    if not isinstance(given, Tensor):
        raise PositionError(
            f"{what} was given as {type(given).__name__}, but must be a tensor of whole numbers.\n"
            f"Pass torch.tensor({name})."
        )


def _require_integral(values: Tensor) -> None:
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise PositionError(
            f"positions are whole numbers, but these have dtype {values.dtype}.\n"
            "For a padding mask use Positions.from_mask(mask), with a mask of True and False or 1 and 0."
        )


def _require_whole_positions(index: Tensor, given: torch.dtype) -> None:
    """Raise PositionError unless all positions are in range; `given` is the dtype from which they were cast."""

    def outside(value: int, place: tuple[int, ...]) -> PositionError:
        if value < 0 and given == torch.uint64:
            value += 1 << 64
        if value < 0:
            return PositionError(
                f"position {value} at {place} is negative, but positions count from 0.\n"
                "For padding on the left use Positions.from_mask(mask)."
            )
        return PositionError(
            f"position {value} at {place} is too large: the last position is 2**63 - 2.\nPass smaller ones."
        )

    require_range(index, _LIMIT, outside)


def _not_a_mask(value: int, place: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"a mask has 0 and 1, but this one {value} at {place}.\nFor other numbers compare: mask == value."
    )


def _not_a_document(value: int, place: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"segment {value - 1} at {place} is no document: they count from 0, and -1 is padding.\nNumber them so."
    )


def _not_consecutive(count: int, place: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"the coordinates of sequence {place[0]} do not count on by 1, so nothing says how they continue.\n"
        "State the next ones: positions(n, start=...). Or make those of the whole sequence first, and slice them: "
        "p[t : t + 1]."
    )
