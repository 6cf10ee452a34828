"""What the rotary schemes share: pairs of features of queries and keys, rotated by tables of cosines and sines."""

import warnings
from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import RegimeWarning, SettingError, ShapeError
from whatwhere.kernels.rotary import is_nested, rotate, rotate_, rotate_both, rotate_both_
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable
from whatwhere.where.base import Bound, Heads, QueryKeyMap, device_of
from whatwhere.where.scaling import FrequencyCache, Scaling, or_unscaled

Tables = tuple[Tensor, Tensor]  # cosines and sines, each (batch or 1, heads or 1, tokens, pairs)


class RotaryMap(QueryKeyMap):
    """Rotate pairs of features, in float32 at least, and copy the features for which there are no tables.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

    A subclass implements `bind`, which returns (cos, sin), each (batch, 1, tokens, pairs) for all heads, perhaps with a
    common factor. Where queries and keys have different tables, it overrides `_query_tables` and `_key_tables` too.
    """

    head_axes: ClassVar = {}
    interleaved: bool
    """Whether a pair is (2i, 2i+1); else it is (i, i + pairs)."""
    rotary_start: int = 0
    """The first feature of the pairs; those before it are copied."""

    def map_query(self, q: Heads, bound: Bound) -> Heads:
        """Rotate queries."""
        return self._rotate(q, *self._query_tables(bound, q.dtype))

    def map_key(self, k: Heads, bound: Bound) -> Heads:
        """Rotate keys."""
        return self._rotate(k, *self._key_tables(bound, k.dtype))

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
        """Rotate queries and keys, in one pass where they have the same tables.

        Both may be views of one tensor, as the outputs of a fused projection are.

        Raises:
            SettingError: If in_place=True, and q and k overlap in memory.
        """
        cos, sin = self._query_tables(at_queries, q.dtype)
        key_cos, key_sin = self._key_tables(at_keys, k.dtype)
        one_pass = key_cos is cos and key_sin is sin and self._one_pass
        if in_place:
            if _overlap(q, k):
                raise SettingError(
                    "in_place=True would rotate the same numbers twice: q and k overlap in memory.\n"
                    "Pass k.clone(), or in_place=False."
                )
            if one_pass:
                return rotate_both_(q, k, cos, sin, self.interleaved)
            return self._rotate_(q, cos, sin), self._rotate_(k, key_cos, key_sin)
        if one_pass:
            return rotate_both(q, k, cos, sin, self.interleaved)
        return self._rotate(q, cos, sin), self._rotate(k, key_cos, key_sin)

    def rerotate(self, k: Heads, old: Bound, new: Bound) -> Heads:
        """Rotate cached keys from the positions or lengths they were bound to, to others.

        Examples:
            >>> from whatwhere import Rotary, positions
            >>> rope, p = Rotary(head_dim=4), positions(2)
            >>> k = torch.ones(1, 1, 2, 4)
            >>> old, new = rope.bind(p), rope.bind(positions(2, start=9))
            >>> torch.allclose(rope.rerotate(rope.map_key(k, old), old, new), rope.map_key(k, new), atol=1e-6)
            True
        """
        return self._rotate(k, *difference(self._key_tables(old, k.dtype), self._key_tables(new, k.dtype)))

    @property
    def _one_pass(self) -> bool:
        """Whether tables serve the whole of queries and keys as they are, so that both can be rotated in one pass."""
        return not self.rotary_start

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> Tensor:
        start = self.rotary_start
        if not start:
            return rotate(x, cos, sin, self.interleaved, back)
        return torch.cat([x[..., :start], rotate(x[..., start:], cos, sin, self.interleaved, back)], dim=-1)

    def _rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        start = self.rotary_start
        if not start:
            return rotate_(x, cos, sin, self.interleaved)
        rotate_(x[..., start:], cos, sin, self.interleaved)
        return x

    def _query_tables(self, bound: Bound, dtype: torch.dtype) -> Tables:
        cos, sin = bound
        return cos, sin

    _key_tables = _query_tables


class ScaledRotaryMap(RotaryMap):
    """Rotate `rotary_dim` features, the first ones or those from `rotary_start`, by frequencies that a scaling may
    change.
    """

    _shown_if_set = ("rotary_start", "reversed", "scaling")
    settings_in_repr: ClassVar[tuple[str, ...]] = ("head_dim", "theta", "interleaved", "rotary_dim", *_shown_if_set)

    def __init__(
        self,
        head_dim: int,
        theta: float,
        interleaved: bool,
        rotary_dim: int | None,
        scaling: Scaling | None,
        rotary_start: int = 0,
        reversed: bool = False,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        require_whole(owner, head_dim=head_dim)
        if isinstance(rotary_start, bool) or not isinstance(rotary_start, int) or not 0 <= rotary_start < head_dim:
            raise ShapeError(
                f"{owner} got rotary_start={rotary_start!r}, but needs a feature of the head: a whole number of 0 to "
                f"{head_dim - 1}."
            )
        if rotary_dim is None:
            rotary_dim = head_dim - rotary_start
            all_of = {"head_dim": head_dim} if not rotary_start else {"head_dim - rotary_start": rotary_dim}
            require_even(owner, "it rotates pairs of features", **all_of)
        require_whole(owner, rotary_dim=rotary_dim)
        require_even(owner, "it rotates pairs of features", rotary_dim=rotary_dim)
        if rotary_start + rotary_dim > head_dim:
            after = f" from rotary_start={rotary_start}" if rotary_start else ""
            raise ShapeError(
                f"{owner} got rotary_dim={rotary_dim}{after}, but a head has only head_dim={head_dim} features."
            )
        require_positive(owner, theta=theta)
        if scaling is not None and not isinstance(scaling, Scaling):
            raise SettingError(
                f"{owner} got scaling={scaling!r}, but needs a scaling, such as YaRN(factor=4.0, original_length=4096)."
            )
        self.head_dim, self.theta, self.interleaved, self.rotary_dim = head_dim, theta, interleaved, rotary_dim
        self.rotary_start, self.scaling, self.reversed = rotary_start, scaling, reversed
        self.follows_length = or_unscaled(scaling).follows_length
        or_unscaled(scaling).frequencies(rotary_dim, theta, "cpu")  # raises now where it does not fit these features
        self._frequency_cache = FrequencyCache()
        self._warned = False

    @property
    @final
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """The angle of each pair per position, in radians; that of the trained length where it depends on the
        length."""
        return self.frequencies()

    @property
    def magnitude(self) -> float:
        """The factor by which the rotated features are multiplied."""
        return or_unscaled(self.scaling).magnitude

    @final
    def frequencies(
        self, lengths: Int64[Tensor, "*batch"] | None = None, device: torch.device | str | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Return the angle of each pair per position, in radians; on the device of its parameters if None is passed."""
        device = device_of(self) if device is None else device
        return self._from_scaled(or_unscaled(self.scaling).frequencies(self.rotary_dim, self.theta, device, lengths))

    def _from_scaled(self, scaled: Float64[Tensor, "*batch pairs"]) -> Float64[Tensor, "*batch pairs"]:
        """Return the frequencies, from those of the scaling."""
        return -scaled if self.reversed else scaled

    def warn_of_other_frequencies(self, step: Positions) -> None:
        """Warn, once, where a step of decoding has other frequencies than the text before it, whose keys are cached."""
        trained, end = getattr(self.scaling, "original_length", None), step.max_length
        if self._warned or not self.follows_length or trained is None or end is None or end <= trained:
            return
        whole = step.document_length is None  # else a shard, with all keys of its text
        if torch.compiler.is_compiling() or not (step.tokens and whole and (step.start or readable(step.index))):
            return
        first, ends = step.index.amin((0, 2)).clamp(min=1), step.index.amax((0, 2)) + 1
        if step.start:  # known without a wait for the device
            first, ends = torch.tensor([step.start]), torch.tensor([end])
        if not torch.equal(self.frequencies(first), self.frequencies(ends)):
            self._warned = True
            warnings.warn(
                f"{type(self.scaling).__name__}, trained on {trained} tokens, has other frequencies for a text of "
                f"{end} than for the text before this step, whose keys are in the KV cache: scores mix both.\n"
                "Rotate them, and state the length from now on: cache.regime(n) and cache.at(step). Or pass one "
                "regime_length from the start.",
                RegimeWarning,
                stacklevel=3,
            )

    def rotate_back(self, y: Heads, bound: Bound) -> Heads:
        """Undo the map of queries or keys at the positions they were bound to.

        Where values are the rotated keys, as in DeepSeek-V4 (K = V), the outputs of attention are rotated back by the
        positions of the queries, so that each value comes in at its distance from the query.

        Raises:
            SettingError: If a subclass maps queries or keys by code of its own, and does not override this.

        Examples:
            >>> from whatwhere import Rotary, positions
            >>> rope, k = Rotary(head_dim=4), torch.ones(1, 1, 2, 4)
            >>> bound = rope.bind(positions(2, start=9))
            >>> torch.allclose(rope.rotate_back(rope.map_key(k, bound), bound), k, atol=1e-6)
            True
        """
        kind = type(self)
        as_here = (RotaryMap.map_query, RotaryMap.map_key, ScaledRotaryMap.rotate_back)
        if kind.rotate_back is as_here[2] and (kind.map_query, kind.map_key) != as_here[:2]:
            raise SettingError(
                f"{kind.__name__} overrides map_query or map_key, and what undoes them is not known.\n"
                "Override rotate_back, too."
            )
        cos, sin = bound
        if self.magnitude != 1:
            cos, sin = cos * self.magnitude**-2, sin * self.magnitude**-2
        return self._rotate(y, cos, sin, back=True)

    def _frequencies_at(
        self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Return the frequencies of each token, from the cache where they do not depend on the sequence."""
        scaling = or_unscaled(self.scaling)
        return self._from_scaled(self._frequency_cache.at(scaling, self.rotary_dim, self.theta, positions, lengths))


def difference(old: Tables, new: Tables) -> Tables:
    """Return cosine and sine of the rotation from old angles to new ones, in float64 and rounded once.

    z_new / z_old = z_new conj(z_old) / |z_old|^2        z = cos + i sin, with a factor that keys already have
    """
    cos, sin = (part.double() for part in old)
    new_cos, new_sin = (part.double() for part in new)
    norm = cos * cos + sin * sin
    dtype = new[0].dtype
    return ((new_cos * cos + new_sin * sin) / norm).to(dtype), ((new_sin * cos - new_cos * sin) / norm).to(dtype)


def _overlap(q: Tensor, k: Tensor) -> bool:
    """Return whether two tensors may share memory; under a trace or transform, whether they are one object."""
    if q is k or torch.compiler.is_compiling() or not (_has_addresses(q) and _has_addresses(k)):
        return q is k
    if q.untyped_storage().data_ptr() != k.untyped_storage().data_ptr():
        return False
    (first, end), (other, other_end) = _slots(q), _slots(k)
    if end <= other or other_end <= first:
        return False
    # As of a fused projection: two slices of one array, which do not meet where their strides are nested.
    sizes = (2, *map(max, q.shape, k.shape))
    return q.stride() != k.stride() or not is_nested((abs(first - other), *q.stride()), sizes)


def _slots(x: Tensor) -> tuple[int, int]:
    """Return the first slot of a tensor in its storage, and the one after the last."""
    first = int(x.storage_offset())
    return first, first + 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))


def _has_addresses(x: Tensor) -> bool:
    return type(x) in (Tensor, torch.nn.Parameter) and torch._C._has_storage(x) and x.data_ptr() != 0
