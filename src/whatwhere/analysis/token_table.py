"""The token table: sizes of the parts of the file, norms of the rows, and their spectrum."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import InitialScale, initial_scale
from whatwhere.analysis.pca import Spectrum, spectrum
from whatwhere.analysis.subject import NoData, Subject, or_missing
from whatwhere.analysis.token_neighbors import NamedRow, named_rows
from whatwhere.large_arrays import selected_rows
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.parameter_count import are_sinusoids, parameters
from whatwhere.records import Missing

_PERCENTILES = (0, 1, 5, 25, 50, 75, 95, 99, 100)
_BINS, _NAMED = 40, 5
OTHER = "other tensors"
_BUFFERS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|(original_)?inv_freq|masked_bias|_float_tensor|relative_position_index|"
    r"running_mean|running_var|num_batches_tracked|final_logits_bias)$|@\d+$"  # the last: tokens at an earlier step
)
_CAUSAL_MASK = re.compile(r"(attn|attention)\.(bias|causal_mask)$")


@dataclass(frozen=True)
class SizeOfPart:
    """The size of one part of a model, and its shares of all parameters and bytes."""

    part: str  # "token table", "output projection", "position table", "token types", "encoder positions", ...
    tensor: str | None  # its name; None for several tensors
    shape: tuple[int, ...] | None
    dtype: str
    parameters: int  # how many numbers it holds that are learned, each once: none of a stored copy of a tied table
    share: float | None
    bytes: int | None  # in the file; None where the format is text
    share_of_bytes: float | None


@dataclass(frozen=True)
class TableChange:
    """How far training moved a token table."""

    share: float  # norm of E - E0, as a share of that of E0
    std_before: float  # standard deviation of all numbers
    std_after: float


def table_change(before: Float[np.ndarray, "rows dim"], after: Float[np.ndarray, "rows dim"]) -> TableChange:
    """Return how far training moved a token table."""
    share = float(np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0))
    return TableChange(share, float(before.std()), float(after.std()))


@dataclass(frozen=True)
class Sizes:
    """Parameters and bytes of a model, part by part."""

    parameters: int  # of all tensors but constants and tables of earlier steps; of a run, those that it learned
    bytes: int | None  # None where the format is text
    tensors: int  # but constants, such as causal masks, and tables of earlier steps
    parts: Sequence[SizeOfPart]
    rows: int | None  # of the token table; None where there is none
    dim: int | None
    tokens: int | None  # of the tokenizer; None where that is not known
    without_row: int | None  # how many of them have ids beyond the rows of the table
    first_without_row: Sequence[NamedRow]  # the first of these
    guessed: bool  # whether the token table was found by its number of rows, not by its name
    tied: bool | None  # whether the output projection shares the token table; None where the file does not show it
    model_type: str | None
    initial_scale: InitialScale | None
    change: "TableChange | None" = None  # of a run, whose table before training is stored
    from_configuration: bool = False  # whether these are sizes of a configuration without weights, of its tables alone
    contradicts_tie: bool = False  # whether the file contradicts tie_word_embeddings of its configuration


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts in bins of equal width, and the edges of these, one more."""

    edges: Float[np.ndarray, " edges"]
    counts: Int64[np.ndarray, " bins"]


@dataclass(frozen=True)
class NormsOfGroup:
    """The number of rows of a group with finite numbers, and percentiles of their norms."""

    name: str
    rows: int
    p5: float
    median: float
    p95: float


@dataclass(frozen=True, eq=False)
class Norms:
    """The Euclidean norms of the rows of the token table; rows whose numbers are not finite are ignored."""

    rows: int
    finite: int
    mean: float
    percentiles: Mapping[str, float]  # "0" to "100"
    histogram: Histogram
    by_type: Sequence[NormsOfGroup] | Missing  # of the token, the largest group first
    by_script: Sequence[NormsOfGroup] | Missing  # of the token


def sizes(subject: Subject) -> Sizes:
    """Return the parameters and bytes of the tables, and of all else."""
    checkpoint = subject.checkpoint
    if checkpoint.format == "configuration":
        return _configured(subject)
    found = checkpoint.names
    names = {
        "token table": checkpoint.token_table, "output projection": checkpoint.output_projection,
        "position table": checkpoint.position_table, "encoder positions": found.encoder_positions,
        "token types": checkpoint.segment_table,
    }  # fmt: skip
    if checkpoint.position_table == found.encoder_positions:  # the encoder is read
        names["decoder positions"] = found.position_table if names.pop("encoder positions") else None
    names |= {f"other token table{f' {n}' if n else ''}": other for n, other in enumerate(found.others)}
    entries = {name: entry for name, entry in checkpoint.tensors.items() if not _is_constant(entry)}
    groups = {part: [entries[name]] for part, name in names.items() if name in entries}
    groups[OTHER] = [entry for name, entry in entries.items() if name not in names.values()]
    counts = {part: sum(checkpoint.parameters(entry.name) for entry in group) for part, group in groups.items()}
    if checkpoint.tied and "output projection" in counts:
        counts["output projection"] = 0  # the token table, stored again
    for part in counts:
        if part.endswith(("positions", "position table")) and are_sinusoids(checkpoint.array(str(names[part]))):
            counts[part] = 0  # which are computed, and stored for convenience
    if (learned := _learned(subject)) is not None:
        # The file of a run also holds tables that were computed or not trained: of low rank, of a model of one's own.
        counts = {part: learned[1] if part == "token table" else count for part, count in counts.items()}
        counts[OTHER] = learned[0] - sum(count for part, count in counts.items() if part != OTHER)
    total, stored = sum(counts.values()), sum(entry.bytes for entry in entries.values())
    parts = []
    for part, group in groups.items():
        if group:
            shape = group[0].shape if len(group) == 1 else None
            dtype = ", ".join(dict.fromkeys(", ".join(sorted({entry.dtype for entry in group})).split(", ")))
            size = sum(entry.bytes for entry in group)
            parts.append(_part(part, names.get(part), shape, dtype, (counts[part], total), (size, stored)))
    table = entries.get(str(checkpoint.token_table))
    model_type = (checkpoint.config or {}).get("model_type")
    return Sizes(
        parameters=total, bytes=stored or None, tensors=len(entries), parts=parts,
        dim=table.shape[1] if table else None, **rows_and_tokens(subject, table.shape[0] if table else None),
        guessed=checkpoint.names.guessed, tied=checkpoint.tied,
        model_type=model_type if isinstance(model_type, str) else None,
        initial_scale=_initial(subject) if table else None, change=_changed(subject),
        contradicts_tie=checkpoint.contradicts_tie,
    )  # fmt: skip


def norms(subject: Subject) -> Norms:
    """Return the norms of the rows: their distribution, also by token type and script."""
    finite = subject.norms[np.isfinite(subject.norms)]
    if not len(finite):
        raise NoData("no row of the token table holds finite numbers")
    counts, edges = np.histogram(finite, _BINS)
    percentiles = np.percentile(finite, _PERCENTILES).tolist()
    return Norms(
        rows=len(subject.norms), finite=len(finite), mean=float(finite.mean()),
        percentiles=dict(zip(map(str, _PERCENTILES), percentiles, strict=True)), histogram=Histogram(edges, counts),
        by_type=or_missing(lambda: _grouped(subject.norms, subject.token_types)),
        by_script=or_missing(lambda: _grouped(subject.norms, subject.scripts)),
    )  # fmt: skip


def token_spectrum(subject: Subject) -> Spectrum:
    """Return the spectrum of the rows that are finite and not zero."""
    if len(subject.usable) < 2:
        raise NoData("fewer than two rows of the token table hold finite numbers other than 0")
    subject.progress("computing the spectrum")
    return spectrum(selected_rows(subject.table, subject.usable), subject.seed)


def _configured(subject: Subject) -> Sizes:
    description, config = subject.description, subject.checkpoint.config or {}
    counted, dim, dtype = parameters(config), description.token_dim, config.get("torch_dtype", config.get("dtype"))
    named = {
        "token table": counted.tokens, "output projection": counted.output_projection,
        "position table": counted.positions, "token types": counted.segments,
    }  # fmt: skip
    parts = [
        _part(part, None, (n // dim, dim), dtype if isinstance(dtype, str) else "", (n, counted.total), (0, 0))
        for part, n in named.items()
        if n
    ]
    return Sizes(
        parameters=counted.total, bytes=None, tensors=0, parts=parts, dim=dim,
        **rows_and_tokens(subject, description.vocab_size), guessed=False, tied=description.tied,
        model_type=description.model_type, initial_scale=None, from_configuration=True,
    )  # fmt: skip


def _part(
    part: str, name: str | None, shape: tuple[int, ...] | None, dtype: str, of: tuple[int, int], bytes: tuple[int, int]
) -> SizeOfPart:
    """Return the size of a part; parameters and bytes come with those of all parts."""
    share, share_of_bytes = (own / total if total else None for own, total in (of, bytes))
    return SizeOfPart(part, name, shape, dtype, of[0], share, bytes[0] or None, share_of_bytes)


def rows_and_tokens(subject: Subject, rows: int | None) -> dict[str, Any]:
    """Return the fields of Sizes on rows and tokens; an id that no token has is ""."""
    words, ids = subject.checkpoint.words, None
    if words is not None and rows is not None:
        ids = [n for n in range(rows, len(words)) if words[n]]
    return {
        "rows": rows, "tokens": None if words is None else len(words), "without_row": None if ids is None else len(ids),
        "first_without_row": named_rows(words or [], ids[:_NAMED]) if ids else [],
    }  # fmt: skip


def _is_constant(entry: Entry) -> bool:
    """Return whether a tensor holds what no training changes, or a table of an earlier step of it."""
    square = len(entry.shape) == 4 and entry.shape[:2] == (1, 1) and entry.shape[2] == entry.shape[3]
    return _BUFFERS.search(entry.name) is not None or (square and _CAUSAL_MASK.search(entry.name) is not None)


def _learned(subject: Subject) -> tuple[int, int] | None:
    """Return how many parameters a run of a comparison learned, and how many of its token table, by its record."""
    checkpoint = subject.checkpoint
    if checkpoint.format != "run":
        return None
    for run in checkpoint.metadata.get("runs", ()):
        counts = run.get("parameters")
        if PurePosixPath(str(run.get("file"))).stem == checkpoint.path.name and isinstance(counts, dict):
            total, tokens = counts.get("total"), counts.get("tokens") or 0
            return (total, tokens) if isinstance(total, int) and isinstance(tokens, int) else None
    return None


def _changed(subject: Subject) -> TableChange | None:
    start = subject.start
    return None if start is None or start.shape != subject.table.shape else table_change(start, subject.table)


def _initial(subject: Subject) -> InitialScale | None:
    try:
        table, computed = subject.table, subject.diagnostics
    except NoData:
        return None
    if len(subject.usable) < 2:  # one row does not differ from the mean
        return None
    configured = (subject.checkpoint.config or {}).get("initializer_range")
    number = configured if isinstance(configured, float | int) and configured > 0 else None
    rows = selected_rows(table, subject.usable)
    # The nearest to the reference rows alone: training has moved farther ones, if little.
    nearest = np.searchsorted(subject.usable, computed.under_trained[: max(8, len(computed.reference_rows))])
    return initial_scale(rows, nearest, number)


def _grouped(norms: Float[np.ndarray, " rows"], names: Sequence[str]) -> list[NormsOfGroup]:
    """Summarize the norms of each group, the largest group first."""
    groups, finite = np.array(names), np.isfinite(norms)
    rows = [(name, norms[(groups == name) & finite]) for name in sorted(set(names))]
    found = [NormsOfGroup(name, len(own), *np.percentile(own, (5, 50, 95)).tolist()) for name, own in rows if len(own)]
    return sorted(found, key=lambda group: -group.rows)
