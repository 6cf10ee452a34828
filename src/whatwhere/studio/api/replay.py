"""Runs of a comparison from the inside: the token table step by step, and the attention of each head by distance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from whatwhere.analysis.pca import principal_components
from whatwhere.report.section import Paragraph, Part, Section, Table
from whatwhere.report.text import decimals, number, percent
from whatwhere.studio.api.settings import ExportedView, known, text
from whatwhere.studio.schemes import find_run, first_names, run_name
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.results import RunResult

MOST_NUMBERS = 500_000
"""Of all tables of a run, as the page and an exported file hold them: 50 steps of 50 tokens with 200 features."""
_TABLES = ("steps", "tables")
_ATTENTION, _UNIFORM = "attention@", "uniform@"
_SHOWN = 256
"""Tokens in a table for readers without JavaScript."""

Trace = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Plane:
    """Tokens on the plane of two principal components, by step.

    Args:
        points: coordinates of each token.
        variance_explained: by each component at the end, as a share.
    """

    points: Float32[np.ndarray, "steps tokens 2"]
    variance_explained: Float[np.ndarray, " 2"]


@dataclass(frozen=True, eq=False)
class DigitLine:
    """The digits along their first principal axis at the end, by step; `r` of each step's own axis."""

    along: Float64[np.ndarray, "steps digits"]
    r: Float64[np.ndarray, " steps"]


@dataclass(frozen=True, eq=False)
class TableFrames:
    """The token table by step.

    Args:
        steps: at which it was recorded.
        tables: the table at each.
        planes: of the "table" E, and of its "change" E - E0.
        norms: of each row.
        line: of the expressions' digits, or None.
    """

    steps: Int[np.ndarray, " steps"]
    tables: Float32[np.ndarray, "steps tokens dim"]
    planes: Mapping[Literal["table", "change"], Plane]
    norms: Float32[np.ndarray, "steps tokens"]
    line: DigitLine | None


@dataclass(frozen=True, eq=False)
class Frames:
    """A run step by step.

    Args:
        run: its name.
        steps_of_run: of its training.
        words: the tokens.
        loss_steps: steps of the losses.
        losses: of the batch at each.
        frames: the token table, or None.
        missing: why there is no table, or None.
    """

    run: str
    steps_of_run: int
    words: Sequence[str]
    loss_steps: Float64[np.ndarray, " losses"]
    losses: Float64[np.ndarray, " losses"]
    frames: TableFrames | None
    missing: str | None = None


@dataclass(frozen=True, eq=False)
class AttentionCurves:
    """Mean attention weights by distance at one length; `uniform` those of uniform attention, where recorded."""

    length: int
    distances: Int[np.ndarray, " distances"]
    layers: Float32[np.ndarray, "layers heads distances"]
    uniform: Float32[np.ndarray, "layers distances"] | None


@dataclass(frozen=True, eq=False)
class Attention:
    """The heads of a run; `missing` says why there are none, or is None."""

    run: str
    unit: str
    lengths: Sequence[AttentionCurves]
    missing: str | None


def frames(session: Session, settings: Mapping[str, Any]) -> Frames:
    """Return the token table of a run at each recorded step, on planes and a line that are the same for all steps.

    A plane is that of two principal components at the end, so that what moves on it is the tokens, not the axes: of the
    table E, and of what training wrote into it, E - E0. The line is the first such axis of the ten digits' E - E0.

    Args:
        settings: run, as `runs` names it.
    """
    known(settings, "run")
    run = find_run(session, text(settings, "run"))
    trace = session.results.trace(run)
    if set(_TABLES) - trace.keys():
        trace |= _ends(session, run)
    return _frames(run, trace, list(session.results.task.tokens))


def attention(session: Session, settings: Mapping[str, Any]) -> Attention:
    """Return the mean attention weight of each head by distance, as measured at the end of a run.

    Args:
        session: a comparison.
        settings: run, as `runs` names it.
    """
    known(settings, "run")
    run = find_run(session, text(settings, "run"))
    results = session.results
    bidirectional = results.settings(run).direction == "encoder"
    return _attention(run, results.trace(run), results.task.unit, bidirectional)


def exported(session: Session) -> ExportedView | None:
    """Return what an exported page needs of the replay: the first run of each scheme."""
    kept = [frames(session, {"run": name}) for name in first_names(session)]
    if not kept:
        return None
    queries = [("replay.frames", {"run": view.run}) for view in kept]
    return ExportedView("Training replay", queries, sections=[_frames_section(kept[0])])


def exported_attention(session: Session) -> ExportedView | None:
    """Return what an exported page needs of the heads: those of the first run of each scheme."""
    if not (names := first_names(session)):
        return None
    best = attention(session, {"run": names[0]})
    queries = [("replay.attention", {"run": name}) for name in names]
    return ExportedView("Attention by distance", queries, sections=[_attention_section(best)])


def _frames_section(view: Frames) -> Section:
    """Return where the tokens of a run are at the beginning and at the end, and its loss."""
    parts: list[Part] = [] if view.missing is None else [Paragraph(f"There is no token table to show: {view.missing}")]
    if view.frames is not None:
        parts += _plane_parts(view, view.frames)
    losses = zip(view.loss_steps, view.losses, strict=True)
    rows = [(number(step), number(loss)) for step, loss in losses]
    caption = f"{view.run}: cross-entropy of the batch"
    parts.append(Table(caption, ("step", "loss"), rows, numeric=(0, 1), shorten="evenly"))
    return Section("replay", "Training replay", parts)


def _plane_parts(view: Frames, tables: TableFrames) -> list[Part]:
    columns = ("token", "E0, x", "E0, y", "E, x", "E, y", "E − E0, x", "E − E0, y", "norm of E0", "norm of E")
    table, change = tables.planes["table"], tables.planes["change"]
    shown = (table.points[0], table.points[-1], change.points[-1])  # E - E0 is zero at step 0
    rows = []
    for token, word in enumerate(view.words[:_SHOWN]):
        values = [value for points in shown for value in points[token]] + [tables.norms[n, token] for n in (0, -1)]
        rows.append((word, *(number(float(value)) for value in values)))
    shares = [percent(float(np.sum(plane.variance_explained)), 0) for plane in (table, change)]
    text = f"At the end the planes show {shares[0]} of the variance of the rows and {shares[1]} of that of the changes."
    caption = f"{view.run}: its tokens on planes"
    return [Paragraph(text), Table(caption, columns, rows, numeric=range(1, len(columns)))]


def _attention_section(view: Attention) -> Section:
    parts: list[Part] = []
    if view.missing is not None:
        parts.append(Paragraph(f"There is no attention to show: {view.missing}"))
    for each in view.lengths:
        layers, heads, _ = each.layers.shape
        columns = ["tokens back", *(f"layer {n // heads}, head {n % heads}" for n in range(layers * heads))]
        weights = each.layers.reshape(layers * heads, -1).T
        rows = [
            [str(back), *("" if np.isnan(v) else decimals(float(v), 4) for v in weights[n])]
            for n, back in enumerate(each.distances.tolist())
            if abs(back) & (abs(back) - 1) == 0  # powers of two
        ]
        caption = f"{view.run}: mean weight by tokens back, at {each.length} {view.unit}"
        parts.append(Table(caption, columns, rows, numeric=range(len(columns))))
    return Section("attention", "Attention by distance", parts)


def _ends(session: Session, run: "RunResult") -> dict[str, np.ndarray]:
    """Return the table before and after training, which every run saves, where the steps between are not recorded."""
    from whatwhere.comparison.read import AFTER, BEFORE

    tables = session.results.tables(run)
    if {BEFORE, AFTER} - tables.keys():
        return {}
    return {"steps": np.array([0, run.steps]), "tables": np.stack([tables[BEFORE], tables[AFTER]])}


def _frames(run: "RunResult", trace: Trace, tokens: list[str]) -> Frames:
    losses = np.array(run.losses, np.float64).reshape(-1, 2)

    def make(words: list[str], tables: TableFrames | None, missing: str | None = None) -> Frames:
        return Frames(run_name(run), run.steps, words, losses[:, 0], losses[:, 1], tables, missing)

    if set(_TABLES) - trace.keys() or trace["tables"].ndim != 3 or len(trace["steps"]) != len(trace["tables"]):
        return make(tokens, None, "the tables of this run are not in its folder, or hold numbers that are not finite.")
    if trace["tables"].size > MOST_NUMBERS:
        size = f"{trace['tables'].size:,} numbers, but at most {MOST_NUMBERS:,} can be replayed."
        return make(tokens, None, f"the tables of this run have {size}")
    tables = trace["tables"].astype(np.float64)
    if not np.isfinite(tables).all():
        return make(tokens, None, "the tables of this run hold numbers that are not finite: the training diverged.")
    words = [tokens[n] if n < len(tokens) else f"#{n}" for n in range(tables.shape[1])]
    digits = [tokens.index(digit) for digit in "0123456789" if digit in tokens] if run.token_table else []
    return make(
        words,
        TableFrames(
            steps=trace["steps"].astype(np.int64),
            tables=tables.astype(np.float32),
            planes={"table": _plane(tables), "change": _plane(tables - tables[0])},
            norms=np.linalg.norm(tables, axis=2).astype(np.float32),
            line=_line(tables[:, digits]) if len(digits) == 10 else None,
        ),
    )


def _plane(tables: np.ndarray) -> Plane:
    plane = principal_components(tables[-1], 2)
    points = (tables - tables[-1].mean(axis=0)) @ plane.axes.T
    return Plane(points.astype(np.float32), plane.explained_variance_ratio)


def _line(digits: np.ndarray) -> DigitLine:
    """Return what training wrote into the digits along its first axis at the end, and |r| of each step's own axis."""
    from whatwhere.comparison.measure import number_line

    moves = digits - digits[0]
    axis = principal_components(moves[-1], 1).axes[0]
    along = (moves - moves.mean(axis=1, keepdims=True)) @ axis
    # The sign of an axis is arbitrary: let greater digits tend to the right.
    if np.ptp(along[-1]) and np.corrcoef(along[-1], np.arange(10))[0, 1] < 0:
        along = -along
    r = [number_line(move) for move in moves]
    return DigitLine(along, np.array([np.nan if value is None else value for value in r]))


def _attention(run: "RunResult", trace: Trace, unit: str, bidirectional: bool = False) -> Attention:
    lengths = []
    for length in sorted(int(name.partition("@")[2]) for name in trace if name.startswith(_ATTENTION)):
        curves = trace[f"{_ATTENTION}{length}"]
        uniform, count = trace.get(f"{_UNIFORM}{length}"), curves.shape[2]
        first = (1 - count) // 2 if bidirectional else 0
        lengths.append(
            AttentionCurves(
                length=length,
                distances=np.arange(first, first + count),
                layers=curves.astype(np.float32),
                uniform=None if uniform is None else uniform.astype(np.float32),
            )
        )
    missing = None if lengths else "no attention was recorded for this run."
    return Attention(run_name(run), unit, lengths, missing)
