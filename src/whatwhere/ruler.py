"""The ruler: where each token stands, made in one place and handed to every scheme.

A position is a coordinate that schemes see (`index`). Which token is later is another fact (`order`), and which
document a token belongs to is a third (`segment`). Causality comes from the last two, never from the coordinate:
image patches, abacus digits and packed documents have coordinates that repeat or run backwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int64, Integer
from torch import Tensor
from torch.utils import _pytree

from whatwhere.checks import readable, require_range, require_whole
from whatwhere.errors import PositionError, ShapeError

Allowed = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`allowed(batch, head, query_slot, key_slot)` -> bool: may this query look at this key?"""


@dataclass(frozen=True, eq=False)
class Positions:
    """Say where each token of each sequence stands.

    Make one with `positions`, `packed`, `from_mask`, `from_position_ids`, `grid`, or those of `drawn.py`: `randomized`,
    `random_offset`, `assigned`, `abacus`.

    Args:
        index: the coordinates that schemes see; one axis for text, more for images and video. Batch may be 1.
        order: what "later" means: a query may look at a key of its own or a lower order.
        segment: the document a token belongs to, -1 for padding; None where all is document 0.
        run: the order is a plain stretch n, n+1, n+2, ... without segments, so a plain causal kernel is legal.
        longest: all coordinates lie in 0..longest-1, where this is known without reading a device; else None.

    >>> p = positions(5)
    >>> p[3:].index
    tensor([[[3, 4]]])
    """

    index: Int64[Tensor, "axes batch tokens"]
    order: Int64[Tensor, "batch tokens"]
    # Defaults by a call leave nothing at the class, so that what lacks a field comes to __getattr__.
    segment: Int64[Tensor, "batch tokens"] | None = field(default_factory=lambda: None)
    run: bool = field(default_factory=bool)
    longest: int | None = field(default_factory=lambda: None)

    @property
    def axes(self) -> int:
        """How many coordinates a token has."""
        return self.index.shape[0]

    @property
    def batch(self) -> int:
        """How many sequences; 1 also stands for any number of like ones."""
        return self.index.shape[1]

    @property
    def tokens(self) -> int:
        """How many tokens a sequence has."""
        known = self.__dict__
        if "index" in known or torch.compiler.is_compiling():
            return self.index.shape[2]
        count: int = known["_count"]
        return count

    @property
    def device(self) -> torch.device:
        """Where the coordinates lie."""
        return self.index.device

    def __repr__(self) -> str:
        """Show sizes and facts; the coordinates themselves only where reading them is free."""
        facts = f"axes={self.axes}, batch={self.batch}, tokens={self.tokens}, run={self.run}, longest={self.longest}"
        segments = "" if self.segment is None else ", segments"
        return f"Positions({facts}{segments}, device='{self.device}')"

    def __getitem__(self, tokens: slice) -> "Positions":
        """Take a stretch of tokens, `p[a:b]`: a decode step is `p[t : t + 1]`.

        >>> positions(8, start=40)[-1:].index.item()
        47
        """
        if not isinstance(tokens, slice) or (tokens.step is not None and tokens.step < 1):
            raise PositionError(
                f"Positions are sliced along tokens, but were indexed with {tokens!r}.\n"
                "For one token pass p[t : t + 1]; for some axes or rows, index p.index itself."
            )
        first, stop, step = tokens.indices(self.tokens)
        known, whole, count = self.__dict__, self, len(range(first, stop, step))
        if torch.compiler.is_compiling():
            return Positions(*(_taken(self, tokens, name) for name in _FIELDS))
        if "_whole" in known:  # a slice of a slice is one of the whole
            whole, first, step = known["_whole"], known["_first"] + first * known["_step"], step * known["_step"]
        part = object.__new__(Positions)
        part.__dict__.update(_whole=whole, _first=first, _count=count, _step=step)
        return part

    def __getattr__(self, name: str) -> Any:
        """Take a field of a slice when it is first asked for: a step of decoding asks for few."""
        known = self.__dict__
        if name not in _FIELDS or "_whole" not in known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        first, step = known["_first"], known["_step"]
        found = _taken(known["_whole"], slice(first, first + known["_count"] * step, step), name)
        if not torch.compiler.is_compiling():
            known[name] = found
        return found

    def append(self, later: "Positions | Integer[Tensor, '...']") -> "Positions":
        """Put further tokens behind these, as a cache of keys grows.

        Tokens without a segment join the last document of their row.

        >>> positions(3).append(positions(1, start=3)).index
        tensor([[[0, 1, 2, 3]]])
        """
        other = as_positions(later)
        if self.axes != other.axes or (self.batch != other.batch and 1 not in (self.batch, other.batch)):
            raise ShapeError(
                f"positions of {other.axes} axes and batch {other.batch} cannot be appended to {self.axes} axes and "
                f"batch {self.batch}: axes must be equal, batches equal or 1."
            )
        rows = max(self.batch, other.batch)
        index = torch.cat([p.index.expand(-1, rows, -1) for p in (self, other)], dim=-1)
        order = torch.cat([p.order.expand(rows, -1) for p in (self, other)], dim=-1)
        if readable(order) and min(self.tokens, other.tokens) > 0:
            last, first = self.order.amax(-1), other.order.amin(-1)
            if bool((first <= last).any()):
                raise PositionError(
                    f"appended tokens must be later, but the first has order {int(first.min())} and the last before "
                    f"it {int(last.max())}.\nSay where they start: positions(n, start={int(last.max()) + 1})."
                )
        segment = _join_segments(self, other, rows)
        run = self.run and other.run and readable(order) and _is_run(order)
        longest = None if self.longest is None or other.longest is None else max(self.longest, other.longest)
        return Positions(index, order, segment, run and segment is None, longest)

    def to(self, device: torch.device | str) -> "Positions":
        """Move to a device."""
        segment = None if self.segment is None else self.segment.to(device)
        return Positions(self.index.to(device), self.order.to(device), segment, self.run, self.longest)

    def single_axis(self, scheme: str) -> Int64[Tensor, "batch tokens"]:
        """Give the coordinates of a ruler with one axis, or raise PositionError in the name of the scheme."""
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along one axis, but these positions have {self.axes}.\n"
                f"Choose the axis: from_position_ids(p.index[0])."
            )
        return self.index[0]

    def on_axes(self, scheme: str, axes: int) -> Int64[Tensor, "axes batch tokens"]:
        """Give coordinates on several axes; a ruler with one axis stands at the same number on each, as text does."""
        if self.axes == axes:
            return self.index
        if axes == 1:
            return self.single_axis(scheme)[None]
        if self.axes != 1:
            raise PositionError(
                f"{scheme} measures along {axes} axes, but these positions have {self.axes}.\n"
                f"Lay them on a grid of {axes} sizes, grid(...), or give one axis, which then stands for all."
            )
        return self.index.expand(axes, -1, -1)

    def counts_on(self) -> bool:
        """Tell whether each token's coordinate is that of the one before it, plus 1; False where nothing can be read.

        `run` says so of the order alone: coordinates may be drawn or assigned.

        >>> positions(5, start=40).counts_on(), from_position_ids(torch.tensor([0, 2, 4])).counts_on()
        (True, False)
        """
        return self.axes == 1 and readable(self.index) and bool((self.index.diff(dim=-1) == 1).all())

    def lengths(self, *present: "Positions") -> Int64[Tensor, "batch tokens"]:
        """Give how long each token's document is, as far as it is present: its largest coordinate, plus 1.

        Args:
            present: where else tokens of these documents stand, such as the keys of a cache.

        >>> packed([3, 2]).lengths()
        tensor([[3, 3, 3, 2, 2]])
        """
        found = torch.broadcast_tensors(*(_reach(self, other) for other in (self, *present)))
        return torch.stack(found).amax(0)

    def allowed(self, keys: "Positions", causal: bool) -> Allowed | None:
        """Give the rule of the mask by element; None where every query may look at every key.

        allowed(b, i, j) = (order_j <= order_i, if causal) and segment_j = segment_i and segment_j >= 0
        """
        if not causal and self.segment is None and keys.segment is None:
            return None
        _require_like_batches(self, keys)
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
        """Say where attention may look: True at (query, key) pairs of one document, the key not later if causal.

        The only mask of the library; `attn_mask=` of PyTorch's attention takes it as it is. Batch is 1 where all
        sequences are alike.

        >>> packed([2, 1]).mask()[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
        """
        keys = self if keys is None else keys
        rows = max(self.batch, keys.batch)
        rule = self.allowed(keys, causal)
        if rule is None:
            return torch.ones(rows, 1, self.tokens, keys.tokens, dtype=torch.bool, device=self.device)
        b, h, i, j = (torch.arange(n, device=self.device) for n in (rows, 1, self.tokens, keys.tokens))
        return rule(b[:, None, None, None], h, i[:, None], j)  # the head plays no part: its axis stays 1


_FIELDS = ("index", "order", "segment", "run", "longest")


def _taken(p: Positions, tokens: slice, name: str) -> Any:
    """Give a field of a stretch of tokens."""
    if name == "run":
        return p.run and tokens.step in (None, 1)
    if name == "longest":
        # A slice of a long ruler may be short: where that can be seen it is, so that no table is refused in vain.
        return _beyond(p.index[..., tokens]) if readable(p.index) else p.longest
    values = getattr(p, name)
    return None if values is None else values[..., tokens]


def _flatten(p: Positions) -> tuple[list[Any], list[bool | int | None]]:
    # Facts in a list: torch.export.save writes them as JSON, which would bring a tuple back as another thing.
    return [p.index, p.order, p.segment], [p.run, p.longest]


def _unflatten(leaves: Any, facts: list[bool | int | None]) -> Positions:
    # Transforms rebuild the tree with placeholders in place of tensors: no check may look at them.
    p = object.__new__(Positions)
    for name, value in zip(("index", "order", "segment", "run", "longest"), (*leaves, *facts), strict=True):
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
    n: int, start: int | Integer[Tensor, " batch"] = 0, device: torch.device | str | None = None
) -> Positions:
    """Count n tokens from a start: start, start + 1, ..., start + n - 1.

    Args:
        n: tokens, 0 or more.
        start: the first position, 0 or more; a tensor gives each sequence its own, as in a batch of caches.
        device: where to put them; the start's own device where that is a tensor.

    >>> positions(3, start=40).index
    tensor([[[40, 41, 42]]])
    """
    _require_integers("positions", n=n) if isinstance(start, Tensor) else _require_integers(
        "positions", n=n, start=start
    )
    if n < 0:
        raise PositionError(f"positions(n={n}) asks for a negative number of tokens; n must be 0 or more.")
    if isinstance(start, Tensor):
        _require_integral(start)
        first = start.to(device or start.device, torch.int64)
        if first.dim() != 1:
            raise ShapeError(
                f"start must be a number or have one entry a sequence, but has shape {tuple(start.shape)}."
            )
        index = first[:, None] + torch.arange(n, device=first.device)
        _require_whole_positions(index)
        return Positions(index[None], index, None, True, _beyond(index) if readable(index) else None)
    if start < 0:
        raise PositionError(f"positions start at {start}, but count from 0: pass start=0 or more.")
    index = torch.arange(start, start + n, device=device)[None]
    return Positions(index[None], index, None, True, start + n)


def packed(lengths: Sequence[int], device: torch.device | str | None = None) -> Positions:
    """Lay documents one behind another in one sequence; each counts from 0 and sees only itself.

    Args:
        lengths: tokens of each document, each at least 1.

    >>> p = packed([3, 2])
    >>> p.index[0, 0].tolist(), p.segment[0].tolist()
    ([0, 1, 2, 0, 1], [0, 0, 0, 1, 1])
    """
    if isinstance(lengths, int):
        raise PositionError(f"packed takes the tokens of each document in a list: packed([{lengths}]).")
    sizes = lengths.tolist() if isinstance(lengths, Tensor) and lengths.dim() == 1 else list(lengths)
    if not sizes or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        raise PositionError(f"packed({sizes}) needs at least one document, each of at least one token.")
    index = torch.cat([torch.arange(n, device=device) for n in sizes])[None]
    order = torch.arange(sum(sizes), device=device)[None]
    segment = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(order.device)[None]
    return Positions(index[None], order, segment if len(sizes) > 1 else None, len(sizes) == 1, max(sizes))


def from_mask(mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"]) -> Positions:
    """Count only the real tokens of padded sequences, wherever the padding stands.

    Args:
        mask: True (or 1) at tokens, False (or 0) at padding, on the left, on the right or between; (tokens) or
            (batch, tokens). It is the `attention_mask` of Hugging Face tokenizers.

    Padding gets coordinate 0 or its last neighbor's and is never looked at. While decoding, let the mask grow and
    take the new token with `p[-1:]`.

    >>> from_mask(torch.tensor([[0, 0, 1, 1, 1]])).index
    tensor([[[0, 0, 0, 1, 2]]])
    """
    if mask.dim() not in (1, 2):
        raise ShapeError(f"a mask has shape (tokens) or (batch, tokens), but this one {tuple(mask.shape)}.")
    rows = mask if mask.dim() == 2 else mask[None]
    if rows.dtype != torch.bool:
        _require_integral(rows)
        require_range(rows, 2, lambda value, place: PositionError(f"a mask holds 0 and 1, but has {value} at {place}."))
    real = rows.bool()
    index = (real.long().cumsum(-1) - 1).clamp(min=0)
    longest = _beyond(index) if readable(index) else rows.shape[-1]
    if readable(real) and bool(real.all()):
        return Positions(index[None], index, None, True, longest)
    return Positions(index[None], index, real.long() - 1, False, longest)


def from_position_ids(ids: Integer[Tensor, "*axes_batch tokens"]) -> Positions:
    """Take positions that are given as numbers: (tokens), (batch, tokens) or (axes, batch, tokens).

    With one axis a new document begins wherever the number does not grow, and order is the number itself, so packed
    and padded position ids of Hugging Face mean what they mean there. With several axes (M-RoPE) a fall says
    nothing: all is one document, and order is the place in the sequence.

    >>> p = from_position_ids(torch.tensor([0, 1, 2, 0, 1]))
    >>> p.segment
    tensor([[0, 0, 0, 1, 1]])
    """
    if not isinstance(ids, Tensor):
        raise PositionError(
            f"position ids were given as {type(ids).__name__}, but must be an integer tensor: torch.tensor(ids)."
        )
    _require_integral(ids)
    if ids.dim() not in (1, 2, 3):
        raise ShapeError(
            f"position ids have shape (tokens), (batch, tokens) or (axes, batch, tokens), but these {tuple(ids.shape)}."
        )
    index = ids.long().reshape((1,) * (3 - ids.dim()) + tuple(ids.shape))
    _require_whole_positions(index)
    longest = _beyond(index) if readable(index) else None
    if index.shape[0] > 1:
        order = torch.arange(index.shape[-1], device=index.device).expand(index.shape[1:])
        return Positions(index, order, None, True, longest)
    order = index[0]
    falls = torch.nn.functional.pad(order.diff(dim=-1) <= 0, (1, 0))
    if readable(falls) and not bool(falls.any()):
        return Positions(index, order, None, _is_run(order), longest)
    return Positions(index, order, falls.long().cumsum(-1), False, longest)


def grid(*sizes: int, device: torch.device | str | None = None) -> Positions:
    """Lay tokens on a grid, the last axis fastest: grid(height, width), grid(frames, height, width).

    >>> grid(2, 3).index[:, 0]
    tensor([[0, 0, 0, 1, 1, 1],
            [0, 1, 2, 0, 1, 2]])
    """
    if not sizes:
        raise ShapeError("grid() needs at least one size, as in grid(14, 14).")
    require_whole("grid", **{f"axis_{n}": size for n, size in enumerate(sizes)})
    lines = [torch.arange(size, device=device) for size in sizes]
    index = torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])[:, None]
    order = torch.arange(index.shape[-1], device=index.device)[None]
    return Positions(index, order, None, True, max(sizes))


def as_positions(given: Positions | Integer[Tensor, "..."]) -> Positions:
    """Take positions as they come: a Positions as it is, an integer tensor through `from_position_ids`."""
    if isinstance(given, Positions):
        return given
    if isinstance(given, Tensor):
        return from_position_ids(given)
    raise PositionError(
        f"positions were given as {type(given).__name__}, but must be Positions or an integer tensor.\n"
        "For the first n tokens pass whatwhere.positions(n)."
    )


def _reach(tokens: Positions, other: Positions) -> Int64[Tensor, "batch tokens"]:
    """Give the largest coordinate, plus 1, that the document of each token has among the others; 0 if none."""
    _require_like_batches(tokens, other)
    if other.tokens == 0:
        return torch.zeros_like(tokens.order)
    ends = other.index.amax(0) + 1
    if tokens.segment is None and other.segment is None:
        return ends.amax(-1, keepdim=True).expand(max(tokens.batch, other.batch), tokens.tokens)
    own = torch.zeros_like(tokens.order) if tokens.segment is None else tokens.segment
    theirs = torch.zeros_like(other.order) if other.segment is None else other.segment
    own, theirs, ends = (_rows(x, max(tokens.batch, other.batch)) for x in (own, theirs, ends))
    # Sorted by document, and within one by coordinate, the last of each is its largest: no table of all pairs.
    place = ends.argsort(dim=-1, stable=True)
    place = place.gather(-1, theirs.gather(-1, place).argsort(dim=-1, stable=True))
    documents = theirs.gather(-1, place)
    last = (torch.searchsorted(documents, own, right=True) - 1).clamp(min=0)
    return torch.where(documents.gather(-1, last) == own, ends.gather(-1, place.gather(-1, last)), 0)


def _rows(values: Int64[Tensor, "batch tokens"], batch: int) -> Int64[Tensor, "rows tokens"]:
    return values.expand(batch, -1).contiguous()


def _beyond(index: Tensor) -> int:
    return int(index.max()) + 1 if index.numel() else 0


def _is_run(order: Tensor) -> bool:
    return bool((order.diff(dim=-1) == 1).all())


def _require_integers(owner: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | torch.SymInt):
            raise PositionError(f"{owner} got {name}={number!r}, but positions are whole numbers.")


def _require_integral(values: Tensor) -> None:
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise PositionError(
            f"positions are whole numbers, but these have dtype {values.dtype}.\n"
            "For a mask of padding use from_mask(mask), with a mask of True and False or 1 and 0."
        )


def _require_whole_positions(index: Tensor) -> None:
    limit = torch.iinfo(torch.int64).max
    require_range(
        index,
        limit,
        lambda value, place: PositionError(
            f"position {value} at {place} is negative, but positions count from 0.\n"
            "For padding on the left use from_mask(mask)."
        ),
    )


def _require_like_batches(queries: Positions, keys: Positions) -> None:
    if queries.batch != keys.batch and 1 not in (queries.batch, keys.batch):
        raise ShapeError(
            f"queries stand in {queries.batch} sequences and keys in {keys.batch}: equal batches, or 1, are needed."
        )


def _join_segments(before: Positions, later: Positions, rows: int) -> Tensor | None:
    if before.segment is None and later.segment is None:
        return None
    first = torch.zeros_like(before.order) if before.segment is None else before.segment
    first = first.expand(rows, -1)
    if later.segment is None:
        last = first.amax(-1, keepdim=True).clamp(min=0) if before.tokens else first.new_zeros(rows, 1)
        return torch.cat([first, last.expand(rows, later.tokens)], dim=-1)
    return torch.cat([first, later.segment.expand(rows, -1)], dim=-1)
