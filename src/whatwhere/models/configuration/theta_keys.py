"""Keys of rotary positions beside `rope_parameters`: a theta for each layer or in a dictionary of its own, or none."""

from dataclasses import dataclass, field, replace

from whatwhere.errors import SettingError
from whatwhere.models.configuration.input_keys import LearnedKeys
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.layer_types import FULL, ByType, one_per_layer, with_drafts
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import Plan
from whatwhere.models.configuration.rotary_keys import FRACTION, RopeKeys, require_rotary_dim, rotary_plan


@dataclass(frozen=True)
class ThetaByLayer:
    """Read rotary positions whose theta a list has for each layer, 0 where a layer does not rotate.

    Args:
        rope: reader of the other parameters; its theta is that of all layers without the list.
        key: of the list.
    """

    rope: RopeKeys = field(default_factory=RopeKeys)
    key: str = "layer_rope_theta"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of each layer."""
        position = self.rope.read(keys, sizes)
        thetas = keys.listed(self.key, sizes.layers, default=None)
        if thetas is None:
            return position
        if len(thetas) != sizes.layers:
            raise SettingError(f"{keys.path}{self.key} has {len(thetas)} numbers, but there are {sizes.layers} layers.")
        plans = []
        for layer, plan in enumerate(position.query_key or ()):
            theta = Keys({self.key: thetas[layer]}, {}, keys.owner, keys.path).number(self.key, zero=True)
            if plan is None and theta != 0:
                raise SettingError(
                    f"{keys.path}{self.key}[{layer}] is {theta}, but layers of its type do not rotate: write 0."
                )
            plans.append(None if plan is None or theta == 0 else _with_theta(plan, theta))
        return replace(position, query_key=tuple(plans))


@dataclass(frozen=True)
class ListsByLayer:
    """Read rotary positions whose theta and rotated fraction lists have for each layer, alike in layers of one type.

    As in the published files of Step-3.7; what transformers writes has `rope_parameters` by type. `rope_scaling` is
    that of full attention alone.

    Args:
        rope: reader of the parameters by type.
        layers: types of the layers.
    """

    rope: RopeKeys
    layers: ByType

    THETA, FRACTIONS, SCALING = "rope_theta", "partial_rotary_factors", "rope_scaling"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of each layer."""
        if keys.values.get("rope_parameters") is not None:
            return self.rope.read(keys, sizes)
        types = self.layers.types(keys, sizes.layers)
        thetas, fractions = (self._by_type(keys, name, types) for name in (self.THETA, self.FRACTIONS))
        scaling = keys.take(self.SCALING, default=None)
        sets = {
            label: {
                **({"rope_theta": thetas[label]} if label in thetas else {}),
                **({FRACTION: fractions[label]} if label in fractions else {}),
                **(dict(keys.inside(self.SCALING).values) if scaling and label == FULL else {}),
            }
            for label in dict.fromkeys(types)
        }
        others = {name: value for name, value in keys.values.items() if name not in (self.THETA, self.SCALING)}
        inner = Keys({**others, "rope_parameters": sets}, keys.defaults, keys.owner, keys.path, keys.aliases)
        position = self.rope.read(inner, sizes)
        keys.absorb(inner)
        keys.known |= inner.known
        return position

    def _by_type(self, keys: Keys, name: str, types: tuple[str, ...]) -> dict[str, float]:
        """Return the number of each type of layer; none without the key."""
        value = keys.take(name, default=None)
        if value is None:
            return {}
        if not isinstance(value, list | tuple):
            return dict.fromkeys(types, Keys({name: value}, {}, keys.owner, keys.path).number(name))
        listed = one_per_layer(keys.path + name, value, with_drafts(keys, name, len(types), self.layers.drafts_key))
        numbers = [Keys({name: one}, {}, keys.owner, keys.path).number(name) for one in listed[: len(types)]]
        by_type = dict(zip(types, numbers, strict=True))
        for layer, (layer_type, number) in enumerate(zip(types, numbers, strict=True)):
            if number != by_type[layer_type]:
                raise SettingError(
                    f"{keys.path}{name}[{layer}] is {number}, but another layer of the type {layer_type} has "
                    f"{by_type[layer_type]}: the code of {keys.owner!r} takes one of each type."
                )
        return by_type


@dataclass(frozen=True)
class NestedTheta:
    """Read rotary positions whose theta is in a nested dictionary, as in the published file of DBRX.

    The code of its authors rotates by that theta. Transformers 5 ignores it, and rotates by `rope_parameters`, or by
    10,000; a configuration that has both is read if they agree.

    Args:
        rope: reader of the other parameters.
        inside: key of the dictionary.
        key: of theta.
    """

    rope: RopeKeys = field(default_factory=RopeKeys)
    inside: str = "attn_config"
    key: str = "rope_theta"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of each layer."""
        position = self.rope.read(keys, sizes)
        nested = keys.values.get(self.inside)
        theta = keys.inside(self.inside).number(self.key, default=None) if nested is not None else None
        if theta is None:
            return position
        plans = tuple(None if plan is None else _with_theta(plan, theta) for plan in position.query_key or ())
        if plans != position.query_key and any(keys.values.get(name) for name in ("rope_parameters", "rope_theta")):
            raise SettingError(
                f"{keys.path}{self.inside}.{self.key} is {theta}, by which the code of the authors of {keys.owner!r} "
                "rotates, but rope_parameters have another theta, by which transformers 5 does: keep the right one.\n"
                "In the published file it is the first; transformers adds the second without reading it."
            )
        return replace(position, query_key=plans)


def _with_theta(plan: Plan, theta: float) -> Plan:
    return replace(plan, settings={**plan.settings, "theta": theta})


@dataclass(frozen=True)
class RotaryDimKeys:
    """Read the rotary positions of GPT-J, CodeGen and RoFormer, interleaved, and of the first Phi: theta is 10,000.

    Args:
        key: of the number of rotated features; None rotates all.
        interleaved: whether pairs are (2i, 2i+1).
        unrotated: a flag that must be off, which rotates values too (RoFormer).
    """

    key: str | None = "rotary_dim"
    interleaved: bool = True
    unrotated: str | None = None

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, one for all layers."""
        if self.unrotated is not None:
            keys.require(self.unrotated, False, "whatwhere has no scheme that rotates values.")
        rotary_dim = None if self.key is None else keys.whole(self.key, default=None)
        rotary_dim = None if rotary_dim == sizes.head_dim else rotary_dim
        require_rotary_dim(keys.path, sizes.head_dim, rotary_dim)
        plan = rotary_plan(sizes.head_dim, 10_000.0, self.interleaved, rotary_dim, None)
        return Position(query_key=(plan,) * sizes.layers)


@dataclass(frozen=True)
class LearnedOrRotary:
    """Read a learned position table, or rotary positions in its place, as a key chooses, as in ESM.

    Args:
        learned: reader of the table.
        rope: reader of the rotary positions.
    """

    learned: LearnedKeys
    rope: RopeKeys = field(default_factory=RopeKeys)

    KEY = "position_embedding_type"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of the table, or of each layer."""
        if keys.choice(self.KEY, choices=("absolute", "rotary"), default="absolute") == "rotary":
            return self.rope.read(keys, sizes)
        keys.known.add("rope_theta")
        return self.learned.read(keys, sizes)
