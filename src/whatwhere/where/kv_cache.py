"""`KVCache`: the keys and values of one layer, and the positions at which its keys were mapped."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Integer
from torch import Tensor
from torch.nn import functional as F

from whatwhere.checks import require_whole
from whatwhere.errors import PositionError, SettingError, ShapeError
from whatwhere.position.coordinates import last_document, require_positions
from whatwhere.position.positions import Positions, PositionsLike, as_positions, is_number, positions, text_positions
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.score_bias import ScoreBias


class KVCache:
    """The keys and values of one layer, with the positions at which its keys were mapped: `where.cache()` makes one.

    Keys are stored as `here.query_key` returns them. Operations change the cache in place and return it; `fork` and
    slices return others. Afterwards it holds what a forward pass would have put there from the same hidden vectors: a
    key that moves is rotated by the difference, from float64 angles, rounded once. What cannot be exact is refused, and
    then nothing has changed. Hidden vectors stay as they are: the guide "Reuse a cache" says what is exact for a whole
    model.

    In bfloat16 a shift leaves keys within 1.21 units in the last place of a pair's norm, and errors of many add up.
    With `keys_dtype=torch.float32` they are within 1.21 units after any number of shifts, for twice the memory of keys;
    and within half a unit, as keys that are computed again, if they were mapped in float32 too, by
    `here.query_key(q, k.float())`. Then `k` is a copy of all, in the dtype of the values.

    Attributes:
        where: the layer's schemes.
        positions: of the keys in the cache.
        regime_length: the length that DynamicNTK and LongRoPE assume; None is that of each text at the time.
        least: the slots that `crop` has to keep: keys that a query before them would see have been forgotten.

    Examples:
        >>> from whatwhere import Rotary, Where
        >>> where = Where(Rotary(head_dim=4))
        >>> cache = where.cache()
        >>> q, k, v = torch.randn(3, 1, 2, 5, 4)
        >>> for a, b in ((0, 4), (4, 5)):  # a prompt of four tokens, and one more
        ...     here = cache.at(b - a)
        ...     new_q, new_k = here.query_key(q[:, :, a:b], k[:, :, a:b])
        ...     y = here.attention(new_q, *cache.append(here, new_k, v[:, :, a:b]))
        >>> whole = where.at(5)
        >>> cache, torch.allclose(y, whole.attention(*whole.query_key(q, k), v)[:, :, 4:], atol=1e-6)
        (<KVCache: 1 x 5 tokens, positions(5)>, True)
    """

    def __init__(
        self, where: Any, capacity: int = 0, keys_dtype: torch.dtype | None = None, regime_length: int | None = None
    ) -> None:
        self.where, self.capacity, self.keys_dtype, self.regime_length = where, capacity, keys_dtype, regime_length
        self.positions: Positions = positions(0)
        self.least = 0
        self._scheme: QueryKeyMap | None = where.query_key
        self._needed = {"k", "v"} | ({"increments"} if self._sums else set())
        if (score := where.score) is not None and score.sums_between and type(score).gates is not ScoreBias.gates:
            self._needed.add("gates")
        self._held: dict[str, Tensor] = {}  # by name; along axis 2 there may be room for more tokens
        self._room = 0  # tokens up to which they may be written to: what was given may not
        self._fitted: list[Any] = []  # sizes and dtypes of the last step, which fit
        self._gaps: int | None = None  # slots before forgotten keys, or paste(at=), left out coordinates
        self._no_next: tuple[int, PositionError] | None = None  # slots before the next one was unknown, and why

    def __copy__(self) -> "KVCache":
        """Return a cache of the same tensors, which neither writes to."""
        self._room = 0
        return self._alike()

    def _alike(self) -> "KVCache":
        other = object.__new__(KVCache)
        vars(other).update({**vars(self), "_held": dict(self._held), "_room": 0})  # only self may write to the tensors
        return other

    @property
    def tokens(self) -> int:
        """How many slots there are, those of padding among them."""
        return self.positions.index.shape[2]

    @property
    def k(self) -> Float[Tensor, "batch mapped_key_heads keys mapped_dim"]:
        """The mapped keys, in the dtype of the values, and valid until the cache changes."""
        return self._of("k") if self.keys_dtype is None else self._of("k").to(self._held["v"].dtype)

    @property
    def v(self) -> Float[Tensor, "batch key_heads keys value_dim"]:
        """The values, valid until the cache changes."""
        return self._of("v")

    @property
    def gates(self) -> Float[Tensor, "batch heads keys *features"] | None:
        """The gates, where they are cached."""
        return self._of("gates") if "gates" in self._held else None

    @property
    def increments(self) -> Float[Tensor, "batch heads keys *features"] | None:
        """The increments, where they are cached."""
        return self._of("increments") if "increments" in self._held else None

    def _of(self, name: str) -> Tensor:
        if not self._held:
            raise ShapeError("this cache is empty.\nAppend the keys and values of a prompt first.")
        return self._held[name].narrow(2, 0, self.tokens)

    def __repr__(self) -> str:
        return f"<KVCache: {self._batch} x {self.tokens} tokens, {self.positions}>"

    def next(self, n: int = 1) -> Positions:
        """Return the positions of n tokens that follow, as `positions.next`, also behind forgotten keys and images."""
        if not self.tokens:
            return as_positions(n, self.positions.device)
        if self._no_next is not None:
            raise self._no_next[1]
        return (self.positions.next if self._gaps is None and self.positions.axes == 1 else self.positions.next_text)(n)

    def tree(
        self, parents: Integer[Tensor, "*rows drafts"]
    ) -> tuple[Positions, Bool[Tensor, "batch 1 drafts all_keys"]]:
        """Return positions and mask of a tree of drafts, as `positions.tree` does, also behind forgotten keys."""
        return self.positions.tree(parents, self.next())

    def at(self, step: PositionsLike = 1) -> Any:
        """Bind the layer to new tokens and all keys: `where.at(step, cache.positions.append(step))`, a Here.

        A number counts the tokens that follow. Layers whose caches have the same positions are bound at once:
        `bind(wheres, step, positions.append(step))`.
        """
        new, keys = self._with_step(step)
        return self.where.at(new, keys if self.tokens else None, regime_length=self.regime_length)

    def append(
        self,
        step: Any,
        k: Float[Tensor, "batch mapped_key_heads new mapped_dim"],
        v: Float[Tensor, "batch key_heads new value_dim"],
        *,
        gates: Float[Tensor, "batch heads new *gate_features"] | None = None,
        increments: Float[Tensor, "batch heads new *increment_features"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch mapped_key_heads keys mapped_dim"], Float[Tensor, "batch key_heads keys value_dim"]
    ]:
        """Store the keys and values of new tokens: of a prompt, or of a step of decoding.

        Args:
            step: the Here that has mapped k, or the positions of the new tokens.
            k: keys as `here.query_key` returns them.
            gates, increments: of the new tokens, where the layer's schemes need those of all keys.

        Returns:
            All keys and values, as `here.attention` takes them.
        """
        if (new := getattr(step, "queries", None)) is not None:
            keys, regime = step.keys, step.regime_length
        else:
            (new, keys), regime = self._with_step(step, k.device), self.regime_length
        tensors, lengths = {"k": k, "v": v}, None
        if gates is not None or increments is not None:
            tensors |= {name: x for name, x in (("gates", gates), ("increments", increments)) if x is not None}
        if self._scheme is not None and self._scheme.follows_length:
            lengths = new.lengths(new, keys) if regime is None else torch.full_like(new.order, regime)
        self._append(new, keys, tensors, lengths)
        if self.keys_dtype is not None:
            return self.k, self.v
        after = keys.index.shape[2]
        return self._held["k"].narrow(2, 0, after), self._held["v"].narrow(2, 0, after)  # as those, in less time

    def crop(
        self, n: int | Integer[Tensor, "*batch"], drafts: Integer[Tensor, "*rows accepted"] | None = None
    ) -> "KVCache":
        """Keep the first n slots, and of the drafts behind them those that were accepted.

        Args:
            n: slots that stay; below 0 how many go from the end, as in a slice. A tensor has a number for each
                sequence: what is behind it becomes padding, and `next` goes on from each one's own last token.
            drafts: the accepted tokens of a draft tree, from root to leaf, by their numbers in the tree, for all
                sequences or for each; -1 is none.

        Raises:
            PositionError: If there are not so many slots, or keys that the next query would see have been forgotten.
        """
        ends = torch.as_tensor(n, device=self.positions.device).reshape(-1, 1)
        ends = torch.where(ends < 0, ends + self.tokens, ends)
        least, most = (int(end) for end in ends.aminmax())
        rows = (1,) if drafts is not None else (1, self._batch)
        if ends.is_floating_point() or not 0 <= least <= most <= self.tokens or len(ends) not in rows:
            raise PositionError(
                f"crop got n={n}, but needs a number of the {self.tokens} slots, or without drafts one for each of "
                f"{self._batch} sequences."
            )
        self._require_remembered(least)
        slots = torch.arange(most, device=self.positions.device)[None]
        absent = slots >= ends
        if drafts is not None:
            path = torch.atleast_2d(drafts).to(slots)
            if bool(((path < -1) | (most + path >= self.tokens)).any()):
                raise PositionError(
                    f"crop got drafts={drafts.tolist()}, but behind slot {most} there are {self.tokens - most}, which "
                    "are numbered from 0; -1 is none."
                )
            slots = torch.cat([slots.expand(len(path), -1), (most + path).clamp(0, self.tokens - 1)], dim=-1)
            absent = F.pad(path < 0, (most, 0))
        return self._keep(slots, absent if bool(absent.any()) else None)

    def __getitem__(self, tokens: slice | Int64[Tensor, " some"]) -> "KVCache":
        """Return another cache with a copy of some slots, such as a prefix that several texts share: `cache[:100]`."""
        part, every = self.positions[tokens], torch.arange(self.tokens, device=self.positions.device)
        slots, other = every[tokens], self._alike()
        self._require_remembered(int(slots.amax()) + 1 if len(slots) else 0)
        other._gather(slots[None])
        other._settle(slots[None])
        beginning = torch.equal(slots, every[: len(slots)]) and not self.positions.is_part
        starts = None if beginning else part.known_starts()
        other.positions = text_positions(part.index, part.order, part.segment, part.numbering, starts)
        other.least = min(self.least, len(slots))
        return other

    def fork(self, rows: Int64[Tensor, " some"] | Sequence[int] | None = None) -> "KVCache":
        """Return another cache with copies of some sequences, in any order and number; None is all of them.

        `cache.fork([0, 0, 0, 0])` begins four beams, or four answers to one prompt.
        """
        index = rows if isinstance(rows, Tensor) else torch.tensor([*(range(self._batch) if rows is None else rows)])
        index, other = index.to(self.positions.device, torch.int64), self._alike()
        other._held, other._fitted = {name: self._of(name).index_select(0, index) for name in self._held}, []
        other.positions = self.positions.select(index)
        return other

    def select(self, rows: Int64[Tensor, " some"] | Sequence[int]) -> "KVCache":
        """Keep some sequences, in any order and number: the beams that survive, the texts that have not ended."""
        vars(self).update(vars(self.fork(rows)))
        return self

    def forget(self, spare: int = 0) -> "KVCache":
        """Delete keys that no later query sees: those outside of the window (`where.kept`), and padding of all rows.

        Args:
            spare: tokens at the end that may still be cropped, such as drafts: what a query in place of the first of
                them sees is kept.

        Raises:
            PositionError: If there are not so many tokens, or the window is by coordinates that do not grow.
        """
        p, end = self.positions, self.tokens - spare
        if not 0 <= end <= self.tokens:
            raise PositionError(f"forget got spare={spare}, but needs a number of the {self.tokens} slots.")
        slots = torch.cat([self.where.kept(p[:end] if spare else p), torch.arange(end, self.tokens, device=p.device)])
        if p.segment is not None and not self._sums:
            slots = slots[(p.segment >= 0).any(0)[slots]]
        begin = self.tokens - len(slots)
        if begin == 0:
            return self
        self._no_next = None if (why := self._why_no_next()) is None else (0, why)
        last = p.start is not None and len(slots) > 0 and int(slots[0]) == begin  # which count on as ever
        kept = positions(len(slots), p.start + begin, p.device) if last and p.start is not None else p[slots]
        self._gather(slots[None])
        self.positions, self._gaps = kept, 0
        self.least = self.least if self.where.window is None else len(slots) - spare
        return self

    def shift(self, by: int | Sequence[int] | Integer[Tensor, " batch"]) -> "KVCache":
        """Move all tokens by a number of positions, towards the start if it is below 0.

        Args:
            by: one number; or one for each axis in a list, or one for each sequence in a tensor.

        Raises:
            ShapeError: If there are other axes or sequences.
        """
        self._require_movable("shift", sums=False)
        p, shape = self.positions, (1, -1, 1) if isinstance(by, Tensor) else (-1, 1, 1)
        step = torch.as_tensor(by, device=p.device).reshape(shape)
        if step.is_floating_point() or step.shape[0] not in (1, p.axes) or step.shape[1] not in (1, self._batch):
            raise ShapeError(
                f"shift got by={by}, but needs a whole number, or one for each of {p.axes} axes in a list, or one for "
                f"each of {self._batch} sequences in a tensor."
            )
        order = step[0] if _counts(p) else torch.zeros_like(step[0])
        return self._move(_moved(p, step, order, p.known_starts() + order if p.is_part else None))

    def drop(self, a: int, b: int) -> "KVCache":
        """Delete the slots from a up to b, as of a slice; later tokens of the document close up.

        The first of them goes to where the first deleted token was. That is a context shift, which keeps the first a
        tokens; and a cache with sinks.

        Raises:
            SettingError: If it cannot be exact for the scheme, or keys were forgotten that would come into the window.
        """
        self._require_movable("drop")
        if self.least:
            raise SettingError(
                "drop would bring keys into the window that this cache has forgotten.\nDrop before forget(); or keep "
                "the positions, with sinks by Window(size, first=4)."
            )
        a, b, _ = slice(a, b).indices(self.tokens)
        if a >= b:
            return self
        moves = _closed_up(self.positions, a, b)
        slots = torch.arange(self.tokens, device=self.positions.device)
        other = self._alike()  # so that nothing has changed where a map refuses to move
        p = other._keep(torch.cat([slots[:a], slots[b:]])[None]).positions
        vars(self).update(vars(other._move(_moved(p, *moves, p.known_starts() if p.is_part else None))))
        return self

    def paste(self, other: "KVCache", at: int | Integer[Tensor, " batch"] | None = None) -> "KVCache":
        """Append the keys and values of another cache of this layer, at other positions than they were mapped at.

        Args:
            other: of one document in each sequence, perhaps padded. It stays as it is; a batch of 1 serves all.
            at: the position of its first token, for all sequences or for each; None goes on from the last token.

        Raises:
            SettingError: If it cannot be exact, or the other has forgotten its first tokens and there is no `at`.
        """
        self._require_movable("paste")
        scheme, theirs = self._scheme, other._scheme
        if theirs is not scheme and repr(theirs) != repr(scheme):
            raise SettingError(f"paste got a cache of {theirs}, but this one is of {scheme}.")
        if other.least and at is None:
            raise SettingError(
                "paste got a cache that has forgotten its first tokens.\nPass at=, the position of the first it has."
            )
        if not other.tokens:
            return self
        new = self._behind(other.positions, at)
        rows = max(self._batch or other._batch, new.batch)
        moved = other.fork([0] * rows if other._batch == 1 else None)._move(new)
        tensors = {name: moved._of(name) for name in moved._held if name != "lengths"}
        if self.keys_dtype is None:
            tensors["k"] = tensors["k"].to(self._held["k"].dtype) if self._held else moved.k
        forgotten = self.tokens + other.least if other.least else self.least
        keys = self.positions.append(new) if self.tokens else new
        then = new if keys is not new else None
        why, before, gaps = other._why_no_next() or self._why_no_next(then), self.tokens, self._gaps
        beyond = why is None and then is not None and bool((first_token(then)[0] > self.next().index[0]).any())
        gaps = before if gaps is None and (other._gaps is not None or beyond) else gaps
        self._append(new, keys, tensors, moved._lengths)
        self.least, self._gaps = forgotten, gaps
        self._no_next = self._no_next or (None if gaps is None or why is None else (before, why))
        return self

    def regime(self, n: int | None = None) -> "KVCache":
        """Rotate all keys to the frequencies of one length, where a scaling follows it: DynamicNTK and LongRoPE.

        `cache.at` binds later steps with the same frequencies. Other schemes have them always.

        Args:
            n: the length; None is that of each text now, and later steps have those of their own.
        """
        if n is not None:
            require_whole("regime", n=n)
        if (old := self._lengths) is not None:
            self._move(self.positions, self.positions.lengths() if n is None else torch.full_like(old[:1], n))
        self.regime_length = n
        return self

    @property
    def _lengths(self) -> Tensor | None:
        """Return the lengths of texts for which each key was mapped, in one row where all sequences share it."""
        every = self._of("lengths")[:, 0] if "lengths" in self._held else None
        return every if every is None or bool((every != every[:1]).any()) else every[:1]

    @property
    def _batch(self) -> int:
        return self._held["k"].shape[0] if self._held else 0

    @property
    def _sums(self) -> bool:
        """Whether the map of each key is a sum over the tokens before it."""
        return self._scheme is not None and self._scheme.by_content

    def _with_step(self, step: PositionsLike, device: torch.device | None = None) -> tuple[Positions, Positions]:
        """Return positions of new tokens, and of all keys with them."""
        if not self.tokens:
            new = as_positions(step, device or self.positions.device)
            return new, new
        new = self.next(int(step)) if is_number(step) else as_positions(step)
        return new, self.positions.append(new)

    def _why_no_next(self, then: Positions | None = None) -> PositionError | None:
        """Return why `next` is unknown, or unknown behind `then`, unless it only leaves out some positions."""
        try:
            end = self.next().index[0]
        except PositionError as unknown:
            return unknown
        if then is None or then.axes > 1 or not bool((first_token(then)[0] < end).any()):
            return None
        return PositionError(
            "paste(other, at=...) put tokens before the end of this cache: the coordinates do not count on by 1, and "
            "nothing says how they continue.\nState them in each step: cache.at(positions(1, start=...))."
        )

    def _require_movable(self, operation: str, sums: bool = True) -> None:
        """Raise SettingError where tokens of this layer cannot be at other positions, or behind other tokens."""
        if self.where.input is not None:
            raise SettingError(position_inside(operation, type(self.where.input).__name__))
        if self._sums and sums:
            raise SettingError(
                f"{type(self._scheme).__name__} rotates each key by a sum over all tokens before it, which are others "
                f"after {operation}.\nCompute the keys again, behind their new beginning."
            )

    def _require_remembered(self, end: int) -> None:
        if end < self.least:
            raise PositionError(
                f"a query behind slot {end} would see keys that this cache has forgotten: it can go back to slot "
                f"{self.least}.\nForget less: after forget(spare=n), n tokens can be cropped."
            )

    def _append(self, new: Positions, keys: Positions, tensors: dict[str, Tensor], lengths: Tensor | None) -> None:
        """Store the tensors of new tokens, all of whose keys are at some positions then."""
        before, after = self.tokens, keys.index.shape[2]
        given = [after - before, new.index.shape, *[(name, x.shape, x.dtype) for name, x in tensors.items()]]
        if given != self._fitted:  # else it fits as the step before
            self._require_fit(tensors, new, keys)
            self._fitted = given
        if self.keys_dtype is not None:
            tensors["k"] = tensors["k"].to(self.keys_dtype)
        if lengths is not None:
            tensors["lengths"] = lengths[:, None].expand(len(tensors["k"]), -1, -1)
        self._write(tensors, before, after)
        self.positions = keys

    def _require_fit(self, tensors: dict[str, Tensor], new: Positions, keys: Positions) -> None:
        """Raise unless tensors have the tokens of their positions, and the sizes, names and dtypes of the cache."""
        (_, batch, n), held = new.index.shape, self._held
        if keys.index.shape[2] != self.tokens + n:
            raise ShapeError(
                f"{keys.tokens} keys were bound, but the cache has {self.tokens}, and {n} tokens are new.\n"
                "Bind them by cache.at(step), or where.at(step, cache.positions.append(step))."
            )
        rows = tensors["k"].shape[0]
        for name, x in tensors.items():
            before, size = held.get(name, x), x.shape
            fits = len(size) > 2 and size[0] == rows == before.shape[0] and size[2] == n and batch in (1, rows)
            if not fits or size[1] != before.shape[1] or size[3:] != before.shape[3:]:
                raise ShapeError(
                    f"{name} has shape {tuple(x.shape)}, but the new positions are for (batch, heads, {n}, ...) with "
                    f"batch {rows if new.batch == 1 else new.batch}, and the cache has {tuple(before.shape)}."
                )
            if x.dtype != before.dtype and (name != "k" or self.keys_dtype is None):
                raise SettingError(
                    f"{name} is {x.dtype}, but the cache {before.dtype}.\nPass {name}.to({before.dtype})."
                )
        if (needed := set(held) - {"lengths"} or self._needed | set(tensors)) != set(tensors):
            raise SettingError(
                f"the cache needs {', '.join(sorted(needed))} of each token, but got {', '.join(sorted(tensors))}.\n"
                "Pass gates=here.gates(x) and increments=here.increments(x) of the new tokens, each always or never."
            )

    def _write(self, tensors: dict[str, Tensor], before: int, after: int) -> None:
        """Write tensors behind what is there, with room for later ones."""
        held = self._held
        graph = torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors.values(), *held.values()))
        if graph or (not before and self.capacity <= after):
            for name, x in tensors.items():
                held[name] = torch.cat([held[name][:, :, :before], x], dim=2) if before else x
            self._room = 0
            return
        # What was made under inference_mode may not be written to without it, and torch.compile cannot ask for it.
        inferring = torch.compiler.is_compiling() or torch.is_inference_mode_enabled()
        if not held or after > self._room or (not inferring and any(x.is_inference() for x in held.values())):
            self._room = max(self.capacity, after * 3 // 2 + 16 if before else after)
            for name, x in tensors.items():
                with torch.inference_mode(False):
                    larger = x.new_empty(*x.shape[:2], self._room, *x.shape[3:])
                if before:
                    larger[:, :, :before] = held[name][:, :, :before]
                held[name] = larger
        for name, x in tensors.items():
            held[name].narrow(2, before, after - before).copy_(x)

    def _move(self, new: Positions, lengths: Tensor | None = None) -> "KVCache":
        """Map the keys to other positions, or as those of texts of other lengths."""
        scheme, old = self._scheme, self._lengths
        lengths = old if lengths is None else lengths
        if scheme is not None and not self._sums and self._held:
            pairs = ((self.positions, old), (new, lengths))
            bounds = (scheme.bind(p) if n is None else scheme.bind(p, n) for p, n in pairs)
            self._held["k"], self._room = scheme.rerotate(self._of("k"), *bounds), 0
            if lengths is not None:
                self._held["lengths"] = lengths[:, None].expand(self._batch, -1, -1)
        self.positions = new
        return self

    def _gather(self, slots: Int64[Tensor, "rows kept"]) -> None:
        """Keep copies of the tensors at some slots, for all sequences or for each."""
        self._held = {name: _at_slots(self._of(name), slots) for name in self._held}
        self._room = 0

    def _settle(self, slots: Int64[Tensor, "rows kept"]) -> None:
        """Forget gaps, and why the next position was unknown, where all slots that stay are from before."""
        n, (gaps, why) = slots.shape[1], (self._gaps, self._no_next)
        if gaps is not None:
            first, unknown = (int((slots < end).cumprod(-1).sum(-1).amin()) for end in (gaps, why[0] if why else 0))
            self._gaps = first if first < n else None
            self._no_next = (unknown, why[1]) if why is not None and max(first, unknown) < n else None

    def _keep(self, slots: Int64[Tensor, "rows kept"], absent: Bool[Tensor, "batch kept"] | None = None) -> "KVCache":
        """Keep some slots as a text of its own, for all sequences or for each; those that are absent become padding."""
        p = self.positions
        index, order = p.index.take_along_dim(slots[None], -1), p.order.take_along_dim(slots, -1)
        segment = None if p.segment is None else p.segment.take_along_dim(slots, -1)
        starts = p.known_starts().take_along_dim(slots, -1) if p.is_part else None
        if absent is not None:
            segment = torch.where(absent, -1, torch.zeros_like(order) if segment is None else segment)
        if len(slots) > 1 or not torch.equal(slots[0], torch.arange(slots.shape[1], device=slots.device)):
            self._gather(slots)  # else the rest of the tensors is overwritten, or left behind by a larger one
        self._settle(slots)
        self.positions = text_positions(index, order, segment, p.numbering, starts)
        return self

    def _behind(self, p: Positions, at: int | Tensor | None) -> Positions:
        """Return positions of another cache, moved behind those of this one."""
        own, empty = self.positions, not self.tokens
        document = _documents(p)
        if bool(((document != last_document(document)) & (document >= 0)).any()):
            raise PositionError("paste needs a cache of one document, but this one has several.\nPaste slices of it.")
        first, begin = first_token(p)
        start = first if empty or at is not None else self.next().index.amin(0)
        start = start if at is None else torch.as_tensor(at, device=p.device).reshape(-1, 1)
        end = begin if empty else torch.where(_documents(own) < 0, -1, own.order).amax(-1, keepdim=True) + 1
        if _counts(p) and (empty or _counts(own)):
            end = start if empty else torch.maximum(end, start)
        moved = _moved(p, (start - first)[None], end - begin, None)
        if own.segment is None and moved.segment is None:
            return moved
        joins = torch.where(document < 0, -1, last_document(_documents(own)))
        return text_positions(moved.index, moved.order, joins, own.numbering)


def first_token(p: Positions) -> tuple[Tensor, Int64[Tensor, "batch 1"]]:
    """Return the least coordinate and the least order of each sequence, without padding."""
    padding = _documents(p) < 0
    least, order = (x.masked_fill(padding, int(x.amax())).amin(-1, keepdim=True) for x in (p.index.amin(0), p.order))
    return least, order


def _documents(p: Positions) -> Int64[Tensor, "rows tokens"]:
    return torch.zeros_like(p.order) if p.segment is None else p.segment


def position_inside(operation: str, name: str) -> str:
    """Return why tokens under an input encoding stay at their positions."""
    return (
        f"{name} is added to the token vectors, so the position of each token is inside its hidden vector, and "
        f"{operation} cannot change it.\nCompute the tokens again at their new positions."
    )


def _at_slots(x: Tensor, slots: Int64[Tensor, "rows kept"]) -> Tensor:
    """Return a tensor (batch, any, tokens, ...) at some slots of all its sequences, or of each."""
    if len(slots) == 1:
        return x.index_select(2, slots[0])
    return x.take_along_dim(slots.view(len(slots), 1, -1, *(1,) * (x.dim() - 3)), 2)


def _counts(p: Positions) -> bool:
    """Return whether the order of tokens is their coordinate."""
    return p.start is not None or (p.axes == 1 and not p.real and torch.equal(p.index[0], p.order))


def _moved(p: Positions, by: Tensor, order_by: Tensor, starts: Tensor | None) -> Positions:
    """Return positions with `by` added to coordinates and `order_by` to orders, where they are not padding."""
    real = _documents(p) >= 0
    index, order = p.index + by * real, p.order + order_by * real
    if not p.real:
        require_positions(index, torch.int64)
    return text_positions(index, order, p.segment, p.numbering, starts)


def _closed_up(p: Positions, a: int, b: int) -> tuple[Tensor, Int64[Tensor, "batch kept"]]:
    """Return by what the tokens that stay move in coordinate and in order when the slots from a up to b go.

    Of an image that is cut, the part before a stays, and the next token comes after its largest coordinate.
    """
    least, most, rows = p.index.amin(0), p.index.amax(0), torch.arange(p.batch, device=p.device)
    document = _documents(p)
    by, order_by = (torch.zeros_like(x[:, b:]) for x in (least, p.order))
    for each in document[:, a:b].unique().tolist():
        gone, later = document[:, a:b] == each, document[:, b:] == each
        moves = later & gone.any(-1, keepdim=True)
        if each < 0 or not bool(moves.any()):
            continue
        first, following = a + gone.int().argmax(-1), b + later.int().argmax(-1)
        start = least[rows, first]
        if p.axes > 1 and a:
            end = torch.where(document[:, :a] == each, most[:, :a] + 1, 0).amax(-1)
            start = torch.where(start == most[rows, first], start, torch.maximum(start, end))
        by = torch.where(moves, (start - least[rows, following])[:, None], by)
        order_by = torch.where(moves, (p.order[rows, first] - p.order[rows, following])[:, None], order_by)
    return F.pad(by, (a, 0))[None], F.pad(order_by, (a, 0))
