"""Runs of a comparison from the inside: the token table step by step, and the attention of each head by distance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from whatwhere.analysis.pca import principal_components
from whatwhere.errors import SettingError
from whatwhere.report.figures import looks
from whatwhere.report.section import Chart, Part, Section, Series
from whatwhere.report.text import count, decimals
from whatwhere.studio.api.settings import ExportedView, Findings, columns, query
from whatwhere.studio.schemes import find_run, first_names
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.results import LossesSoFar, RunResult

MOST_NUMBERS = 500_000
"""Of all tables of a run, as the page and an exported file hold them: 50 steps of 50 tokens with 200 features."""
_ATTENTION, _UNIFORM = "attention@", "uniform@"
_SHOWN = 256  # tokens in a table for readers without JavaScript


@dataclass(frozen=True)
class Training:
    """The runs, and the looks of their schemes; once it is `finished`, the session is on the results."""

    runs: "Sequence[LossesSoFar]"
    looks: Mapping[str, int]
    finished: bool


@dataclass(frozen=True, eq=False)
class Plane:
    """Tokens on the plane of two principal components, by step, and the variance that each explains at the end."""

    points: Float32[np.ndarray, "steps tokens 2"]
    variance_explained: Float[np.ndarray, " 2"]


@dataclass(frozen=True, eq=False)
class DigitLine:
    """The digits along their first principal axis at the end, by step; `r` of each step's own axis."""

    along: Float64[np.ndarray, "steps digits"]
    r: Float64[np.ndarray, " steps"]


@dataclass(frozen=True, eq=False)
class TableFrames:
    """The token table at each recorded step, the norms of its rows, planes of it and of its change, and its digits."""

    steps: Int[np.ndarray, " steps"]
    tables: Float32[np.ndarray, "steps tokens dim"]
    planes: Mapping[Literal["table", "change"], Plane]
    norms: Float32[np.ndarray, "steps tokens"]
    line: DigitLine | None


@dataclass(frozen=True, eq=False)
class Frames:
    """A run step by step; held-out losses are as last measured; `missing` says why there is no table, or is None."""

    run: str
    words: Sequence[str]
    loss_steps: Float64[np.ndarray, " losses"]
    losses: Float64[np.ndarray, " losses"]
    held_out: Float64[np.ndarray, " measured"]
    frames: TableFrames | None
    missing: str | None


@query("training.now")
def training(session: Session) -> Training:
    """Return the losses of the finished runs, and of those that train on a machine that has this folder."""
    if session.show_results():
        return Training([], {}, finished=True)
    from whatwhere.comparison.folder import losses_so_far

    runs = losses_so_far(session.checkpoint.path)
    return Training(runs, looks([*dict.fromkeys(run.scheme for run in runs)]), finished=False)


@query("replay.frames")
def frames(session: Session, *, run: str) -> Frames:
    """Return the token table of a run at each recorded step, on planes and a line that are the same for all steps.

    A plane is that of two principal components at the end, so that what moves on it is the tokens, not the axes: of the
    table E, and of what training wrote into it, E - E0. The line is the first such axis of the ten digits' E - E0.
    """
    found, tokens = find_run(session.results, run), list(session.results.task.tokens)
    steps, losses = np.array(found.losses, np.float64).reshape(-1, 2).T
    measured, held_out = np.array(found.held_out, np.float64).reshape(-1, 2).T
    if measured.size:  # the first time before any step
        held_out = held_out[np.searchsorted(measured, steps, side="right") - 1]
    tables = _table_frames(session, found, tokens)
    if isinstance(tables, str):
        return Frames(run, tokens, steps, losses, held_out, None, tables)
    words = [tokens[n] if n < len(tokens) else f"#{n}" for n in range(tables.tables.shape[1])]
    return Frames(run, words, steps, losses, held_out, tables, None)


@query("replay.attention")
def attention(session: Session, *, run: str) -> Findings:
    """Return the mean attention weight of each head by distance, as measured at the end of a run."""
    found, results = find_run(session.results, run), session.results
    trace, unit, written = results.trace(found), results.task.unit, results.task.name == "expressions"
    sections: list[Section] = []
    notes: set[str] = set()
    headline = ""
    for length in sorted(int(name.partition("@")[2]) for name in trace if name.startswith(_ATTENTION)):
        curves, uniform = trace[f"{_ATTENTION}{length}"], trace.get(f"{_UNIFORM}{length}")
        first = (1 - curves.shape[2]) // 2 if results.settings(found).direction == "encoder" else 0
        back = np.arange(first, first + curves.shape[2])
        title = f"{'Beyond it' if sections else 'At the longest trained length'}: {length} {unit}"
        plain = [None] * len(curves) if uniform is None else list(uniform)
        behind = "; the arguments are at odd distances, the last one at 1" if written and not first else ""
        layers = [
            _layer(f"Layer {n}, {length} {unit}", back, behind, *each)
            for n, each in enumerate(zip(curves, plain, strict=True))
        ]
        layer, head, at = np.unravel_index(np.argmax(np.nan_to_num(curves)), curves.shape)
        where = f"{count(abs(int(back[at])), 'token')} {'back' if back[at] >= 0 else 'ahead'}"
        most = f"{decimals(float(curves[layer, head, at]), 2)}, {where}, by head {head} of layer {layer}"
        notes |= {each.note for each in layers}
        headline += "; at" if sections else "At"
        headline += f" {length} {unit} the greatest mean weight is {most}"
        sections.append(Section(f"length-{length}", title, layers))
    if not sections:
        return Findings("No attention was recorded for this run", sections)
    if len(notes) == 1:  # of all charts: said once
        headline = f"{headline}. {notes.pop().removesuffix('.')}"
        bare = [[replace(each, note="") if isinstance(each, Chart) else each for each in s.parts] for s in sections]
        sections = [replace(section, parts=parts) for section, parts in zip(sections, bare, strict=True)]
    return Findings(headline, sections)


def _layer(title: str, back: np.ndarray, behind: str, heads: np.ndarray, uniform: np.ndarray | None) -> Chart:
    """Return the curves of the heads of a layer, and that of uniform attention."""
    curves = [Series(f"head {n}", values.tolist(), n) for n, values in enumerate(heads.astype(np.float64))]
    curves += [] if uniform is None else [Series("uniform", uniform.astype(np.float64).tolist(), reference=True)]
    known = np.empty(0) if uniform is None else uniform[np.isfinite(uniform)]
    # Where one query alone is recorded, uniform attention has the same weight at each distance.
    one = uniform is not None and bool(np.all(np.abs(known - known[:1]) < 1e-6))
    powers = np.abs(back) & (np.abs(back) - 1) == 0
    shown = {each.name: np.array(each.values)[powers] for each in curves}
    picture = len(back) > 20 and back[0] == 0  # many curves would be a tangle
    return Chart(
        "picture" if picture else "lines",
        title,
        "tokens back",
        "head" if picture else "mean weight",
        back.astype(np.float64).tolist(),
        curves[: len(heads)] if picture else curves,
        columns(f"{title}: mean weight by tokens back", {"tokens back": back[powers], **shown}),
        note=f"Only the query of the token whose answer is read is recorded: one weight at each distance{behind}."
        if one
        else "Averaged over all queries with a key at that distance.",
        method="weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the "
        "run ended. Distance is counted in tokens, whatever their positions. Uniform attention, dotted beside curves, "
        "is larger for near keys, since early queries have few keys.",
    )


def exported_training(session: Session) -> ExportedView:
    """Refuse to export what changes."""
    raise SettingError(f"the comparison in {session.checkpoint.path} is training: export its results when it ends.")


def exported(session: Session) -> ExportedView:
    """Return what an exported page needs of the replay: the first run of each scheme."""
    names = first_names(session)
    queries = [("replay.frames", {"run": name}) for name in names]
    return ExportedView(queries, sections=[_frames_section(frames(session, {"run": names[0]}))])


def exported_attention(session: Session) -> ExportedView:
    """Return what an exported page needs of the heads: those of the first run of each scheme."""
    names = first_names(session)
    queries = [("replay.attention", {"run": name}) for name in names]
    return ExportedView(queries, sections=attention(session, {"run": names[0]}).sections)


def _frames_section(view: Frames) -> Section:
    """Return the norms of the tokens of a run at the beginning and at the end, and its loss."""
    parts: list[Part] = [] if view.missing is None else [f"There is no token table to show: {view.missing}"]
    if view.frames is not None:
        norms = {"norm of E0": view.frames.norms[0], "norm of E": view.frames.norms[-1]}
        shown = {name: column[:_SHOWN] for name, column in {"token": view.words, **norms}.items()}
        parts.append(columns(f"{view.run}: its tokens", shown))
    losses = {"step": view.loss_steps, "loss of the batch": view.losses}
    losses |= {"held-out loss": view.held_out} if view.held_out.size else {}
    parts.append(columns(f"{view.run}: cross-entropy", losses, shorten="evenly"))
    return Section("replay", "Training replay", parts)


def _table_frames(session: Session, run: "RunResult", tokens: list[str]) -> TableFrames | str:
    """Return the tables of a run, or why there are none."""
    from whatwhere.comparison.read import AFTER, BEFORE

    trace = session.results.trace(run)
    if not {"steps", "tables"} <= trace.keys():  # every run saves the first and the last
        saved = session.results.tables(run)
        if not {BEFORE, AFTER} <= saved.keys():
            return "the tables of this run are not in its folder, or hold numbers that are not finite."
        trace = {"steps": np.array([0, run.steps]), "tables": np.stack([saved[BEFORE], saved[AFTER]])}
    tables = trace["tables"]
    if tables.ndim != 3 or len(trace["steps"]) != len(tables):
        return "the tables of this run are not in its folder, or hold numbers that are not finite."
    if tables.size > MOST_NUMBERS:
        return f"the tables of this run have {tables.size:,} numbers, but at most {MOST_NUMBERS:,} can be replayed."
    if not np.isfinite(tables).all():
        return "the tables of this run hold numbers that are not finite: the training diverged."
    tables = tables.astype(np.float64)
    digits = [tokens.index(digit) for digit in "0123456789" if digit in tokens] if run.token_table else []
    return TableFrames(
        steps=trace["steps"].astype(np.int64),
        tables=tables.astype(np.float32),
        planes={"table": _plane(tables), "change": _plane(tables - tables[0])},
        norms=np.linalg.norm(tables, axis=2).astype(np.float32),
        line=_line(tables[:, digits]) if len(digits) == 10 else None,
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
