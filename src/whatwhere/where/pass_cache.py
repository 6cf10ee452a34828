"""The cache of one forward pass: tables that its layers share, each computed once, and masks combined."""

from collections.abc import Callable
from functools import partial, reduce
from operator import and_, is_
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.blockwise_attention import ByBlocks
from whatwhere.kernels.flash_attention import ByDistance, FlashMask, tile_lists
from whatwhere.kernels.toeplitz import toeplitz
from whatwhere.position.coordinates import Allowed
from whatwhere.position.positions import Positions, common_batch
from whatwhere.tensor_checks import readable, require_returned
from whatwhere.where.attention import Scores, is_transformed, join
from whatwhere.where.base import Bound, InputEncoding, QueryKeyMap
from whatwhere.where.gpu_attention import TILE, flash_mask, tiled_mask, visible_tiles
from whatwhere.where.score_bias import ELEMENT, Element, ScoreBias, tabulate
from whatwhere.where.window import Window

T = TypeVar("T")


class PassCache:
    """The tables of one forward pass, which its layers share; each is computed when it is first needed.

    Tables made of parameters are shared with care for gradients: a layer that is compiled or checkpointed makes its
    own, and one made under no_grad serves under no_grad alone. One whose parameters have been changed in place since,
    or replaced, is computed anew. Not seen is what is changed between calls of a compiled layer, or through `.data`, as
    by `.to()`, by a fused optimizer or under fully_shard.
    """

    def __init__(self, queries: Positions, keys: Positions, regime_length: int | None = None) -> None:
        self.queries, self.keys, self.regime_length = queries, keys, regime_length
        self.run = keys is queries and queries.run
        self._values: dict[tuple[Any, ...], Any] = {}  # and the parameters that each is made of, with their versions

    def encoding(self, scheme: InputEncoding) -> Tensor:
        """Return the vectors that are added to those of the tokens."""
        vectors = self._once(("encoding", scheme), lambda: scheme(self.queries), scheme)
        owner = f"{type(scheme).__name__}.forward"
        if isinstance(require_returned(owner, vectors), Tensor) and vectors.shape[-1] != scheme.dim:
            raise ShapeError(f"{owner} returned {(*vectors.shape,)}, but (batch, tokens, {scheme.dim}) is needed.")
        return vectors

    def mapped(self, scheme: QueryKeyMap, positions: Positions) -> Bound:
        """Return a map, bound to the positions of the queries or of the keys."""
        return self._once(
            ("mapped", scheme, positions is self.queries),
            lambda: scheme.bind_among(positions, (self.queries, self.keys), self.regime_length),
            scheme,
        )

    def window(self, window: Window | None) -> Window | None:
        """Return a window, or None where it masks no pair of queries and keys, as far as that is known."""
        if window is None or not self.run or torch.compiler.is_compiling():
            return window
        covered = self._once(("covered", window), lambda: window.covers(self.queries))
        return None if covered else window

    def allowed(self, causal: bool, window: Window | None) -> Allowed | None:
        """Return the mask as a formula by element; None where every query may attend to every key."""

        # Quoted: torch.compile of PyTorch 2.9 cannot trace a union.
        def compute() -> "Allowed | None":
            rule = self.queries.allowed(self.keys, causal)
            if window is None:
                return rule
            within = window.allowed(self.queries, self.keys)
            return within if rule is None else lambda b, h, i, j: rule(b, h, i, j) & within(b, h, i, j)

        return self._once(("allowed", causal, window), compute)

    def mask(self, causal: bool, window: Window | None) -> Tensor | None:
        """Return the mask as a table."""
        if window is not None:
            return self._once(
                ("mask", causal, window), lambda: _both(self.mask(causal, None), window.mask(self.queries, self.keys))
            )
        if self.queries.allowed(self.keys, causal) is None:
            return None
        return self._once(("mask", causal), lambda: self.queries.mask(self.keys, causal))

    def visible(self, causal: bool, window: Window | None) -> Callable[[int, int], slice | Tensor] | None:
        """Return which keys a range of queries may see, where that can be read or follows from counting on."""
        if window is None and causal and self.run:
            return lambda first, last: slice(0, last)
        queries, keys = self.queries, self.keys
        limited = window is not None or queries.segment is not None or keys.segment is not None
        if not limited or 0 in (queries.tokens, keys.tokens) or not readable(queries.order):
            return None
        counts = None if window is None else (window.counted(queries, keys), window.counted(keys, queries))

        def of(first: int, last: int) -> slice | Tensor:
            parts = [] if window is None or counts is None else [window.near(counts[0][:, first:last], counts[1])]
            rows = queries[first:last]
            parts += [keys.order <= rows.order.amax(-1, keepdim=True)] if causal else []
            if rows.segment is not None and keys.segment is not None:
                least, most = rows.segment.amin(-1, keepdim=True), rows.segment.amax(-1, keepdim=True)
                parts += [(keys.segment >= least) & (keys.segment <= most)]
            return _as_slots(reduce(and_, parts)) if parts else slice(0, keys.tokens)

        return lambda first, last: self._once(("visible", causal, window, first, last), lambda: of(first, last))

    def block_mask(self, causal: bool, window: Window | None) -> Any:
        """Return the mask in FlexAttention's form."""
        queries, keys = self.queries, self.keys

        def compute() -> Any:
            tiles = visible_tiles(queries, keys, causal, window, TILE, TILE)
            return tiled_mask(self.allowed(causal, window), *tiles, queries.tokens, keys.tokens)

        return self._once(("block mask", causal, window), compute)

    def flash(
        self, scheme: ScoreBias | None, causal: bool, window: Window | None
    ) -> tuple[FlashMask, ByDistance | None] | None:
        """Return mask and bias in the form of the kernel `flash`; None where the bias is none by distance."""
        queries, keys = self.queries, self.keys
        bias = None
        if scheme is not None:
            if queries.axes > 1 or queries.real or keys.axes > 1 or keys.real:
                return None
            ends = (queries.max_length, keys.max_length)
            most = None if None in ends else max(end - 1 for end in ends if end is not None)
            bias = self._once(("by distance", scheme), lambda: scheme.by_distance(most, queries.device), scheme)
            if bias is None:
                return None

        def lists(rows: int, columns: int) -> Any:
            tiles = ("tiles", causal, window, rows, columns)
            return self._once(tiles, lambda: tile_lists(*visible_tiles(queries, keys, *tiles[1:])))

        key = ("flash", causal, window, scheme is not None)
        return self._once(key, lambda: flash_mask(queries, keys, causal, window, scheme is not None, lists)), bias

    def element(self, scheme: ScoreBias | None, causal: bool) -> Element | None:
        """Return a bias that does not depend on queries and keys, as a formula by element."""
        if scheme is None:
            return None
        return self._once(
            ("element", scheme, causal), lambda: scheme.bind(self.queries, self.keys, causal=causal), scheme
        )

    def by_blocks(self, scheme: ScoreBias | None, causal: bool, window: Window | None) -> ByBlocks | None:
        """Return bias and mask by blocks of query rows, where they have such a form and positions are consecutive."""
        consecutive = self._once(("consecutive",), lambda: self.run and self.queries.is_consecutive())
        if not consecutive or (window is not None and (window.chunked or window.first)):
            return None
        size = None if window is None else window.size

        def make() -> ByBlocks | None:
            if scheme is not None:
                return scheme.by_blocks(self.queries, causal, size)
            return toeplitz(torch.zeros(1, 2 * self.queries.tokens - 1), causal, size)

        return self._once(("blocks", scheme, causal, size), make, scheme)

    def table(self, scheme: ScoreBias | None, causal: bool) -> Tensor | None:
        """Return a bias as a table."""
        element = self.element(scheme, causal)
        if scheme is None or element is None:
            return None
        rows = common_batch(self.queries, self.keys)
        sizes = (rows, scheme.num_heads, self.queries.tokens, self.keys.tokens, self.queries.device)
        return self._once(("table", scheme, causal), lambda: tabulate(element, *sizes), scheme)

    def added(self, scheme: ScoreBias | None, causal: bool, window: Window | None, dtype: torch.dtype) -> Tensor | None:
        """Return bias plus mask as one table."""
        return self._once(
            ("added", scheme, causal, window, dtype),
            lambda: join(self.table(scheme, causal), self.mask(causal, window), dtype),
            scheme,
        )

    def scores(
        self,
        scheme: ScoreBias | None,
        window: Window | None,
        q: Tensor,
        k: Tensor,
        causal: bool,
        mask: Tensor | None,
        gates: Tensor | None,
    ) -> Scores:
        """Return bias and mask of the scores, from the tables of the pass where they do not depend on q and k."""
        by_content = scheme is not None and scheme.by_content
        shared = mask is None and not by_content
        window, rows = self.window(window), common_batch(self.queries, self.keys)
        if scheme is None and window is None and mask is None and not self.run and self.allowed(causal, None) is None:
            # As in a step of decoding.
            flash = partial(self.flash, None, causal, None)
            return Scores(None, None, run=False, added=lambda dtype: None, batch=rows, flash=flash)
        element: Element | None
        table: Callable[[], Tensor | None]
        if scheme is not None and by_content:
            _require_gathered(scheme)
            element = scheme.bind(self.queries, self.keys, q=q, k=k, gates=gates, causal=causal)
            rows = q.shape[0]
            table = partial(tabulate, element, rows, q.shape[1], q.shape[2], k.shape[2], q.device)
        else:
            element, table = self.element(scheme, causal), partial(self.table, scheme, causal)
        if scheme is not None:
            require_returned(f"{type(scheme).__name__}.bind", element, ELEMENT)

        # Quoted: torch.compile of PyTorch 2.9 cannot trace a union.
        def added(dtype: torch.dtype) -> "Tensor | None":
            if shared:
                return self.added(scheme, causal, window, dtype)
            return join(table(), _both(self.mask(causal, window), mask), dtype)

        # The functions are made anew for each layer: kept in the cache, they would keep it and its tables alive.
        return Scores(
            element=element,
            allowed=_both_rules(self.allowed(causal, window), mask),
            run=causal and self.run and window is None and mask is None,
            added=added,
            blocks=(lambda: self.by_blocks(scheme, causal, window)) if shared else None,
            batch=rows if mask is None or mask.shape[0] == 1 else mask.shape[0],
            visible=self.visible(causal, window),
            reach=None if window is None else window.reach(causal),
            block_mask=(lambda: self.block_mask(causal, window)) if shared else None,
            flash=(lambda: self.flash(scheme, causal, window)) if shared else None,
            tabulated=mask is not None and scheme is None,
        )

    def _once(self, key: tuple[Any, ...], compute: Callable[[], T], scheme: nn.Module | None = None) -> T:
        """Return a value that is kept for the layers after this one, where they may share it."""
        parameters = [] if scheme is None else _parameters_of(scheme)
        trained = any(each.requires_grad for each in parameters)
        if scheme is not None and trained:
            if _stands_alone():
                _require_gathered(scheme)
                return compute()
            key = (*key, torch.is_grad_enabled())
        eager = not torch.compiler.is_compiling()
        key = (*key, eager and torch.is_inference_mode_enabled())  # whose tensors serve no gradient
        versions = [each._version for each in parameters if not each.is_inference()] if eager else []
        if key in self._values:
            value, made_of, of_versions = self._values[key]
            same = len(parameters) == len(made_of) and all(map(is_, parameters, made_of))
            if not eager or (versions == of_versions and same):
                return value  # type: ignore[no-any-return]  # of the type that was computed for the key
        if scheme is not None and trained:
            _require_gathered(scheme)
        value = compute()
        # A traced checkpoint may have no such effect beside its outputs, and no tensor of a transform may outlive it.
        if eager and not is_transformed():
            self._values[key] = value, parameters, versions
        return value


def _parameters_of(module: nn.Module) -> list[Tensor]:
    """Return the parameters that a module has now, as `parameters()` does, in a quarter of the time."""
    if torch.compiler.is_compiling():
        return [*module.parameters()]
    found: list[Tensor] = [each for each in module._parameters.values() if each is not None]
    for part in module._modules.values():
        found += [] if part is None else _parameters_of(part)
    return found


def _require_gathered(scheme: nn.Module) -> None:
    """Raise SettingError where a parameter is still spread over processes, by fully_shard of a block around it."""
    for name, parameter in scheme.named_parameters():
        if any(placement.is_shard() for placement in getattr(parameter, "placements", ())):
            raise SettingError(
                f"{name} of {type(scheme).__name__} is spread over processes here: fully_shard gathers it for the "
                "forward of the block that it belongs to.\n"
                "To bind it before, or to share it among blocks, make it a unit of its own: fully_shard(where), before "
                "fully_shard of the blocks."
            )


def _stands_alone() -> bool:
    """Return whether gradients flow within this computation alone: it is compiled, or a checkpoint of activations."""
    if torch.compiler.is_compiling():
        return True
    replaced = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return replaced is not None or torch._C._current_graph_task_id() != -1


def require_mask(mask: Tensor, q: Tensor, k: Tensor) -> None:
    """Raise ShapeError unless a mask has the shape and dtype of one for these queries and keys."""
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = mask.dim() == 4 and mask.shape[2:] == sizes[2:]
    if fits and mask.dtype == torch.bool and mask.shape[0] in (1, sizes[0]) and mask.shape[1] in (1, sizes[1]):
        return
    raise ShapeError(
        f"mask has shape {tuple(mask.shape)} and dtype {mask.dtype}, but needs bool and {sizes}, where batch and heads "
        "may be 1; True is where a query may attend to a key.\n"
        "Pass mask[None, None] for (queries, keys); for padding, (batch, keys), where.at(Positions.from_mask(mask))."
    )


def _as_slots(seen: Bool[Tensor, "batch keys"]) -> slice | Tensor:
    """Return the slots at which something is seen in any sequence, as a slice where they are contiguous."""
    slots = seen.any(0).nonzero()[:, 0]
    if not len(slots):
        return slice(0, 1)  # attention needs a key; the mask says that it is not seen
    first, last = int(slots[0]), int(slots[-1]) + 1
    return slice(first, last) if last - first == len(slots) else slots


def _both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Return the mask of the pairs that two masks allow; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _both_rules(rule: Allowed | None, mask: Tensor | None) -> Allowed | None:
    """Return the mask of the pairs that a formula and a table allow, as a formula; None allows all."""
    if mask is None:
        return rule

    def allowed_by_both(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = mask[b % mask.shape[0], h % mask.shape[1], i, j]
        return allowed if rule is None else allowed & rule(b, h, i, j)

    return allowed_by_both
