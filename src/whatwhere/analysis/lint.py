"""What contradicts itself in the files of a model, or is broken in its tables: `whatwhere check`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool

from whatwhere.analysis.diagnostics import row_norms
from whatwhere.analysis.inspection import opened
from whatwhere.analysis.subject import OF_ANOTHER, NoData, Progress, Subject, or_missing, reason_of
from whatwhere.analysis.token_table import rows_and_tokens
from whatwhere.errors import CheckpointError, SettingError, ShapeError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.files import is_whole_number, read_json
from whatwhere.models.checkpoint.tokenizer_files import RENUMBERED
from whatwhere.models.configuration.description import Plan
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import nested_text
from whatwhere.models.configuration.rotary import ORIGINAL
from whatwhere.models.load_where import wrong_shapes
from whatwhere.records import Missing
from whatwhere.what.token_ids import nested_configs, token_ids

Severity = Literal["error", "warning", "note"]
RULES: Mapping[str, Severity] = {
    **dict.fromkeys(("table-rows", "wrong-shape", "special-ids", "tokenizer", "non-finite-rows"), "error"),
    **dict.fromkeys(("configuration", "small-factor", "length-factor", "original-length", "dynamic-length"), "warning"),
    **dict.fromkeys(("scaled-below-original", "tied-tables", "tokens-without-row"), "warning"),
    **dict.fromkeys(("near-zero-rows", "duplicate-rows"), "warning"),
    **dict.fromkeys(("static-scaling", "cached-keys", "padded-rows", "quantized-table"), "note"),
}
"""Each rule, and how severe what it finds is: a note is a fact that a user of the model has to know, and no fault."""

NEAR_ZERO = 0.01  # of the median norm: rows that are not longer are near zero
_LISTED = 20
_MAX_CONFIG_BYTES = 10_000_000


@dataclass(frozen=True)
class ModelFinding:
    """One finding of `check` as data; `whatwhere.report.lint` has the words, and the way out."""

    severity: Severity
    rule: str  # one of RULES
    values: Mapping[str, Any]  # the names and numbers that it is about


@dataclass(frozen=True)
class CheckedModel:
    """The findings on a model, the most severe first, and what could not be checked."""

    path: str
    format: str  # as of an inspection: "folder", "gguf", "configuration" ...
    findings: Sequence[ModelFinding]
    unchecked: Mapping[str, str]  # what was not checked -> why, a sentence without its full stop

    def failed(self, strict: bool = False) -> bool:
        """Return whether there is an error or a warning, or with `strict` any finding."""
        return any(strict or found.severity != "note" for found in self.findings)


def check(
    path: str | Path | Checkpoint,
    *,
    run: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> CheckedModel:
    """Check the files of a model for contradictions, and its tables for broken rows.

    Compared are the claimed length with original length and factor of RoPE scaling, tables with the sizes in the
    configuration, tied or not with what is stored, special ids and the tokenizer with the rows. The tables are searched
    for rows that are near zero or not finite. Facts that no program shows are noted: padded rows, quantized tables, and
    scalings that change short texts too, or whose cached keys are of one length.

    Args:
        path: a file or folder of any format that `whatwhere.read` opens, an adapter, a config.json, or an open
            checkpoint.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.
        allow_pickle: read pickles too; pass True only where you trust the author.
        progress: called with each step that takes a while, in words.

    Returns:
        The findings, as data.

    Raises:
        CheckpointError: If the file cannot be read.
        SettingError: If a comparison has several runs and none is named.

    Examples:
        >>> from json import dumps
        >>> from tempfile import mkdtemp
        >>> config = {"model_type": "llama", "vocab_size": 99, "hidden_size": 64, "num_attention_heads": 4,
        ...           "num_hidden_layers": 2, "max_position_embeddings": 32768, "rope_theta": 10_000.0, "rope_scaling":
        ...           {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}
        >>> file = Path(mkdtemp(), "config.json")
        >>> _ = file.write_text(dumps(config))
        >>> [(found.severity, found.rule) for found in check(file).findings]
        [('warning', 'length-factor'), ('note', 'static-scaling')]
    """
    return check_subject(Subject(opened(path, run, allow_pickle=allow_pickle), 0, progress))


def check_subject(subject: Subject) -> CheckedModel:
    """Check a model whose tables may have been read already."""
    findings, unchecked = list[ModelFinding](), dict[str, str]()
    for name, look in _CHECKS.items():
        found = or_missing(lambda look: [*look(subject)], look, also=WhatWhereError)
        if isinstance(found, Missing):
            unchecked[name] = found.missing
        else:
            findings += found
    findings.sort(key=lambda each: get_args(Severity).index(each.severity))
    return CheckedModel(str(subject.checkpoint.path), subject.checkpoint.format, findings, unchecked)


def _found(rule: str, **values: Any) -> ModelFinding:
    return ModelFinding(RULES[rule], rule, values)


def _lengths(subject: Subject) -> Iterator[ModelFinding]:
    """Compare lengths and factors, or find what reading refuses; a model type that is not known is not a fault."""
    checkpoint, config = subject.checkpoint, subject.checkpoint.config or {}
    try:
        description = checkpoint.description if config else subject.description  # which says why there is none
    except (SettingError, ShapeError) as problem:
        yield _found("configuration", reason=reason_of(problem))
        return
    claimed, scalings = description.max_length, [plan.scaling for plan in description.query_key if plan is not None]
    for n, scaling in enumerate(scalings):
        if scaling is not None and scaling not in scalings[:n]:
            yield from _of_scaling(scaling, claimed)
    for kind, factor, original in dict.fromkeys(_unread_originals(nested_text(config)[1] or config)):
        if kind == "linear" and claimed is not None:
            yield from _product("Linear", factor, original, claimed)
        elif claimed not in (None, original):
            yield _found("dynamic-length", original=original, claimed=claimed)


def _of_scaling(scaling: Plan, claimed: int | None) -> Iterator[ModelFinding]:
    scheme, name, settings = scaling.scheme, scaling.class_name, scaling.settings
    factor, original = settings.get("factor", 1.0), settings.get("original_length")
    numbers = {"scaling": name, "factor": factor, "original": original, "claimed": claimed}
    if factor < 1:
        yield _found("small-factor", scaling=name, factor=factor)
    if claimed is None or original is None:
        return
    if scheme == "rotary-yarn" and claimed <= original and factor > 1:
        yield _found("scaled-below-original", **numbers, product=original * factor)
    elif original > claimed or (scheme == "rotary-llama3" and original == claimed):
        yield _found("original-length", **numbers)
    elif scheme in ("rotary-yarn", "rotary-longrope"):  # Llama 3.1 itself claims twice the product
        yield from _product(name, factor, original, claimed)
        if scheme == "rotary-yarn" and factor > 1:
            yield _found("static-scaling", **numbers)
    two_sets = scheme == "rotary-longrope" and settings["short_factor"] != settings["long_factor"]
    if scheme == "rotary-dynamic-ntk" or (two_sets and claimed > original):
        yield _found("cached-keys", **numbers)


def _product(scaling: str, factor: float, original: int, claimed: int) -> Iterator[ModelFinding]:
    if not isclose(product := original * factor, claimed, rel_tol=1e-3):  # factors are written with few digits
        numbers = {"factor": factor, "original": original, "claimed": claimed, "product": product}
        yield _found("length-factor", scaling=scaling, **numbers, ratio=claimed / original)


def _unread_originals(text: Json) -> Iterator[tuple[str, float, int]]:
    """Yield rope_type, factor and original length of scalings that do not read the original length."""
    for outer in (text.get("rope_parameters"), text.get("rope_scaling")):
        for own in (outer, *outer.values()) if isinstance(outer, Mapping) else ():
            if isinstance(own, Mapping) and own.get("alpha") is None:
                kind, factor = own.get("rope_type", own.get("type")), own.get("factor", 0)
                original = own.get(ORIGINAL, text.get(ORIGINAL))
                usable = isinstance(factor, float | int) and 0 < factor < 1e30 and is_whole_number(original)
                if kind in ("dynamic", "linear") and usable and original:
                    yield str(kind), float(factor), original


def _sizes(subject: Subject) -> Iterator[ModelFinding]:
    """Compare tables with the sizes in the configuration; that of GGUF is made of its tables."""
    checkpoint = subject.checkpoint
    tokens, positions = checkpoint.token_table, checkpoint.position_table
    if checkpoint.format == "gguf" or checkpoint.names.guessed or (tokens is None and positions is None):
        return
    _require_described(checkpoint)
    needed, plan = {tokens: subject.description.vocab_size}, subject.description.input
    if plan is not None and plan.scheme == "learned":
        needed[positions] = plan.settings["max_length"] + plan.settings["offset"]
    for table, number in needed.items():
        if table is not None and (rows := checkpoint.entry(table).shape[0]) != number:
            yield _found("table-rows", table=table, rows=rows, needed=number)
    yield from (_found("wrong-shape", **one) for one in wrong_shapes(checkpoint))


def _ties(subject: Subject) -> Iterator[ModelFinding]:
    checkpoint = subject.checkpoint
    if not checkpoint.contradicts_tie:
        return
    table, output = checkpoint.entry(checkpoint.token_table), checkpoint.output_projection
    if output is not None:
        stored = "equal to the token table" if checkpoint.tied else "different from the token table"
        yield _found("tied-tables", described=not checkpoint.tied, stored=stored)
    # A tensor of its shape may be the output projection by a name that is not known.
    elif not any(each.shape == table.shape and each != table for each in checkpoint.tensors.values()):
        yield _found("tied-tables", described=False, stored="missing")


def _rows_of(subject: Subject) -> int:
    if subject.shape is None:
        raise NoData("the number of rows of the token table is not known")
    return subject.shape[0]


def _require_described(checkpoint: Checkpoint) -> None:
    """Raise NoData where the configuration is not that of the model whose token table is read."""
    if not checkpoint.describes_table:
        raise NoData(OF_ANOTHER.format(checkpoint.token_table))


def _special_ids(subject: Subject) -> Iterator[ModelFinding]:
    checkpoint = subject.checkpoint
    _require_described(checkpoint)
    rows = max([_rows_of(subject), *(checkpoint.entry(other).shape[0] for other in checkpoint.names.others)])
    path = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    configs: dict[str, Json] = {"config.json": checkpoint.config or {}}
    if checkpoint.format == "gguf":
        begin = "tokenizer.ggml."
        configs = {"the header": {k.removeprefix(begin): v for k, v in checkpoint.metadata.items() if begin in k}}
    elif (more := path / "generation_config.json").is_file():
        configs[more.name] = read_json(more, _MAX_CONFIG_BYTES)
    for file, config in configs.items():
        for key, ids in token_ids(config, rows, outside=True).items():
            yield _found("special-ids", key=key, file=file, ids=ids[:_LISTED], rows=rows)


def _tokenizer(subject: Subject) -> Iterator[ModelFinding]:
    """Find a tokenizer that is damaged, or that the library reads with other ids than its file states."""
    try:
        reason = (subject.checkpoint.words and subject.checkpoint.why_no_tokenizer) or ""
    except CheckpointError as problem:
        yield _found("tokenizer", reason=" ".join(str(problem).split()).removesuffix("."))
    else:
        if reason.startswith(RENUMBERED):
            yield _found("tokenizer", reason=f"{reason}: texts select other rows. Write one without gaps")


def _tokens(subject: Subject) -> Iterator[ModelFinding]:
    rows = _rows_of(subject)
    known = rows_and_tokens(subject, rows)
    if known["tokens"] is None:
        raise NoData("the number of tokens is not known: there is no tokenizer and no list of tokens")
    if known["without_row"]:
        first = known["first_without_row"][0]
        yield _found("tokens-without-row", count=known["without_row"], token=first.token, id=first.id, rows=rows)
    if (padded := rows - known["tokens"]) > 0:
        yield _found("padded-rows", count=padded, first=known["tokens"], last=rows - 1)


def _rows(subject: Subject) -> Iterator[ModelFinding]:
    checkpoint, spared = subject.checkpoint, _spared(subject)
    norms = {checkpoint.token_table: subject.norms}
    for name in (None if checkpoint.tied else checkpoint.output_projection, checkpoint.position_table):
        if name is not None and isinstance(rows := or_missing(subject.optional, name, also=WhatWhereError), np.ndarray):
            norms[name] = row_norms(rows)
    equal = [group for group in (np.array(ids) for ids in subject.diagnostics.duplicates) if not spared[group].all()]
    if len(ids := np.sort(np.concatenate([*equal, np.empty(0, int)]))):
        yield _found("duplicate-rows", table=checkpoint.token_table, count=len(ids), ids=ids[:_LISTED].tolist())
    for name, found in norms.items():
        finite = np.isfinite(found)
        usable = found[finite & (found > 0)]
        median = float(np.median(usable)) if len(usable) else 0.0
        masks = {"non-finite-rows": ~finite}
        if name != checkpoint.position_table:  # of which rows before position 0 may be zero
            masks["near-zero-rows"] = (found <= NEAR_ZERO * median) & ~spared[: len(found)]
        for rule, mask in masks.items():
            if len(ids := np.flatnonzero(mask)):
                yield _found(rule, table=name, count=len(ids), ids=ids[:_LISTED].tolist(), median=median)


def _spared(subject: Subject) -> Bool[np.ndarray, " rows"]:
    """Return which rows may have any norm: those of padding, of special tokens and of no token."""
    checkpoint, rows = subject.checkpoint, len(subject.norms)
    spared = np.zeros(rows, bool)
    if checkpoint.words is not None:
        spared = np.isin(subject.token_types, ("special", "no token"))
    padding = [part.get("pad_token_id") for part in nested_configs(checkpoint.config or {})]
    spared[[n for n in padding if isinstance(n, int) and 0 <= n < rows]] = True
    return spared


def _types(subject: Subject) -> Iterator[ModelFinding]:
    """Find tables whose numbers have fewer than 16 bits."""
    checkpoint = subject.checkpoint
    for name in filter(None, (checkpoint.token_table, checkpoint.output_projection)):
        entry = checkpoint.entry(name)
        if 0 < (bits := 8 * entry.bytes / max(checkpoint.parameters(name), 1)) < 16:
            yield _found("quantized-table", table=name, type=entry.dtype, bits=bits)


_CHECKS: Mapping[str, Callable[[Subject], Iterator[ModelFinding]]] = {
    "lengths": _lengths, "sizes": _sizes, "tied tables": _ties, "special ids": _special_ids,
    "tokenizer": _tokenizer, "tokens": _tokens, "rows": _rows, "types": _types,
}  # fmt: skip
"""What is checked, in this order."""
