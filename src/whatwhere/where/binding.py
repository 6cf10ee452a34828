"""`Where`: the schemes by which position enters a model, and `Here`: the same, bound to positions for a forward pass.

Position can enter a Transformer at three places, which this library calls doors: the input vectors, the queries and
keys, and the attention scores.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from jaxtyping import Bool, Float, Int64, Integer
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from whatwhere.checks import answers_names_of_others, require_positive, require_whole
from whatwhere.errors import DoorError, PositionError, SettingError, ShapeError
from whatwhere.initialization import reset
from whatwhere.kernels.embedding import Rows, embed, summed
from whatwhere.position.positions import Positions, PositionsLike, is_number
from whatwhere.tensor_checks import as_whole, require_device, require_floating, require_tensors
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.attention import (
    Engine,
    Scores,
    Sink,
    attention,
    attention_with_lse,
    merge_attention,
    require_heads,
    with_sink,
)
from whatwhere.where.base import InputEncoding, QueryKeyMap, device_of, of_queries_and_keys
from whatwhere.where.kv_cache import KVCache
from whatwhere.where.pass_cache import PassCache, require_mask
from whatwhere.where.region_map import by_region, of_first_region, region_map_of
from whatwhere.where.rotary_map import ScaledRotaryMap
from whatwhere.where.rotation_by_content import RotationByContent
from whatwhere.where.score_bias import ScoreBias
from whatwhere.where.sums import require_no_holes, require_own_keys
from whatwhere.where.window import Window, as_window

Scheme = InputEncoding | QueryKeyMap | ScoreBias

_DOORS: dict[str, tuple[type, str, str]] = {
    "input": (InputEncoding, "is added to the token vectors", "dim"),
    "query_key": (QueryKeyMap, "acts on queries and keys", "head_dim"),
    "score": (ScoreBias, "is added to the scores", "num_heads"),
}


class Where(nn.Module):
    """The schemes of a layer, by which position enters it: at most one at each of the three doors, in any mixture.

        x_i         = what(token_i) + input(p_i)
        score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

    `Where(Rotary(64), ALiBi(8))` sorts schemes into their doors by their type; the keywords name the doors.
    `Where()` has no scheme (NoPE): a causal model still learns order from what each token can see.

    Args:
        schemes: in any order, at most one for each door.
        input: an InputEncoding, such as Sinusoidal or Learned.
        query_key: a QueryKeyMap, such as Rotary.
        score: a ScoreBias, such as ALiBi.
        scale: the softmax scale of a model that has one of its own, such as Gemma 2; None leaves it to the schemes,
            whose default is 1 / sqrt(head_dim).
        window: which keys a query sees beside causality and documents: a Window, or the size of a sliding window.
        chunk: the size of chunks, short for `window=Window(chunk, chunked=True)`.
        sink: a learned logit for each head in the denominator of the softmax.

    Raises:
        DoorError: If two schemes belong to one door, a scheme is passed to the wrong door, or an argument is not a
            scheme.
        SettingError: If softmax scales differ, or one is not above 0; or window or sink is of a wrong class.
        ShapeError: If the window's size is not a whole number of at least 1.

    Examples:
        >>> from whatwhere import ALiBi, Rotary
        >>> where = Where(Rotary(head_dim=8), ALiBi(num_heads=2))
        >>> here = where.at(3)  # three tokens, at positions 0, 1, 2
        >>> q = k = v = torch.ones(1, 2, 3, 8)
        >>> here(q, k, v).shape
        torch.Size([1, 2, 3, 8])
        >>> Where(Rotary(head_dim=8), window=512).window
        Window(512)
    """

    @answers_names_of_others
    def __init__(
        self,
        *schemes: Scheme,
        input: InputEncoding | None = None,
        query_key: QueryKeyMap | None = None,
        score: ScoreBias | None = None,
        scale: float | None = None,
        window: Window | int | None = None,
        chunk: int | None = None,
        sink: Sink | None = None,
    ) -> None:
        super().__init__()
        at_doors: dict[str, Any] = {"input": input, "query_key": query_key, "score": score}
        for scheme in schemes:
            door = _door_of(scheme)
            if at_doors[door] is not None:
                raise DoorError(
                    f"Where got {type(at_doors[door]).__name__} and {type(scheme).__name__}, but the door {door!r} has "
                    "room for one scheme.\n"
                    "Leave one out; layers may have different ones: bind([Where(...), Where(...)], positions)."
                )
            at_doors[door] = scheme
        for door, scheme in at_doors.items():
            require_door("Where", door, scheme)
        self.input: InputEncoding | None = at_doors["input"]
        self.query_key: QueryKeyMap | None = at_doors["query_key"]
        self.score: ScoreBias | None = at_doors["score"]
        parts = (self.query_key, self.score)
        scales = {part.scale for part in parts if part is not None and part.scale is not None}
        self._own_scale = scale if scale not in scales else None
        if scale is not None:
            require_positive("Where", scale=scale)
            scales.add(scale)
        if len(scales) > 1:
            raise SettingError(
                f"{'the two schemes' if scale is None else 'the scheme and scale='} need different softmax scales, "
                f"{sorted(scales)}, but attention has one.\nChoose one of them."
            )
        self.scale: float | None = next(iter(scales), None)
        self.window: Window | None = as_window(window, chunk)
        if sink is not None and not isinstance(sink, Sink):
            raise SettingError(f"Where got sink={sink!r}, but needs a Sink.\nPass Sink(num_heads=...).")
        self.sink: Sink | None = sink

    @answers_names_of_others
    def at(
        self, queries: PositionsLike, keys: PositionsLike | None = None, *, regime_length: int | None = None
    ) -> "Here":
        """Bind the schemes to the positions of a forward pass.

        Args:
            queries: positions of the queries: Positions, an integer tensor, or a number of tokens, counted from 0. A
                tensor of one axis is read as position ids: a number that does not grow, as the second 0 of
                [0, 1, 2, 0, 1], begins a new document, which does not see the one before (`from_position_ids`).
            keys: positions of the keys where they are others, such as those of a KV cache; None is the queries'.
            regime_length: the length to assume for DynamicNTK and LongRoPE; None is that of each sequence.

        Raises:
            PositionError: If an argument is not positions, or queries and keys are two different numbers.

        Examples:
            Decode one token, with eight in the KV cache:

            >>> from whatwhere import ALiBi, positions
            >>> p = positions(8)
            >>> step = p.next()
            >>> Where(ALiBi(num_heads=2)).at(step, p.append(step))
            Where(score=ALiBi(num_heads=2)).at(positions(1, start=8), positions(9))
        """
        return bind([self], queries, keys, regime_length=regime_length)[0]

    def forward(self, *given: object, **settings: object) -> NoReturn:
        """Refuse to be called like a function: schemes are bound to positions first.

        Raises:
            SettingError: If it is called at all.
        """
        raise SettingError(
            "a Where is not called like a function, for its schemes are bound to positions first.\n"
            "For attention: here = where.at(positions), then here(q, k, v); token vectors: here.input(x)."
        )

    @answers_names_of_others
    def cache(
        self, *, capacity: int = 0, keys_dtype: torch.dtype | None = None, regime_length: int | None = None
    ) -> KVCache:
        """Return an empty KV cache of this layer, which is cut, moved, forked and joined exactly.

        Args:
            capacity: tokens to make room for at once; without it, room grows by half when it is full.
            keys_dtype: in which keys are kept, float32 where they are moved often; None is theirs.
            regime_length: the length that `cache.at` assumes for DynamicNTK and LongRoPE; None is that of each text.

        Raises:
            SettingError: If the capacity is below 0, or the dtype is not of floating-point numbers.
            ShapeError: If regime_length is not a whole number of at least 1.
        """
        if as_whole(capacity) is None or capacity < 0 or not (keys_dtype is None or keys_dtype.is_floating_point):
            raise SettingError(
                f"cache got capacity={capacity!r} and keys_dtype={keys_dtype}, but needs a number of tokens, 0 or "
                "more, and a floating-point dtype or None."
            )
        if regime_length is not None:
            require_whole("cache", regime_length=regime_length)
        return KVCache(self, capacity, keys_dtype, regime_length)

    def kept(self, keys: Positions) -> Int64[Tensor, " kept"]:
        """Return the slots of a KV cache that later queries of this layer can see, in increasing order.

        All others can be deleted: `k[:, :, slots]`, and `keys[slots]`. Without a window they are all.

        Raises:
            SettingError: If the window keeps first tokens, but the bias sums over the keys in between, or the map of
                queries and keys sums over all of them.
            PositionError: If the window is by coordinates, but these do not grow within a document.

        Examples:
            >>> from whatwhere import positions
            >>> where, p = Where(window=3), positions(8)
            >>> keys = p[where.kept(p)]  # of a layer; p itself counts all tokens
            >>> step = p.next()
            >>> where.at(step, keys.append(step))
            Where(window=Window(3)).at(positions(1, start=8), positions(3, start=6))
        """
        if self.window is None:
            return torch.arange(keys.tokens, device=keys.device)
        if self.query_key is not None and self.query_key.by_content:
            raise SettingError(
                f"{type(self.query_key).__name__} rotates by a sum over all tokens from the first on, so none can be "
                "deleted.\nKeep all keys and increments."
            )
        if self.window.first and self.score is not None and self.score.sums_between:
            raise SettingError(
                f"{type(self.score).__name__} sums over all keys between a query and a key, so none between the first "
                "tokens and the window can be deleted.\nKeep all keys, or use a window with first=0."
            )
        return self.window.kept(keys)

    def heads(self, first: int, count: int, *, total: int | None = None) -> "Where":
        """Return the Where of some of the heads, for attention whose heads are split among processes.

        Schemes of door 2 and 3 and the sink are copies for these heads, as their `heads` describes; `input`, which
        knows no heads, is the same object. For several layers, which may share schemes, see `heads_of`. Arguments and
        errors are those of `heads` of a scheme.

        Examples:
            >>> from whatwhere import T5
            >>> Where(T5(num_heads=8)).heads(4, 4).score.num_heads
            4
        """
        return heads_of([self], first, count, total=total)[0]

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize all parameters again: those of `input` first, then of `query_key`, `score` and `sink`.

        Raises:
            SettingError: If a scheme of your own has parameters, but no `reset_parameters`.
        """
        for scheme in self.children():
            reset(scheme, generator)

    def __repr__(self) -> str:
        """Return code that makes an equal one, with the names of `whatwhere`, its scaling and its temperature."""
        settings = [f"{door}={scheme}" for door in _DOORS if (scheme := getattr(self, door)) is not None]
        settings += [] if self._own_scale is None else [f"scale={self._own_scale}"]
        settings += [f"{name}={part}" for name in ("window", "sink") if (part := getattr(self, name)) is not None]
        return f"Where({', '.join(settings)})"


class Here:
    """A `Where`, bound to positions: the schemes of one layer, for one forward pass.

    `where.at(positions)` makes one, and `bind` one for each layer of a model. Layers that share a scheme share its
    tables. Tables follow their parameters, but not changes through `.data`, as by `.to()`, by a fused optimizer or
    under fully_shard: bind anew after a step. Nor do they follow changes between calls of a compiled layer.
    """

    def __init__(self, where: Where, cache: PassCache) -> None:
        self.where = where
        self._cache = cache

    def __repr__(self) -> str:
        """Return code that makes an equal one, where that of the positions is short."""
        keys = "" if self.keys is self.queries else f", {self.keys}"
        length = self._cache.regime_length
        return f"{self.where}.at({self.queries}{keys}{'' if length is None else f', regime_length={length}'})"

    @property
    def queries(self) -> Positions:
        """The positions of the queries."""
        return self._cache.queries

    @property
    def keys(self) -> Positions:
        """The positions of the keys."""
        return self._cache.keys

    @property
    def regime_length(self) -> int | None:
        """The length that DynamicNTK and LongRoPE assume; None is that of each text."""
        return self._cache.regime_length

    @property
    def scale(self) -> float | None:
        """The softmax scale; None is 1 / sqrt(head_dim)."""
        return self.where.scale

    def input(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """Add the input scheme's vectors to token vectors: in float32 at least where they are fixed, then cast back.

        Raises:
            ShapeError: If x has another number of tokens, sequences or features.
        """
        return self._plus_position(x, own=False)

    def embed(self, tokens: TokenEmbedding, ids: Integer[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens dim"]:
        """Compute `input(tokens(ids))`: look tokens up and add position, in one pass where there is a kernel for it.

        Hooks are kept: where the table has one, it is called as usual, and position is added after.

        Raises:
            TokenError: If an id is outside the table.
            ShapeError: If ids have another number of tokens or sequences.
        """
        bare = type(tokens) is TokenEmbedding and tokens.keeper is None and _is_bare(tokens)  # a lookup and no more
        scheme = self.where.input
        if bare and scheme is not None:
            rows = (scheme.rows(self.queries) if _is_bare(scheme) else None) or Rows(self._cache.encoding(scheme))
            vectors = embed(tokens.weight, ids, tokens.factor, tokens.padding_idx, rows)
            if vectors is not None:
                return vectors
        return self._plus_position(tokens(ids), own=bare)

    def _plus_position(self, x: Tensor, own: bool) -> Tensor:
        scheme = self.where.input
        require_tensors(x=x)
        if x.dim() != 3 or x.shape[1] != self.queries.tokens:
            raise ShapeError(
                f"the token vectors have shape {tuple(x.shape)}, but the positions are for (batch, "
                f"{self.queries.tokens}, dim).\nBind as many positions as tokens: where.at(x.shape[1])."
            )
        if self.queries.batch not in (1, x.shape[0]):
            raise ShapeError(
                f"the token vectors have batch {x.shape[0]}, but the positions {self.queries.batch}: equal batches, or "
                "1 of the positions, are needed.\nMake positions for these sequences."
            )
        require_floating("the input", x=x)
        if scheme is None:
            return x
        if scheme.dim != x.shape[-1]:
            raise ShapeError(
                f"the token vectors have dim {x.shape[-1]}, but {type(scheme).__name__} has {scheme.dim}.\n"
                "Make both equal."
            )
        return summed(x, self._cache.encoding(scheme), own)

    @answers_names_of_others
    def __call__(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        v: Float[Tensor, "batch key_heads keys value_dim"],
        *,
        causal: bool = True,
        mask: Bool[Tensor, "#batch #heads queries keys"] | None = None,
        increments: Float[Tensor, "batch increment_heads keys *increment_features"] | None = None,
        gates: Float[Tensor, "batch heads tokens *features"] | None = None,
        dropout: float = 0.0,
        engine: Engine = "auto",
    ) -> Float[Tensor, "batch heads queries value_dim"]:
        """Map queries and keys and attend: `attention(*query_key(q, k), v)`, where there is no KV cache.

        Args:
            q, k: queries and keys as they were projected, not mapped.
            increments: those of `increments(x)`.
            causal, mask, gates, dropout, engine: as in `attention`.

        Raises:
            SettingError: If queries and keys, which a scheme maps, have positions of their own: keys of a KV cache are
                mapped already, and would be mapped twice. Or as `query_key` and `attention` raise it.
            ShapeError, PositionError: As `query_key` and `attention` raise them.
        """
        if self.keys is not self.queries and self.where.query_key is not None:
            raise SettingError(
                "here(q, k, v) maps all keys, but these are bound at positions of their own, as those of a KV cache "
                "are, which are mapped already.\n"
                "Map what is new, and attend: q, new = here.query_key(q, k); here.attention(q, all_keys, all_values)."
            )
        q, k = self.query_key(q, k, increments=increments)
        return self.attention(q, k, v, causal=causal, mask=mask, gates=gates, dropout=dropout, engine=engine)

    @answers_names_of_others
    def query_key(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads new_keys head_dim"],
        *,
        increments: Float[Tensor, "batch increment_heads keys *features"] | None = None,
        in_place: bool = False,
    ) -> tuple[
        Float[Tensor, "batch mapped_heads queries mapped_dim"],
        Float[Tensor, "batch mapped_key_heads new_keys mapped_dim"],
    ]:
        """Map queries and keys by their positions; a KV cache stores the k that is returned.

        As many keys as are bound are at the positions of the keys (cross-attention, or no cache); fewer are the new
        rows of a KV cache, at the positions of the queries.

        Args:
            increments: those of `increments(x)`, for all keys.

        Raises:
            ShapeError: If q, k or the increments have another number of tokens, sequences or features.
            SettingError: If in_place=True, but the map cannot work in place; or increments are missing, or given where
                none are needed.
        """
        scheme = self.where.query_key
        require_tensors(q=q, k=k)
        _require_increments(scheme, increments)
        if scheme is None:
            return q, k
        cache = self._cache
        queries, keys = cache.queries, cache.keys
        at_keys = keys if k.shape[-2] == keys.tokens else queries
        scheme.require_fit("q", q, queries)
        scheme.require_fit("k", k, at_keys)
        if increments is not None and isinstance(scheme, RotationByContent):
            of_queries, of_keys = scheme.bind_content(queries, keys, increments)
            return scheme.map_both(q, k, of_queries, of_keys if at_keys is keys else of_queries, in_place)
        bound = for_keys = cache.mapped(scheme, queries)
        if at_keys is not queries:
            for_keys = cache.mapped(scheme, at_keys)
        return scheme.map_both(q, k, bound, for_keys, in_place)

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens *features"] | None:
        """Compute the gates of a gated bias: FoX's are cached beside k, Inkling's need not be. None without gates."""
        return None if self.where.score is None else self.where.score.gates(x)

    def increments(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens *features"] | None:
        """Compute what a map by content, such as CARoPE, needs of each token, cached beside k; None for other maps."""
        scheme = self.where.query_key
        return scheme.increments(x) if isinstance(scheme, RotationByContent) else None

    @answers_names_of_others
    def attention(
        self,
        q: Float[Tensor, "batch mapped_heads queries mapped_dim"],
        k: Float[Tensor, "batch mapped_key_heads keys mapped_dim"],
        v: Float[Tensor, "batch key_heads keys value_dim"],
        *,
        causal: bool = True,
        mask: Bool[Tensor, "#batch #heads queries keys"] | None = None,
        gates: Float[Tensor, "batch heads tokens *features"] | None = None,
        dropout: float = 0.0,
        engine: Engine = "auto",
    ) -> Float[Tensor, "batch heads queries value_dim"]:
        """Compute softmax attention with bias, masks and sink. It does not map q and k: call `query_key` before.

        Without a KV cache, `here(q, k, v)` does both.

        Args:
            causal: mask keys that are later than the query.
            mask: a further mask, True where a query may attend to a key.
            gates: those of `gates(x)`, for all keys; of Inkling's bias those of the queries suffice.
            dropout: share of attention weights dropped; pass 0 outside of training.
            engine: `auto`, `dense`, `sdpa`, `flex` or, on an NVIDIA GPU, `flash`.

        Raises:
            ShapeError: If a tensor or the mask has another number of tokens, sequences, heads or features.
            SettingError: If the scheme or the engine cannot use the gates or an option.
            PositionError: If the scheme sums over the keys between query and key, and some of them are missing.
        """
        tensors, scale = self._with_scores(q, k, v, causal, mask, gates, some_keys=False)
        sink = None if self.where.sink is None else self.where.sink.weight
        y = attention(*tensors, scale=scale, sink=sink, dropout=dropout, engine=engine)
        return _of_values(y, v)

    @answers_names_of_others
    def attention_with_lse(
        self,
        q: Float[Tensor, "batch mapped_heads queries mapped_dim"],
        k: Float[Tensor, "batch mapped_key_heads keys mapped_dim"],
        v: Float[Tensor, "batch key_heads keys value_dim"],
        *,
        causal: bool = True,
        mask: Bool[Tensor, "#batch #heads queries keys"] | None = None,
        gates: Float[Tensor, "batch heads tokens *features"] | None = None,
        dropout: float = 0.0,
        engine: Engine = "auto",
    ) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
        """Compute attention over some of the keys: a part for `merge`; arguments and errors are those of `attention`.

        Returns:
            The outputs without the sink, and the logarithm of the sum of exp(score) of each query and head.
        """
        tensors, scale = self._with_scores(q, k, v, causal, mask, gates, some_keys=True)
        y, lse = attention_with_lse(*tensors, scale=scale, dropout=dropout, engine=engine)
        return _of_values(y, v), lse

    def _with_scores(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, gates: Tensor | None, some_keys: bool
    ) -> tuple[tuple[Tensor, Tensor, Tensor, Scores], float | None]:
        """Return queries, keys and values with their bias and mask, as an engine takes them, and the softmax scale."""
        require_tensors(q=q, k=k, v=v)
        self._require_bound(q, k)
        scheme = self.where.query_key
        if scheme is not None and scheme.by_content and v.dim() == 4 and 0 < v.shape[1] < k.shape[1]:
            v = v.repeat_interleave(k.shape[1] // v.shape[1], dim=1)  # keys are mapped for each head of the queries
        # A map that differs by region of pairs returns heads for each region; those of the first are like any others.
        mapped, regions = (q, k), region_map_of(scheme)
        if regions is not None:
            q, k = of_first_region(regions, q, k, v)
        self._require_scores_fit(q, k, v, causal, mask, gates)
        self._require_summed_keys(some_keys)
        scores = self._cache.scores(self.where.score, self.where.window, q, k, causal, mask, gates)
        if regions is None or (not torch.compiler.is_compiling() and regions.one_region(self.queries)):
            return (q, k, v, scores), self.scale
        # The features of the regions stand side by side, so the scale is that of one of them.
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return by_region(regions, *mapped, v, scores, self.queries, self.keys), scale

    def _require_bound(self, q: Tensor, k: Tensor) -> None:
        """Raise unless queries and keys have the tokens, the batch and the device of their positions."""
        for name, x, p in (("q", q, self.queries), ("k", k, self.keys)):
            if x.dim() != 4 or x.shape[2] != p.tokens or p.batch not in (1, x.shape[0]):
                raise ShapeError(
                    f"{name} has shape {tuple(x.shape)}, but the bound positions are for (batch, heads, {p.tokens}, "
                    f"head_dim) with batch {'of any size' if p.batch == 1 else p.batch}.\n"
                    "With a KV cache, bind both: where.at(queries, keys)."
                )
            require_device(name, x, p.device)

    def _require_scores_fit(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, gates: Tensor | None
    ) -> None:
        """Raise unless mask, bias, gates and sink are for these heads, and each scheme for this direction."""
        scheme, sink = self.where.score, self.where.sink
        if mask is not None:
            require_mask(mask, q, k)
        if scheme is not None and scheme.num_heads != q.shape[1]:
            raise ShapeError(
                f"{type(scheme).__name__} was made for num_heads={scheme.num_heads}, but q has {q.shape[1]} heads.\n"
                "Make both equal."
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
        if scheme is not None and scheme.by_content:
            require_heads(q, k, v)  # which its scores are computed from
        if sink is not None and sink.num_heads != q.shape[1]:
            raise ShapeError(
                f"Sink was made for num_heads={sink.num_heads}, but q has {q.shape[1]} heads.\nMake both equal."
            )

    def _require_summed_keys(self, some_keys: bool) -> None:
        """Raise PositionError where a bias sums over keys between query and key, and some of them are missing."""
        if self.where.score is None or not self.where.score.sums_between:
            return
        # What a sum lacks for all keys alike is ignored by a softmax, but not by `merge`, nor beside a sink.
        if some_keys or self.where.sink is not None:
            require_own_keys(self.queries, self.keys)
        if some_keys or self.where.window is None:  # a window's cache forgets keys
            require_no_holes(self.keys)

    def merge(
        self,
        parts: Iterable[tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]],
    ) -> Float[Tensor, "batch heads queries value_dim"]:
        """Merge attention over disjoint blocks of keys into that over all of them, and add the sink.

        Args:
            parts: for each block what `attention_with_lse` returned, of the same queries.

        Raises:
            ShapeError: If there are no parts, or they are not of the same queries.

        Examples:
            >>> from whatwhere import ALiBi, positions
            >>> where, p = Where(ALiBi(num_heads=2)), positions(8)
            >>> q, k, v = torch.randn(3, 1, 2, 8, 4)
            >>> parts = []
            >>> for slots in p.shard_slots(2, "striped"):
            ...     here = where.at(p, p.take(slots))
            ...     parts.append(here.attention_with_lse(q, k[:, :, slots], v[:, :, slots]))
            >>> torch.allclose(here.merge(parts), where.at(p).attention(q, k, v), atol=1e-6)
            True
        """
        y, lse = merge_attention(parts)
        return with_sink(y, lse, None if self.where.sink is None else self.where.sink.weight)


def _of_values(y: Tensor, v: Tensor) -> Tensor:
    """Return outputs without the features that regions of pairs added to the values."""
    return y if y.shape[-1] == v.shape[-1] else y[..., : v.shape[-1]]


def bind(
    wheres: Iterable[Where],
    queries: PositionsLike,
    keys: PositionsLike | None = None,
    *,
    regime_length: int | None = None,
) -> list[Here]:
    """Bind the schemes of all layers to the positions of a forward pass; each distinct scheme is bound once.

    Args:
        wheres: one Where for each layer; the same or different ones, in any mixture.
        queries: positions of the queries: Positions, an integer tensor, or a number of tokens, counted from 0.
        keys: positions of the keys; None is the queries'. While decoding, those of all keys in the KV cache.
        regime_length: the length to assume for DynamicNTK and LongRoPE; None is that of each token's own sequence.
            Pass one where keys are cached: those in the cache were mapped for the length at their time. A step that
            makes other frequencies of it is a `RegimeWarning`, once.

    Returns:
        One Here for each layer.

    Raises:
        DoorError: If there is not one Where for each layer.
        PositionError: If an argument is not positions, or queries and keys are two different numbers.

    Examples:
        >>> from whatwhere import Rotary
        >>> local, everywhere = Where(Rotary(head_dim=8)), Where()
        >>> len(bind([local, local, local, everywhere], 16))
        4
    """
    if isinstance(wheres, Where):
        raise DoorError(
            "bind got a Where, but needs one for each layer, in a list.\nFor one layer: where.at(positions)."
        )
    layers = list(wheres)
    for where in layers:
        if not isinstance(where, Where):
            raise DoorError(
                f"bind needs a Where for each layer, but got {_article(type(where))}.\n"
                "Put a scheme into one: Where(Rotary(...)); no scheme at all is Where()."
            )
    # The parameters are asked where the positions do not say: in a step of decoding they do.
    counted = is_number(queries) or is_number(keys)
    at_queries, at_keys = of_queries_and_keys(queries, keys, device_of(*layers) if counted else None)
    tensors = isinstance(queries, Tensor) or isinstance(keys, Tensor)
    if at_queries.axes > 1 and at_queries.tokens != at_keys.tokens and tensors:
        raise PositionError(
            "position ids of several axes do not determine which keys are later than these queries, but the mask needs "
            "that.\n"
            "Make positions of all tokens and slice them: p = Positions.from_position_ids(ids); where.at(p[t:], p)."
        )
    if regime_length is not None:
        require_whole("bind", regime_length=regime_length)
    cache = PassCache(at_queries, at_keys, regime_length)
    for where in dict.fromkeys(layers):
        _gather_shards(where)
        scheme = where.query_key
        if scheme is not None and not scheme.by_content:
            cache.mapped(scheme, at_queries)  # before the first layer, which may be checkpointed or compiled by itself
            part = at_queries.sliced is not None and at_queries.sliced[0] is at_keys  # of a text that is mapped whole
            if scheme.follows_length and regime_length is None and at_queries.tokens < at_keys.tokens and not part:
                while (then := getattr(scheme, "then", None)) is not None:
                    scheme = then
                if isinstance(scheme, ScaledRotaryMap):
                    scheme.warn_of_other_frequencies(at_queries)
    return [Here(where, cache) for where in layers]


def heads_of(wheres: Iterable[Where], first: int, count: int, *, total: int | None = None) -> list[Where]:
    """Return the Where of each layer for some of the heads; layers that share a scheme share its copy too."""
    layers = list(wheres)
    parts = {
        id(part): part for where in layers for part in (where.query_key, where.score, where.sink) if part is not None
    }
    known = {size for part in parts.values() if (size := getattr(part, "num_heads", None)) is not None}
    total = known.pop() if total is None and len(known) == 1 else total
    copies: dict[int, Any] = {key: part.heads(first, count, total=total) for key, part in parts.items()}
    made: dict[int, Where] = {}
    for where in layers:
        if id(where) not in made:
            query_key, score, sink = (copies.get(id(part)) for part in (where.query_key, where.score, where.sink))
            made[id(where)] = Where(
                input=where.input, query_key=query_key, score=score, scale=where.scale, window=where.window, sink=sink
            )
    return [made[id(where)] for where in layers]


def require_door(owner: str, door: str, scheme: object) -> None:
    """Check that a scheme belongs to a door, and is a module that has its size; None passes."""
    kind, action, size = _DOORS[door]
    if scheme is None or isinstance(scheme, kind):
        missing = "" if scheme is None or hasattr(scheme, size) else f"set self.{size}"
        if scheme is not None and "_modules" not in vars(scheme):
            missing = "begin with super().__init__()"
        if missing:
            raise SettingError(f"the __init__ of {type(scheme).__name__} does not {missing}.\nWrite that there.")
        return
    for other, (other_kind, other_action, _) in _DOORS.items():
        if isinstance(scheme, other_kind):
            raise DoorError(
                f"{owner}({door}=...) {action}, but {type(scheme).__name__} {other_action}.\n"
                f"Pass it as Where({other}=...)."
            )
    raise DoorError(f"{owner}({door}=...) needs {_article(kind)}, but got {_described(scheme)}")


def _gather_shards(where: Where) -> None:
    """Gather the parameters of what is a unit of fully_shard by itself: a pass reads them before and beside forward."""
    parts: tuple[Any, ...] = (where, where.query_key, where.score, where.sink)
    for module in parts:
        if hasattr(module, "_get_fsdp_state"):
            module.unshard()


def _require_increments(scheme: QueryKeyMap | None, increments: Tensor | None) -> None:
    """Raise SettingError unless there are increments exactly where a map of queries and keys needs them."""
    if scheme is not None and scheme.by_content and increments is None:
        raise SettingError(
            f"{type(scheme).__name__} needs the increments of all keys, but got none.\n"
            "Pass increments=here.increments(x) to here.query_key; with a KV cache, store them beside the keys."
        )
    if increments is not None and (scheme is None or not scheme.by_content):
        why = "there is no map of queries and keys" if scheme is None else f"{type(scheme).__name__} needs none"
        raise SettingError(
            f"increments were given, but {why}: they would change nothing.\n"
            "Pass increments=here.increments(x), which is None where none are needed."
        )


def _door_of(scheme: object) -> str:
    """Return the door of a scheme, or raise DoorError unless it has just one."""
    doors = [door for door, (kind, *_) in _DOORS.items() if isinstance(scheme, kind)]
    if len(doors) > 1:
        raise DoorError(
            f"Where got {type(scheme).__name__}, a scheme of several doors: {', '.join(doors)}.\n"
            f"Name the door: Where({doors[0]}=...)."
        )
    if not doors:
        raise DoorError(f"Where needs schemes, such as Rotary(...) or ALiBi(...), but got {_described(scheme)}")
    return doors[0]


def _described(given: object) -> str:
    """Describe what was passed instead of a scheme, with the way out."""
    if isinstance(given, type):
        return f"the class {given.__name__}.\nPass an object, not the class: {given.__name__}(...)."
    if isinstance(given, str):
        return f"the text {given!r}.\nBy name: whatwhere.scheme({given!r}, dim=..., num_heads=..., max_length=...)."
    if given is None:
        return "None.\nLeave it out; Where() has no scheme."
    if isinstance(given, (list, tuple)):
        return f"{_article(type(given))}.\nPass each by itself: Where(Rotary(...), ALiBi(...))."
    if isinstance(given, nn.Embedding):
        return f"an Embedding.\nLearned positions are Learned({given.embedding_dim}, {given.num_embeddings})."
    return f"{_article(type(given))}.\nMake it a subclass of InputEncoding, QueryKeyMap or ScoreBias."


def _is_bare(module: nn.Module) -> bool:
    """Return whether a call of the module is its class's forward and nothing else: no hook, nothing patched."""
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return not (any(hooks) or "forward" in vars(module) or _has_any_global_hook())


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
