"""Two configurations of rotary, as the page takes them: controls, rotations of pairs, cosines by distance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.rotary import RotarySpectrum
from whatwhere.studio.api.parameters import Control


@dataclass(frozen=True)
class RotaryPreset:
    """A rotary that a configuration can begin with.

    Args:
        name: in settings, as in "from=plain".
        title: a short name to read.
    """

    name: str
    title: str


@dataclass(frozen=True)
class ScalingEntry:
    """A RoPE scaling of the catalogue."""

    name: str
    formula: str
    paper: str
    url: str
    used_by: Sequence[str]


@dataclass(frozen=True, eq=False)
class PairRotations:
    """The pairs of one configuration, in their order.

    Args:
        python: an expression that builds the rotary.
        follows_length: whether the frequencies depend on the length; they are those of the claimed one.
        magnitude: factor of queries and keys.
        trained: the trained length.
        pairs: how many.
        frequencies: radians per position.
        unscaled_frequencies: the same without the scaling.
        spectrum: wavelengths and rotations.
        partial_count: pairs without a full rotation in the trained length.
        partial_claimed_count: the same in the claimed length.
        unseen_count: pairs that reach new angles.
        constant_count: pairs that never rotate.
    """

    python: str
    follows_length: bool
    magnitude: float
    trained: int
    pairs: int
    frequencies: Float[np.ndarray, " pairs"]
    unscaled_frequencies: Float[np.ndarray, " pairs"]
    spectrum: RotarySpectrum
    partial_count: int
    partial_claimed_count: int
    unseen_count: int
    constant_count: int


@dataclass(frozen=True, eq=False)
class RotaryConfiguration:
    """One of the two configurations.

    Args:
        preset: the name of what it begins with.
        title: of that.
        lengths: how its lengths are known; "" for a plain rotary.
        scaling: the name of its scaling, or "none".
        parameters: their controls.
        own_lists: whether the factors of each pair are the model's own.
        problem: why it cannot be built, or None.
        rotations: of its pairs; None where it cannot be built.
    """

    preset: str
    title: str
    lengths: str
    scaling: str
    parameters: Sequence[Control]
    own_lists: bool
    problem: str | None
    rotations: PairRotations | None


@dataclass(frozen=True, eq=False)
class RotaryAgreement:
    """Cosines by distance between vectors that are rotated by one rotary and by another.

    Args:
        between: of the two configurations; None where their pairs differ in number.
        a, b: of each with itself unscaled; None where it cannot be built.
    """

    between: Float[np.ndarray, " distances"] | None
    a: Float[np.ndarray, " distances"] | None
    b: Float[np.ndarray, " distances"] | None


@dataclass(frozen=True, eq=False)
class RotaryLab:
    """Two configurations of rotary.

    Args:
        missing: why the open model has none; None where it has one.
        presets: what a configuration can begin with.
        scalings: of the catalogue.
        claimed: the length of the text.
        sides: the two configurations.
        distances: those of the cosines.
        cosines: how far they agree.
    """

    missing: str | None
    presets: Sequence[RotaryPreset]
    scalings: Sequence[ScalingEntry]
    claimed: int
    sides: tuple[RotaryConfiguration, RotaryConfiguration]
    distances: Int[np.ndarray, " distances"]
    cosines: RotaryAgreement
