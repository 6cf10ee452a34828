"""Keys of rotary positions: `rope_parameters` of transformers 5, `rope_scaling` and others of transformers 4."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.keys import Json, Keys, short_repr
from whatwhere.models.configuration.layer_types import AllLayers, Labels, LayerRule
from whatwhere.models.configuration.model_type import MAX_FEATURES, Position, Sizes
from whatwhere.models.configuration.plan import Plan, ScalingPlan
from whatwhere.models.configuration.rope_scaling import (
    FACTOR_OF_VLLM,
    ORIGINAL,
    ROPE_TYPES,
    Context,
    read_scaling,
    require_fit,
)

FRACTION = "partial_rotary_factor"
IGNORED = ("finetuned",)  # a remark in the files of YaRN's authors, which affects nothing
NEUTRAL = dict.fromkeys(("attention_factor", "extrapolation_factor", "factor"), (1.0,))
"""Rope parameters that change nothing where the rope_type does not read them -> the value."""
MAX_AXES = 8
"""More axes than any model has; tokens of videos have 3 coordinates."""


@dataclass(frozen=True)
class Head:
    """How the features of a head are rotated, which the model type implies.

    Args:
        interleaved: whether pairs are (2i, 2i+1), rather than (i, i + rotary_dim/2).
        interleaved_key: the key that overrides this, if there is one.
        partial: whether a fraction of a head can be rotated; otherwise the model's code reads no fraction.
        dim_key: key of the number of rotated features, if heads keep them apart (latent attention).
        rotary_dim_key: key of rotary_dim itself, in place of the fraction.
        rotary_dim_unread: a key of rotary_dim that the model's code does not read: the fraction must agree with it.
        fraction_of: with dim_key, a key of features, of which the fraction is those that are rotated (dots3).
        whole: with dim_key, whether the map is of the whole head, of which the last features are rotated, because a
            temperature multiplies the others too (Mistral 4).
        learned: whether the frequencies are multiplied by weights (Mistral Large 4).
        sections: number of pairs of each axis if no key has them; None if tokens have one coordinate.
        axis_layout: how pairs are assigned to axes.
        reversed: whether pairs rotate by the negative angle.
    """

    interleaved: bool = False
    interleaved_key: str | None = None
    partial: bool = False
    dim_key: str | None = None
    rotary_dim_key: str | None = None
    rotary_dim_unread: str | None = None
    fraction_of: str | None = None
    whole: bool = False
    learned: bool = False
    sections: tuple[int, ...] | None = None
    axis_layout: Literal["chunked", "interleaved"] = "chunked"
    reversed: bool = False


@dataclass(frozen=True)
class RopeDefaults:
    """Defaults of one set of rope parameters, and its names in older configurations.

    Args:
        theta: if it is absent.
        theta_key: its key beside the parameters; None if only the parameters are read.
        fraction: of a head that is rotated, if it is absent.
        fraction_key: its key beside the parameters; None if only the parameters are read.
        scaled: whether `rope_scaling` applies to this set.
        parameters: those that transformers uses if there are none; None if layers with this set do not rotate then.
    """

    theta: float = 10_000.0
    theta_key: str | None = "rope_theta"
    fraction: float = 1.0
    fraction_key: str | None = FRACTION
    scaled: bool = True
    parameters: Mapping[str, object] | None = field(default_factory=dict)


@dataclass(frozen=True)
class RopeKeys:
    """Read rotary positions.

    Args:
        head: how a head is rotated.
        sets: one set of parameters under the label "", or one for each layer type.
        layers: which layers rotate, by which set.
        extra: further rope parameters of this model type, by the `rope_type` that reads them; "" is for all.
        renamed: a `rope_type` of this model type -> the usual one.
        reads_rope_scaling: whether the model's code reads `rope_scaling`, the form of transformers 4.
        required: whether the model's code fails without parameters (or null) for each type of its layers.
        fails_at_null: whether the model's code fails where the fraction beside the parameters is null, rather than
            rotating whole heads.
    """

    head: Head = field(default_factory=Head)
    sets: Mapping[str, RopeDefaults] = field(default_factory=lambda: {"": RopeDefaults()})
    layers: LayerRule = field(default_factory=AllLayers)
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    reads_rope_scaling: bool = True
    required: bool = False
    fails_at_null: bool = False

    @property
    def by_type(self) -> bool:
        """Whether each layer type has its own parameters."""
        return "" not in self.sets

    @property
    def _states_whole(self) -> bool:
        """Whether the fraction is that of the whole head, rather than of the features that are kept apart."""
        return self.head.whole and not self.head.learned

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of each layer."""
        labels, types = self.layers.read(keys, sizes.layers)
        parameters = self._parameters(keys)
        if self.required:
            self._require_sets(keys, labels)
        interleaved = self.head.interleaved
        if self.head.interleaved_key is not None:
            interleaved = keys.flag(self.head.interleaved_key, default=interleaved)
        plans = {
            label: self._plan(
                keys, _of_label(keys, sizes, labels, label), defaults, parameters.get(label, {}), label, interleaved
            )
            for label, defaults in self.sets.items()
        }
        unknown = [label for label in labels if label is not None and label not in plans] if self.by_type else []
        if unknown:
            raise SettingError(
                f"layer_types has {unknown[0]!r}, for which {keys.owner!r} has no rope parameters: it knows "
                f"{', '.join(self.sets)}."
            )
        by_layer = tuple(None if label is None else plans[label if self.by_type else ""] for label in labels)
        usual = next(iter(self.sets.values())).parameters or {}
        return Position(query_key=by_layer, layer_types=types, parameters=usual, notes=self._notes(parameters))

    def _parameters(self, keys: Keys) -> dict[str, Json | None]:
        """Return the parameters of each label, in the form of transformers 5 or 4."""
        newer, older = (keys.take(name, default=None) for name in ("rope_parameters", "rope_scaling"))
        for name, value in (("rope_parameters", newer), ("rope_scaling", older)):
            _require_dictionary(f"{keys.path}{name}", value)
        if older and not self.reads_rope_scaling:
            raise SettingError(
                f"{keys.path}rope_scaling is given, but the code of {keys.owner!r} reads rope_parameters only: write "
                f"{{{next(iter(self.sets))!r}: {{...}}, ...}}."
            )
        if newer and older and dict(newer) != dict(older):
            raise SettingError(
                f"{keys.path}rope_parameters and {keys.path}rope_scaling are both given, and differ: keep one.\n"
                "The first is the form of transformers 5, the second that of transformers 4."
            )
        if newer and self.by_type:
            return self._parameters_by_type(keys, newer)
        parameters = newer or older
        if not parameters:
            return {label: _copy(defaults.parameters) for label, defaults in self.sets.items()}
        return {label: parameters if defaults.scaled else {} for label, defaults in self.sets.items()}

    def _require_sets(self, keys: Keys, labels: Labels) -> None:
        given = keys.values.get("rope_parameters") or {}
        absent = [label for label in dict.fromkeys(labels) if label is not None and label not in given]
        if absent:
            raise SettingError(
                f"{keys.path}rope_parameters has no entry for layers of the type {absent[0]}, without which "
                f"transformers fails: write {{{absent[0]!r}: {{'rope_type': 'default', 'rope_theta': ...}}}}, or null "
                "if they do not rotate."
            )

    def _parameters_by_type(self, keys: Keys, newer: Json) -> dict[str, Json | None]:
        unknown = [key for key in newer if key not in self.sets]
        if unknown:
            raise SettingError(
                f"{keys.path}rope_parameters of {keys.owner!r} has one set for each layer type, "
                f"{', '.join(self.sets)}, but has {unknown[0]!r}.\n"
                f"Write them as {{{next(iter(self.sets))!r}: {{...}}, ...}}."
            )
        for label, value in newer.items():
            _require_dictionary(f"{keys.path}rope_parameters.{label}", value)
        return dict(newer)

    def _plan(
        self,
        keys: Keys,
        sizes: Sizes,
        defaults: RopeDefaults,
        parameters: Json | None,
        label: str,
        interleaved: bool,
    ) -> Plan | None:
        if parameters is None:
            return None
        name = "rope_scaling" if keys.values.get("rope_scaling") else "rope_parameters"
        rope = Keys(parameters, {}, keys.owner, f"{keys.path}{name}{'.' if label else ''}{label}.")
        rope_type = self._rope_type(rope)
        extra = (*self.extra.get("", ()), *self.extra.get(rope_type, ()))
        rope.defaults = dict.fromkeys(extra)
        theta = _inside_or_beside(rope, "rope_theta", keys, defaults.theta_key, defaults.theta)
        head_dim = sizes.head_dim if self.head.dim_key is None else keys.whole(self.head.dim_key, most=MAX_FEATURES)
        usual = self._usual_fraction(keys, sizes, defaults, head_dim)
        if usual == defaults.fraction != 1 and keys.values.get(defaults.fraction_key or "", usual) is None:
            if self.fails_at_null and rope.values.get(FRACTION) is None:
                raise SettingError(
                    f"{keys.path}{defaults.fraction_key} is null, with which transformers fails in {keys.owner!r}: "
                    f"write the fraction of a head that is rotated, or remove the key for {usual}."
                )
            usual = 1.0
        fraction = _inside_or_beside(rope, FRACTION, keys, defaults.fraction_key, usual)
        fraction = self._fraction_of_rotated(keys, sizes, fraction, head_dim)
        self._require_fraction(keys, fraction, rope_type)
        self._require_rotary_dim(keys, int(head_dim * fraction))
        if label and rope.values.get("truncate") is False:
            raise SettingError(
                f"{rope.path}truncate is false, but transformers looks for it beside the parameters of layer types, "
                "and rounds the bounds of YaRN's ramp: remove it, if the model was trained so."
            )
        original = keys.whole(ORIGINAL, default=None)
        scaling = read_scaling(rope_type, rope, Context(sizes.max_length, original, fraction))
        whole_head = fraction == 1.0 or rope_type == "proportional"
        rotary_dim = None if whole_head else int(head_dim * fraction)
        sections = self._sections(rope)
        rope.known |= {*IGNORED, *extra, ORIGINAL}
        rope.finish_all({**NEUTRAL, "max_position_embeddings": (sizes.max_length,)})
        keys.absorb(rope)
        require_rotary_dim(rope.path, head_dim, rotary_dim)
        require_fit(scaling, rope.path, rotary_dim or head_dim, theta)
        plan = rotary_plan(
            head_dim, theta, interleaved, rotary_dim, scaling, sections, self.head.axis_layout, rope.path
        )
        if self.head.reversed:
            plan = replace(plan, settings={**plan.settings, "reversed": True})
        if self.head.learned:
            plan = replace(plan, scheme="rotary-learned")
        return _of_whole_head(plan, sizes.head_dim) if self.head.whole else plan

    def _rope_type(self, rope: Keys) -> str:
        """Return the `rope_type`, from either of its keys; `su` and the model type's own names are replaced."""
        renamed = {"su": "longrope", **self.renamed}
        choices = tuple(dict.fromkeys((*ROPE_TYPES, *renamed)))
        names = [name for name in ("rope_type", "type") if rope.values.get(name) is not None] or ["rope_type"]
        stated = {name: rope.choice(name, choices=choices, default="default") for name in names}
        rope.known |= {"rope_type", "type"}
        types = {name: renamed.get(value, value) for name, value in stated.items()}
        if len(set(types.values())) > 1:
            raise SettingError(
                f"{rope.path}rope_type is {stated['rope_type']!r} and {rope.path}type is {stated['type']!r}: keep one."
            )
        rope_type = next(iter(types.values()))
        if self.by_type and "rope_type" not in types and rope_type != "default":
            raise SettingError(
                f"{rope.path}type is {stated['type']!r}, but in {rope.owner!r} transformers reads rope_type only, and "
                f"leaves positions unscaled: write rope_type={stated['type']!r}, or remove the parameters."
            )
        return rope_type

    def _usual_fraction(self, keys: Keys, sizes: Sizes, defaults: RopeDefaults, head_dim: int) -> float:
        """Return the fraction of a head that is rotated if no key has the fraction itself."""
        if self._states_whole:
            return rotated_fraction(head_dim, sizes.head_dim)
        key = self.head.rotary_dim_key
        rotary_dim = None if key is None else keys.whole(key, default=None, most=MAX_FEATURES)
        return defaults.fraction if rotary_dim is None else rotated_fraction(rotary_dim, head_dim)

    def _fraction_of_rotated(self, keys: Keys, sizes: Sizes, fraction: float, rotated: int) -> float:
        """Return 1 for heads that keep rotated features apart, if the fraction agrees with their number."""
        if self.head.fraction_of is None and not self._states_whole:
            return fraction
        name = self.head.fraction_of
        features = sizes.head_dim if name is None else keys.whole(name, most=MAX_FEATURES)
        if (part := int(features * fraction)) != rotated:
            of = f"a head of {features}" if name is None else f"{keys.path}{name}={features}"
            raise SettingError(
                f"{FRACTION} is {fraction} of {of}, {part} features, but "
                f"{keys.path}{self.head.dim_key} is {rotated}: make them agree."
            )
        return 1.0

    def _require_rotary_dim(self, keys: Keys, rotary_dim: int) -> None:
        name = self.head.rotary_dim_unread
        stated = None if name is None else keys.whole(name, default=None, most=MAX_FEATURES)
        if stated not in (None, rotary_dim):
            raise SettingError(
                f"{keys.path}{name} is {stated}, but the code of {keys.owner!r} does not read it, and rotates "
                f"{rotary_dim} features, by rope_parameters.{FRACTION}: make them agree."
            )

    def _require_fraction(self, keys: Keys, fraction: float, rope_type: str) -> None:
        if fraction > 1:
            raise SettingError(f"{FRACTION} is {fraction}, but a fraction of a head is at most 1.")
        if not self.head.partial and fraction != 1.0 and rope_type != "proportional":
            raise SettingError(
                f"{FRACTION} is {fraction}, but heads of {keys.owner!r} are rotated whole: transformers does not read "
                "this key there, or fails.\nIf the model does rotate a part, read it as a type that does: like='phi'."
            )

    def _sections(self, rope: Keys) -> tuple[int, ...] | None:
        if self.head.sections is None:
            return None
        expected = self.head.axis_layout == "interleaved"
        interleaved = rope.flag("mrope_interleaved", default=expected)
        if interleaved != expected:
            raise SettingError(
                f"{rope.path}mrope_interleaved is {interleaved!r}, but {rope.owner!r} has {self.head.axis_layout} ones."
            )
        sections = rope.listed("mrope_section", MAX_AXES, default=self.head.sections) or ()
        for axis, pairs in enumerate(sections):
            if isinstance(pairs, bool) or not isinstance(pairs, int) or not 0 <= pairs <= MAX_FEATURES:
                raise SettingError(
                    f"{rope.path}mrope_section[{axis}] is {short_repr(pairs)}, but must be a number of pairs, at "
                    "least 0."
                )
        return tuple(sections)

    def _notes(self, parameters: Mapping[str, Json | None]) -> tuple[str, ...]:
        factors = {each.get(FACTOR_OF_VLLM, 1.0) for each in parameters.values() if each} - {1.0}
        multiplied = f"{FACTOR_OF_VLLM} is not read, as in transformers; vLLM multiplies the magnitude by {{:.6g}}"
        notes = tuple(multiplied.format(factor) for factor in sorted(factors))
        if self.head.dim_key is None or self.head.whole:
            return notes
        return (
            *notes,
            f"heads keep the rotated features apart, {self.head.dim_key} of them: map only these, then join both "
            "parts; the softmax scale is that of the whole",
        )


def _of_label(keys: Keys, sizes: Sizes, labels: Labels, label: str) -> Sizes:
    """Return the sizes with the head_dim of the layers that have a label."""
    dims = {heads.head_dim for heads, own in zip(sizes.heads, labels, strict=True) if own == label}
    if len(dims) > 1:
        raise SettingError(
            f"{keys.path}layers that rotate alike have heads of {' and '.join(map(str, sorted(dims)))} features, but "
            f"whatwhere reads one size for each layer type of {keys.owner!r}."
        )
    return replace(sizes, head_dim=dims.pop()) if dims else sizes


def require_rotary_dim(path: str, head_dim: int, rotary_dim: int | None) -> None:
    """Raise ShapeError unless the number of rotated features is even, and at most that of the head.

    Args:
        path: of the keys, for messages.
        head_dim: features of a head.
        rotary_dim: rotated features; None is all.

    Raises:
        ShapeError: If it is odd, below 2, or too large.

    Examples:
        >>> require_rotary_dim("", 16, 3)
        Traceback (most recent call last):
        whatwhere.errors.ShapeError: this configuration makes rotary_dim=3 of head_dim=16, but needs an even number of
        features, from 2 to 16: they are rotated in pairs.
    """
    rotated = head_dim if rotary_dim is None else rotary_dim
    if rotated % 2 or not 2 <= rotated <= head_dim:
        raise ShapeError(
            f"this configuration makes {path}rotary_dim={rotated} of head_dim={head_dim}, but needs an even number of\n"
            f"features, from 2 to {head_dim}: they are rotated in pairs."
        )


def rotary_plan(
    head_dim: int,
    theta: float,
    interleaved: bool,
    rotary_dim: int | None,
    scaling: ScalingPlan | None,
    sections: tuple[int, ...] | None = None,
    axis_layout: str = "chunked",
    path: str = "",
) -> Plan:
    """Return the plan of rotary positions.

    Args:
        head_dim, theta, interleaved, rotary_dim, scaling: as in Rotary.
        sections, axis_layout: of several coordinates, as in MultimodalRotary.
        path: of the keys, for messages.
    """
    settings = {
        "head_dim": head_dim,
        "theta": theta,
        "interleaved": interleaved,
        "rotary_dim": rotary_dim,
        "scaling": scaling,
    }
    if sections is None:
        return Plan("rotary", settings)
    _require_sections(path, sections, (rotary_dim or head_dim) // 2, axis_layout)
    return Plan("rotary-multimodal", {**settings, "sections": sections, "layout": axis_layout})


def _require_sections(path: str, sections: tuple[int, ...], pairs: int, axis_layout: str) -> None:
    """Raise ShapeError unless every pair belongs to exactly one axis."""
    if sum(sections) != pairs:
        raise ShapeError(
            f"{path}mrope_section is {list(sections)}, {sum(sections)} pairs in total, but {2 * pairs} rotated "
            f"features are {pairs} pairs: each needs one axis."
        )
    for axis, section in enumerate(sections[1:], start=1):
        # Interleaved axes take turns: each has one of as many consecutive pairs as there are axes.
        if axis_layout == "interleaved" and section and len(sections) * (section - 1) + axis >= pairs:
            raise ShapeError(
                f"{path}mrope_section is {list(sections)}, but interleaved axis {axis} has one pair in "
                f"{len(sections)}: its last would be beyond the {pairs} pairs that there are.\n"
                "Make the other sections equal, and that of axis 0 the same or larger."
            )


def _of_whole_head(plan: Plan, head_dim: int) -> Plan:
    """Return a plan of rotated features, kept apart as the last ones of a head, as one of the whole head."""
    rotated = plan.rotary_dim
    settings = {"head_dim": head_dim, "rotary_dim": rotated, "rotary_start": head_dim - rotated}
    return replace(plan, settings={**plan.settings, **settings})


def _copy(parameters: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if parameters is None else dict(parameters)


def _require_dictionary(path: str, value: object) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise SettingError(f"{path} is {short_repr(value)}, but must be a dictionary or null.")


def _inside_or_beside(rope: Keys, inner: str, keys: Keys, outer: str | None, default: float) -> float:
    """Return a number that is in the rope parameters or beside them."""
    inside = rope.number(inner, default=None)
    if outer is None:
        return default if inside is None else inside
    beside = keys.number(outer, default=None)
    if inside is not None and beside not in (None, inside):
        raise SettingError(
            f"{rope.path}{inner} is {inside} and {keys.path}{outer} is {beside}: keep one of them.\n"
            "Transformers would use the first silently."
        )
    if inside is None and beside is None:
        keys.assume(outer, default)
    return next(value for value in (inside, beside, default) if value is not None)


def rotated_fraction(rotary_dim: int, head_dim: int) -> float:
    """Return the fraction of a head of which a model's code, `int(head_dim * fraction)`, makes these features again.

    Args:
        rotary_dim: rotated features.
        head_dim: features of a head.

    Examples:
        >>> rotated_fraction(32, 128)
        0.25
    """
    exact = rotary_dim / head_dim
    return exact if int(head_dim * exact) == rotary_dim else (rotary_dim + 0.5) / head_dim
