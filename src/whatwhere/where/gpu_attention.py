"""Attention on a GPU: which tiles of queries and keys have visible pairs, and FlexAttention, compiled.

A mask is causality, documents and a window, which compare numbers of a query and a key. The least and the largest of
these numbers in a tile decide about all of its pairs, so neither FlexAttention nor the kernel `flash` needs a table of
all pairs to know which tiles to visit. This is exact where the numbers grow from token to token.

FlexAttention is PyTorch's attention with bias and mask by element; on a GPU it is compiled into a kernel that computes
the bias where a score is. Uncompiled, as on a CPU, it makes a table of all pairs.
"""

import logging
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from whatwhere.errors import PositionError
from whatwhere.kernels.flash_attention import HEAD_SIZES, FlashMask, TileLists
from whatwhere.position.coordinates import Allowed
from whatwhere.position.positions import Positions, common_batch
from whatwhere.tensor_checks import require_range
from whatwhere.where.score_bias import Element, as_score_mod
from whatwhere.where.window import Window

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

TILE = 128  # queries and keys of a tile of FlexAttention's masks

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

_logger = logging.getLogger(__name__)
_refused: set[tuple[Any, ...]] = set()  # what did not compile, so that it is not tried again

_HALF = 1 << 30  # half of the range in which numbers of tokens may lie in 32 bits, so that their differences fit too
_Bounds = tuple[Tensor, Tensor, Tensor, Tensor]
"""The least and the largest number of each tile of queries, (batch, tiles, 1), and of keys, (batch, 1, tiles)."""
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def visible_tiles(
    queries: Positions, keys: Positions, causal: bool, window: Window | None, rows: int, columns: int
) -> tuple[Bool[Tensor, "batch row_tiles column_tiles"], Bool[Tensor, "batch row_tiles column_tiles"]]:
    """Return in which tiles of so many rows and columns some pair may be visible, and in which all pairs certainly are.

    Tiles with fewer rows or columns, at the end, are never certain.
    """

    def bounds(at_query: Tensor, at_key: Tensor) -> _Bounds:
        (q_least, q_most), (k_least, k_most) = _bounds(at_query, rows), _bounds(at_key, columns)
        return q_least[:, :, None], q_most[:, :, None], k_least[:, None], k_most[:, None]

    whole = _filled(queries, rows)[:, None] & _filled(keys, columns)
    whole = whole.expand(common_batch(queries, keys), -1, -1)
    some = torch.ones_like(whole)
    if causal:
        q_least, q_most, k_least, k_most = bounds(queries.order, keys.order)
        some, whole = some & (k_least <= q_most), whole & (k_most <= q_least)
    if queries.segment is not None or keys.segment is not None:
        of_tiles = bounds(*_documents(queries, keys))
        meet, same = _equal(of_tiles)
        some, whole = some & meet & (of_tiles[1] >= 0) & (of_tiles[3] >= 0), whole & same & (of_tiles[0] >= 0)
    if window is not None:
        near, within = _in_window(bounds(window.counted(queries, keys), window.counted(keys, queries)), window)
        some, whole = some & near, whole & within
    return some, whole


def flash_mask(
    queries: Positions,
    keys: Positions,
    causal: bool,
    window: Window | None,
    biased: bool,
    lists: Callable[[int, int], TileLists],
) -> FlashMask:
    """Return the mask as the kernel `flash` takes it, with numbers of 32 bits; coordinates where there is a bias."""
    rows, none = common_batch(queries, keys), (torch.zeros_like(queries.order), torch.zeros_like(keys.order))
    has_documents = queries.segment is not None or keys.segment is not None
    counts = none if window is None else (window.counted(queries, keys), window.counted(keys, queries))
    first = torch.zeros_like(counts[1]) if window is None else (counts[1] < window.first).long()
    if window is not None and window.chunked:
        counts = counts[0] // window.size, counts[1] // window.size
    pairs = [
        _counted(keys.index[0].amin(-1, keepdim=True), queries.index[0], keys.index[0]) if biased else none,
        _counted(keys.order.amin(-1, keepdim=True), queries.order, keys.order),
        _counted(0, *_documents(queries, keys)) if has_documents else none,
        _counted(counts[1].amin(-1, keepdim=True), *counts),
    ]
    of_queries, of_keys = ([pair[side].expand(rows, -1) for pair in pairs] for side in (0, 1))
    return FlashMask(
        torch.stack(of_queries, 1).to(torch.int32),
        torch.stack([*of_keys, first.expand(rows, -1)], 1).to(torch.int32),
        causal=causal,
        documents=has_documents,
        window="none" if window is None else "chunked" if window.chunked else "sliding",
        size=0 if window is None else window.size,
        first=window is not None and window.first > 0,
        lists=lists,
    )


def _documents(queries: Positions, keys: Positions) -> tuple[Tensor, Tensor]:
    """Return the document of each token: 0 where these or those have none."""
    at_query, at_key = (torch.zeros_like(x.order) if x.segment is None else x.segment for x in (queries, keys))
    return at_query, at_key


def _counted(least: Tensor | int, at_query: Tensor, at_key: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers counted from the least one, which must fit into 32 bits."""
    for x in (at_query, at_key):
        require_range(x - least + _HALF, 2 * _HALF, _too_far)
    return at_query - least, at_key - least


def _too_far(value: int, slot: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"engine='flash' counts positions in 32 bits, but two are {abs(value - _HALF)} apart, at {slot}.\n"
        "Pass engine='flex'."
    )


def _equal(bounds: _Bounds) -> tuple[Tensor, Tensor]:
    """Return where a query and a key may have one number, and where all have."""
    q_least, q_most, k_least, k_most = bounds
    meet = (k_least <= q_most) & (k_most >= q_least)
    return meet, (q_least == q_most) & (k_least == k_most) & (q_least == k_least)


def _in_window(bounds: _Bounds, window: Window) -> tuple[Tensor, Tensor]:
    """Return where some pair may be within the window, and where all are."""
    q_least, q_most, k_least, k_most = bounds
    if window.chunked:
        size = window.size
        near, within = _equal((q_least // size, q_most // size, k_least // size, k_most // size))
    else:
        near = (k_least < q_most + window.size) & (k_most > q_least - window.size)
        within = (q_most - k_least < window.size) & (k_most - q_least < window.size)
    return (near | (k_least < window.first), within | (k_most < window.first)) if window.first else (near, within)


def _bounds(numbers: Int64[Tensor, "batch tokens"], size: int) -> tuple[Tensor, Tensor]:
    slots = torch.arange(-(-numbers.shape[1] // size) * size, device=numbers.device).clamp(max=numbers.shape[1] - 1)
    tiles = numbers[:, slots].unflatten(1, (-1, size))
    return tiles.amin(-1), tiles.amax(-1)


def _filled(tokens: Positions, size: int) -> Bool[Tensor, " tiles"]:
    return torch.arange(1, -(-tokens.tokens // size) + 1, device=tokens.device) * size <= tokens.tokens


def is_on_gpu(q: Tensor) -> bool:
    """Return whether FlexAttention is compiled here: on a GPU."""
    return q.is_cuda


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether its compiled kernels take these dtypes and head sizes."""
    same = q.dtype == k.dtype == v.dtype and q.dtype in _DTYPES
    return same and q.shape[-1] in HEAD_SIZES and v.shape[-1] in HEAD_SIZES


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
