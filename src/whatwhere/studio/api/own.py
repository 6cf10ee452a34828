"""What the open model itself says of where its tokens stand: its rotaries, its biases, its table of positions.

Read by what inspects a checkpoint; here the schemes are built, so that views can ask them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from whatwhere.errors import WhatWhereError
from whatwhere.inspection import rotary_report
from whatwhere.inspection.biases import BiasLayers
from whatwhere.inspection.biases import biases as inspected_biases
from whatwhere.inspection.subject import Absent, Subject, tried
from whatwhere.records import Missing
from whatwhere.studio.session import Source
from whatwhere.studio.standing import Standing, runs, standing, subject

if TYPE_CHECKING:
    from whatwhere.models.huggingface import Description

Found = TypeVar("Found")

_NOTHING = "nothing is loaded"
_RESULTS = "results of a comparison have no configuration of their own"


@dataclass(frozen=True)
class OwnRotary:
    """A rotary of the open model.

    Args:
        layers: which have it.
        scheme: built.
        trained, claimed: lengths; `lengths` says how they are known.
    """

    layers: list[int]
    scheme: Any
    trained: int
    claimed: int
    lengths: str


@dataclass(frozen=True)
class OwnBias:
    """A bias of the open model.

    Args:
        layers: which have it; none of a run of a comparison, whose first layer it is.
        part: "decoder" or "encoder" of a model with both.
        tensor: its learned table, or None.
        scheme: built, with that table in it; None where there is none to show, and then `missing` says why.
    """

    layers: list[int]
    part: str | None
    name: str
    tensor: str | None
    scheme: Any
    missing: str | None

    @property
    def said(self) -> str:
        """What to call it."""
        if not self.layers:
            return f"trained: {self.name}"
        part = f", {self.part}" if self.part else ""
        return f"this model: {self.name}{part}, {layers_in_words(self.layers)}"


def rotaries(source: Source) -> tuple[list[OwnRotary], str | None]:
    """Return the rotaries of the open model, or none and why."""
    return source.once("own rotaries", lambda: _rotaries(source))


def biases(source: Source) -> tuple[list[OwnBias], str | None]:
    """Return the biases of the open model, their learned tables read, or none and why."""
    return source.once("own biases", lambda: _biases(source))


def trained(source: Source) -> list[Standing]:
    """Return the first run of each scheme of a comparison, as its training left it."""
    first = {name.rpartition("-")[0]: name for name in reversed(runs(source))}
    found = []
    for name in reversed(first.values()):
        try:
            found.append(standing(source, name))
        except WhatWhereError:  # a scheme of somebody's own, which results do not hold
            continue
    return found


def layers_in_words(layers: list[int]) -> str:
    """Return the name of layers: "layers 0-5, 7".

    Examples:
        >>> layers_in_words([0, 1, 2, 7]), layers_in_words([4])
        ('layers 0-2, 7', 'layer 4')
    """
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and layer == ranges[-1][-1] + 1:
            ranges[-1][1:] = [layer]
        else:
            ranges.append([layer])
    named = ", ".join("-".join(map(str, each)) for each in ranges[:6])
    return f"layer{'s' if len(layers) > 1 else ''} {named}{', ...' if len(ranges) > 6 else ''}"


def _inspected(source: Source, section: Callable[[Subject], Found]) -> Found | Missing:
    """Return a section of the inspection; a configuration that is refused leaves the views of fresh schemes as they
    are."""
    try:
        return tried(section, subject(source))
    except (WhatWhereError, NotImplementedError) as problem:
        return Missing(str(problem))


def _rotaries(source: Source) -> tuple[list[OwnRotary], str | None]:
    if source.kind != "checkpoint":
        return [], _NOTHING if source.kind == "fresh" else _RESULTS
    found = _inspected(source, rotary_report.rotary)
    if isinstance(found, Missing):
        return [], found.missing
    by_layer = {layer: group for group in found.groups for layer in group.layers}
    rotaries = [
        OwnRotary(layers, plan.build(), group.trained, group.claimed, group.lengths)
        for plan, layers in rotary_report.layers_of(subject(source).description.query_key)
        if (group := by_layer.get(layers[0])) is not None
    ]
    return rotaries, None


def _biases(source: Source) -> tuple[list[OwnBias], str | None]:
    if source.kind == "results":
        found = [_of_run(each) for each in trained(source) if each.where.score is not None]
        return found, None if found else "no run of this comparison has a bias"
    if source.kind == "fresh":
        return [], _NOTHING
    seen = _inspected(source, inspected_biases)
    if isinstance(seen, Missing):
        return [], seen.missing
    return [_bias(source, group) for group in seen.groups], None


def _bias(source: Source, group: BiasLayers) -> OwnBias:
    from torch import from_numpy, no_grad

    missing = group.curves.missing if isinstance(group.curves, Missing) else None
    tensor = group.tensor
    scheme: Any = None
    if missing is None:
        plan = _described(source, group.part).score[group.layers[0]]
        assert plan is not None
        scheme = plan.build()
        if tensor is not None:
            table = source.checkpoint.array(tensor).astype(np.float32)
            with no_grad():
                scheme.weight.copy_(from_numpy(table))
    return OwnBias(list(group.layers), group.part, group.scheme, tensor, scheme, missing)


def _of_run(run: Standing) -> OwnBias:
    score: Any = run.where.score
    missing = "; ".join(run.notes) or None
    if score.by_content:
        missing = "this bias depends on queries and keys"
    return OwnBias([], None, run.title, None, None if missing else score, missing)


def _described(source: Source, part: str | None) -> "Description":
    from whatwhere.models.huggingface import from_huggingface

    found = subject(source).description
    if found.part == part or source.checkpoint.config is None:
        return found
    return from_huggingface(source.checkpoint.config, part=part)


def positions(source: Source, most: int) -> tuple[str, np.ndarray] | None:
    """Return how alike two rows of the model's own table of positions are, by their distance; None without one."""
    return source.once(("own positions", most), lambda: _positions(source, most))


def _positions(source: Source, most: int) -> tuple[str, np.ndarray] | None:
    from whatwhere.analysis.position_table import trained_positions

    if source.kind != "checkpoint":
        return None
    try:
        table = subject(source).positions[:most]
    except (Absent, WhatWhereError, NotImplementedError):
        return None
    if len(table) < 2 or not np.isfinite(table).all():
        return None
    name = source.checkpoint.position_table
    return name or "the fixed positions that are added", trained_positions(table).by_distance
