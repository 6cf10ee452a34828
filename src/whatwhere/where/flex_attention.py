"""FlexAttention: PyTorch's attention with bias and mask by element; on a GPU compiled into a kernel without a table.

The bias is computed where a score is, and tiles of pairs that the mask hides are never visited. Uncompiled, as on a
CPU, it makes a table of all pairs.
"""

import logging
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from whatwhere.position.coordinates import Allowed
from whatwhere.where.score_bias import Element, as_score_mod

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

TILE = 128
"""Queries and keys of a tile of FlexAttention's masks."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HEAD_SIZES = range(16, 257)
"""Features that its kernels have room for."""

_logger = logging.getLogger(__name__)
_refused: set[tuple[Any, ...]] = set()
"""What did not compile, so that it is not tried again."""

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def is_on_gpu(q: Tensor) -> bool:
    """Return whether FlexAttention is compiled here: on a GPU."""
    return q.is_cuda


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether its compiled kernels take these dtypes and head sizes."""
    same = q.dtype == k.dtype == v.dtype and q.dtype in _DTYPES
    return same and q.shape[-1] in _HEAD_SIZES and v.shape[-1] in _HEAD_SIZES


def attend(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    element: Element | None,
    mask: "BlockMask | None",
    *,
    scale: float | None,
    softcap: float | None,
    lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention; where lse is True also the logarithms of the sums of exp(score)."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention  # slow to import

    score_mod = None if element is None else as_score_mod(element)
    if softcap is not None:
        score_mod = _capped(score_mod, softcap)
    as_it_is = torch.compiler.is_compiling() or not is_on_gpu(q)  # what is compiled as a whole compiles it, too
    run: Any = flex_attention if as_it_is else _compiled(_codes(score_mod, mask))
    options = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1], "return_aux": AuxRequest(lse=lse)}
    y, aux = run(q, k, v, score_mod, mask, **options)
    return y, aux.lse if lse else None


def attend_if_compiled(q: Tensor, k: Tensor, v: Tensor, *given: Any, **options: Any) -> Any:
    """Compute attention as `attend` does; None where its kernel does not compile, which a warning says once."""
    if torch.compiler.is_compiling():
        return attend(q, k, v, *given, **options)
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    case = (_codes(*given), q.dtype, q.shape[-1], v.shape[-1])
    if case in _refused:
        return None
    try:
        return attend(q, k, v, *given, **options)
    except (TorchDynamoException, FailOnRecompileLimitHit) as problem:
        _refused.add(case)
        _logger.warning(
            "FlexAttention does not compile for %s, so this attention is computed in chunks of queries: %s",
            _names(case[0]),
            str(problem).partition("\n")[0],
        )
        return None


def tiled_mask(
    allowed: Allowed | None,
    some: Bool[Tensor, "batch row_tiles column_tiles"],
    whole: Bool[Tensor, "batch row_tiles column_tiles"],
    queries: int,
    keys: int,
) -> "BlockMask | None":
    """Return a mask in FlexAttention's form, from the tiles that have visible pairs; None where there is no mask."""
    from torch.nn.attention.flex_attention import BlockMask  # slow to import

    if allowed is None:
        return None
    mixed, full = (_listed(tiles[:, None]) for tiles in (some & ~whole, whole))
    return BlockMask.from_kv_blocks(*mixed, *full, BLOCK_SIZE=TILE, mask_mod=allowed, seq_lengths=(queries, keys))


def block_mask(
    allowed: Allowed | None, batch: int, heads: int, queries: int, keys: int, device: torch.device
) -> "BlockMask | None":
    """Return a mask in FlexAttention's form, from a table of all pairs; None where there is no mask."""
    from torch.nn.attention.flex_attention import create_block_mask  # slow to import

    return None if allowed is None else create_block_mask(allowed, batch, heads, queries, keys, str(device))


def _listed(tiles: Bool[Tensor, "*rows tiles"]) -> tuple[Tensor, Tensor]:
    """Return how many tiles of each row are True, and their numbers in order, before those of the others."""
    return tiles.sum(-1, dtype=torch.int32), (~tiles).to(torch.uint8).argsort(dim=-1, stable=True).to(torch.int32)


@cache
def _compiled(codes: frozenset[CodeType]) -> Callable[..., Any]:
    """Return FlexAttention to be compiled for a formula and a mask, which are functions of this code."""
    from torch.nn.attention.flex_attention import flex_attention  # slow to import

    def attend_compiled(*arguments: Any, **options: Any) -> Any:
        return flex_attention(*arguments, **options)

    # PyTorch keeps a few programs for each code object, here for other dtypes and lengths; more would run uncompiled.
    attend_compiled.__code__ = attend_compiled.__code__.replace()
    _logger.warning("compiling FlexAttention for %s: the first call takes a while", _names(codes))
    return torch.compile(attend_compiled, fullgraph=True)


def _codes(*given: Any) -> frozenset[CodeType]:
    """Return the code of functions, and of all functions that they have in their closures."""
    waiting: list[Any] = [getattr(each, "mask_mod", each) for each in given]
    found: dict[int, FunctionType] = {}
    while waiting:
        each = waiting.pop()
        if isinstance(each, FunctionType) and id(each) not in found:
            found[id(each)] = each
            waiting += [cell.cell_contents for cell in each.__closure__ or ()]
    return frozenset(each.__code__ for each in found.values())


def _names(codes: frozenset[CodeType]) -> str:
    """Return the names of what has made functions of this code, such as ALiBi.curve."""
    return ", ".join(sorted({code.co_qualname.partition(".<locals>")[0] for code in codes})) or "no bias"


def _capped(added: ScoreMod | None, cap: float) -> ScoreMod:
    """Return a score_mod that caps a score softly, before another one adds to it."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        capped = (score / cap).tanh() * cap
        return capped if added is None else added(capped, b, h, i, j)

    return score_mod
