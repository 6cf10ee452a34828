"""Biases of scores in a configuration: ALiBi, T5's buckets, DeBERTa's disentangled terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import torch

from whatwhere.errors import SettingError
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.family import Position, Sizes
from whatwhere.interop.huggingface.keys import Keys
from whatwhere.interop.huggingface.rotary import RopeKeys
from whatwhere.where.score.alibi import ALiBi, slopes
from whatwhere.where.score.deberta import TERMS, DeBERTa
from whatwhere.where.score.t5 import T5


@dataclass(frozen=True)
class ALiBiKeys:
    """Read ALiBi with the authors' slopes, as BLOOM has it; no key says so."""

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan, one for all layers."""
        return Position(score=(Plan(ALiBi, {"num_heads": sizes.num_heads}),) * sizes.layers)

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing: no key says it."""
        return {}


@dataclass(frozen=True)
class MptKeys:
    """Read ALiBi as MPT has it, with `alibi_bias_max` in the place of the paper's 8.

    Transformers does not read `alibi` and `alibi_bias_max`, and always takes 8; MosaicML's own code does, and so do
    we. They are the same for every MPT that MosaicML published.
    """

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan, one for all layers."""
        attention = _attention(keys)
        attention.require("alibi", True, "without ALiBi MosaicML's code has a learned table, transformers none.")
        steepest = attention.number("alibi_bias_max", default=8.0)
        attention.known.add("softmax_scale")  # read as the scale
        attention.finish()
        keys.absorb(attention)
        keys.known.add("learned_pos_emb")  # read by MosaicML's code only where ALiBi is off
        settings: dict[str, Any] = {"num_heads": sizes.num_heads}
        if steepest != 8.0:
            settings["slopes"] = mpt_slopes(sizes.num_heads, steepest)
        return Position(score=(Plan(ALiBi, settings),) * sizes.layers)

    def write(self, description: Description) -> dict[str, Any]:
        """Give `attn_config`; its softmax scale is written with it."""
        plan, steepest = description.score[0], 8.0
        if plan is not None and "slopes" in plan.settings:
            # the gentlest head of a power of two has slope 2 ** -steepest; with other numbers the first has twice that
            power = 2 ** ceil(log2(description.num_heads))
            place = 2 if power != description.num_heads else 1
            steepest = round(-log2(plan.settings["slopes"][0]) * power / place, 9)
        steepest = int(steepest) if steepest == int(steepest) else steepest  # transformers refuses 8.0 here
        usual = description.scale == description.head_dim**-0.5
        scale = {} if usual else {"softmax_scale": description.scale}
        return {"attn_config": {"alibi": True, "alibi_bias_max": steepest, **scale}}


@dataclass(frozen=True)
class FalconKeys:
    """Read Falcon: rotary, or ALiBi by two rules of its own.

        score = (q k + m bias) / sqrt(head_dim)        m rounded to bfloat16

    The bias is divided with the scores, and its slopes are rounded, so a model was trained with both; we do both.
    Transformers rounds the product slope * position to bfloat16 as well, which loses neighbors; we do not.
    """

    rope: RopeKeys

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give rotary or ALiBi plans."""
        if not keys.flag("alibi", default=False):
            return self.rope.read(keys, sizes)
        for name in ("rope_parameters", "rope_scaling", "rope_theta"):
            keys.take(name, default=None)
        settings = {"num_heads": sizes.num_heads, "slopes": falcon_slopes(sizes.num_heads, sizes.head_dim)}
        return Position(score=(Plan(ALiBi, settings),) * sizes.layers)

    def write(self, description: Description) -> dict[str, Any]:
        """Give the flag, and the rope parameters without it."""
        if description.score[0] is not None:
            return {"alibi": True}
        return {"alibi": False, **self.rope.write(description)}


@dataclass(frozen=True)
class T5Keys:
    """Read T5's buckets.

    Args:
        shared: one table serves all layers; in UMT5 each layer has its own.
        scaled: scores are divided by sqrt(head_dim) besides, as in MPNet.
        bidirectional: None leaves it to the part, an encoder or a decoder.
        buckets: the only number of buckets that the model's code has, whatever the key says.
    """

    shared: bool = True
    scaled: bool = False
    bidirectional: bool | None = None
    buckets: int | None = None

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan of each layer."""
        names = ("relative_attention_num_buckets", "relative_attention_max_distance")
        if self.buckets is not None:
            keys.require(names[0], self.buckets, f"its code takes {self.buckets} buckets, whatever the key says.")
        settings = {
            "num_heads": sizes.num_heads,
            "num_buckets": keys.whole(names[0], default=32),
            "max_distance": 128 if self.buckets is not None else keys.whole(names[1], default=128),
            "bidirectional": sizes.part == "encoder" if self.bidirectional is None else self.bidirectional,
            "scale": None if self.scaled else 1.0,
        }
        return Position(score=(Plan(T5, settings, self.shared),) * sizes.layers)

    def write(self, description: Description) -> dict[str, Any]:
        """Give the two sizes."""
        plan = description.score[0]
        settings = {} if plan is None else plan.settings
        written = {"relative_attention_num_buckets": settings["num_buckets"]}
        if self.buckets is None:
            written["relative_attention_max_distance"] = settings["max_distance"]
        return written


@dataclass(frozen=True)
class DeBERTaKeys:
    """Read disentangled attention.

    Args:
        shared_rows: far distances may share rows (`position_buckets`), as in DeBERTa v2 and v3.
    """

    shared_rows: bool

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan of each layer: each has tables of its own."""
        span = keys.whole("max_relative_positions", default=-1, least=-1)
        span = span if span >= 1 else sizes.max_length
        buckets = keys.whole("position_buckets", default=-1, least=-1) if self.shared_rows else -1
        terms = pos_att_type(keys)
        projected = keys.flag("share_att_key", default=False) if self.shared_rows else False
        if self.shared_rows:
            keys.take("norm_rel_ebd", default=None)
        if not keys.flag("relative_attention", default=False):
            return Position()
        if not terms:
            raise SettingError(
                f"{keys.place}pos_att_type is empty, but relative_attention is on: name c2p, p2c or both."
            )
        if span is None:
            raise SettingError(f"{keys.place}max_position_embeddings is missing: how far distances are told apart.")
        settings: dict[str, Any] = {"head_dim": sizes.head_dim, "num_heads": sizes.num_heads, "terms": terms}
        if buckets > 0:
            settings |= {"span": buckets, "max_distance": span}
        else:
            settings |= {"span": span, "max_distance": None}
        by = "the layer's own key and query matrices" if projected else "matrices of their own"
        note = f"the tables of DeBERTa are one table of relative positions, projected in each layer by {by}"
        return Position(score=(Plan(DeBERTa, settings, shared=False),) * sizes.layers, notes=(note,))

    def write(self, description: Description) -> dict[str, Any]:
        """Give what relative attention needs."""
        plan = description.score[0]
        if plan is None:
            count = round(description.scale**-2 / description.head_dim) - 1
            return {"relative_attention": False, "pos_att_type": list(TERMS[:count])}
        settings = plan.settings
        written = {"relative_attention": True, "pos_att_type": list(settings["terms"])}
        if settings["max_distance"] is None:
            written["max_relative_positions"] = settings["span"]
        else:
            written |= {"max_relative_positions": settings["max_distance"], "position_buckets": settings["span"]}
        if self.shared_rows:
            written["share_att_key"] = any("the layer's own" in note for note in description.notes)
        return written


def mpt_slopes(num_heads: int, steepest: float) -> tuple[float, ...]:
    """Give MPT's slopes, m_h = 2 ** (-steepest h / n) with n the power of two from num_heads up, even h first.

    >>> mpt_slopes(4, 8.0) == tuple(slopes(4)), mpt_slopes(3, 8.0) == tuple(slopes(3))
    (True, True)
    """
    power = 2 ** ceil(log2(num_heads))
    series = [2 ** (-steepest * h / power) for h in range(1, power + 1)]
    if power == num_heads:
        return tuple(series)
    return tuple((series[1::2] + series[::2])[:num_heads])


def falcon_slopes(num_heads: int, head_dim: int) -> tuple[float, ...]:
    """Give Falcon's slopes: the authors', rounded to bfloat16, divided by sqrt(head_dim).

    >>> falcon_slopes(4, 64)
    (0.03125, 0.0078125, 0.001953125, 0.00048828125)
    """
    rounded: list[float] = torch.tensor(slopes(num_heads)).bfloat16().tolist()
    return tuple(slope * head_dim**-0.5 for slope in rounded)


def pos_att_type(keys: Keys) -> tuple[str, ...]:
    """Give DeBERTa's terms, from a list or from words with bars between them."""
    given = keys.take("pos_att_type", default=None) or ()
    words: Sequence[str] = given.lower().split("|") if isinstance(given, str) else given
    terms = tuple(word.strip() for word in words)
    for term in terms:
        if term not in TERMS:
            raise SettingError(f"{keys.place}pos_att_type has {term!r}, but whatwhere knows only: {', '.join(TERMS)}.")
    return tuple(term for term in TERMS if term in terms)


def _attention(keys: Keys) -> Keys:
    if keys.values.get("attn_config") is None:
        keys.known.add("attn_config")
        return Keys({}, {}, keys.owner, f"{keys.place}attn_config.")
    return keys.inside("attn_config")
