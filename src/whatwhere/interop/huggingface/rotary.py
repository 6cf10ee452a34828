"""Rotary positions in a configuration: `rope_parameters` of transformers 5, `rope_scaling` and its like before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.family import Position, Sizes
from whatwhere.interop.huggingface.keys import Keys
from whatwhere.interop.huggingface.layers import AllLayers, LayerRule
from whatwhere.interop.huggingface.scalings import KINDS, Around, read_scaling, write_scaling
from whatwhere.where.query_key.multimodal_rotary import Deal, MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import Proportional

ORIGINAL = "original_max_position_embeddings"
IGNORED = ("finetuned",)  # a remark of the YaRN authors' files, which no formula reads


@dataclass(frozen=True)
class Turn:
    """Say how a head turns, which no key tells: it is a fact of each model type.

    Args:
        interleaved: pairs are neighbors; else (i, i + rotary_dim/2).
        interleaved_key: the key that decides it, if there is one.
        whole: heads turn whole, so that a share of them cannot be asked for.
        part: the key of the features that turn, where heads keep them apart (latent attention).
        dim_key: a key that has rotary_dim itself, beside the share.
        sections: pairs of each axis if none are given; None where tokens have one coordinate.
        layout: how pairs are dealt to axes.
    """

    interleaved: bool = False
    interleaved_key: str | None = None
    whole: bool = True
    part: str | None = None
    dim_key: str | None = None
    sections: tuple[int, ...] | None = None
    layout: Deal = "chunked"


@dataclass(frozen=True)
class RopeSet:
    """Say what one set of rope parameters is, if keys are absent, and how older configurations name it.

    Args:
        theta: if it is not given.
        theta_key: where it stands beside the parameters.
        share: of a head that turns, if it is not given.
        share_key: where it stands beside the parameters.
        scaled: whether `rope_scaling` is for this set.
        parameters: what transformers takes if there are none at all.
    """

    theta: float = 10_000.0
    theta_key: str = "rope_theta"
    share: float = 1.0
    share_key: str = "partial_rotary_factor"
    scaled: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RopeKeys:
    """Read rotary positions, and write them in the form of transformers 5.

    Args:
        turn: how a head turns.
        sets: one set under the label "", or one for each kind of layer.
        layers: which layers turn by which set.
        extra: further rope parameters that this model type has.
        renamed: values of `rope_type` that mean another one here.
        original_beside: the trained length stands beside the parameters, and counts.
        refused: parameters that must be zero or absent, and what they would do.
    """

    turn: Turn = field(default_factory=Turn)
    sets: Mapping[str, RopeSet] = field(default_factory=lambda: {"": RopeSet()})
    layers: LayerRule = field(default_factory=AllLayers)
    extra: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    original_beside: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def nested(self) -> bool:
        """Whether each kind of layer has its own parameters."""
        return "" not in self.sets

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan of each layer."""
        labels, kinds = self.layers.read(keys, sizes.layers)
        given = self._given(keys)
        interleaved = self.turn.interleaved
        if self.turn.interleaved_key is not None:
            interleaved = keys.flag(self.turn.interleaved_key, default=interleaved)
        plans = {
            label: self._plan(keys, sizes, rope, given.get(label, {}), label, interleaved)
            for label, rope in self.sets.items()
        }
        if self.nested and (strangers := [label for label in labels if label is not None and label not in plans]):
            raise SettingError(
                f"layer_types has {strangers[0]!r}, for which {keys.owner!r} has no rope parameters: it knows "
                f"{', '.join(self.sets)}."
            )
        rows = tuple(None if label is None else plans[label if self.nested else ""] for label in labels)
        return Position(query_key=rows, layer_types=kinds, notes=self._notes())

    def write(self, description: Description) -> dict[str, Any]:
        """Give `rope_parameters` and what stands beside them."""
        labels = description.layer_types if self.nested and description.layer_types else ("",) * description.layers
        written: dict[str, Any] = {}
        beside: dict[str, Any] = {}
        for label, plan in zip(labels, description.query_key, strict=True):
            if plan is not None:
                written.setdefault(label, self._write_set(plan))
                beside = self._write_beside(plan, description)
            elif self.nested and label in self.sets:
                written.setdefault(label, None)
        parameters = written if self.nested else written.get("", {"rope_type": "default"})
        return {"rope_parameters": parameters, **beside, **self.layers.write(description)}

    def _given(self, keys: Keys) -> dict[str, Mapping[str, Any] | None]:
        """Give the parameters under each label, wherever the configuration has them."""
        newer, older = (keys.take(name, default=None) or None for name in ("rope_parameters", "rope_scaling"))
        for name, value in (("rope_parameters", newer), ("rope_scaling", older)):
            if value is not None and not isinstance(value, Mapping):
                raise SettingError(f"{keys.place}{name} is {value!r}, but must be a dictionary or null.")
        if newer and older and dict(newer) != dict(older):
            raise SettingError(
                f"{keys.place}rope_parameters and {keys.place}rope_scaling are both given, and differ: keep one.\n"
                "The first is the form of transformers 5, the second that of transformers 4."
            )
        if newer and self.nested:
            strangers = [key for key in newer if key not in self.sets]
            if strangers:
                raise SettingError(
                    f"{keys.place}rope_parameters of {keys.owner!r} holds one set for each kind of layer, "
                    f"{', '.join(self.sets)}, but has {strangers[0]!r}.\n"
                    f"Write them as {{{next(iter(self.sets))!r}: {{...}}, ...}}."
                )
            return dict(newer)
        found = newer or older
        if found is None:
            return {label: dict(rope.parameters) for label, rope in self.sets.items()}
        return {label: found if rope.scaled else {} for label, rope in self.sets.items()}

    def _plan(
        self,
        keys: Keys,
        sizes: Sizes,
        rope_set: RopeSet,
        given: Mapping[str, Any] | None,
        label: str,
        interleaved: bool,
    ) -> Plan | None:
        if given is None:
            return None
        name = "rope_scaling" if keys.values.get("rope_scaling") else "rope_parameters"
        defaults = dict.fromkeys(self.extra)
        rope = Keys(given, defaults, keys.owner, f"{keys.place}{name}.{label}{'.' if label else ''}")
        kind = self._kind(rope)
        theta = _either(keys, rope, "rope_theta", rope_set.theta_key, rope_set.theta)
        head_dim = sizes.head_dim if self.turn.part is None else keys.whole(self.turn.part)
        share = _either(keys, rope, "partial_rotary_factor", rope_set.share_key, self._share(keys, rope_set, head_dim))
        self._require_share(keys, share, kind)
        original = keys.whole(ORIGINAL, default=None)
        settings: dict[str, Any] = {
            "head_dim": head_dim,
            "theta": theta,
            "interleaved": interleaved,
            "rotary_dim": None if share == 1.0 or kind == "proportional" else int(head_dim * share),
            "scaling": read_scaling(kind, rope, Around(sizes.max_length, original, share)),
        }
        sections = self._sections(rope)
        for key, effect in self.refused.items():
            if rope.take(key, default=None):
                raise SettingError(f"{rope.place}{key} is {given[key]!r}, but whatwhere has no scheme that {effect}.")
        rope.known |= {*IGNORED, *self.extra, ORIGINAL}
        rope.finish_all()
        keys.absorb(rope)
        plan = Plan(Rotary, settings)
        if sections is not None:
            plan = Plan(MultimodalRotary, {**settings, "sections": sections, "layout": self.turn.layout})
        plan.build()  # a setting that does not fit is told now
        return plan

    def _kind(self, rope: Keys) -> str:
        """Give the `rope_type`, by either of its names; `su` and a model's own words are replaced."""
        renamed = {"su": "longrope", **self.renamed}
        rope.known |= {"rope_type", "type"}
        given = {name: rope.values[name] for name in ("rope_type", "type") if rope.values.get(name) is not None}
        if len({renamed.get(kind, kind) for kind in given.values()}) > 1:
            raise SettingError(
                f"{rope.place}rope_type is {given['rope_type']!r} and {rope.place}type is {given['type']!r}: keep one."
            )
        name = next(iter(given), "rope_type")
        kind = rope.choice(name, choices=tuple(dict.fromkeys((*KINDS, *renamed))), default="default")
        return renamed.get(kind, kind)

    def _share(self, keys: Keys, rope_set: RopeSet, head_dim: int) -> float:
        """Give the share of a head that turns if neither the parameters nor a key beside them say it."""
        dim = None if self.turn.dim_key is None else keys.whole(self.turn.dim_key, default=None)
        return rope_set.share if dim is None else _share(dim, head_dim)

    def _require_share(self, keys: Keys, share: float, kind: str) -> None:
        if share > 1:
            raise SettingError(f"partial_rotary_factor is {share}, but a share of a head is at most 1.")
        if self.turn.whole and share != 1.0 and kind != "proportional":
            raise SettingError(
                f"partial_rotary_factor is {share}, but heads of {keys.owner!r} turn whole: transformers does not read "
                "this key there, or fails.\nIf the model does turn a part, read it as a type that does: like='phi'."
            )

    def _sections(self, rope: Keys) -> tuple[int, ...] | None:
        if self.turn.sections is None:
            return None
        interleaved = rope.take("mrope_interleaved", default=self.turn.layout == "interleaved")
        if interleaved != (self.turn.layout == "interleaved"):
            raise SettingError(
                f"{rope.place}mrope_interleaved is {interleaved!r}, but {rope.owner!r} has {self.turn.layout} ones."
            )
        return tuple(rope.take("mrope_section", default=self.turn.sections))

    def _write_set(self, plan: Plan) -> dict[str, Any]:
        settings = plan.settings
        written = {**write_scaling(settings["scaling"]), "rope_theta": settings["theta"]}
        if not isinstance(settings["scaling"], Proportional) and not self.turn.whole:
            written["partial_rotary_factor"] = _share(settings["rotary_dim"], settings["head_dim"])
        if "short_mscale" in self.extra and "attention_factor" in written:
            written["short_mscale"] = written["long_mscale"] = written.pop("attention_factor")
        if "sections" in settings:
            written["mrope_section"] = list(settings["sections"])
            if settings["layout"] == "interleaved":
                written["mrope_interleaved"] = True
        return written

    def _write_beside(self, plan: Plan, description: Description) -> dict[str, Any]:
        written: dict[str, Any] = {}
        if self.turn.interleaved_key is not None:
            written[self.turn.interleaved_key] = plan.settings["interleaved"]
        if self.original_beside:
            scaling = plan.settings["scaling"]
            written[ORIGINAL] = getattr(scaling, "original_length", None) or description.max_length
        return written

    def _notes(self) -> tuple[str, ...]:
        if self.turn.part is None:
            return ()
        return (
            f"heads keep the features that turn apart, {self.turn.part} of them: map only these, then put both parts "
            "together; the softmax scale is that of the whole",
        )


def _either(keys: Keys, rope: Keys, inner: str, outer: str, default: float) -> float:
    """Give a number that stands in the rope parameters or beside them."""
    inside = rope.number(inner, default=None)
    beside = keys.number(outer, default=None) if keys.values.get(outer) is not None else None
    keys.known.add(outer)
    if inside is not None and beside not in (None, inside):
        raise SettingError(
            f"{rope.place}{inner} is {inside} and {keys.place}{outer} is {beside}: keep one of them.\n"
            "Transformers would take the first, in silence."
        )
    if inside is None and beside is None:
        keys.absorb(_assumed(keys, outer, default))
    return float(next(value for value in (inside, beside, default) if value is not None))


def _assumed(keys: Keys, name: str, value: float) -> Keys:
    note = Keys({}, {name: value}, keys.owner, keys.place)
    note.take(name)
    return note


def _share(rotary_dim: int | None, head_dim: int) -> float:
    if rotary_dim is None:
        return 1.0
    exact = rotary_dim / head_dim
    return exact if int(head_dim * exact) == rotary_dim else (rotary_dim + 0.5) / head_dim
