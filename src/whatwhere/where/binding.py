"""Bind schemes to positions once per forward pass; every layer then asks its Here."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from whatwhere.attention import Engine, Scores, attention, join
from whatwhere.checks import require_device, require_floating, require_positive, require_whole
from whatwhere.errors import DoorError, PositionError, SettingError, ShapeError
from whatwhere.kernels.embedding import Rows, embed, summed
from whatwhere.ruler import Positions, as_positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.doors import InputEncoding, PositionsLike, QueryKeyMap, ScoreBias, tabulate
from whatwhere.where.shared import Shared, both, both_rules, require_mask

_DOORS: dict[str, tuple[type, str]] = {
    "input": (InputEncoding, "is added to the token vectors"),
    "query_key": (QueryKeyMap, "acts on queries and keys"),
    "score": (ScoreBias, "is added to the scores"),
}


class Where(nn.Module):
    """Say how position enters a model: at most one scheme at each of the three doors, and any mixture of them.

        x_i         = what(token_i) + input(p_i)
        score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

    Args:
        input: an InputEncoding, such as Sinusoidal or Learned.
        query_key: a QueryKeyMap, such as Rotary.
        score: a ScoreBias, such as ALiBi.
        scale: the softmax factor of a model that has one of its own, such as Gemma 2; None leaves it to the schemes,
            and these to 1 / sqrt(head_dim).

    `Where()` is no scheme at all (NoPE): a causal model still learns order from what each token can see.

    >>> from whatwhere import ALiBi, Rotary, positions
    >>> where = Where(query_key=Rotary(head_dim=8), score=ALiBi(num_heads=2))
    >>> here = where.at(positions(3))
    >>> import torch
    >>> q = k = v = torch.ones(1, 2, 3, 8)
    >>> q, k = here.query_key(q, k)
    >>> here.attention(q, k, v).shape
    torch.Size([1, 2, 3, 8])
    """

    def __init__(
        self,
        input: InputEncoding | None = None,
        query_key: QueryKeyMap | None = None,
        score: ScoreBias | None = None,
        *,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        for door, scheme in (("input", input), ("query_key", query_key), ("score", score)):
            require_door("Where", door, scheme)
        scales = {scheme.scale for scheme in (query_key, score) if scheme is not None and scheme.scale is not None}
        if scale is not None:
            require_positive("Where", scale=scale)
            scales.add(scale)
        if len(scales) > 1:
            raise SettingError(
                f"{'the two schemes' if scale is None else 'the scheme and scale='} ask for different softmax scales, "
                f"{sorted(scales)}: choose one of them."
            )
        self.input, self.query_key, self.score = input, query_key, score
        self.scale: float | None = next(iter(scales), None)

    def at(
        self, queries: PositionsLike, keys: PositionsLike | None = None, *, regime_length: int | None = None
    ) -> "Here":
        """Bind to where the queries stand, and the keys if they stand elsewhere (a cache, another sequence).

        Args:
            queries: where the queries stand.
            keys: where the keys stand; None is where the queries do.
            regime_length: the length that DynamicNTK and LongRoPE shall assume; None is that of each sequence.
        """
        return bind([self], queries, keys, regime_length=regime_length)[0]

    def __repr__(self) -> str:
        """Show the doors that are in use."""
        doors = [f"{door}={scheme}" for door in _DOORS if (scheme := getattr(self, door)) is not None]
        return f"Where({', '.join(doors)})"


class Here:
    """Hold the schemes of one layer, bound to positions. It lives for one forward pass.

    Made by `where.at(positions)` or, for all layers of a model, by `bind`. Layers that share a scheme share its tables.
    """

    def __init__(self, where: Where, shared: Shared) -> None:
        self.where = where
        self._shared = shared

    @property
    def queries(self) -> Positions:
        """Where the queries stand."""
        return self._shared.queries

    @property
    def keys(self) -> Positions:
        """Where the keys stand."""
        return self._shared.keys

    @property
    def scale(self) -> float | None:
        """The softmax scale that the schemes ask for; None is 1 / sqrt(head_dim)."""
        return self.where.scale

    def input(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """Add position to token vectors, in float32 at least where the scheme is fixed, and cast back."""
        return self._plus_position(x, own=False)

    def embed(self, tokens: TokenEmbedding, ids: Integer[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens dim"]:
        """Look tokens up and add position, in one pass where a kernel serves: the numbers of `input(tokens(ids))`.

        Hooks are kept: where the table has one, it is called as ever, and position added after.
        """
        bare = _is_bare_table(tokens)
        scheme = self.where.input
        if bare and scheme is not None:
            rows = (scheme.rows(self.queries) if _is_bare(scheme) else None) or Rows(self._shared.encoding(scheme))
            vectors = embed(tokens.weight, ids, tokens.factor, tokens.padding_id, rows)
            if vectors is not None:
                return vectors
        return self._plus_position(tokens(ids), own=bare)

    def _plus_position(self, x: Tensor, own: bool) -> Tensor:
        scheme = self.where.input
        if x.dim() != 3 or x.shape[1] != self.queries.tokens:
            raise ShapeError(
                f"positions stand for (batch, {self.queries.tokens}, dim), but the token vectors have {tuple(x.shape)}."
            )
        if self.queries.batch not in (1, x.shape[0]):
            raise ShapeError(
                f"the token vectors have batch {x.shape[0]}, but the positions {self.queries.batch}: make them equal, "
                "or the positions' 1."
            )
        require_floating("the input", x=x)
        if scheme is None:
            return x
        if scheme.dim != x.shape[-1]:
            raise ShapeError(f"the token vectors have dim {x.shape[-1]}, but {type(scheme).__name__} has {scheme.dim}.")
        return summed(x, self._shared.encoding(scheme), own)

    def query_key(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads new_keys head_dim"],
        *,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries mapped_dim"], Float[Tensor, "batch key_heads new_keys mapped_dim"]]:
        """Map queries and keys by their positions; a cache stores the k that comes back.

        Keys that are as many as all bound keys stand there (cross-attention, or no cache); else they are the new
        rows of a cache and stand where the queries do. `in_place=True` writes over q and k, and gives them back.
        """
        scheme = self.where.query_key
        if scheme is None:
            return q, k
        shared = self._shared
        queries, keys = shared.queries, shared.keys
        at_keys = keys if k.shape[-2] == keys.tokens else queries
        scheme.require_fit("q", q, queries)
        scheme.require_fit("k", k, at_keys)
        bound = for_keys = shared.mapped(scheme, queries)
        if at_keys is not queries:
            for_keys = shared.mapped(scheme, at_keys)
        return scheme.map_both(q, k, bound, for_keys, in_place)

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"] | None:
        """Give what a gated bias needs of each token, to be cached beside k; None where nothing is gated."""
        return None if self.where.score is None else self.where.score.gates(x)

    def attention(
        self,
        q: Float[Tensor, "batch heads queries mapped_dim"],
        k: Float[Tensor, "batch key_heads keys mapped_dim"],
        v: Float[Tensor, "batch key_heads keys value_dim"],
        *,
        causal: bool = True,
        mask: Bool[Tensor, "#batch #heads queries keys"] | None = None,
        gates: Float[Tensor, "batch heads keys"] | None = None,
        dropout: float = 0.0,
        engine: Engine = "auto",
    ) -> Float[Tensor, "batch heads queries value_dim"]:
        """Attend with the bound bias and mask. It never maps q and k: `query_key` has done so.

        Args:
            causal: no query looks at a later key.
            mask: a further limit, True where attention may look.
            gates: what `gates(x)` gave, for all keys.
            dropout: share of attention weights dropped; pass 0 outside of training.
            engine: `auto`, `dense`, `sdpa` or `flex`.
        """
        for name, x, p in (("q", q, self.queries), ("k", k, self.keys)):
            if x.dim() != 4 or x.shape[2] != p.tokens or p.batch not in (1, x.shape[0]):
                raise ShapeError(
                    f"{name} has shape {tuple(x.shape)}, but the bound positions stand for (batch, heads, {p.tokens}, "
                    f"head_dim) with batch {'of any size' if p.batch == 1 else p.batch}.\n"
                    "With a cache of keys, bind both: where.at(queries, keys)."
                )
            require_device(name, x, p.device)
        if mask is not None:
            require_mask(mask, q, k)
        scheme = self.where.score
        if scheme is not None and scheme.num_heads != q.shape[1]:
            raise ShapeError(
                f"{type(scheme).__name__} was made for num_heads={scheme.num_heads}, but q has {q.shape[1]} heads."
            )
        if gates is not None and (scheme is None or type(scheme).gates is ScoreBias.gates):
            why = "there is no bias" if scheme is None else f"{type(scheme).__name__} has none"
            raise SettingError(
                f"gates were given, but {why}: they would change nothing.\n"
                "Pass gates=here.gates(x), which is None where nothing is gated."
            )
        for door in (self.where.query_key, scheme):
            if door is not None:
                door.require_direction(causal)
        scores = self._scores(q, k, causal, mask, gates)
        return attention(q, k, v, scores, scale=self.scale, dropout=dropout, engine=engine)

    def _scores(self, q: Tensor, k: Tensor, causal: bool, mask: Tensor | None, gates: Tensor | None) -> Scores:
        scheme, shared = self.where.score, self._shared
        rule = shared.allowed(causal)
        if scheme is not None and scheme.by_content:
            element = scheme.bind(shared.queries, shared.keys, q=q, k=k, gates=gates, causal=causal)
            sizes = (q.shape[0], scheme.num_heads, q.shape[2], k.shape[2], q.device)

            def added(dtype: torch.dtype) -> Tensor | None:
                return join(tabulate(element, *sizes), both(shared.mask(causal), mask), dtype)

            return Scores(element, both_rules(rule, mask), False, added, batch=q.shape[0])
        rows = max(shared.queries.batch, shared.keys.batch)
        if mask is None:
            run = causal and shared.run
            return Scores(
                shared.element(scheme, causal),
                rule,
                run,
                lambda dtype: shared.added(scheme, causal, dtype),
                lambda: shared.by_blocks(scheme, causal),
                rows,
            )

        def added_too(dtype: torch.dtype) -> Tensor | None:
            return join(shared.table(scheme, causal), both(shared.mask(causal), mask), dtype)

        rows = max(rows, mask.shape[0])
        return Scores(shared.element(scheme, causal), both_rules(rule, mask), False, added_too, batch=rows)


def bind(
    wheres: Iterable[Where],
    queries: PositionsLike,
    keys: PositionsLike | None = None,
    *,
    regime_length: int | None = None,
) -> list[Here]:
    """Bind the schemes of all layers to positions, each distinct scheme once.

    Args:
        wheres: one Where a layer; the same or different ones, in any mixture.
        queries: where the queries stand.
        keys: where the keys stand; None is where the queries do. While decoding, all keys of the cache.
        regime_length: the length that DynamicNTK and LongRoPE shall assume; None is that of each token's own
            sequence. State one where keys are cached: those already turned do not follow.

    >>> from whatwhere import Rotary, positions
    >>> local, everywhere = Where(query_key=Rotary(head_dim=8)), Where()
    >>> len(bind([local, local, local, everywhere], positions(16)))
    4
    """
    at_queries = as_positions(queries)
    at_keys = at_queries if keys is None or keys is queries else as_positions(keys)
    told = isinstance(queries, Positions) and (keys is None or isinstance(keys, Positions))
    if at_queries.axes > 1 and at_queries.tokens != at_keys.tokens and not told:
        raise PositionError(
            "numbers of several axes do not tell which keys are later than these queries.\n"
            "Make one ruler of all tokens and slice it: p = from_position_ids(ids); where.at(p[t:], p)."
        )
    if regime_length is not None:
        require_whole("bind", regime_length=regime_length)
    if isinstance(wheres, Where):
        raise DoorError("bind takes one Where for each layer, in a list; for one alone: where.at(positions).")
    layers = list(wheres)
    for where in layers:
        if not isinstance(where, Where):
            raise DoorError(
                f"bind takes one Where for each layer, but got {_article(type(where))}.\n"
                "Put a scheme into one: Where(query_key=Rotary(...)); no scheme at all is Where()."
            )
    shared = Shared(at_queries, at_keys, regime_length)
    return [Here(where, shared) for where in layers]


def require_door(owner: str, door: str, scheme: object) -> None:
    """Raise DoorError unless a scheme passes through this door.

    >>> from whatwhere import ALiBi
    >>> require_door("Where", "input", ALiBi(num_heads=4))
    Traceback (most recent call last):
    whatwhere.errors.DoorError: Where(input=...) is added to the token vectors, but ALiBi is added to the scores.
    Pass it as Where(score=...).
    """
    kind, action = _DOORS[door]
    if scheme is None or isinstance(scheme, kind):
        return
    given = f"the class {scheme.__name__}" if isinstance(scheme, type) else type(scheme).__name__
    for other, (other_kind, other_action) in _DOORS.items():
        if isinstance(scheme, other_kind):
            raise DoorError(
                f"{owner}({door}=...) {action}, but {given} {other_action}.\nPass it as Where({other}=...)."
            )
    hint = f"\nPass an object, not the class: {scheme.__name__}(...)." if isinstance(scheme, type) else ""
    raise DoorError(f"{owner}({door}=...) needs {_article(kind)}, but got {given}.{hint}")


def _is_bare_table(tokens: nn.Module) -> bool:
    """Tell whether a call of the table is a lookup of its rows and nothing else."""
    return type(tokens) is TokenEmbedding and tokens.keeper is None and _is_bare(tokens)


def _is_bare(module: nn.Module) -> bool:
    """Tell whether a call of the module is its class's forward and nothing else: no hook, nothing patched."""
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return not (any(hooks) or "forward" in vars(module) or _has_any_global_hook())


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
