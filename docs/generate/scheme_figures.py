"""What the cards of the schemes draw: their own values by distance, and the curves that the evidence measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from experiments.record import Evidence
from whatwhere.analysis.position_similarity import ByDistance, by_distance
from whatwhere.comparison import Comparison
from whatwhere.position.positions import positions
from whatwhere.report.comparison_figures import figures
from whatwhere.report.figures import to_file
from whatwhere.report.section import Chart, Series
from whatwhere.where.catalogue import Scheme, catalogue, random_scheme
from whatwhere.where.region_map import products
from whatwhere.where.rotation_by_content import RotationByContent
from whatwhere.where.score_bias import ScoreBias, tabulate

DIM, HEADS, TRAINED, DISTANCES = 256, 4, 128, 256
"""Sizes of the schemes that are drawn: heads of 64 features, a trained length of 128."""
OPTIONS: Mapping[str, Mapping[str, float]] = {"cope": {"std": 0.5}}
"""Of schemes whose parameters start at zero, where there would be nothing to draw."""
WIDTH = 130.0
EXPERIMENTS: Mapping[str, str] = {"E1": "expressions", "E3": "text"}
"""Experiments whose comparison of schemes the cards show, with its name."""


@dataclass(frozen=True)
class Measurement:
    """A comparison of the committed evidence that has runs of a scheme.

    Args:
        evidence: of its experiment.
        comparison: the runs.
    """

    evidence: Evidence
    comparison: Comparison

    @property
    def lengths(self) -> tuple[int, int, int]:
        """The trained length, twice and four times it."""
        trained = max(self.comparison.task.trained)
        return trained, 2 * trained, 4 * trained


def measurements(evidence: Sequence[Evidence], name: str | None = None) -> list[Measurement]:
    """Return the comparisons that have runs of a scheme.

    Args:
        evidence: that is committed.
        name: of the scheme; None is every comparison.
    """
    named = {each.id: each for each in evidence}
    found = []
    for id, of_experiment in EXPERIMENTS.items():
        if id in named and of_experiment in named[id].comparisons:
            comparison = Comparison(Path("evidence"), named[id].comparisons[of_experiment])
            if name is None or name in comparison.schemes:
                found.append(Measurement(named[id], comparison))
    return found


def values_by_distance(entry: Scheme) -> ByDistance | None:
    """Return the values of a scheme at each distance, its parameters as initialized; None for no scheme."""
    where = random_scheme(entry.name, DIM, HEADS, TRAINED, **OPTIONS.get(entry.name, {}))
    distances = DISTANCES if entry.any_length else TRAINED
    curves = by_distance(where, distances)
    if curves is None and where.score is not None:
        of_ones = _bias_of_ones(where.score, distances)
        label = "bias for a query and keys of ones"
        return ByDistance(label, {f"head {n}": bias for n, bias in enumerate(of_ones)})
    if curves is None and isinstance(where.query_key, RotationByContent):
        of_ones = _products_of_ones(where.query_key, distances) / where.query_key.head_dim
        label = "inner product of equal query and key, for tokens of ones"
        return ByDistance(label, {f"head {n}": curve for n, curve in enumerate(of_ones)})
    return curves


def _bias_of_ones(score: ScoreBias, distances: int) -> Float[Tensor, "heads distances"]:
    """Return a bias that depends on queries and keys, for queries, keys and vectors of ones."""
    keys, last = positions(distances), positions(1, start=distances - 1)
    heads, features, dim = score.num_heads, int(getattr(score, "head_dim", 1)), int(getattr(score, "dim", 0))
    with torch.no_grad():
        gates = score.gates(torch.ones(1, distances, dim)) if dim else None
        q, k = torch.ones(1, heads, 1, features), torch.ones(1, heads, distances, features)
        element = score.bind(last, keys, q=q, k=k, gates=gates)
        table = tabulate(element, 1, heads, 1, distances, torch.device("cpu"))
    return table[0, :, 0].flip(-1)


def _products_of_ones(scheme: RotationByContent, distances: int) -> Float[Tensor, "heads distances"]:
    """Return the dot product of a query and a key of ones under a map by content, for vectors of ones."""
    tokens = positions(distances)
    with torch.no_grad():
        increments = scheme.increments(torch.ones(1, distances, int(getattr(scheme, "dim", 1))))
        of_queries, of_keys = scheme.bind_content(tokens, tokens, increments)
        ones = torch.ones(1, int(getattr(scheme, "num_heads", 1)), distances, scheme.head_dim)
        q, k = scheme.map_query(ones, of_queries), scheme.map_key(ones, of_keys)
        return products(scheme, q[:, :, -1:], k, tokens[-1:], tokens)[0, :, 0].flip(-1)


def picture(entry: Scheme) -> Chart | None:
    """Return the figure of a scheme's own values by distance; scaled rotary stands beside plain rotary."""
    values = values_by_distance(entry)
    if values is None:
        return None
    curves = [Series(name, curve.tolist()) for name, curve in values.curves.items()]
    if entry.door == "query_key" and entry.name.startswith("rotary-"):
        plain = values_by_distance(catalogue["rotary"])
        curves += (
            [Series(f"rotary: {name}", c.tolist(), reference=True) for name, c in plain.curves.items()] if plain else []
        )
    return Chart(
        kind="lines",
        name=entry.name,
        title=f"{entry.name}: {values.label} by distance",
        x_label="distance of two tokens",
        y_label=values.label,
        x=[*map(float, range(len(curves[0].values)))],
        series=curves,
    )


def drawn(evidence: Sequence[Evidence]) -> Iterator[tuple[str, Chart]]:
    """Yield the figures of all cards, each with its file name: the picture, and a curve for each measurement.

    Args:
        evidence: that is committed.
    """
    for name, entry in catalogue.items():
        figure = picture(entry)
        if figure is not None:
            yield f"{name}.svg", figure
        for each in measurements(evidence, name):
            first, *_ = figures(each.comparison, tuple(dict.fromkeys((name, *_beside(each, name)))))
            yield curve_file(name, each), first


def curve_file(name: str, measured: Measurement) -> str:
    """Return the file name of the curve of a scheme."""
    return f"{name}-{EXPERIMENTS[measured.evidence.id]}.svg"


def write_scheme_figures(folder: Path, evidence: Sequence[Evidence]) -> frozenset[str]:
    """Write the figures of all cards as SVG, and return their names.

    Args:
        folder: where to write; it is made where it is missing.
        evidence: that is committed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = set()
    for file, figure in drawn(evidence):
        (folder / file).write_bytes(to_file(figure, "svg", WIDTH))
        written.add(file)
    return frozenset(written)


def _beside(measured: Measurement, name: str) -> tuple[str, ...]:
    """Return the scheme that a curve is compared with: no positions."""
    return ("none",) if name != "none" and "none" in measured.comparison.schemes else ()
