"""Coordinates, orders and documents of tokens as plain tensors: checked, sampled, counted, and compared."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64, Int64, Integer, Num
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import PositionError, ShapeError, TokenError
from whatwhere.tensor_checks import as_whole, readable, require_ids, require_range

Allowed = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`allowed(batch, head, query_slot, key_slot)` -> bool: may this query attend to this key?"""

LIMIT = (1 << 63) - 1  # one more than the last position, so that the number after a position is one of int64 too

_MAX_SAMPLES = 2**27  # random numbers that are sampled at once: half a gigabyte, and twice that to sort them


def checked_coordinates(ids: Integer[Tensor, "*axes_batch tokens"]) -> Int64[Tensor, "axes batch tokens"]:
    """Return position ids of one to three dimensions as (axes, batch, tokens), each in 0..2**63-2."""
    require_tensor("position ids", ids, "ids")
    require_integral(ids)
    index = _on_axes(ids.long())
    require_positions(index, ids.dtype)
    return index


def checked_real_coordinates(given: Float[Tensor, "*axes_batch tokens"]) -> Float64[Tensor, "axes batch tokens"]:
    """Return finite real coordinates of one to three dimensions as (axes, batch, tokens)."""
    index = _on_axes(given.to(torch.float64))
    require_range(
        (~index.detach().isfinite()).long(),
        1,
        lambda _, slot: PositionError(f"the coordinate at {slot} is NaN or infinite.\nPass finite ones."),
    )
    return index


def _on_axes(ids: Tensor) -> Tensor:
    if ids.dim() not in (1, 2, 3):
        raise ShapeError(
            "position ids need shape (tokens), (batch, tokens) or (axes, batch, tokens), but these have "
            f"{tuple(ids.shape)}.\n"
            "For one token pass ids[None], for n tokens int(n); drop axes of length 1 with ids.squeeze()."
        )
    return ids.reshape((1,) * (3 - ids.dim()) + tuple(ids.shape))


def rows_like(index: Num[Tensor, "axes batch tokens"], name: str, given: Tensor) -> Int64[Tensor, "batch tokens"]:
    """Return an order or a segment as (batch, tokens) of these coordinates, after checking its shape and dtype."""
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


def slots_of(index: Num[Tensor, "axes batch tokens"]) -> Int64[Tensor, "batch tokens"]:
    """Return the slot of each token in its sequence: 0, 1, 2, ..."""
    return torch.arange(index.shape[-1], device=index.device).expand(index.shape[1:])


def known_end(index: Num[Tensor, "axes batch tokens"]) -> int | None:
    """Return the largest coordinate, plus 1; None for real numbers, and where reading would stall a device."""
    if index.is_floating_point() or not readable(index):
        return None
    return int(index.max()) + 1 if index.numel() else 0


def is_run(order: Int64[Tensor, "batch tokens"]) -> bool:
    """Return whether each number is the one before it, plus 1."""
    return bool((order.diff(dim=-1) == 1).all())


def require_count(name: str, given: object) -> int:
    """Return a number of tokens or a start as a Python int; raise PositionError unless it is whole and at least 0."""
    number = as_whole(given)
    if number is None or number < 0:
        many = not isinstance(given, str) and hasattr(given, "__len__")
        shown = f"{type(given).__name__}{[*given.shape] if isinstance(given, Tensor) else ''}" if many else repr(given)
        raise PositionError(
            f"positions got {name}={shown}, but need a whole number of 0 or more.\n"
            + (
                "Of ids pass their number, ids.shape[-1]; positions of your own are a tensor, for where.at(tensor)."
                if many
                else "For padding on the left use Positions.from_mask(mask)."
            )
        )
    return number


def require_tensor(what: str, given: object, name: str) -> None:
    """Raise PositionError unless something is a tensor; `what` and `name` are what the error calls it."""
    if not isinstance(given, Tensor):
        raise PositionError(
            f"{what} was given as {type(given).__name__}, but must be a tensor of whole numbers.\n"
            f"Pass torch.tensor({name})."
        )


def require_integral(values: Tensor) -> None:
    """Raise PositionError unless a tensor has an integer dtype."""
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise PositionError(
            f"positions are whole numbers, but these have dtype {values.dtype}.\n"
            "For a padding mask use Positions.from_mask(mask), with a mask of True and False or 1 and 0."
        )


def require_mask(mask: Tensor) -> None:
    """Raise PositionError unless a mask is True and False, or the whole numbers 1 and 0."""
    if mask.is_floating_point():
        raise PositionError(
            f"a mask is True and False, or 1 and 0 as whole numbers, but this one has dtype {mask.dtype}.\n"
            "If it has 1 at tokens pass mask.bool(); if it is added to scores, with 0 at tokens, mask == 0."
        )
    if mask.dtype != torch.bool:
        require_integral(mask)
        message = "a mask has 0 and 1, but this one has {} at {}.\nFor other numbers compare: mask == value."
        require_range(mask, 2, lambda value, slot: PositionError(message.format(value, slot)))


def require_positions(index: Tensor, given: torch.dtype) -> None:
    """Raise PositionError unless all positions are in 0..2**63-2; `given` is the dtype from which they were cast."""

    def outside(value: int, slot: tuple[int, ...]) -> PositionError:
        if value < 0 and given == torch.uint64:
            value += 1 << 64
        if value < 0:
            return PositionError(
                f"position {value} at {slot} is negative, but positions count from 0.\n"
                "For padding on the left use Positions.from_mask(mask)."
            )
        return PositionError(
            f"position {value} at {slot} is too large: the last position is 2**63 - 2.\nPass smaller ones."
        )

    require_range(index, LIMIT, outside)


def require_documents(segment: Int64[Tensor, "batch tokens"]) -> None:
    """Raise PositionError where a segment is below -1."""
    message = "segment {} at {} is not a document: they count from 0, and -1 is padding.\nNumber them so."
    last = torch.iinfo(torch.int64).max
    require_range(segment + 1, last, lambda value, slot: PositionError(message.format(value - 1, slot)))


def packed_coordinates(
    sizes: list[int], device: torch.device | str | None
) -> tuple[Int64[Tensor, "1 1 tokens"], Int64[Tensor, "1 tokens"], Int64[Tensor, "1 tokens"]]:
    """Return index, order and segment of documents of these sizes, packed into one sequence."""
    index = torch.cat([torch.arange(n, device=device) for n in sizes])
    order = torch.arange(sum(sizes), device=device)
    segment = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(order.device)
    return index[None, None], order[None], segment[None]


def attention_rule(
    query_order: Int64[Tensor, "query_batch queries"],
    key_order: Int64[Tensor, "key_batch keys"],
    query_segment: Int64[Tensor, "query_batch queries"] | None,
    key_segment: Int64[Tensor, "key_batch keys"] | None,
    causal: bool,
) -> Allowed:
    """Return the attention mask as a function of elements; it must be causal where neither side has segments."""
    # allowed(b, i, j) = (order_j <= order_i, if causal) and segment_j = segment_i and segment_j >= 0
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


def largest_in_document(
    segment: Int64[Tensor, "batch tokens"] | None,
    order: Int64[Tensor, "batch tokens"],
    other_segment: Int64[Tensor, "other_batch others"] | None,
    numbers: Int64[Tensor, "other_batch others"],
    rows: int,
) -> Int64[Tensor, "rows tokens"]:
    """Return the largest number of the other tokens that share each token's document; 0 if there are none.

    `numbers` are above 0, one for each other token; without segments all are of document 0; `rows` is the batch of
    both together.
    """
    if numbers.shape[1] == 0:
        return torch.zeros_like(order).expand(rows, -1)
    if segment is None and other_segment is None:
        return numbers.amax(-1, keepdim=True).expand(rows, order.shape[1])
    document = torch.zeros_like(order) if segment is None else segment
    others = torch.zeros_like(numbers) if other_segment is None else other_segment
    document, others, numbers = (x.expand(rows, -1).contiguous() for x in (document, others, numbers))
    # Sorted by document, and within one by number, the last of each is its largest: no table of all pairs.
    slot = numbers.argsort(dim=-1, stable=True)
    slot = slot.gather(-1, others.gather(-1, slot).argsort(dim=-1, stable=True))
    documents = others.gather(-1, slot)
    last = (torch.searchsorted(documents, document, right=True) - 1).clamp(min=0)
    return torch.where(documents.gather(-1, last) == document, numbers.gather(-1, slot.gather(-1, last)), 0)


def last_document(segment: Int64[Tensor, "batch tokens"]) -> Int64[Tensor, "batch 1"]:
    """Return the document of the last real token of each sequence; 0 where there is none."""
    if segment.shape[1] == 0:
        return segment.new_zeros(segment.shape[0], 1)
    slots = torch.arange(segment.shape[1], device=segment.device)
    last = torch.where(segment >= 0, slots, 0).amax(-1, keepdim=True)
    return segment.gather(-1, last).clamp(min=0)


def next_coordinate(
    index: Int64[Tensor, "1 batch tokens"], segment: Int64[Tensor, "batch tokens"] | None
) -> Int64[Tensor, "batch 1"]:
    """Return the coordinate after the last of each sequence's last document, whose coordinates must count on by 1."""
    line = index[0]
    if line.shape[1] == 0:
        return line.new_zeros(line.shape[0], 1)
    member = torch.ones_like(line) if segment is None else (segment == last_document(segment)).long()
    count = member.cumsum(-1)
    end = torch.where(member > 0, line + 1, 0).amax(-1, keepdim=True)
    unexpected = (member > 0) & (line != end - count[..., -1:] + count - 1)
    require_range(unexpected.sum(-1), 1, _not_consecutive)
    return end


def _not_consecutive(count: int, slot: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"the coordinates of sequence {slot[0]} do not count on by 1, so nothing says how they continue.\n"
        "State the next ones: positions(n, start=...). Or make those of the whole sequence first, and slice them: "
        "p[t : t + 1]."
    )


def sample_increasing(
    n: int, max_length: int, batch: int, generator: torch.Generator | None
) -> Int64[Tensor, "batch n"]:
    """Return n of the numbers 0..max_length-1 in increasing order, sampled without repetition for each sequence."""
    _require_sizes("randomized", n, max_length, batch)
    if batch * max_length > _MAX_SAMPLES:
        raise PositionError(
            f"randomized(max_length={max_length}, batch={batch}) would sample {batch * max_length:,} numbers, but "
            f"at most {_MAX_SAMPLES:,} are sampled at once.\nLower one of them."
        )
    keys = torch.rand(batch, max_length, generator=generator, device=_device(generator))
    return keys.argsort(-1)[:, :n].sort(-1).values


def sample_runs(n: int, max_length: int, batch: int, generator: torch.Generator | None) -> Int64[Tensor, "batch n"]:
    """Return n numbers for each sequence that count from a random start, all within 0..max_length-1."""
    _require_sizes("random_offset", n, max_length, batch)
    device = _device(generator)
    starts = torch.randint(max_length - n + 1, (batch, 1), generator=generator, device=device)
    return starts + torch.arange(n, device=starts.device)


def _require_sizes(owner: str, n: int, max_length: int, batch: int) -> None:
    require_whole(owner, max_length=max_length, batch=batch)
    if as_whole(n) is None or not 0 <= n <= max_length:
        raise PositionError(
            f"{owner}({n!r}, max_length={max_length}) needs a whole number of tokens from 0 to max_length.\n"
            "Pass a larger max_length, or fewer tokens."
        )


def _device(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device


def count_digits(
    ids: Integer[Tensor, "*batch tokens"],
    digit_ids: Sequence[int] | Integer[Tensor, " digits"],
    offset: int | Integer[Tensor, " batch"],
) -> Int64[Tensor, "batch tokens"]:
    """Return 1, 2, 3, ... at the digits of each number, plus an offset, and 0 at other tokens."""
    rows = _id_rows(ids)
    digits = torch.as_tensor(digit_ids if isinstance(digit_ids, Tensor) else list(digit_ids), device=rows.device)
    if digits.numel() == 0 or digits.is_floating_point() or digits.dtype == torch.bool:
        raise TokenError(
            f"abacus got digit_ids={digit_ids!r}, but needs the ids of the digits.\nPass them all, as in range(10)."
        )
    added = _offset(offset, rows)
    digit = torch.isin(rows, digits)
    first = digit & ~torch.nn.functional.pad(digit[:, :-1], (1, 0))
    slot = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    start = torch.where(first, slot, 0).cummax(-1).values
    return torch.where(digit, slot - start + 1 + added, 0)


def _id_rows(ids: object) -> Int64[Tensor, "batch tokens"]:
    if not isinstance(ids, Tensor) or ids.dim() not in (1, 2):
        given = f"shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ShapeError(
            f"abacus needs token ids as a tensor of (tokens) or (batch, tokens), but got {given}.\n"
            "Pass torch.tensor(ids)."
        )
    require_ids(ids)
    message = "id {} at {} is negative, but ids count from 0.\nPass the id of a token."
    require_range(ids, torch.iinfo(torch.int64).max, lambda value, slot: TokenError(message.format(value, slot)))
    return ids.long().reshape(-1, ids.shape[-1])


def _offset(offset: int | Tensor, rows: Tensor) -> int | Tensor:
    if isinstance(offset, Tensor):
        if offset.shape != rows.shape[:1] or offset.is_floating_point() or offset.dtype == torch.bool:
            raise ShapeError(
                f"abacus got an offset of shape {tuple(offset.shape)} and dtype {offset.dtype}, but needs a whole "
                f"number, or one for each of the {rows.shape[0]} sequences.\nPass torch.randint(100, (batch,))."
            )
        require_range(offset, torch.iinfo(torch.int64).max, lambda value, slot: _negative(value))
        return offset.to(rows.device, torch.int64)[:, None]
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise _negative(offset)
    return offset


def _negative(offset: object) -> PositionError:
    return PositionError(f"abacus got offset={offset!r}, but needs a whole number of 0 or more.\nPass 0 for no offset.")
