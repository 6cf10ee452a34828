"""Fourier position embedding: rotary positions with mixed waves."""

from math import pi
from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import alike, assign
from whatwhere.kernels.rotary import rotate
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator, require_range
from whatwhere.where.base import Bound, Heads, QueryKeyMap
from whatwhere.where.frequencies import angles, inverse_frequencies
from whatwhere.where.rotary_map import difference


@final
class FoPE(QueryKeyMap):
    """Rotate by learned sums of rotary's waves, and do not rotate pairs whose waves are too slow to be learned.

        (x_a, x_b) -> (x_a c - x_b s, x_a s + x_b c)
        pair n of head h:  c = sum_m cos(p w_m) C_hmn,  s = sum_m sin(p w_m) S_hmn
        w_m = theta ** (-2m / head_dim) > 2 pi / original_length;  the pairs of slower waves keep c = 1, s = 0

    Hua et al. 2024, https://arxiv.org/abs/2412.17739. A pair that does not complete one rotation within the trained
    length has shown only part of its angles in training, and is left as it is. Three versions of the code circulate.
    This is vLLM's: every kept wave contributes to every kept pair. The authors keep at most head_dim / 4 pairs, divide
    C and S by their column sums, which may vanish, and set s = 1 for the slow pairs, which mixes their two features. C
    and S are initialized as the identity plus Xavier noise of `gain`, as theirs are, and are trained; in their code
    they keep their initial values.

    With C and S the identity, and no wave too slow, this is Rotary exactly. Otherwise the map is not a rotation: norms
    change, and scores depend on more than the distance.

    Args:
        head_dim: features of a head, even.
        original_length: the trained length, at least 7: the fastest wave has a wavelength of 2 pi positions.
        sets: number of matrices C and S. Head n of H uses set floor(n sets / H): with the number of key heads, each key
            head and its query heads have their own set; 1 is one set for all heads.
        theta: base of the frequencies, above 0.
        interleaved: pairs are (2i, 2i+1); else (i, i + head_dim/2).
        gain: of the initial noise, 0 or more.

    Learned: `cosines` C and `sines` S, (sets, waves, waves). Any length. Engines: dense, sdpa, flex. Used by: the
    paper's language models, InternS1 Pro.

    Raises:
        ShapeError: If a size is not a whole number of at least 1, or head_dim is odd.
        SettingError: If theta or gain is out of range, or original_length is below 7.

    Examples:
        >>> rope = FoPE(head_dim=4, original_length=1000, gain=0.0)
        >>> q = torch.ones(1, 1, 2, 4)
        >>> rope(q, q, torch.tensor([0, 1]))[0][0, 0].detach()
        tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
                [-0.3012,  0.9900,  1.3818,  1.0099]])
    """

    settings_in_repr = ("head_dim", "original_length", "sets", "theta", "interleaved", "gain")
    head_axes: ClassVar = {"cosines": 0, "sines": 0}
    cosines: Float[Tensor, "sets waves waves"]
    sines: Float[Tensor, "sets waves waves"]

    def __init__(
        self,
        head_dim: int,
        original_length: int,
        sets: int = 1,
        theta: float = 10_000.0,
        interleaved: bool = False,
        gain: float = 0.3,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("FoPE", head_dim=head_dim, original_length=original_length, sets=sets)
        require_even("FoPE", "it rotates pairs of features", head_dim=head_dim)
        require_positive("FoPE", theta=theta)
        if isinstance(gain, bool) or not 0 <= gain < float("inf"):
            raise SettingError(f"FoPE got gain={gain!r}, but needs a finite number of at least 0.")
        self.head_dim, self.original_length, self.sets = head_dim, original_length, sets
        self.theta, self.interleaved, self.gain = theta, interleaved, gain
        if original_length < 7:
            raise SettingError(
                f"FoPE got original_length={original_length}, but not even the fastest wave completes a rotation "
                "within it, so positions would have no effect.\nPass the trained length, 7 or more."
            )
        self.waves = sum(w > 2 * pi / original_length for w in inverse_frequencies(head_dim, theta, "cpu").tolist())
        shape = (sets, self.waves, self.waves)
        self.cosines = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.sines = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize C and S: the identity plus noise."""
        require_generator("FoPE", generator, self.cosines)
        for weight in (self.cosines, self.sines):
            values = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
            with alike(weight, generator) as common:
                nn.init.xavier_normal_(values, gain=self.gain, generator=common)
            assign(weight, values + torch.eye(self.waves, device=weight.device, dtype=weight.dtype))

    @property
    @final
    def kept_frequencies(self) -> Float64[Tensor, " waves"]:
        """The angles of the kept waves per position, in radians."""
        return self._frequencies()

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return c and s of every pair, (batch, sets, tokens, pairs), in float32 at least."""
        index = positions.single_axis("FoPE")
        radians = angles(index, self._frequencies(index.device))[:, None]  # (batch, 1, tokens, waves)
        # Autocast does not change float64.
        c, s = radians.cos() @ self.cosines.double(), radians.sin() @ self.sines.double()
        wide = torch.promote_types(self.cosines.dtype, torch.float32)
        padding = (0, self.head_dim // 2 - self.waves)
        return F.pad(c, padding, value=1.0).to(wide), F.pad(s, padding).to(wide)

    def map_query(self, q: Heads, bound: Bound) -> Heads:
        """Rotate queries, each head by its set."""
        c, s = (self._for_heads(table, q.shape[1]) for table in bound)
        return rotate(q, c, s, self.interleaved)

    def map_key(self, k: Heads, bound: Bound) -> Heads:
        """Rotate keys, as queries are."""
        return self.map_query(k, bound)

    def rerotate(self, k: Heads, old: Bound, new: Bound) -> Heads:
        """Map cached keys to other positions; their rounding errors grow by 1 / sqrt(c^2 + s^2) of the old ones.

        Raises:
            SettingError: If that is above 100 for some pair, so that little of the key is left.
        """
        c, s = (self._for_heads(table, k.shape[1]) for table in old)
        lost = c.detach().square() + s.detach().square() < 1e-4
        message = (
            "FoPE has shrunk pair {} of the key in slot {} to less than a 100th, so it cannot be mapped to another "
            "position.\nCompute the keys again from their hidden vectors."
        )
        require_range(lost.long(), 1, lambda _, slot: SettingError(message.format(slot[3], slot[2])))
        turn = difference((c, s), (self._for_heads(new[0], k.shape[1]), self._for_heads(new[1], k.shape[1])))
        return rotate(k, *turn, self.interleaved)

    def _frequencies(self, device: torch.device | None = None) -> Float64[Tensor, " waves"]:
        return inverse_frequencies(self.head_dim, self.theta, device)[: self.waves]

    def _for_heads(self, table: Tensor, heads: int) -> Tensor:
        sets = self.sets
        if sets == 1 or sets == heads:
            return table
        if heads % sets == 0:
            return table.repeat_interleave(heads // sets, dim=1)
        if sets % heads == 0:
            return table[:, :: sets // heads]
        raise ShapeError(
            f"FoPE has {sets} sets of coefficients, which do not match {heads} heads.\n"
            "Pass sets= the number of key heads, or 1."
        )
