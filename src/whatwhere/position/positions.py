"""Positions of tokens: the coordinates that schemes see, the order of tokens, and the documents they belong to.

A position is a coordinate that schemes see (`index`). Which token is later is another fact (`order`), and which
document a token belongs to is a third (`segment`). The causal mask comes from the last two, never from the coordinate:
image patches, abacus digits and packed documents have coordinates that repeat or run backwards.
"""

from dataclasses import fields
from typing import Any, SupportsIndex

import torch
from jaxtyping import Bool, Int64, Integer, Num
from torch import Tensor
from torch.utils import _pytree

from whatwhere.errors import PositionError, ShapeError
from whatwhere.position.coordinates import (
    LIMIT,
    Allowed,
    attention_rule,
    end_of,
    is_run,
    largest_in_document,
    last_document,
    next_coordinate,
    require_count,
    require_integral,
    require_positions,
    slots_of,
)
from whatwhere.position.images import ImagePositions
from whatwhere.position.slices import common_batch, require_one_numbering
from whatwhere.tensor_checks import as_whole, readable


class Positions(ImagePositions):
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
        document_start: likewise the order of the first token of the document; of a slice `p[a:b]` too.
        numbering: where `from_position_ids` counted the documents, a number of that count: segments of different counts
            do not compare. None where documents were stated.
        whole_length: of a slice `p[a:b]`, the length of each token's document in the sequence that was sliced.
        position_ids: whether these are numbers that a model of Hugging Face was given, by `from_position_ids`.

    Raises:
        PositionError: If the index is neither int64 nor float64.

    Examples:
        >>> p = positions(5)
        >>> p[3:].index
        tensor([[[3, 4]]])
        >>> Positions.packed([3, 2]).append(1)
        Positions.packed([3, 3])
    """

    def __repr__(self) -> str:
        """Return code that makes these positions; a summary where they are many, or not readable without a wait."""
        if readable(self.index) and readable(self.order) and (code := _as_code(self)) is not None:
            return code
        segments = "" if self.segment is None else ", segments"
        sizes = f"axes={self.axes}, batch={self.batch}, tokens={self.tokens}"
        return f"<Positions: {sizes}{segments}, device='{self.device}'>"

    def next(self, n: SupportsIndex = 1) -> "Positions":
        """Return the positions of the n tokens that follow these, as in a step of decoding.

        Each sequence continues its last document: coordinate and order go on by 1 from its last real token, also
        behind padding.

        Args:
            n: tokens, 0 or more; an integer of any type.

        Returns:
            Positions of the new tokens alone; `append` joins them to those of the cache.

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
        count = require_count("n", n)
        if self.axes > 1 or self.real:
            which = "real coordinates" if self.real else f"positions of {self.axes} axes"
            text = "" if self.real else "\nFor text after images or videos (M-RoPE): next_text(n)."
            raise PositionError(
                f"{which} do not say how they continue: a number for each token and axis is needed.\n"
                f"Make those of the whole sequence first, and slice them: p[t : t + 1].{text}"
            )
        later = torch.arange(count, device=self.device)
        start = next_coordinate(self.index, self.segment)
        index = start + later
        order = self._last_order() + 1 + later if self.tokens else index
        segment = None if self.segment is None else last_document(self.segment).expand(-1, count)
        max_length = end_of(index) if readable(index) else None
        return Positions(index[None], order, segment, segment is None, max_length, numbering=self.numbering)

    def next_text(self, n: SupportsIndex = 1) -> "Positions":
        """Return the positions of n tokens of text that follow images or videos (M-RoPE), as in a step of decoding.

        On all axes alike they go on by 1 from the largest coordinate of each sequence's last document.

        Args:
            n: tokens, 0 or more; an integer of any type.

        Returns:
            Positions of the new tokens alone; `append` joins them to those of the cache.

        Raises:
            PositionError: If the coordinates are real numbers, but not time, height and width.

        Examples:
            >>> p = Positions.multimodal(torch.tensor([0, 1, 1]), image_grids=torch.tensor([[1, 2, 4]]))
            >>> p.next_text(2).index[:, 0]
            tensor([[3, 4],
                    [3, 4],
                    [3, 4]])
        """
        count = require_count("n", n)
        if self.real and self.axes != 3:
            raise PositionError(
                "real coordinates do not say how they continue: a number for each token and axis is needed.\n"
                "Make those of the whole sequence first, and slice them: p[t : t + 1]."
            )
        later = torch.arange(count, device=self.device)
        document = torch.zeros_like(self.order) if self.segment is None else self.segment
        member = document == last_document(document)
        start = torch.where(member, self.index.amax(0) + 1, 0).amax(-1, keepdim=True) if self.tokens else 0
        index = (start + later).expand(self.axes, self.batch, -1)
        order = (self.order.amax(-1, keepdim=True) + 1 + later) if self.tokens else index[0]
        segment = None if self.segment is None else last_document(self.segment).expand(-1, count)
        max_length = end_of(index) if readable(index) and not self.real else None
        return Positions(index, order, segment, segment is None, max_length)

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
        if other.segment is not None:
            require_one_numbering(self, other)
        if self.axes != other.axes or (self.batch != other.batch and 1 not in (self.batch, other.batch)):
            raise ShapeError(
                f"positions of {other.axes} axes and batch {other.batch} cannot be appended to {self.axes} axes and "
                f"batch {self.batch}: axes must be equal, batches equal or 1.\n"
                "Make those of the whole sequence first, and slice them: p[t : t + 1]."
            )
        rows = common_batch(self, other)
        index = torch.cat([p.index.expand(-1, rows, -1) for p in (self, other)], dim=-1)
        order = torch.cat([p.order.expand(rows, -1) for p in (self, other)], dim=-1)
        segment = after = None
        if self.segment is not None or other.segment is not None:
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
        run = self.run and other.run and readable(order) and is_run(order)
        ends = [p.max_length for p in (self, other) if p.max_length is not None]
        lengths = starts = None
        if self.document_length is not None or other.document_length is not None:
            lengths = torch.cat([p.known_ends().expand(rows, -1) for p in (self, other)], dim=-1)
        if self.document_start is not None or other.document_start is not None:
            starts = torch.cat([p.known_starts().expand(rows, -1) for p in (self, other)], dim=-1)
        numbering = self.numbering if other.numbering is None else other.numbering
        max_length = max(ends) if len(ends) == 2 else None
        return Positions(index, order, segment, run and segment is None, max_length, lengths, starts, numbering)

    def order_to_end(self) -> Int64[Tensor, "batch tokens"]:
        """Return how far in order each token is from the last of its document.

        Examples:
            >>> Positions.packed([3, 2]).order_to_end()
            tensor([[2, 1, 0, 1, 0]])
        """
        if self.segment is None:
            return self.order.amax(-1, keepdim=True) - self.order if self.tokens else self.order
        ends = largest_in_document(self.segment, self.order, self.segment, self.order + 1, self.batch)
        return ends - 1 - self.order

    def _last_order(self) -> Int64[Tensor, "batch 1"]:
        """Return the largest order of each sequence's last document; -1 where there is none."""
        if self.segment is None:
            return self.order.amax(-1, keepdim=True)
        return torch.where(self.segment == last_document(self.segment), self.order, -1).amax(-1, keepdim=True)

    def to(self, device: torch.device | str) -> "Positions":
        """Return these positions on a device."""
        values = (getattr(self, field.name) for field in fields(self))
        moved: list[Any] = [value.to(device) if isinstance(value, Tensor) else value for value in values]
        return Positions(*moved)

    def single_axis(self, scheme: str, real: bool = False) -> Num[Tensor, "batch tokens"]:
        """Return the coordinates where there is one axis.

        Args:
            scheme: named in the error.
            real: whether the scheme is defined at real numbers too.

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

        Args:
            scheme: named in the error.
            offset: row of position 0; before it is that of padding.

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
        """Return the coordinates on several axes; where there is one axis, as for text, it is repeated for each.

        Args:
            scheme: named in the error.
            axes: how many.
            real: whether the scheme is defined at real numbers too.

        Raises:
            PositionError: If there are several axes, but another number of them, or the coordinates are real and must
                be whole.
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

        Args:
            keys: positions of the keys; these are the queries'.
            causal: whether keys later than the query are masked.

        Raises:
            ShapeError: If batches differ, and none of them is 1.
        """
        if not causal and self.segment is None and keys.segment is None:
            return None
        common_batch(self, keys)
        return attention_rule(self.order, keys.order, self.segment, keys.segment, causal)

    def mask(self, keys: "Positions | None" = None, causal: bool = True) -> Bool[Tensor, "batch 1 queries keys"]:
        """Return the attention mask: True at (query, key) pairs of one document, the key not later if causal.

        `attn_mask=` of PyTorch's attention takes it as it is. Batch is 1 where all sequences have the same positions.

        Args:
            keys: positions of the keys; None where the queries are the keys.
            causal: whether keys later than the query are masked.

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

_SHOWN = 64
"""Coordinates that a repr writes out; more are summarized."""


_LEAVES = ("index", "order", "segment", "document_length", "document_start")


def _leaves(p: Positions) -> list[tuple[str, Any]]:
    """Return the tensors by name; what is remembered of a sequence is a leaf of chosen tokens, not of slices."""
    leaves = [(name, getattr(p, name)) for name in _LEAVES]
    chosen = p.document_length is not None or (p.document_start is not None and p.whole_length is None)
    return leaves if chosen else leaves[:3]


def _flatten(p: Positions) -> tuple[list[Any], list[bool | int | None]]:
    # A list, not a tuple: torch.export.save writes it as JSON, and reads lists back.
    return [leaf for _, leaf in _leaves(p)], [p.run, p.max_length]


def _unflatten(leaves: Any, facts: list[bool | int | None]) -> Positions:
    # Transforms rebuild the tree with placeholders in place of tensors: no check may look at them.
    p = object.__new__(Positions)
    values = dict(zip(_LEAVES, leaves, strict=False)) | dict(zip(("run", "max_length"), facts, strict=True))
    for name in (*_LEAVES, "run", "max_length", "numbering", "whole_length"):
        object.__setattr__(p, name, values.get(name))
    return p


def _flatten_with_keys(p: Positions) -> tuple[list[tuple[Any, Any]], list[bool | int | None]]:
    return [(_pytree.GetAttrKey(name), leaf) for name, leaf in _leaves(p)], [p.run, p.max_length]


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
        return Positions(index[None], index, None, True, end_of(index) if readable(index) else None)
    start = require_count("start", start)
    if start + n > LIMIT:
        raise PositionError(
            f"positions(n={n}, start={start}) goes beyond 2**63 - 2, the last position of int64.\nStart earlier."
        )
    index = torch.arange(start, start + n, device=device)[None]
    return Positions(index[None], index, None, True, start + n)


def as_positions(given: PositionsLike, device: torch.device | str | None = None) -> Positions:
    """Convert positions in any form to `Positions`.

    Args:
        given: Positions as they are; an integer tensor, read by `Positions.from_position_ids`; or a number n of tokens,
            which counts from 0.
        device: for positions made of a number.

    Raises:
        PositionError: If positions are negative, or have none of these forms.

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


def is_number(given: object) -> bool:
    """Return whether positions were given as a number of tokens."""
    return not isinstance(given, (Positions, Tensor)) and as_whole(given) is not None
