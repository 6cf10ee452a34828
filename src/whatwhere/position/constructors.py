"""The constructors of `Positions`."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import SupportsIndex, TypeVar

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from whatwhere.errors import PositionError, ShapeError
from whatwhere.position.coordinates import (
    checked_coordinates,
    checked_real_coordinates,
    count_digits,
    end_of,
    is_run,
    not_a_document,
    require_mask,
    require_tensor,
    rows_like,
    sample_increasing,
    sample_starts,
    slots_of,
)
from whatwhere.position.slices import PositionSlices
from whatwhere.tensor_checks import as_whole, readable, require_range

Made = TypeVar("Made", bound="PositionConstructors")  # Self, which run-time checks of annotations do not know


_COUNTS = count()
"""Numbers of the calls of `from_position_ids` that counted documents."""


class PositionConstructors(PositionSlices):
    """The constructors of `Positions`: one class method for each kind of input."""

    @classmethod
    def packed(cls: type[Made], lengths: Iterable[SupportsIndex], device: torch.device | str | None = None) -> Made:
        """Return positions of documents packed into one sequence; each counts from 0 and attends to itself alone.

        Args:
            lengths: tokens of each document, each at least 1; a list, an array or a tensor of integers of any type.
            device: device of the positions.

        Raises:
            PositionError: If there is no document, one is empty, or the lengths are no list of integers.

        Examples:
            >>> from whatwhere import Positions
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
    def from_mask(cls: type[Made], mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"]) -> Made:
        """Return positions that count the real tokens of padded sequences, wherever the padding is.

        Padding gets coordinate 0 or its last neighbor's, and no query attends to it. While decoding, append new tokens
        with `append`, or let the mask grow and take the new token with `p[-1:]`.

        Args:
            mask: the `attention_mask` of Hugging Face tokenizers: True (or 1) at tokens, False (or 0) at padding, on
                the left, on the right or between; (tokens) or (batch, tokens).

        Raises:
            PositionError: If the mask has other values than 0 and 1.
            ShapeError: If the mask has neither one nor two dimensions.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1]])).index
            tensor([[[0, 0, 0, 1, 2]]])
        """
        require_tensor("a mask", mask, "mask")
        if mask.dim() not in (1, 2):
            raise ShapeError(
                f"a mask needs shape (tokens) or (batch, tokens), but this one has {tuple(mask.shape)}.\n"
                "Of a mask of all pairs pass one row for each sequence: True at keys that are real."
            )
        rows = mask if mask.dim() == 2 else mask[None]
        require_mask(rows)
        real = rows.bool()
        index = (real.long().cumsum(-1) - 1).clamp(min=0)
        max_length = end_of(index) if readable(index) else rows.shape[-1]
        if readable(real) and bool(real.all()):
            return cls(index[None], index, None, True, max_length)
        return cls(index[None], index, real.long() - 1, False, max_length)

    @classmethod
    def from_position_ids(cls: type[Made], ids: Integer[Tensor, "*axes_batch tokens"]) -> Made:
        """Return positions that are given as the `position_ids` of Hugging Face models.

        With one axis a new document begins wherever the number does not grow, and order is the number itself, so packed
        and padded position ids mean what they mean there. With several axes (M-RoPE) a number that falls begins no
        document: all tokens are of one, in the order of the sequence.

        A table with rows before that of position 0 adds its offset, so those of RoBERTa and its kin, which begin at
        padding_idx + 1, are refused there: take `from_mask`.

        Documents are counted from the first token given, so pass the ids of whole sequences, in their order, and take
        shards of the result (`shards`, `take`, slices). On the CPU, two such counts are not bound together.

        Args:
            ids: (tokens), (batch, tokens) or (axes, batch, tokens), each 0 or more; integers of any type.

        Raises:
            PositionError: If a position is negative, or no whole number.
            ShapeError: If there are more than three dimensions, or none.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.from_position_ids(torch.tensor([0, 1, 2, 0, 1]))
            >>> p.segment
            tensor([[0, 0, 0, 1, 1]])
        """
        index = checked_coordinates(ids)
        max_length = end_of(index) if readable(index) else None
        if index.shape[0] > 1:
            return cls(index, slots_of(index), None, True, max_length)
        order = index[0]
        falls = torch.nn.functional.pad(order.diff(dim=-1) <= 0, (1, 0))
        if readable(falls) and not bool(falls.any()):
            return cls(index, order, None, is_run(order), max_length, position_ids=True)
        numbering = next(_COUNTS) if readable(falls) else None
        segment = falls.long().cumsum(-1)
        return cls(index, order, segment, False, max_length, numbering=numbering, position_ids=True)

    @classmethod
    def from_coordinates(
        cls: type[Made],
        index: Integer[Tensor, "*axes_batch tokens"] | Float[Tensor, "*axes_batch tokens"],
        order: Integer[Tensor, "*batch tokens"] | None = None,
        segment: Integer[Tensor, "*batch tokens"] | None = None,
    ) -> Made:
        """Return positions with any coordinates; they may repeat, fall and jump without beginning a new document.

        Position coupling (Cho et al. 2024, https://arxiv.org/abs/2405.20671), for example, gives digits of equal
        significance one number. Real numbers, such as seconds of a video, are kept in float64; schemes of angles take
        them (Rotary and its kin, Sinusoidal, AxialSinusoidal, Fourier), with a gradient where they require one, and
        other schemes refuse them.

        Args:
            index: (tokens), (batch, tokens) or (axes, batch, tokens): whole numbers, each 0 or more, or real ones, each
                finite.
            order: (tokens) or (batch, tokens), which token is later; None is the order of the sequence.
            segment: likewise the document of each token, -1 for padding; None is one document. For padded batches take
                order and segment of `Positions.from_mask(mask)`.

        Raises:
            PositionError: If a whole coordinate is negative, a real one not finite, a segment below -1, or an order or
                segment no whole number.
            ShapeError: If order or segment have other tokens or sequences than the index.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.from_coordinates(torch.tensor([3, 2, 1, 0, 3, 2, 1]))  # 653+142, by significance
            >>> p.index[0, 0].tolist(), p.order[0].tolist()
            ([3, 2, 1, 0, 3, 2, 1], [0, 1, 2, 3, 4, 5, 6])
        """
        real = isinstance(index, Tensor) and index.is_floating_point()
        coordinates = checked_real_coordinates(index) if real else checked_coordinates(index)
        orders = None if order is None else rows_like(coordinates, "order", order)
        segments = None if segment is None else rows_like(coordinates, "segment", segment)
        if segments is not None:
            require_range(segments + 1, torch.iinfo(torch.int64).max, not_a_document)
        return cls(
            coordinates,
            slots_of(coordinates) if orders is None else orders,
            segments,
            orders is None and segments is None,
            end_of(coordinates) if readable(coordinates) and not real else None,
        )

    @classmethod
    def randomized(
        cls: type[Made], n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> Made:
        """Return n positions sampled from 0..max_length-1 without repetition, in increasing order, for each sequence.

        A model trained this way has seen every position and every distance up to `max_length`, though it reads short
        sequences only (randomized positional encodings, Ruoss et al. 2023, https://arxiv.org/abs/2305.16843). To
        decode, sample once for the final length and slice; evaluate with sampled positions too: at 0..n-1 such a model
        does worse.

        Args:
            n: tokens, at most max_length.
            max_length: how many positions to sample from.
            batch: sequences, each with a sample of its own.
            generator: to sample with, on its device; None is PyTorch's global random state.

        Raises:
            PositionError: If there are more tokens than positions, or more than 2**27 numbers to sample.
            ShapeError: If max_length or batch is not a whole number of at least 1.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.randomized(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> p.tokens, bool((p.index.diff() > 0).all())
            (4, True)
        """
        index = sample_increasing(n, max_length, batch, generator)[None]
        return cls(index, slots_of(index), None, True, max_length)

    @classmethod
    def random_offset(
        cls: type[Made], n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> Made:
        """Return n positions that count from a random start, sampled for each sequence, all within 0..max_length-1.

        A model trained this way has seen every position up to `max_length`, but no other distances than those of short
        sequences (SHAPE, Kiyono et al. 2021, https://arxiv.org/abs/2109.05644). For schemes that see distances only it
        changes nothing.

        Args:
            n: tokens, at most max_length.
            max_length: how many positions there are.
            batch: sequences, each with a start of its own.
            generator: to sample with, on its device; None is PyTorch's global random state.

        Raises:
            PositionError: If there are more tokens than positions.
            ShapeError: If max_length or batch is not a whole number of at least 1.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.random_offset(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> (p.index - p.index[..., :1]).tolist(), p.max_length
            ([[[0, 1, 2, 3]]], 100)
        """
        starts = sample_starts(n, max_length, batch, generator)
        index = starts[:, None] + torch.arange(n, device=starts.device)
        return cls(index[None], index, None, True, max_length)

    @classmethod
    def abacus(
        cls: type[Made],
        ids: Integer[Tensor, "*batch tokens"],
        digit_ids: Sequence[int] | Integer[Tensor, " digits"],
        offset: int | Integer[Tensor, " batch"] = 0,
    ) -> Made:
        """Return positions that count the digits of each number from its first: 1, 2, 3, ...; other tokens are at 0.

        With the least significant digit first, digits of equal significance share a position (McLeish et al. 2024,
        https://arxiv.org/abs/2405.17399). In training the authors add one random offset to all digits, so that
        positions of long numbers are trained too: offset=torch.randint(100, (batch,)); in evaluation none.

        Args:
            ids: token ids of the whole sequence, (tokens) or (batch, tokens); to decode, slice the result.
            digit_ids: the tokens that are digits.
            offset: added to the digits' positions, 0 or more; a tensor has one for each sequence.

        Raises:
            TokenError: If digit_ids are empty or not whole numbers.
            PositionError: If the offset is negative.
            ShapeError: If ids are not a tensor of these shapes, or the offset is for other sequences.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.abacus(torch.tensor([7, 0, 5, 99, 3, 1]), digit_ids=range(10)).index  # 705+31
            tensor([[[1, 2, 3, 0, 1, 2]]])
        """
        return cls.from_coordinates(count_digits(ids, digit_ids, offset))
