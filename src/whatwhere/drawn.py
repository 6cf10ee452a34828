"""Rulers that do not simply count: drawn at random, or assigned by the task."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Integer
from torch import Tensor

from whatwhere.checks import require_range, require_whole
from whatwhere.errors import PositionError, ShapeError, TokenError
from whatwhere.ruler import Positions, from_position_ids, positions


class RandomPositionsWarning(UserWarning):
    """A model trained at random positions is used at plain ones, which it has hardly met."""


_MOST = 2**27
"""Numbers that are drawn at once: half a gigabyte, and twice that to sort them."""


def randomized(n: int, longest: int, batch: int = 1, generator: torch.Generator | None = None) -> Positions:
    """Draw n positions out of 0..longest-1 without repetition, in growing order, anew for each sequence.

    Trained so, a model has met every position and every gap up to `longest`, while it reads short sequences only
    (Ruoss et al. 2023, https://arxiv.org/abs/2305.16843). Draw once for the final length and slice; evaluate with
    drawn positions too: with 0..n-1 such a model does worse.

    Args:
        n: tokens, at most longest.
        longest: how many positions to draw from.
        batch: sequences, each with a draw of its own.

    >>> p = randomized(4, longest=100, generator=torch.Generator().manual_seed(0))
    >>> p.tokens, bool((p.index.diff() > 0).all())
    (4, True)
    """
    require_whole("randomized", longest=longest, batch=batch)
    if not 0 <= n <= longest:
        raise PositionError(f"randomized({n}, longest={longest}) cannot draw {n} distinct positions out of {longest}.")
    if batch * longest > _MOST:
        raise PositionError(
            f"randomized(longest={longest}, batch={batch}) would draw {batch * longest:,} numbers, but "
            f"at most {_MOST:,} are drawn at once: lower one of them."
        )
    drawn = torch.rand(batch, longest, generator=generator, device=_device(generator))
    index = drawn.argsort(-1)[:, :n].sort(-1).values
    order = torch.arange(n, device=index.device).expand(batch, n)
    return Positions(index[None], order, None, True, longest)


def random_offset(n: int, longest: int, batch: int = 1, generator: torch.Generator | None = None) -> Positions:
    """Count n tokens from a random start, anew for each sequence, so that all lie in 0..longest-1.

    Trained so, a model has met every position up to `longest`, but no other gaps than those of short sequences
    (Kiyono et al. 2021, SHAPE, https://arxiv.org/abs/2109.05644). For schemes that see distances only it changes
    nothing.

    Args:
        n: tokens, at most longest.
        longest: how many positions there are.
        batch: sequences, each with a start of its own.

    >>> p = random_offset(4, longest=100, generator=torch.Generator().manual_seed(0))
    >>> (p.index - p.index[..., :1]).tolist(), p.longest
    ([[[0, 1, 2, 3]]], 100)
    """
    require_whole("random_offset", longest=longest, batch=batch)
    if not 0 <= n <= longest:
        raise PositionError(f"random_offset({n}, longest={longest}) cannot place {n} tokens in {longest} positions.")
    starts = torch.randint(longest - n + 1, (batch,), generator=generator, device=_device(generator))
    return replace(positions(n, starts), longest=longest)


def assigned(
    index: Integer[Tensor, "*axes_batch tokens"],
    order: Integer[Tensor, "*batch tokens"] | None = None,
    segment: Integer[Tensor, "*batch tokens"] | None = None,
) -> Positions:
    """Take the coordinates that a task assigns, which may repeat, fall and jump without beginning a new document.

    Position coupling (Cho et al. 2024, https://arxiv.org/abs/2405.20671) gives digits of equal significance one
    number. What is later than what is still the place in the sequence, which no coordinate tells.

    Args:
        index: (tokens), (batch, tokens) or (axes, batch, tokens), 0 or more.
        order: (tokens) or (batch, tokens), what "later" means; None is the place in the sequence.
        segment: likewise the document of each token, -1 for padding; None is one document. For padded batches take
            order and segment of from_mask(mask).

    >>> p = assigned(torch.tensor([3, 2, 1, 0, 3, 2, 1]))  # 653+142, by significance
    >>> p.index[0, 0].tolist(), p.order[0].tolist()
    ([3, 2, 1, 0, 3, 2, 1], [0, 1, 2, 3, 4, 5, 6])
    """
    told = from_position_ids(index)
    place = torch.arange(told.tokens, device=told.device).expand(told.batch, -1)
    rows = {
        name: _row(name, given, told) for name, given in (("order", order), ("segment", segment)) if given is not None
    }
    documents = rows.get("segment")
    if documents is not None:
        require_range(documents + 1, torch.iinfo(torch.int64).max, _no_document)
    return Positions(told.index, rows.get("order", place), documents, not rows, told.longest)


def abacus(
    ids: Integer[Tensor, "*batch tokens"],
    digit_ids: Sequence[int] | Integer[Tensor, " digits"],
    offset: int | Integer[Tensor, " batch"] = 0,
) -> Positions:
    """Count the digits of each number from its first one: 1, 2, 3, ...; all other tokens stand at 0.

    With the least significant digit first, digits of equal significance so share a position (McLeish et al. 2024,
    https://arxiv.org/abs/2405.17399). In training the authors add one random offset to all digits, so that positions
    of long numbers are trained too: offset=torch.randint(100, (batch,)); in evaluation none.

    Args:
        ids: token ids, (tokens) or (batch, tokens), of the whole sequence: to decode, slice what is given back.
        digit_ids: the tokens that are digits.
        offset: added to the digits' positions, 0 or more; a tensor gives each sequence its own.

    >>> abacus(torch.tensor([7, 0, 5, 99, 3, 1]), digit_ids=range(10)).index  # 705+31
    tensor([[[1, 2, 3, 0, 1, 2]]])
    """
    rows = from_position_ids(ids).index[0] if isinstance(ids, Tensor) and ids.dim() < 3 else _not_ids(ids)
    tokens = torch.as_tensor(digit_ids if isinstance(digit_ids, Tensor) else list(digit_ids), device=rows.device)
    if tokens.numel() == 0 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TokenError(f"abacus got digit_ids={digit_ids!r}, but needs the ids of the digits, as in range(10).")
    shift = _offset(offset, rows)
    digit = torch.isin(rows, tokens)
    first = digit & ~torch.nn.functional.pad(digit[:, :-1], (1, 0))
    place = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    start = torch.where(first, place, 0).cummax(-1).values
    return assigned(torch.where(digit, place - start + 1 + shift, 0))


def _device(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device


def _row(name: str, given: Tensor, told: Positions) -> Tensor:
    rows = given if given.dim() > 1 else given[None]
    if rows.dim() != 2 or rows.shape[0] not in (1, told.batch) or rows.shape[1] != told.tokens:
        raise ShapeError(
            f"{name} has shape {tuple(given.shape)}, but needs ({told.tokens}) or ({told.batch}, {told.tokens}): the "
            "tokens and sequences of the index."
        )
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise PositionError(f"{name} is counted in whole numbers, but has dtype {given.dtype}.")
    return rows.to(told.device, torch.int64).expand(told.batch, -1)


def _no_document(value: int, place: tuple[int, ...]) -> PositionError:
    return PositionError(f"segment {value - 1} at {place} is no document: they count from 0, and -1 is padding.")


def _not_ids(ids: object) -> Tensor:
    given = f"shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
    raise ShapeError(f"abacus takes token ids as a tensor of (tokens) or (batch, tokens), but got {given}.")


def _offset(offset: int | Tensor, rows: Tensor) -> int | Tensor:
    if isinstance(offset, Tensor):
        if offset.shape != rows.shape[:1] or offset.is_floating_point() or offset.dtype == torch.bool:
            raise ShapeError(
                f"abacus got an offset of shape {tuple(offset.shape)} and dtype {offset.dtype}, but needs a whole "
                f"number, or one for each of the {rows.shape[0]} sequences."
            )
        require_range(offset, torch.iinfo(torch.int64).max, lambda value, place: _negative(value))
        return offset.to(rows.device, torch.int64)[:, None]
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise _negative(offset)
    return offset


def _negative(offset: object) -> PositionError:
    return PositionError(f"abacus got offset={offset!r}, but needs a whole number of 0 or more.")
