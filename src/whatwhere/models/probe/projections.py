"""Compare queries and keys at the scores with the projections that made them: order of features, and factors."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.models.probe.findings import ROTARY, FeatureMap
from whatwhere.models.probe.solve import layout_of

ALIKE, SAME = 0.75, 0.9999
"""Correlation over contents above which features are taken for one another (a norm may lie between), and for equal."""


@dataclass
class Seen:
    """What one attention module was given and projected.

    Args:
        outputs: of each linear layer in it, at position 0: (contents, features).
        magnitude: of the cosine at position 0 that it was given, or None.
    """

    outputs: list[Tensor] = field(default_factory=list)
    magnitude: float | None = None

    def compared(self, vectors: Tensor, found: FeatureMap) -> tuple[FeatureMap, float | None]:
        """Return the map with its layout in the projection's order, and the factor between both, or None.

        Args:
            vectors: queries or keys at position 0: (contents, heads, features).
        """
        candidates = [each for each in self.outputs if each.shape[0] == vectors.shape[0]]
        if not candidates or vectors.shape[0] < 8:
            return found, None
        # A later bias, as in DeBERTa, is the same for all contents: deviations from the mean are compared.
        features, head = (each - each.mean(dim=0) for each in (torch.cat(candidates, dim=1), vectors[:, 0]))
        cosine = torch.nan_to_num((features / features.norm(dim=0)).mT @ (head / head.norm(dim=0)))
        best, source = cosine.abs().max(dim=0)
        factor = None
        if bool((best > SAME).all()):
            ratios = (features[:, source] * head).sum(dim=0) / (features[:, source] ** 2).sum(dim=0)
            middle = float(ratios.median())
            if float((ratios - middle).abs().max()) < 1e-4 * abs(middle):
                factor = middle
        if found.kind != ROTARY or found.layout is None or found.start is None or found.rotary_dim is None:
            return found, factor
        return replace(found, projected_layout=_projected(found, best, source)), factor


def _projected(found: FeatureMap, best: Tensor, source: Tensor) -> Any:
    """Return the layout of the pairs in the order of the projection's features, or None if that is not known."""
    assert found.start is not None
    assert found.rotary_dim is not None
    start, count = found.start, found.rotary_dim // 2
    rotated = slice(start, start + found.rotary_dim)
    if found.layout == "other" or float(best[rotated].min()) < ALIKE:
        return None
    step, other = (1, count) if found.layout == "half" else (2, 1)
    firsts = [start + step * index for index in range(count)]
    pairs = sorted(sorted((int(source[one]), int(source[one + other]))) for one in firsts)
    layout, _ = layout_of([(one, second) for one, second in pairs])
    return None if layout == "other" else layout


class Projections:
    """What the attention modules of a model were given and projected in one run, by name.

    Args:
        contents: number of sequences.
    """

    def __init__(self, contents: int) -> None:
        self.contents = contents
        self.seen: dict[str, Seen] = {}
        self.done: set[str] = set()

    def of(self, module: str) -> Seen | None:
        """Return what one module was given in its first call, or None."""
        return self.seen.get(module)

    def keep(self, module: str, output: Any) -> None:
        """Keep the output of a linear layer.

        Args:
            module: name of the attention module around it.
            output: of the layer.
        """
        if isinstance(output, Tensor) and output.dim() == 3 and module not in self.done:
            first = output[:, 0] if output.shape[0] == self.contents else output[0]  # tokens may be the first axis
            self.seen.setdefault(module, Seen()).outputs.append(first.detach().double())

    def enter(self, module: str, options: dict[str, Any]) -> None:
        """Keep the cosine that an attention module is given."""
        given = options.get("position_embeddings")
        if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], Tensor):
            given = given[0]
        if isinstance(given, Tensor) and module not in self.done and given.dim() >= 3:
            cosine = given.abs() if given.is_complex() else given
            self.seen.setdefault(module, Seen()).magnitude = float(cosine[..., 0, :].double().max())


@contextmanager
def watched_projections(model: nn.Module, modules: tuple[str, ...], contents: int) -> Iterator[Projections]:
    """Keep what attention modules are given and project, within a block."""
    kept = Projections(contents)
    handles = []
    for name in dict.fromkeys(modules):
        if not name:
            continue
        module = model.get_submodule(name)
        handles += [
            module.register_forward_pre_hook(
                lambda _, __, options, name=name: kept.enter(name, options), with_kwargs=True
            ),
            module.register_forward_hook(lambda *_, name=name: kept.done.add(name)),
            *(
                part.register_forward_hook(lambda _, __, output, name=name: kept.keep(name, output))
                for part in module.modules()
                if _is_projection(part)
            ),
        ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def _is_projection(module: nn.Module) -> bool:
    """Return whether a module has a matrix as weight: a linear layer, or GPT-2's Conv1D."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2
