"""Keys of types whose code is published beside their files: the first Qwen, ChatGLM, Baichuan, InternLM, Nomic."""

from dataclasses import dataclass, field, replace
from math import log

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import CurvePlan, Plan, ScalingPlan
from whatwhere.models.configuration.rope_scaling import require_fit
from whatwhere.models.configuration.rotary_keys import RopeKeys, require_rotary_dim, rotary_plan
from whatwhere.models.configuration.temperature import Curves

LENGTH = "seq_length"
"""Key of the trained length; `max_position_embeddings` is that of its longest inputs."""

REGIME = "after a prompt its code keeps the theta of the prompt's length: pass that as regime_length"


@dataclass(frozen=True)
class QwenRotary:
    """Read rotary positions, whose theta follows the length L in steps, beyond the trained length L_0.

    theta (2 ** ceil(log2(L / L_0) + 1) - 1) ** (dim / (dim - 2))
    """

    THETA, FRACTION, SWITCH = "rotary_emb_base", "rotary_pct", "use_dynamic_ntk"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        theta, fraction = keys.number(self.THETA, default=10_000.0), keys.number(self.FRACTION, default=1.0)
        rotary_dim = None if fraction == 1 else int(sizes.head_dim * fraction)
        scaling = None
        if keys.flag(self.SWITCH, default=True):
            settings = {"factor": 2.0, "original_length": keys.whole(LENGTH), "doubling": True}
            scaling = ScalingPlan("rotary-dynamic-ntk", settings)
        path = f"{keys.path}{self.FRACTION}"
        require_rotary_dim(path, sizes.head_dim, rotary_dim)
        require_fit(scaling, path, rotary_dim or sizes.head_dim, theta)
        plan = rotary_plan(sizes.head_dim, theta, False, rotary_dim, scaling, None, "chunked", path)
        return Position(query_key=(plan,) * sizes.layers, notes=() if scaling is None else (REGIME,))


@dataclass(frozen=True)
class QwenLogN:
    """Multiply queries beyond the trained length by the logarithm of their number of keys to that base, in all layers.

    max(1, ln(p + 1) / ln L_0) = 1 + alpha ln max(1, (p + 1) / L_0), with alpha = 1 / ln L_0
    """

    SWITCH = "use_logn_attn"

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> Curves:
        """Return the curve of each layer."""
        if not keys.flag(self.SWITCH, default=True):
            return (None,) * sizes.layers
        length = keys.whole(LENGTH, least=2)
        return (CurvePlan("clamped", {"alpha": 1 / log(length), "length": length}),) * sizes.layers


@dataclass(frozen=True)
class GLMRotary:
    """Read rotary positions of the first half of each head, interleaved, with theta 10,000 rope_ratio, as in GLM-4.

    ChatGLM2-6B-32K divides positions by rope_ratio instead, which no key says.
    """

    RATIO, PLANES, NAME, VOCABULARY = "rope_ratio", "position_encoding_2d", "_name_or_path", "padded_vocab_size"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        if keys.take(self.PLANES, default=None):
            raise SettingError(
                f"{keys.path}{self.PLANES} is on, as in ChatGLM-6B: each half of its heads is rotated by a coordinate "
                "of its own, whose second counts from the end of the prompt, and tokens of the prompt attend to later "
                "ones. No scheme here does so."
            )
        ratio = keys.number(self.RATIO, default=1.0)
        if ratio != 1 and keys.whole(self.VOCABULARY) == 65_024 and "chatglm3" not in str(keys.values.get(self.NAME)):
            raise SettingError(
                f"{keys.path}{self.RATIO} is {ratio}, by which ChatGLM3 multiplies theta, but ChatGLM2-6B-32K divides "
                f"positions: no key says which. If it is ChatGLM3, state it: config[{self.NAME!r}] = 'chatglm3'."
            )
        plan = rotary_plan(sizes.head_dim, 10_000.0 * ratio, True, sizes.head_dim // 2, None)
        return Position(query_key=(plan,) * sizes.layers)


@dataclass(frozen=True)
class GLMKeyHeads:
    """Read the number of key heads of ChatGLM, which a flag makes that of the query heads."""

    SWITCH, GROUPS = "multi_query_attention", "multi_query_group_num"

    def read(self, keys: Keys, num_heads: int) -> int:
        """Return the number."""
        groups = keys.whole(self.GROUPS, default=1)
        return groups if keys.flag(self.SWITCH, default=False) else num_heads


@dataclass(frozen=True)
class RotaryOrALiBi:
    """Read the positions of Baichuan: those of 7B are rotary with theta 10,000, those of 13B are ALiBi.

    Both have one model type and the code of each no key of the other: only 7B has `max_position_embeddings`.
    """

    ROTARY, ALIBI, WIDTHS = "max_position_embeddings", "model_max_length", {4096: True, 5120: False}

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        length, other = keys.whole(self.ROTARY, default=None), keys.whole(self.ALIBI, default=None)
        rotates = length is not None
        if (length or other) is None or self.WIDTHS.get(sizes.dim, rotates) != rotates:
            raise SettingError(
                f"whether this Baichuan rotates is said by {self.ROTARY}, which 7B alone has, of 4,096 features, or by "
                f"{self.ALIBI} alone, as in 13B, of 5,120 features with ALiBi. Here these are {length} and {other}, "
                f"with {sizes.dim:,} features: state what its code does."
            )
        if rotates:
            return Position(query_key=(rotary_plan(sizes.head_dim, 10_000.0, False, None, None),) * sizes.layers)
        return Position(score=(Plan("alibi", {"num_heads": sizes.num_heads}),) * sizes.layers, max_length=other)


@dataclass(frozen=True)
class InternLMRotary:
    """Read rotary positions whose theta is in a dictionary of its own, and grows with the length unless it says not."""

    INSIDE, BASE, TYPE, FACTOR = "rotary", "base", "type", "scaling_factor"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        given = keys.values.get(self.INSIDE) is not None
        inner = keys.inside(self.INSIDE) if given else Keys({}, {}, keys.owner, f"{keys.path}{self.INSIDE}.")
        keys.known.add(self.INSIDE)
        theta = inner.number(self.BASE, default=10_000.0)
        factor, scaling = inner.number(self.FACTOR, default=1.0), None
        if inner.choice(self.TYPE, choices=("dynamic", "origin"), default="dynamic") == "dynamic":
            settings = {"factor": factor, "original_length": sizes.max_length or 2048}
            scaling = ScalingPlan("rotary-dynamic-ntk", settings)
        inner.finish_all()
        keys.absorb(inner)
        require_fit(scaling, inner.path, sizes.head_dim, theta)
        return Position(query_key=(rotary_plan(sizes.head_dim, theta, False, None, scaling),) * sizes.layers)


@dataclass(frozen=True)
class GteRotary:
    """Read the rotary positions of GTE, whose `ntk` is not the usual one: every pair is slower.

    (theta factor) ** (-2 i / dim) / factor ** (2 / dim)

    Args:
        rope: reader of the keys.
    """

    rope: RopeKeys = field(default_factory=RopeKeys)

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        position = self.rope.read(keys, sizes)
        plan = (position.query_key or (None,))[0]
        if plan is None or plan.scaling is None or plan.scaling.name != "rotary-ntk":
            return position
        factor = plan.scaling.number("factor")
        scaling = ScalingPlan("rotary-linear", {"factor": factor ** (2 / plan.rotary_dim)})
        own = {**plan.settings, "theta": plan.number("theta") * factor, "scaling": scaling}
        return replace(position, query_key=(replace(plan, settings=own),) * sizes.layers)


@dataclass(frozen=True)
class NomicRotary:
    """Read the rotary positions of Nomic's own files, whose theta may grow beyond the trained length.

    Args:
        rope: reader of the keys of transformers.
    """

    rope: RopeKeys = field(default_factory=RopeKeys)

    FACTOR, TRAINED, LENGTH, FRACTION = (
        "rotary_scaling_factor", "max_trained_positions", "n_positions", "rotary_emb_fraction",
    )  # fmt: skip

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan, which is that of all layers."""
        keys.require(self.FRACTION, 1.0, "it would rotate a part of each head, or have a learned table instead.")
        position = replace(self.rope.read(keys, sizes), max_length=keys.whole(self.LENGTH, default=None))
        factor, trained = keys.number(self.FACTOR, default=None), keys.whole(self.TRAINED, default=None)
        if factor is None:
            return position
        if trained is None:
            raise SettingError(f"{keys.path}{self.TRAINED} is missing: {self.FACTOR} is for texts beyond it.")
        scaling = ScalingPlan("rotary-dynamic-ntk", {"factor": factor, "original_length": trained})
        plan = (position.query_key or (None,))[0]
        own = None if plan is None else replace(plan, settings={**plan.settings, "scaling": scaling})
        return replace(position, query_key=(own,) * sizes.layers)
