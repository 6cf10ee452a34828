"""Which positional encodings the views show: the open model's own, those of the catalogue, and those of a comparison's
runs; and the names of these runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from whatwhere.analysis.biases import BiasLayers
from whatwhere.analysis.biases import biases as inspected_biases
from whatwhere.analysis.rotary import RotaryLayers, layers_of
from whatwhere.analysis.rotary import rotary as inspected_rotary
from whatwhere.analysis.subject import Subject, or_missing
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.escape import quoted, visible
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.load_where import TOKENS, LoadedWhere, default_heads, fill_bias, load_where, own_sources
from whatwhere.models.model_text import token_factor
from whatwhere.records import Missing
from whatwhere.report.text import ranges
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.read import Comparison
    from whatwhere.comparison.results import RunResult
    from whatwhere.where.catalogue.entry import Door
    from whatwhere.where.score_bias import ScoreBias

Section = TypeVar("Section")

MODEL = "model"  # name of the scheme of the open model
DEFAULT_DIM, DEFAULT_LENGTH = 16, 64
DOORS: Sequence["Door"] = ("input", "query_key", "score")
FOR_IMAGES = ("sinusoidal-axial", "fourier", "rotary-axial", "rotary-mixed", "swin", "swin-v2", "sam")
"""Entries of the catalogue that are not in the lists of the views, whose positions are those of a text."""
_MOST_RANGES = 6
_NOTHING_OPEN = "nothing is loaded"
_COMPARISON = "results of a comparison have no configuration of their own"


@dataclass(frozen=True)
class DoorScheme:
    """The scheme at one door: its class, and how Python writes it, on one line."""

    door: "Door"
    name: str
    repr: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SchemeSummary:
    """What an answer says of the scheme that it shows: see ShownScheme; `doors` are those in use."""

    title: str
    notes: Sequence[str]
    doors: Sequence[DoorScheme]
    dim: int
    num_heads: int
    head_dim: int
    python: str


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownScheme(LoadedWhere):
    """The positional encoding that a view shows; `python` are lines that build it, with PATH of what is open."""

    python: str

    def summary(self) -> dict[str, Any]:
        """Return the fields of `SchemeSummary`."""
        schemes = [(door, getattr(self.where, door)) for door in DOORS]
        doors = [
            DoorScheme(door, type(scheme).__name__, " ".join(repr(scheme).split()))
            for door, scheme in schemes
            if scheme is not None
        ]
        same = ("title", "notes", "dim", "num_heads", "head_dim", "python")
        return {"doors": doors, **{name: getattr(self, name) for name in same}}


@dataclass(frozen=True, eq=False)
class ModelBias:
    """A bias of the open model, or of a run, or why it cannot be shown; Python lines build it as `scheme`."""

    title: str
    scheme: "ScoreBias | None"
    missing: str | None
    tensor: str | None = None
    python: str = ""


def has_own(session: Session) -> bool:
    """Return whether the file itself has a configuration or a position table, by its headers alone."""
    checkpoint = session.checkpoint
    return session.kind == "checkpoint" and (checkpoint.config is not None or checkpoint.position_table is not None)


def used_doors(session: Session) -> "set[Door]":
    """Return the doors at which positions enter in what is open; all of them where the catalogue is shown."""
    if session.kind == "fresh":
        return set(DOORS)
    if session.kind == "results":
        schemes = session.checkpoint.metadata.get("schemes")
        named = schemes.values() if isinstance(schemes, dict) else []
        return {door for each in named if isinstance(each, dict) for door in DOORS if door in (each.get("doors") or ())}
    try:
        description = session.checkpoint.description
    except (WhatWhereError, NotImplementedError):  # a model type that is not known, or a configuration that is refused
        return set()
    plans = {"input": [description.input], "query_key": description.query_key, "score": description.score}
    return {door for door in DOORS if any(plan is not None for plan in plans[door])}


def default_scheme(session: Session, otherwise: str, for_odd: str | None = None) -> str:
    """Return the scheme that a view begins with: the model's own, else a run with positions, else one of the others."""
    if has_own(session):
        return MODEL
    if session.runs:
        return session.run
    table = session.checkpoint.token_table
    odd = table is not None and session.checkpoint.entry(table).shape[1] % 2 == 1
    return for_odd if for_odd and odd else otherwise


def scheme_of(
    session: Session, name: str, *, dim: int = 0, num_heads: int = 0, max_length: int = DEFAULT_LENGTH, seed: int = 0
) -> ShownScheme:
    """Build a scheme by name; the sizes and the seed are those of schemes of the catalogue.

    Args:
        name: "model", a run, or an entry of the catalogue, or several joined by "+".
        dim, num_heads: 0 takes those of the open model.
    """
    if name == MODEL or name in session.runs:
        return session.once(("scheme", name), lambda: _loaded(session, None if name == MODEL else name))
    from whatwhere.where.catalogue import random_scheme

    table = session.checkpoint.token_table
    dim = dim or (session.checkpoint.entry(table).shape[1] if table else DEFAULT_DIM)
    num_heads = num_heads or default_heads(session.checkpoint, dim)
    where = random_scheme(name, dim, num_heads, max_length, seed)
    learned = any(True for _ in where.parameters())
    return ShownScheme(
        title=name,
        where=where,
        dim=dim,
        num_heads=num_heads,
        head_dim=dim // num_heads if where.query_key is None else where.query_key.head_dim,
        notes=(f"its parameters are random, with seed {seed}",) if learned else (),
        python=catalogue_python(name, dim, num_heads, max_length, seed, learned=learned),
    )


def _loaded(session: Session, run: str | None) -> ShownScheme:
    own = "" if run is None else ", ".join(f"{name!r}: {name}" for name in own_sources(session.checkpoint, run))
    model = f"model = ww.read(PATH)\nmodel.builds = {{{own}}}\n" if own else ""  # functions that the reader defines
    source = f"{'model' if own else 'PATH'}{'' if run is None else f', run={run!r}'}"
    python = f"import whatwhere as ww\n{model}where = ww.load_where({source}).where"
    return ShownScheme(**vars(load_where(session.checkpoint, run)), python=python)


def catalogue_python(
    name: str, dim: int, num_heads: int, max_length: int, seed: int, *, learned: bool, **options: object
) -> str:
    """Return lines of Python that build as `where` what `random_scheme` builds; `learned` is whether any of it is."""
    from whatwhere.where.catalogue import scheme_seed

    more = "".join(f", {option}={value!r}" for option, value in options.items())
    sizes = f"{name!r}, dim={dim}, num_heads={num_heads}, max_length={max_length}{more}"
    if not learned:
        return f"import whatwhere as ww\nwhere = ww.scheme({sizes})"
    generator = f"generator = torch.Generator().manual_seed({scheme_seed(seed)})"
    return f"import torch\nimport whatwhere as ww\n{generator}\nwhere = ww.scheme({sizes}, generator=generator)"


def token_tensor(session: Session, name: str, run: str) -> str:
    """Return the name of the token table that goes with a scheme: that of a run has its own, others have `run`'s."""
    if session.runs:
        return session.known_run(name if name in session.runs else run) + TOKENS
    if run:
        raise SettingError("what is open here is not a folder of a comparison, so it has no runs.")
    if session.checkpoint.token_table is None:
        raise SettingError("no tensor of this file is known as its token table: take the words of the text instead.")
    return session.checkpoint.token_table


def factor_of(session: Session) -> float:
    """Return the factor of the model's token vectors; 1 where none is known."""
    return (token_factor(session.checkpoint) if session.kind == "checkpoint" else None) or 1.0


def layer_names(layers: Sequence[int]) -> str:
    """Return the name of some layers, in lower case and of bounded length: "layers 0–2, 7"."""
    parts = ranges(layers).split(", ")
    more = ", ..." if len(parts) > _MOST_RANGES else ""
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(parts[:_MOST_RANGES])}{more}"


def _section(session: Session, section: Callable[[Subject], Section]) -> Section | Missing:
    """Return a section of the inspection, or why there is none; a refused configuration is a reason too."""
    if session.kind != "checkpoint":
        return Missing(_NOTHING_OPEN if session.kind == "fresh" else _COMPARISON)
    try:
        return or_missing(section, session.subject)
    except (WhatWhereError, NotImplementedError) as problem:
        return Missing(str(problem))


def model_rotaries(session: Session) -> tuple[list[tuple[Any, RotaryLayers]], str | None]:
    """Return the rotaries of the open model with the inspection of their layers, or none and why."""
    report = session.once("rotaries", lambda: _section(session, inspected_rotary))
    if isinstance(report, Missing):
        return [], report.missing
    by_layer = {layer: group for group in report.groups for layer in group.layers}
    plans = layers_of(session.subject.description.query_key)
    if any(plan.scheme == "rotary-learned" for plan, _ in plans):
        return [], "the frequencies of this model are weights, which no parameter here sets: see its report"
    return [(plan.build(), by_layer[layers[0]]) for plan, layers in plans if layers[0] in by_layer], None


def model_biases(session: Session) -> tuple[list[ModelBias], str | None]:
    """Return the biases of the open model or of a comparison's runs, with their learned tables; or none and why."""
    return session.once("biases", lambda: _biases(session))


def _biases(session: Session) -> tuple[list[ModelBias], str | None]:
    if session.kind == "results":
        shown = [scheme_of(session, run) for run in first_names(session) if is_built(session, run)]
        of_runs = [_bias_of_run(each) for each in shown if each.where.score is not None]
        return of_runs, None if of_runs else "no run of this comparison has a bias"
    report = _section(session, inspected_biases)
    if isinstance(report, Missing):
        return [], report.missing
    return [_bias(session, group) for group in report.groups], None


def _bias_of_run(shown: ShownScheme) -> ModelBias:
    score: Any = shown.where.score
    missing = "this bias depends on queries and keys" if score.by_content else "; ".join(shown.notes) or None
    python = f"{shown.python}\nscheme = where.score"
    return ModelBias(f"run: {shown.title}", None if missing else score, missing, python=python)


def _bias(session: Session, group: BiasLayers) -> ModelBias:
    part = f", {group.part}" if group.part else ""
    title = f"this model: {group.scheme}{part}, {layer_names(group.layers)}"
    if isinstance(group.curves, Missing):
        return ModelBias(title, None, group.curves.missing, group.tensor)
    layer, description, part = group.layers[0], session.subject.description, ""
    if description.part != group.part and session.checkpoint.config is not None:
        description, part = from_huggingface(session.checkpoint.config, part=group.part), f", part={group.part!r}"
    plan = description.score[layer]
    assert plan is not None
    scheme: Any = plan.build()
    python = f"checkpoint = ww.read(PATH{part})\nscheme = checkpoint.description.score[{layer}].build()"
    if group.tensor is not None:
        fill_bias(scheme, session.checkpoint, group.tensor)
        python += f"\nscheme.weight.data = checkpoint.tensor({group.tensor!r}).float()"
    return ModelBias(title, scheme, None, group.tensor, f"import whatwhere as ww\n{python}")


def first_names(session: Session) -> list[str]:
    """Return the run of the first seed of each scheme of a comparison, that which views begin with first."""
    if session.kind != "results":
        return []
    return sorted(map(run_name, session.results.first_runs), key=lambda name: name != session.run)


def of_first_runs(session: Session, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of a view for the first run of each scheme of a comparison; else the settings alone."""
    if not session.runs:
        return [dict(settings)]
    return [{**settings, "scheme": name, "run": name} for name in first_names(session) if is_built(session, name)]


def is_built(session: Session, name: str) -> bool:
    """Return whether a run's positional encoding can be built: the code of a user's own is not in the results."""
    try:
        scheme_of(session, name)
    except WhatWhereError:
        return False
    return True


def titles(session: Session) -> list[str]:
    """Return how each run of a comparison is shown: its scheme and seed."""
    records = session.checkpoint.metadata.get("runs") if session.runs else None
    named = {
        PurePosixPath(str(record.get("file"))).stem: f"{visible(str(record.get('scheme')))}, seed {record.get('seed')}"
        for record in (records if isinstance(records, list) else [])
    }
    return [named.get(name, name) for name in session.runs]


def find_run(results: "Comparison", name: str) -> "RunResult":
    """Return a run of the comparison by its name, as its tensors begin, "rotary-0", or by its scheme and seed."""
    for run in results.runs:
        if name in (run_name(run), f"{run.scheme}-{run.seed}"):
            return run
    names = ", ".join(map(run_name, results.runs[:4]))
    raise SettingError(f"this comparison has no run {quoted(name)}; it has {names}{', ...' * (len(results.runs) > 4)}.")


def run_name(run: "RunResult") -> str:
    """Return the name of a run as its tensors begin, "rotary-0"; one that was trained here has no file."""
    return PurePosixPath(run.file).stem if run.file else f"{run.scheme}-{run.seed}"
