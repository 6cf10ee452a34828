"""Fourier positions: rotary whose waves are mixed."""

from math import pi
from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import angles, inverse_frequencies
from whatwhere.where.rotation import rotate_first


@final
class FoPE(QueryKeyMap):
    """Rotate by waves that are sums of rotary's waves, and not at all where rotary's are too slow to be learned.

        (x_a, x_b) -> (x_a c - x_b s, x_a s + x_b c)
        pair n of head h:  c = sum_m cos(p w_m) C_hmn,  s = sum_m sin(p w_m) S_hmn
        w_m = theta ** (-2m / head_dim) > 2 pi / original_length;  the pairs of slower waves keep c = 1, s = 0

    Hua et al. 2024, https://arxiv.org/abs/2412.17739. A pair that does not complete one turn within the trained length
    has shown only part of its angles, and is left as it is. Three readings of the code circulate. We follow vLLM's:
    every kept wave feeds every kept pair. The authors keep at most head_dim / 4 pairs, divide C and S by their column
    sums, which may vanish, and give the slow pairs s = 1, which mixes their two features. C and S start as the unit
    matrix plus Xavier noise of `gain`, as theirs do, and are trained; in their code they stay as drawn.

    With C and S the unit matrix, and no wave too slow, this is Rotary exactly. Otherwise no rotation: lengths change,
    and scores see more than the distance.

    Args:
        head_dim: features of a head, even.
        original_length: the trained length, at least 7: the fastest wave needs 2 pi positions for a turn.
        sets: of C and S. Head n of H takes set floor(n sets / H): with the number of key heads, each key and its
            queries share one of their own; 1 is one for all.
        theta: above 0.
        interleaved: pairs are (2i, 2i+1); else (i, i + head_dim/2).
        gain: of the noise, 0 or more.

    Learned: `cosines` C and `sines` S, (sets, waves, waves). Any length. Engines: dense, sdpa, flex. Used by: the
    paper's language models, InternS1 Pro.

    >>> rope = FoPE(head_dim=4, original_length=1000, gain=0.0)
    >>> q = torch.ones(1, 1, 2, 4)
    >>> rope(q, q, torch.tensor([0, 1]))[0][0, 0].detach()
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  0.9900,  1.3818,  1.0099]])
    """

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
        require_even("FoPE", "it turns pairs of features", head_dim=head_dim)
        require_positive("FoPE", theta=theta)
        if isinstance(gain, bool) or not 0 <= gain < float("inf"):
            raise SettingError(f"FoPE got gain={gain!r}, but needs a finite number of at least 0.")
        self.head_dim, self.original_length, self.sets = head_dim, original_length, sets
        self.theta, self.interleaved, self.gain = theta, interleaved, gain
        if original_length < 7:
            raise SettingError(
                f"FoPE got original_length={original_length}, but not even the fastest wave completes a turn there, so "
                "nothing would tell where a token stands.\nPass the trained length, 7 or more."
            )
        self.waves = sum(w > 2 * pi / original_length for w in inverse_frequencies(head_dim, theta, "cpu").tolist())
        shape = (sets, self.waves, self.waves)
        self.cosines = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.sines = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw C and S anew: the unit matrix plus noise."""
        for weight in (self.cosines, self.sines):
            nn.init.xavier_normal_(weight, gain=self.gain)
            with torch.no_grad():
                weight.add_(torch.eye(self.waves, device=weight.device, dtype=weight.dtype))

    @property
    def kept_frequencies(self) -> Float64[Tensor, " waves"]:
        """How far the waves that are mixed turn per position, in radians."""
        return self._frequencies()

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Give c and s of every pair, (batch, sets, tokens, pairs), in float32 at least."""
        index = positions.single_axis("FoPE")
        turns = angles(index, self._frequencies(index.device))[:, None]  # (batch, 1, tokens, waves)
        # In float64, which autocast leaves alone.
        c, s = turns.cos() @ self.cosines.double(), turns.sin() @ self.sines.double()
        wide = torch.promote_types(self.cosines.dtype, torch.float32)
        still = (0, self.head_dim // 2 - self.waves)
        return F.pad(c, still, value=1.0).to(wide), F.pad(s, still).to(wide)

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn queries, each head by its set."""
        c, s = (self._for_heads(part, q.shape[1]) for part in bound)
        return rotate_first(q, c, s, self.interleaved)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys, as queries are."""
        return self.map_query(k, bound)

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, original_length={self.original_length}, sets={self.sets}, "
            f"theta={self.theta}, interleaved={self.interleaved}, gain={self.gain}"
        )

    def _frequencies(self, device: torch.device | None = None) -> Float64[Tensor, " waves"]:
        return inverse_frequencies(self.head_dim, self.theta, device)[: self.waves]

    def _for_heads(self, part: Tensor, heads: int) -> Tensor:
        sets = self.sets
        if sets == 1 or sets == heads:
            return part
        if heads % sets == 0:
            return part.repeat_interleave(heads // sets, dim=1)
        if sets % heads == 0:
            return part[:, :: sets // heads]
        raise ShapeError(
            f"FoPE has {sets} sets of coefficients, which do not divide among {heads} heads.\n"
            "Pass sets= the number of key heads, or 1."
        )
