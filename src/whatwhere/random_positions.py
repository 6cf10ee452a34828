"""Coordinates that do not simply count: sampled at random, or counted for digits alone.

`Positions.randomized`, `Positions.random_offset` and `Positions.abacus` are made of them.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from whatwhere.checks import as_whole, require_range, require_whole
from whatwhere.errors import PositionError, ShapeError, TokenError

_MAX_SAMPLES = 2**27
"""Random numbers that are sampled at once: half a gigabyte, and twice that to sort them."""


def sample_increasing(
    n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
) -> Int64[Tensor, "batch n"]:
    """Return n of the numbers 0..max_length-1 in increasing order, sampled without repetition for each sequence.

    Args:
        n: numbers of a sequence, at most max_length.
        max_length: how many numbers to sample from.
        batch: sequences.
        generator: to sample with, on its device; None is PyTorch's global random state.

    Raises:
        PositionError: for an n that is no whole number of 0..max_length, or more random numbers than fit memory.
        ShapeError: for a max_length or batch that is not a whole number of at least 1.

    Examples:
        >>> sample_increasing(3, max_length=3)
        tensor([[0, 1, 2]])
    """
    _require_sizes("randomized", n, max_length, batch)
    if batch * max_length > _MAX_SAMPLES:
        raise PositionError(
            f"randomized(max_length={max_length}, batch={batch}) would sample {batch * max_length:,} numbers, but "
            f"at most {_MAX_SAMPLES:,} are sampled at once.\nLower one of them."
        )
    keys = torch.rand(batch, max_length, generator=generator, device=_device(generator))
    return keys.argsort(-1)[:, :n].sort(-1).values


def sample_starts(
    n: int, max_length: int, batch: int = 1, generator: torch.Generator | None = None
) -> Int64[Tensor, " batch"]:
    """Return a start for each sequence, sampled uniformly, so that n tokens from there lie within 0..max_length-1.

    Args:
        n: tokens, at most max_length.
        max_length: how many positions there are.
        batch: sequences.
        generator: to sample with, on its device; None is PyTorch's global random state.

    Raises:
        PositionError: for an n that is no whole number of 0..max_length.
        ShapeError: for a max_length or batch that is not a whole number of at least 1.

    Examples:
        >>> sample_starts(5, max_length=5, batch=2)
        tensor([0, 0])
    """
    _require_sizes("random_offset", n, max_length, batch)
    return torch.randint(max_length - n + 1, (batch,), generator=generator, device=_device(generator))


def count_digits(
    ids: Integer[Tensor, "*batch tokens"],
    digit_ids: Sequence[int] | Integer[Tensor, " digits"],
    offset: int | Integer[Tensor, " batch"] = 0,
) -> Int64[Tensor, "batch tokens"]:
    """Return 1, 2, 3, ... at the digits of each number, plus an offset, and 0 at other tokens.

    Args:
        ids: token ids, (tokens) or (batch, tokens).
        digit_ids: the tokens that are digits.
        offset: added at digits, 0 or more; a tensor has one for each sequence.

    Raises:
        TokenError: for digit_ids that are empty or not whole numbers.
        PositionError: for a negative offset.
        ShapeError: for ids that are no tensor of these shapes, or an offset for other sequences.

    Examples:
        >>> count_digits(torch.tensor([7, 0, 5, 99, 3, 1]), digit_ids=range(10))
        tensor([[1, 2, 3, 0, 1, 2]])
    """
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


def _require_sizes(owner: str, n: int, max_length: int, batch: int) -> None:
    require_whole(owner, max_length=max_length, batch=batch)
    if as_whole(n) is None or not 0 <= n <= max_length:
        raise PositionError(
            f"{owner}({n!r}, max_length={max_length}) needs a whole number of tokens from 0 to max_length.\n"
            "Pass a larger max_length, or fewer tokens."
        )


def _device(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device


def _id_rows(ids: object) -> Int64[Tensor, "batch tokens"]:
    if not isinstance(ids, Tensor) or ids.dim() not in (1, 2):
        given = f"shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ShapeError(
            f"abacus needs token ids as a tensor of (tokens) or (batch, tokens), but got {given}.\n"
            "Pass torch.tensor(ids)."
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenError(f"ids are whole numbers, but these have dtype {ids.dtype}.\nPass ids.long().")
    require_range(ids, torch.iinfo(torch.int64).max, _negative_id)
    return ids.long().reshape(-1, ids.shape[-1])


def _offset(offset: int | Tensor, rows: Tensor) -> int | Tensor:
    if isinstance(offset, Tensor):
        if offset.shape != rows.shape[:1] or offset.is_floating_point() or offset.dtype == torch.bool:
            raise ShapeError(
                f"abacus got an offset of shape {tuple(offset.shape)} and dtype {offset.dtype}, but needs a whole "
                f"number, or one for each of the {rows.shape[0]} sequences.\nPass torch.randint(100, (batch,))."
            )
        require_range(offset, torch.iinfo(torch.int64).max, lambda value, place: _negative(value))
        return offset.to(rows.device, torch.int64)[:, None]
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise _negative(offset)
    return offset


def _negative_id(value: int, place: tuple[int, ...]) -> TokenError:
    return TokenError(f"id {value} at {place} is negative, but ids count from 0.\nPass the id of a token.")


def _negative(offset: object) -> PositionError:
    return PositionError(f"abacus got offset={offset!r}, but needs a whole number of 0 or more.\nPass 0 for no offset.")
