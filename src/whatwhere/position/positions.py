"""Positions of tokens: the coordinates that schemes see, the order of tokens, and the documents they belong to.

A position is a coordinate that schemes see (`index`). Which token is later is another fact (`order`), and which
document a token belongs to is a third (`segment`). The causal mask comes from the last two, never from the coordinate:
image patches, abacus digits and packed documents have coordinates that repeat or run backwards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import count
from math import pi
from typing import Any, ClassVar, Literal, SupportsIndex, TypeGuard

import torch
from jaxtyping import Bool, Float, Float64, Int64, Integer, Num
from torch import Tensor
from torch.utils import _pytree

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import PositionError, ShapeError
from whatwhere.position.coordinates import (
    LIMIT,
    Allowed,
    attention_rule,
    checked_coordinates,
    checked_real_coordinates,
    count_digits,
    is_run,
    known_end,
    largest_in_document,
    last_document,
    next_coordinate,
    packed_coordinates,
    require_count,
    require_documents,
    require_integral,
    require_mask,
    require_positions,
    require_tensor,
    rows_like,
    sample_increasing,
    sample_runs,
    slots_of,
)
from whatwhere.position.images import (
    After,
    augmented,
    grid_centers,
    grid_sizes,
    multimodal_coordinates,
    on_grid,
    token_types,
)
from whatwhere.tensor_checks import as_whole, readable, require_range

ShardOrder = Literal["contiguous", "zigzag", "striped"]
SHARD_ORDERS: tuple[ShardOrder, ...] = ("contiguous", "zigzag", "striped")

_COUNTS = count()  # numbers of the calls of `from_position_ids` that counted documents


@dataclass(frozen=True, eq=False, repr=False)
class Positions:
    """The position of each token of each sequence: its coordinate, its order, and its document.

    Positions are an input of the model. For packed documents, left padding or a KV cache you pass different
    positions; the model code stays the same. `positions(n)` counts n tokens. Other positions come from `packed`,
    `from_mask`, `from_position_ids`, `grid`, `centered_grid`, `multimodal`, `from_coordinates`, `randomized`,
    `random_offset` and `abacus`.

    Attributes:
        index: the coordinates that schemes see; one axis for text, more for images and video. Batch may be 1. Whole
            numbers in int64, or real ones in float64.
        order: which token is later: a query may attend to a key of its own or a lower order.
        segment: the document that a token belongs to, -1 for padding; None where all tokens are of document 0.
        run: whether the order is n, n+1, n+2, ... without segments, so that a causal kernel can be used without a mask.
        max_length: all coordinates are in 0..max_length-1; None where that is not known without reading a device.
        document_length: of some tokens of a sequence (`take`, `shards`), the length of each one's document in it; None
            where all there is to know of documents is in these tokens.
        document_start: likewise the order of the first token of the document.
        numbering: where `from_position_ids` counted the documents, a number of that count: segments of different counts
            do not compare. None where documents were stated.
        position_ids: whether these are numbers that a model of Hugging Face was given, by `from_position_ids`.
        sliced: of a slice `p[a:b]` the sequence that was sliced, the slot of the first token in it, and the step.
        start: of `positions(n)`, and what follows or slices them, the first coordinate and order, from which both count
            on by 1: a step of decoding then reads no tensor. None where that is not known.

    Raises:
        PositionError: If the index is neither int64 nor float64.

    Examples:
        >>> p = positions(5)
        >>> p[3:].index
        tensor([[[3, 4]]])
        >>> Positions.packed([3, 2]).append(1)
        Positions.packed([3, 3])
    """

    index: Int64[Tensor, "axes batch tokens"] | Float64[Tensor, "axes batch tokens"]
    order: Int64[Tensor, "batch tokens"] = None  # type: ignore[assignment]
    segment: Int64[Tensor, "batch tokens"] | None = None
    run: bool = False
    max_length: int | None = None
    document_length: Int64[Tensor, "batch tokens"] | None = None
    document_start: Int64[Tensor, "batch tokens"] | None = None
    numbering: int | None = None
    position_ids: bool = False
    sliced: "tuple[Positions, int, int] | None" = None
    start: ClassVar[int | None] = None  # no field, though each has its own: copies with another index must not have it

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
        return self.index.shape[2]

    @property
    def device(self) -> torch.device:
        """The device of the coordinates."""
        return self.index.device

    @property
    def is_part(self) -> bool:
        """Whether these are some tokens of a sequence that may have more: of a slice, `take` or `shards`."""
        return self.document_start is not None or self.sliced is not None

    @classmethod
    def packed(cls, lengths: Iterable[SupportsIndex], device: torch.device | str | None = None) -> "Positions":
        """Return positions of documents packed into one sequence; each counts from 0 and attends to itself alone.

        Args:
            lengths: tokens of each document, each at least 1; a list, an array or a tensor of integers of any type.

        Raises:
            PositionError: If there is no document, one is empty, or the lengths are not a list of integers.

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
            way = "Leave empty documents out, and of cumulative lengths (cu_seqlens) pass the differences, .diff()."
            if given and None in map(as_whole, given):
                way = "Of rows that are packed differently, stack position ids: Positions.from_position_ids(ids)."
            raise PositionError(
                f"Positions.packed got {lengths!r}, but needs at least one document, each of at least one token.\n{way}"
            )
        index, order, segment = packed_coordinates(sizes, device)
        return cls(index, order, segment if len(sizes) > 1 else None, len(sizes) == 1, max(sizes))

    @classmethod
    def from_mask(cls, mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"]) -> "Positions":
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
        end = known_end(index[None])
        max_length = rows.shape[-1] if end is None else end
        if readable(real) and bool(real.all()):
            return cls(index[None], index, None, True, max_length)
        return cls(index[None], index, real.long() - 1, False, max_length)

    @classmethod
    def from_position_ids(cls, ids: Integer[Tensor, "*axes_batch tokens"]) -> "Positions":
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
            PositionError: If a position is negative, or not a whole number, or if these are a padding mask.
            ShapeError: If there are more than three dimensions, or none.

        Examples:
            >>> p = Positions.from_position_ids(torch.tensor([0, 1, 2, 0, 1]))
            >>> p.segment
            tensor([[0, 0, 0, 1, 1]])
        """
        p = cls._from_ids(ids)
        # A row of padding alone has ids of 1 in transformers, beside rows that count further.
        if p.numbering is not None and bool((p.order == 1).all(-1).any() and (p.order <= 1).all()):
            raise PositionError(
                "these position ids are 0 and 1, as a padding mask is: no token would see another one.\n"
                "For a padding mask use Positions.from_mask(mask)."
            )
        return p

    @classmethod
    def _from_ids(cls, ids: Integer[Tensor, "*axes_batch tokens"]) -> "Positions":
        index = checked_coordinates(ids)
        max_length = known_end(index)
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
        cls,
        index: Integer[Tensor, "*axes_batch tokens"] | Float[Tensor, "*axes_batch tokens"],
        order: Integer[Tensor, "*batch tokens"] | None = None,
        segment: Integer[Tensor, "*batch tokens"] | None = None,
    ) -> "Positions":
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
                segment not a whole number.
            ShapeError: If order or segment have other tokens or sequences than the index.

        Examples:
            >>> p = Positions.from_coordinates(torch.tensor([3, 2, 1, 0, 3, 2, 1]))  # 653+142, by significance
            >>> p.index[0, 0].tolist(), p.order[0].tolist()
            ([3, 2, 1, 0, 3, 2, 1], [0, 1, 2, 3, 4, 5, 6])
        """
        real = isinstance(index, Tensor) and index.is_floating_point()
        coordinates = checked_real_coordinates(index) if real else checked_coordinates(index)
        orders = None if order is None else rows_like(coordinates, "order", order)
        segments = None if segment is None else rows_like(coordinates, "segment", segment)
        if segments is not None:
            require_documents(segments)
        run = orders is None and segments is None
        return cls(
            coordinates, slots_of(coordinates) if orders is None else orders, segments, run, known_end(coordinates)
        )

    @classmethod
    def randomized(
        cls, n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> "Positions":
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
            >>> p = Positions.randomized(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> p.tokens, bool((p.index.diff() > 0).all())
            (4, True)
        """
        index = sample_increasing(n, max_length, batch, generator)[None]
        return cls(index, slots_of(index), None, True, max_length)

    @classmethod
    def random_offset(
        cls, n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
    ) -> "Positions":
        """Return n positions that count from a random start, sampled for each sequence, all within 0..max_length-1.

        A model trained this way has seen every position up to `max_length`, but no other distances than those of short
        sequences (SHAPE, Kiyono et al. 2021, https://arxiv.org/abs/2109.05644). For schemes that see distances only it
        changes nothing. Arguments and errors are those of `randomized`.

        Examples:
            >>> p = Positions.random_offset(4, max_length=100, generator=torch.Generator().manual_seed(0))
            >>> (p.index - p.index[..., :1]).tolist(), p.max_length
            ([[[0, 1, 2, 3]]], 100)
        """
        index = sample_runs(n, max_length, batch, generator)
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
            TokenError: If digit_ids are empty or not whole numbers.
            PositionError: If the offset is negative.
            ShapeError: If ids are not a tensor of these shapes, or the offset is for other sequences.

        Examples:
            >>> Positions.abacus(torch.tensor([7, 0, 5, 99, 3, 1]), digit_ids=range(10)).index  # 705+31
            tensor([[[1, 2, 3, 0, 1, 2]]])
        """
        return cls.from_coordinates(count_digits(ids, digit_ids, offset))

    @classmethod
    def grid(cls, *sizes: SupportsIndex, device: torch.device | str | None = None) -> "Positions":
        """Return positions on a grid, the last axis fastest: grid(height, width), grid(frames, height, width).

        Args:
            sizes: tokens along each axis, each at least 1; integers of any type.

        Raises:
            ShapeError: If there is no size, or one is not a whole number of at least 1.

        Examples:
            >>> Positions.grid(2, 3).index[:, 0]
            tensor([[0, 0, 0, 1, 1, 1],
                    [0, 1, 2, 0, 1, 2]])
        """
        whole = grid_sizes("grid", sizes)
        index = on_grid([torch.arange(size, device=device) for size in whole])[:, None]
        return cls(index, slots_of(index), None, True, max(whole))

    @classmethod
    def centered_grid(
        cls,
        *sizes: SupportsIndex,
        extent: float = 2 * pi,
        prefix: SupportsIndex = 0,
        shift: float = 0.0,
        jitter: float = 1.0,
        rescale: float = 1.0,
        batch: int = 1,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> "Positions":
        """Return real coordinates of the centers of image patches, which span -extent to extent at every resolution.

            c = extent (2 (i + 0.5) / size - 1), then (c + s_a) j_a r with random numbers in training

        DINOv3 (Simeoni et al. 2025, https://arxiv.org/abs/2508.10104), whose angles are 2 pi c w: the default extent.
        So AxialRotary(head_dim, theta=100.0) on these is its encoding. In training it shifts and rescales them at
        random: rescale=2.0.

        Args:
            sizes: patches along each axis, each at least 1; integers of any type.
            extent: half the width of the grid in coordinates, above 0.
            prefix: tokens before the patches, such as CLS and registers, at 0 on all axes, where nothing is rotated.
            shift: a number is sampled from -shift..shift for each axis, as a part of half the width; 0 is none.
            jitter: a factor is sampled from 1/jitter..jitter for each axis, evenly in its logarithm; 1 is none.
            rescale: likewise one factor for all axes.
            batch: sequences, each with a sample of its own.
            generator: to sample with; None is PyTorch's global random state.

        Raises:
            ShapeError: If there is no size, or a size or batch is not a whole number of at least 1.
            SettingError: If extent, shift, jitter or rescale is out of range.
            PositionError: If prefix is not a whole number of at least 0.

        Examples:
            >>> Positions.centered_grid(1, 2, extent=1.0, prefix=1).index[:, 0]
            tensor([[ 0.0000,  0.0000,  0.0000],
                    [ 0.0000, -0.5000,  0.5000]], dtype=torch.float64)
        """
        whole, before = grid_sizes("centered_grid", sizes), require_count("prefix", prefix)
        require_positive("Positions.centered_grid", extent=extent)
        centers = augmented(grid_centers(whole, device), shift, jitter, rescale, batch, generator)
        index = torch.nn.functional.pad(extent * centers, (before, 0))
        return cls(index, slots_of(index), None, True, None)

    @classmethod
    def multimodal(
        cls,
        types: Integer[Tensor, "*batch tokens"],
        image_grids: Integer[Tensor, "images 3"] | None = None,
        video_grids: Integer[Tensor, "videos 3"] | None = None,
        *,
        mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"] | None = None,
        merge: SupportsIndex = 2,
        time_steps: float | Sequence[float] | Float[Tensor, " videos"] = 1.0,
        frames_apart: bool = False,
        per_second: float | None = None,
        real_times: bool = False,
        after: After = "largest",
    ) -> "Positions":
        """Return time, height and width of sequences of text, images and videos, for MultimodalRotary (M-RoPE).

            text      t = h = w = n, n + 1, ...
            a grid    t = n + floor(frame time_step), h = n + row, w = n + column
                      then n goes on from the largest coordinate so far, plus 1

        As the authors of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and GLM-4V have it, and `get_rope_index` of transformers up to
        5.2; with per_second, as Qwen2.5-Omni and Qwen3-Omni, where sound is of type 0, as text (videos with interleaved
        sound are not supported). From 5.3 on transformers goes on by the larger of rows and columns, without time:
        after="grid", which differs behind videos (and images) that are longer in time than wide or high. To decode,
        append `p.next_text()`: the next token is at the largest coordinate so far, plus 1, on all axes (their
        `rope_deltas`, in all versions).

        Args:
            types: 0 for text, 1 for tokens of images, 2 for tokens of videos: the `mm_token_type_ids` of a processor,
                (tokens) or (batch, tokens).
            image_grids: frames, height and width of each image in patches (`image_grid_thw`), in the batch's order.
            video_grids: likewise of each video (`video_grid_thw`).
            mask: False (or 0) at padding; None is without padding.
            merge: patches that make a token along height and width (`spatial_merge_size`), which must divide both.
            time_steps: by which the time coordinate goes on from frame to frame, for all videos or for each: in
                Qwen2.5-VL tokens_per_second * second_per_grid_ts, else 1.
            frames_apart: whether each frame of a video is a run of its own between text, as in Qwen3-VL and GLM-4V,
                which write timestamps between them.
            per_second: positions in a second (`position_id_per_seconds`, 25 in Qwen2.5-Omni and Qwen3-Omni), where
                time_steps are the seconds of a frame.
            real_times: whether times keep their fractions, as in Qwen3-Omni, and so do all positions after them.
            after: what follows a grid goes on from the `largest` coordinate, or by the rows and columns of the `grid`.

        Raises:
            SettingError: If per_second is not above 0, or after is unknown.
            PositionError: If grids and tokens do not match, or types or the mask have other values.
            ShapeError: If types, mask or grids have other shapes.

        Examples:
            >>> p = Positions.multimodal(torch.tensor([0, 1, 1, 0]), image_grids=torch.tensor([[1, 2, 4]]))
            >>> p.index[:, 0]
            tensor([[0, 1, 1, 3],
                    [0, 1, 1, 3],
                    [0, 1, 2, 3]])
        """
        rows, present = token_types(types, mask)
        index = multimodal_coordinates(
            rows,
            present,
            image_grids,
            video_grids,
            merge,
            time_steps,
            frames_apart=frames_apart,
            per_second=per_second,
            whole=not real_times,
            after=after,
        )
        segment = None if bool(present.all()) else (present.long() - 1).to(types.device)
        max_length = known_end(index)
        index = index.to(types.device)
        return cls(index, slots_of(index), segment, segment is None, max_length)

    def __repr__(self) -> str:
        """Return code that makes these positions; a summary where they are many, or not readable without a wait."""
        if readable(self.index) and readable(self.order) and (code := _as_code(self)) is not None:
            return code
        segments = "" if self.segment is None else ", segments"
        sizes = f"axes={self.axes}, batch={self.batch}, tokens={self.tokens}"
        return f"<Positions: {sizes}{segments}, device='{self.device}'>"

    def to(self, device: torch.device | str) -> "Positions":
        """Return these positions on a device."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: dict[str, Any] = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in values.items()}
        if self.sliced is not None:
            moved["sliced"] = (self.sliced[0].to(device), *self.sliced[1:])
        return Positions(**moved)._counted_from(self.start)

    def __getitem__(self, tokens: slice | Int64[Tensor, " some"]) -> "Positions":
        """Return the positions of a slice of the tokens, `p[a:b]`: a step of decoding is at `p[t : t + 1]`.

        A slice may be a text so far, or a part of a longer one: its `lengths` are what its tokens say, and schemes that
        follow the length refuse it, without `regime_length`, where the whole text's would change them. A tensor of
        slots chooses single tokens of a longer text, as `take` does.

        Raises:
            PositionError: If the index is neither, its step is below 1, or a slot is outside of the sequence.

        Examples:
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
        # By arithmetic: the compiler of PyTorch 2.11 traces neither slice.indices nor a slice of a range.
        first, step = int(tokens.start or 0), tokens.step or 1
        first = min(first, self.tokens) if first >= 0 else max(first + self.tokens, 0)
        whole = self
        if self.sliced is not None:  # a slice of a slice is one of the whole
            whole, start, stride = self.sliced
            first, step = start + first * stride, step * stride
        run, known = tokens.step in (None, 1), (self.document_length, self.document_start)
        counted = self._counted()
        counted = counted[tokens] if counted else None
        part = self._chosen(tokens, run, *known, sliced=(whole, first, step), counted=counted)
        return part._counted_from(counted[0] if run and counted else None)

    def take(self, slots: Int64[Tensor, " some"]) -> "Positions":
        """Return the positions of the tokens at some slots, in any order: a shard of the sequence, or a KV cache.

        They remember the length and the first token of each document of these positions, so that DynamicNTK, LongRoPE
        and windows see the same on every shard.

        Raises:
            PositionError: If slots are not a list of whole numbers in int64, or outside of the sequence.

        Examples:
            >>> p = Positions.packed([3, 2]).take(torch.tensor([4, 0]))
            >>> p.index.tolist(), p.segment.tolist(), p.lengths().tolist()
            ([[[1, 0]]], [[1, 0]], [[2, 3]])
        """
        if not isinstance(slots, Tensor) or slots.dim() != 1 or slots.dtype != torch.int64:
            raise PositionError(
                f"take needs the slots of tokens in a tensor of one dimension and dtype int64, but got {slots!r}.\n"
                "Pass torch.tensor([...]); for a range of tokens slice: p[a:b]."
            )
        message = "slot {} at {} is outside of the sequence.\nSlots count from 0; from the end: p.tokens - 1."
        require_range(slots, self.tokens, lambda value, slot: PositionError(message.format(value, slot)))
        return self._shard(slots, None if self.real else self.lengths(), self._document_starts())

    def _shard(self, slots: Tensor, lengths: Tensor | None, starts: Tensor) -> "Positions":
        return self._chosen(slots, readable(slots) and is_run(slots[None]), lengths, starts)

    def _chosen(
        self,
        tokens: slice | Tensor,
        run: bool,
        lengths: Tensor | None,
        starts: Tensor | None,
        sliced: "tuple[Positions, int, int] | None" = None,
        counted: range | None = None,
    ) -> "Positions":
        """Return the positions of some tokens, with what is known of their documents."""
        index = self.index[..., tokens]
        # The tokens may end before what they were chosen from; their own end refuses no table in vain.
        own = counted[-1] + 1 if counted else known_end(index)
        end = self.max_length if own is None else own
        segment, length, start = (None if x is None else x[:, tokens] for x in (self.segment, lengths, starts))
        facts = (run and self.run, end, length, start, self.numbering, self.position_ids, sliced)
        return Positions(index, self.order[:, tokens], segment, *facts)

    def shard_slots(self, n: int, order: ShardOrder = "contiguous") -> Int64[Tensor, "n some"]:
        """Return the slots of the tokens of each of n shards: `ids[:, slots[rank]]` are the tokens of a rank.

            contiguous    rank r has the r-th of n parts
            zigzag        of 2 n parts, rank r has the r-th and the r-th from the end: under a causal mask, equal work
            striped       rank r has each n-th token, from token r on

        What ranks compute is put back in the order of the sequence by `x[..., slots.flatten().argsort(), :]`. Keys and
        values that are gathered need not be: bind `p.take(slots.flatten())` as the positions of the keys.

        Raises:
            ShapeError: If n is not a whole number of at least 1, or the tokens do not divide evenly.
            SettingError: If the order is unknown.

        Examples:
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

    def shards(self, n: int, order: ShardOrder = "contiguous") -> "list[Positions]":
        """Return the positions of the tokens of each of n shards of the sequence, for context parallelism.

        Order and errors are those of `shard_slots`.

        Examples:
            >>> first, second = positions(8).shards(2, "zigzag")
            >>> first.index.tolist(), first.lengths().tolist()
            ([[[0, 1, 6, 7]]], [[8, 8, 8, 8]])
        """
        slots = self.shard_slots(n, order)
        lengths, starts = None if self.real else self.lengths(), self._document_starts()
        return [self._shard(own, lengths, starts) for own in slots]

    def lengths(self, *present: "Positions") -> Int64[Tensor, "batch tokens"]:
        """Return the length of each token's document: its largest coordinate, plus 1.

        It is that of the whole document where these tokens were taken from a sequence (`take`, `shards`), and else as
        far as it is present.

        Args:
            present: further positions with tokens of these documents, such as the keys of a cache.

        Raises:
            PositionError: If the coordinates are real numbers, which count no tokens.
            ShapeError: If batches differ, and none of them is 1.

        Examples:
            >>> Positions.packed([3, 2]).lengths()
            tensor([[3, 3, 3, 2, 2]])
        """
        everything = self._whole_numbered(present)
        return self._largest(everything, [p.known_ends() for p in everything])

    def whole_lengths(self, *present: "Positions") -> Int64[Tensor, "batch tokens"] | None:
        """Return the lengths where slices count as parts of the texts that they were sliced from; None without slices.

        Of `positions(8)[:3]` they are 8, where `lengths` are 3.
        """
        everything = self._whole_numbered(present)
        of_texts = [p.sliced[0].lengths() if p.sliced and p.document_length is None else None for p in everything]
        if all(lengths is None for lengths in of_texts):
            return None
        ends = [
            p.known_ends() if lengths is None else p._of_the_whole(lengths)
            for p, lengths in zip(everything, of_texts, strict=True)
        ]
        return self._largest(everything, ends)

    def _whole_numbered(self, present: "tuple[Positions, ...]") -> "tuple[Positions, ...]":
        """Return these and other positions; raise PositionError if the coordinates of some are real numbers."""
        if any(p.real for p in (self, *present)):
            raise PositionError("real coordinates count no tokens, so they have no length.\nPass regime_length=.")
        return self, *present

    def _largest(self, everything: "Sequence[Positions]", numbers: Sequence[Tensor]) -> Tensor:
        """Return the largest of some numbers of these and other tokens, within each token's document."""
        largest = [
            largest_in_document(self.segment, self.order, other.segment, of_other, common_batch(self, other))
            for other, of_other in zip(everything, numbers, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*largest)).amax(0)

    def order_in_document(self, *present: "Positions") -> Int64[Tensor, "batch tokens"]:
        """Return the order of each token from the first of its document.

        That is the first one that is present, or of the whole document where these tokens are a part of a sequence
        (a slice, `take`, `shards`). Without documents it is the order itself, as a part of a text does not say where it
        begins. `present` are as in `lengths`.

        Examples:
            >>> Positions.packed([3, 2]).order_in_document()
            tensor([[0, 1, 2, 0, 1]])
        """
        everything = (self, *(p for p in present if p is not self))
        if self.tokens == 0 or all(p.segment is None for p in everything):
            return self.order
        last = torch.stack([p.order.amax() for p in everything if p.tokens]).amax()
        backward = self._largest(everything, [last + 1 - p.known_starts() for p in everything])
        return self.order - (last + 1 - backward)

    def order_to_end(self) -> Int64[Tensor, "batch tokens"]:
        """Return how far in order each token is from the last of its document: 2, 1, 0 for three tokens."""
        if self.segment is None:
            return self.order.amax(-1, keepdim=True) - self.order if self.tokens else self.order
        return self._largest([self], [self.order + 1]) - 1 - self.order

    def known_ends(self) -> Int64[Tensor, "batch tokens"]:
        """Return how long each token's document is at least: that of the whole, or up to the token."""
        return self.index.amax(0) + 1 if self.document_length is None else self.document_length

    def known_starts(self) -> Int64[Tensor, "batch tokens"]:
        """Return an order at which each token's document has begun: that of the whole's first token, or its own."""
        if self.document_start is not None:
            return self.document_start
        return self.order if self.sliced is None else self._of_the_whole(self.sliced[0]._document_starts())

    def _of_the_whole(self, numbers: Tensor) -> Tensor:
        """Return of numbers of the sequence that was sliced those of these tokens."""
        assert self.sliced is not None
        _, first, step = self.sliced
        return numbers[:, first : first + self.tokens * step : step]

    def _document_starts(self) -> Tensor:
        """Return the order of the first token of each one's document, as far as it is known."""
        if self.is_part or self.tokens == 0:
            return self.known_starts()
        if self.segment is None:  # which may begin later than 0, as a batch of other starts does
            return self.order.amin(-1, keepdim=True).expand_as(self.order)
        return self.order - self.order_in_document()

    def next(self, n: SupportsIndex = 1) -> "Positions":
        """Return the positions of the n tokens that follow these, as in a step of decoding.

        They are those of the new tokens alone, which `append` joins to those of the cache. Each sequence continues its
        last document: coordinate and order go on by 1 from its last real token, also behind padding.

        Args:
            n: tokens, 0 or more; an integer of any type.

        Raises:
            PositionError: If the coordinates do not count on by 1, such as sampled ones or a grid, so how they continue
                is unknown.

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
        added = require_count("n", n)
        if counted := self._counted():
            return positions(added, counted.stop, self.device)
        if self.axes > 1 or self.real:
            which = "real coordinates" if self.real else f"positions of {self.axes} axes"
            raise _no_next(which, "" if self.real else "\nFor text after images or videos (M-RoPE): next_text(n).")
        return self._following(next_coordinate(self.index, self.segment), added)

    def next_text(self, n: SupportsIndex = 1) -> "Positions":
        """Return the positions of n tokens of text that follow images or videos (M-RoPE), as in a step of decoding.

        On all axes alike they go on by 1 from the largest coordinate of each sequence's last document.

        Raises:
            PositionError: If the coordinates are real numbers, but not time, height and width.

        Examples:
            >>> p = Positions.multimodal(torch.tensor([0, 1, 1]), image_grids=torch.tensor([[1, 2, 4]]))
            >>> p.next_text(2).index[:, 0]
            tensor([[3, 4],
                    [3, 4],
                    [3, 4]])
        """
        added = require_count("n", n)
        if self.real and self.axes != 3:
            raise _no_next("real coordinates")
        document = torch.zeros_like(self.order) if self.segment is None else self.segment
        ends = torch.where(document == last_document(document), self.index.amax(0) + 1, 0)
        start = ends.amax(-1, keepdim=True) if self.tokens else ends.new_zeros(1, 1)
        return self._following(start, added)

    def _following(self, start: Tensor, n: int) -> "Positions":
        """Return the positions of n tokens of the last document from a coordinate on, the same on all axes."""
        later, last = torch.arange(n, device=self.device), self.order
        index = (start + later).expand(self.axes, self.batch, -1)
        if self.segment is not None:
            last = torch.where(self.segment == last_document(self.segment), last, -1)
        order = last.amax(-1, keepdim=True) + 1 + later if self.tokens else index[0]
        segment = None if self.segment is None else last_document(self.segment).expand(-1, n)
        return Positions(index, order, segment, segment is None, known_end(index), numbering=self.numbering)

    def tree(
        self, parents: Integer[Tensor, "*rows drafts"], follows: "Positions | None" = None
    ) -> "tuple[Positions, Bool[Tensor, 'batch 1 drafts all_keys']]":
        """Return the positions of a tree of drafts that follow these, and its mask: speculative decoding.

        Each draft is one position behind its parent, and sees its ancestors, itself and all of these tokens.

        Args:
            parents: the number of each draft's parent, which comes before it; -1 where it follows these tokens.
            follows: the position after these tokens; None is that of `next`, or of `next_text` with several axes.

        Returns:
            Positions of the drafts, to be bound by `where.at(drafts, p.append(drafts))`; and which keys each sees, for
            `here.attention(..., mask=mask)`, of these tokens and then of the drafts.

        Raises:
            PositionError: If a parent is not before its draft, or it is not known how the coordinates continue.
            ShapeError: If parents have neither one nor two dimensions.

        Examples:
            >>> drafts, mask = positions(7).tree(torch.tensor([-1, 0, 0, 2]))  # 0 -> 1, and 0 -> 2 -> 3
            >>> drafts.index
            tensor([[[7, 8, 8, 9]]])
            >>> mask[0, 0, :, 7:].int().tolist()
            [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
        """
        require_tensor("parents", parents, "parents")
        require_integral(parents)
        rows = torch.atleast_2d(parents).to(self.device).long()
        if rows.dim() != 2:
            raise ShapeError(f"parents need shape (drafts) or (batch, drafts), but have {tuple(parents.shape)}.")
        slots = torch.arange(rows.shape[1], device=self.device)

        def error(_: int, at: tuple[int, ...]) -> PositionError:
            return PositionError(
                f"draft {at[1]} has parent {int(rows[at])}, but needs one before it, of 0 to {at[1] - 1}, or -1.\n"
                "List each draft behind its parent."
            )

        require_range(((rows < -1) | (rows >= slots)).long(), 1, error)
        seen = (rows[..., None] == slots) | (slots[:, None] == slots)  # its parent and itself
        for _ in range(len(slots).bit_length()):
            seen = seen.double() @ seen.double() > 0
        first = follows or (self.next_text() if self.axes > 1 else self.next())
        depth = seen.sum(-1) - 1
        index, order = first.index + depth, first.order + depth
        segment = None if first.segment is None else first.segment.expand(len(order), len(slots))
        mask = torch.nn.functional.pad(seen, (self.tokens, 0), value=True)[:, None]
        return Positions(index, order, segment, False, known_end(index), numbering=first.numbering), mask

    def select(self, rows: Int64[Tensor, " some"]) -> "Positions":
        """Return the positions of some sequences, in any order and number; those of a batch of 1 serve all.

        Examples:
            >>> positions(2, start=torch.tensor([4, 9])).select(torch.tensor([1, 1])).index.tolist()
            [[[9, 10], [9, 10]]]
        """
        if self.batch == 1:
            return self
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen: dict[str, Any] = {
            k: v.expand(self.batch, -1)[rows] if isinstance(v, Tensor) and v.dim() < 3 else v for k, v in values.items()
        }
        chosen["index"] = self.index[:, rows]
        if self.sliced is not None:
            chosen["sliced"] = (self.sliced[0].select(rows), *self.sliced[1:])
        return Positions(**chosen)

    def append(self, later: "Positions | Integer[Tensor, '...'] | int") -> "Positions":
        """Return these positions followed by others, as a KV cache grows.

        Args:
            later: positions of the new tokens, each of a higher order than all of its document before it; a number n of
                tokens is short for `next(n)`. Tokens without a segment join the last document of their sequence.

        Raises:
            PositionError: If the tokens are not later.
            ShapeError: If they have another number of axes or sequences.

        Examples:
            >>> positions(3).append(positions(1, start=3)).index
            tensor([[[0, 1, 2, 3]]])
            >>> p = Positions.packed([3, 2]).append(1)  # p[-1:] is the new token's
            >>> p.index[0, 0].tolist(), p.segment[0].tolist()
            ([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
        """
        other = self.next(later) if is_number(later) else as_positions(later)
        counted, following = self._counted(), other._counted()
        whole = not (self.is_part or other.is_part) and self.device == other.device
        if whole and counted and following and counted.stop == following.start:
            return positions(self.tokens + other.tokens, counted.start, self.device)
        if other.segment is not None:
            require_one_numbering(self, other)
        if self.axes != other.axes or (self.batch != other.batch and 1 not in (self.batch, other.batch)):
            raise ShapeError(
                f"positions of {other.axes} axes and batch {other.batch} cannot be appended to {self.axes} axes and "
                f"batch {self.batch}: axes must be equal, batches equal or 1.\n"
                "Make those of the whole sequence first, and slice them: p[t : t + 1]."
            )
        rows, both = common_batch(self, other), (self, other)
        index = torch.cat([p.index.expand(-1, rows, -1) for p in both], dim=-1)
        order = torch.cat([p.order.expand(rows, -1) for p in both], dim=-1)
        segment = after = lengths = starts = None
        if any(p.segment is not None for p in both):
            before = torch.zeros_like(self.order) if self.segment is None else self.segment
            after = last_document(before).expand(-1, other.tokens) if other.segment is None else other.segment
            after = after.expand(rows, -1)
            segment = torch.cat([before.expand(rows, -1), after], dim=-1)
        if readable(order) and min(self.tokens, other.tokens, rows) > 0:
            last = largest_in_document(after, order[:, self.tokens :], self.segment, self.order + 1, rows) - 1
            if bool((other.order <= last).any()):
                raise PositionError(
                    f"appended tokens must be later, but the first has order {int(other.order.min())} and the last "
                    f"before it {int(last.max())}.\nState where they start: positions(n, start={int(last.max()) + 1})."
                )
        # What is known of the whole documents of some of the tokens is known of all.
        if any(p.document_length is not None for p in both):
            lengths = torch.cat([p.known_ends().expand(rows, -1) for p in both], dim=-1)
        if any(p.is_part for p in both):
            starts = torch.cat([p.known_starts().expand(rows, -1) for p in both], dim=-1)
        run = self.run and other.run and segment is None and readable(order) and is_run(order)
        ends = [p.max_length for p in both if p.max_length is not None]
        max_length = max(ends) if len(ends) == 2 else None
        numbering = self.numbering if other.numbering is None else other.numbering
        return Positions(index, order, segment, run, max_length, lengths, starts, numbering)

    def _counted_from(self, start: int | None) -> "Positions":
        """Record `start`, and return these; not under a compiler, which would compile anew for each number."""
        if not torch.compiler.is_compiling() and start is not None:
            object.__setattr__(self, "start", start)
        return self

    def _counted(self) -> range | None:
        """Return coordinates and order where they are known to count on from `start`; None for no tokens, too."""
        if torch.compiler.is_compiling() or self.start is None or not self.tokens:
            return None
        return range(self.start, self.start + self.tokens)

    def single_axis(self, scheme: str, real: bool = False) -> Num[Tensor, "batch tokens"]:
        """Return the coordinates where there is one axis; `real` says whether the scheme takes real numbers too.

        Raises:
            PositionError: If there are several axes, or the coordinates are real and must be whole.
        """
        self._require_whole(scheme, real)
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along one axis, but these positions have {self.axes}.\n"
                "Choose the axis: Positions.from_position_ids(p.index[0])."
            )
        return self.index[0]

    def require_from_zero(self, scheme: str, offset: int) -> None:
        """Raise PositionError where position ids count from the row of position 0 already, as those of RoBERTa do.

        Raises:
            PositionError: If the first of several position ids is the offset, or the row of padding above 0.
        """
        if not offset or not self.position_ids or self.tokens < 2 or not readable(self.order):
            return
        first = int(self.known_starts().amin())
        if first == offset or 0 < first == offset - 1:
            raise PositionError(
                f"these position ids begin at {first}, but {scheme} has offset={offset}, the row of position 0: they "
                "would be counted from there twice.\n"
                "Position ids of RoBERTa and its kin begin at padding_idx + 1. Pass Positions.from_mask(mask), which "
                f"counts from 0, or ids - {offset} without padding; if position {first} is meant: "
                f"positions(n, start={first})."
            )

    def on_axes(self, scheme: str, axes: int, real: bool = False) -> Num[Tensor, "axes batch tokens"]:
        """Return the coordinates on several axes.

        One axis, as of text, is repeated for each. Real coordinates are refused if not `real`.

        Raises:
            PositionError: If there are several axes, but another number of them.
        """
        self._require_whole(scheme, real)
        if self.axes == axes:
            return self.index
        if axes == 1:
            return self.single_axis(scheme, real)[None]
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along {axes} axes, but these positions have {self.axes}.\n"
                f"Make a grid of {axes} sizes, Positions.grid(...), or pass one axis, which then serves for all."
            )
        return self.index.expand(axes, -1, -1)

    def _require_whole(self, scheme: str, real: bool) -> None:
        if self.real and not real:
            raise PositionError(
                f"{scheme} needs whole positions, but these are real numbers.\n"
                "Choose a scheme of angles, such as Rotary or AxialRotary; or round them: "
                "Positions.from_coordinates(p.index.round().long())."
            )

    def is_consecutive(self) -> bool:
        """Return whether each coordinate is the one before it, plus 1; False where the values cannot be read.

        `run` is about the order alone: coordinates may be sampled at random, or come from the task.

        Examples:
            >>> positions(5, start=40).is_consecutive(), positions(5)[::2].is_consecutive()
            (True, False)
        """
        whole = self.axes == 1 and not self.real and readable(self.index)
        return whole and bool((self.index.diff(dim=-1) == 1).all())

    def allowed(self, keys: "Positions", causal: bool) -> Allowed | None:
        """Return the mask as a formula by element; None where every query may attend to every key.

        allowed(b, i, j) = (order_j <= order_i, if causal) and segment_j = segment_i and segment_j >= 0
        """
        if self.segment is None and keys.segment is None:
            counted, of_keys = self._counted(), keys._counted()
            if not causal or (counted and of_keys and of_keys[-1] <= counted[0]):
                return None
        common_batch(self, keys)
        return attention_rule(self.order, keys.order, self.segment, keys.segment, causal)

    def mask(self, keys: "Positions | None" = None, causal: bool = True) -> Bool[Tensor, "batch 1 queries keys"]:
        """Return the attention mask: True at (query, key) pairs of one document, the key not later if causal.

        `attn_mask=` of PyTorch's attention takes it as it is. Batch is 1 where all sequences have the same positions.

        Without `keys` the queries are the keys; unless `causal`, keys later than the query are seen, too.

        Raises:
            ShapeError: If batches differ, and none of them is 1.

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

_LEAVES = ("index", "order", "segment", "document_length", "document_start")


def _flatten_with_keys(p: Positions) -> tuple[list[tuple[Any, Any]], list[bool | int | None]]:
    # What is remembered of a sequence is a leaf only where there is some: exported programs know three.
    remembered = p.document_length is not None or p.document_start is not None
    names = _LEAVES if remembered else _LEAVES[:3]
    # Lists, not tuples: torch.export.save writes them as JSON, and reads lists back.
    return [(_pytree.GetAttrKey(name), getattr(p, name)) for name in names], [p.run, p.max_length]


def _flatten(p: Positions) -> tuple[list[Any], list[bool | int | None]]:
    leaves, facts = _flatten_with_keys(p)
    return [leaf for _, leaf in leaves], facts


def _unflatten(leaves: Any, facts: list[bool | int | None]) -> Positions:
    # Transforms rebuild the tree with placeholders in place of tensors: no check may look at them.
    p = object.__new__(Positions)
    for name, value in (*zip(_LEAVES, leaves, strict=False), *zip(("run", "max_length"), facts, strict=True)):
        object.__setattr__(p, name, value)
    return p


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
        device: device of the positions; None is the default, or the device of `start` where that is a tensor.

    Returns:
        Positions of one sequence, or of one for each start.

    Raises:
        PositionError: If a number is not whole, or not in 0..2**63-2.
        ShapeError: If a tensor of starts does not have one dimension.

    Examples:
        >>> positions(3, start=40).index
        tensor([[[40, 41, 42]]])
    """
    n = require_count("n", n)
    if isinstance(start, Tensor):
        require_integral(start)
        first = start.to(device or start.device, torch.int64)
        if first.dim() != 1:
            raise ShapeError(
                f"start has shape {tuple(start.shape)}, but needs one number, or one for each sequence: (batch).\n"
                "Pass start.flatten()."
            )
        index = first[:, None] + torch.arange(n, device=first.device)
        require_positions(index, start.dtype)
        return Positions(index[None], index, None, True, known_end(index[None]))
    start = require_count("start", start)
    if start + n > LIMIT:
        raise PositionError(
            f"positions(n={n}, start={start}) goes beyond 2**63 - 2, the last position of int64.\nStart earlier."
        )
    index = torch.arange(start, start + n, device=device)[None]
    return Positions(index[None], index, None, True, start + n)._counted_from(start)


def text_positions(
    index: Tensor, order: Tensor, segment: Tensor | None, numbering: int | None = None, starts: Tensor | None = None
) -> Positions:
    """Return positions of a text of its own, counted where they count on by 1; batches of 1 are expanded."""
    # With `starts` it is a part of a longer one: the order of the first token of each one's document.
    run = segment is None and readable(order) and is_run(order)
    whole = starts is None and index.shape[:2] == (1, 1) and index.shape[2] > 0 and not index.is_floating_point()
    if run and whole and torch.equal(index[0], order):
        return positions(index.shape[2], int(order[0, 0]), index.device)
    rows = max(index.shape[1], len(order), 1 if segment is None else len(segment))
    segment, starts = (None if x is None else x.expand(rows, -1) for x in (segment, starts))
    index, order = index.expand(-1, rows, -1), order.expand(rows, -1)
    return Positions(index, order, segment, run, known_end(index), document_start=starts, numbering=numbering)


def as_positions(given: PositionsLike, device: torch.device | str | None = None, vectors: bool = False) -> Positions:
    """Convert positions in any form to `Positions`; without a look at which tokens see others, for vectors alone."""
    if isinstance(given, Positions):
        return given
    if isinstance(given, Tensor):
        return Positions._from_ids(given) if vectors else Positions.from_position_ids(given)
    if (n := as_whole(given)) is not None:
        return positions(n, device=device)
    raise PositionError(
        f"positions were given as {type(given).__name__}, but must be Positions, an integer tensor or a number of "
        "tokens.\nFor the first n tokens pass n; for other positions torch.tensor([...])."
    )


def is_number(given: object) -> TypeGuard[SupportsIndex]:
    """Return whether positions were given as a number of tokens."""
    return not isinstance(given, (Positions, Tensor)) and as_whole(given) is not None


def common_batch(queries: Positions, keys: Positions) -> int:
    """Return the batch size of queries and keys together: a batch of 1 is broadcast, also to a batch of 0."""
    if queries.batch != keys.batch and 1 not in (queries.batch, keys.batch):
        raise ShapeError(
            f"the queries' positions have batch {queries.batch} and the keys' {keys.batch}: equal batches, or 1, are "
            "needed.\nMake both for one batch of sequences."
        )
    return keys.batch if queries.batch == 1 else queries.batch


def require_one_numbering(queries: Positions, keys: Positions) -> None:
    """Raise PositionError where `from_position_ids` counted documents of queries and keys apart."""
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


def _no_next(which: str, instead: str = "") -> PositionError:
    return PositionError(
        f"{which} do not say how they continue: a number for each token and axis is needed.\n"
        f"Make those of the whole sequence first, and slice them: p[t : t + 1].{instead}"
    )


_SHOWN = 64  # coordinates that a repr writes out; more are summarized


def _as_code(p: Positions) -> str | None:
    """Return code that makes positions, by the shortest constructor that does; None where it would be long."""
    several = p.batch > 1 or p.axes > 1
    if p.real:
        return None
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
    order = "" if torch.equal(p.order, slots_of(p.index)) else f", order={_tensor_code(p.order)}"
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
