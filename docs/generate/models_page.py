"""docs/models.md, from the measurements in docs/models.json: each type with a text head, read, probed and patched."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from docs.generate.published_table import table
from whatwhere.huggingface.patch import UNPATCHED
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.records import from_json

DATA = Path(__file__).resolve().parents[1] / "models.json"
HEADS = ("causal", "masked", "seq2seq", "multimodal")
COMMAND = "python -m docs.generate.model_types && python -m docs.generate"
_WHAT = (
    "The installed transformers {} has {} model types; {} have a text head. The default configuration of each is read "
    "(`ww.from_huggingface`), and a tiny random model of it, or of the type of its text, is probed (`whatwhere probe "
    "TYPE`): it is run on short sequences, and positions are measured without a table of types. Where both answer, "
    "they are compared on the same tiny configuration: pairs and frequencies, factors by position, scale, bias, "
    "window, mask, sinks, input, and the factor of token vectors. Where the default configuration makes no model that "
    "runs, the table names what was chosen."
)
_WORDS = (
    "*Read*: whatwhere builds the positions from the configuration. *By probe alone*: the configuration is not read, "
    "but positions are measured. *Patched*: `ww.patch` replaces the positions of a loaded model."
)
NO_ATTENTION = {"fnet", *(name for name, kind in MODEL_TYPES.items() if not kind.has_attention)}
"""Types without attention between tokens."""
DIFFERENCES: Mapping[str, str] = {
    "doge": "its mask also depends on the values, which is no position",
}
"""Types of which probe and registry differ, with the reason."""
_PARTS = {"dia_decoder": "dia_encoder", "t5gemma": "t5_gemma_module"}
"""Types that are read by a part of them -> the type of that part."""


@dataclass(frozen=True)
class TypeRow:
    """One model type."""

    name: str
    heads: tuple[str, ...]  # that transformers has for it, by the names of HEADS
    text: str  # the type of its text configuration, which is probed
    refused: str | None  # why its default configuration is not read
    patched: bool  # whether `ww.patch` supports it
    chosen: str = ""  # settings that its configuration has besides the default ones


@dataclass(frozen=True)
class TextProbe:
    """A probe of one type of text."""

    name: str
    layers: tuple[str, ...] = ()  # of each kind of layer what was measured, with their number
    input: str = ""  # how hidden states depend on position before the first layer
    partly: bool = False  # whether the map of some queries or keys was not measured, or is of no known form
    failed: str | None = None  # why it was not probed
    differences: tuple[str, ...] | None = None  # from the description of the same configuration; None if not read


@dataclass(frozen=True)
class ModelTypes:
    """All model types of an installed transformers."""

    transformers: str
    torch: str
    python: str
    machine: str
    date: str
    total: int  # number of types
    types: tuple[TypeRow, ...] = ()  # those with a text head
    texts: tuple[TextProbe, ...] = field(default=())  # the probes of their types of text


def read_data() -> ModelTypes:
    """Return the measurements of the file."""
    return from_json(ModelTypes, json.loads(DATA.read_text(encoding="utf-8")), str(DATA))


def page(data: ModelTypes) -> str:
    """Return the page."""
    texts = {each.name: each for each in data.texts}
    lines = [
        "# Model types",
        "",
        _WHAT.format(data.transformers, data.total, len(data.types)),
        "",
        f"Measured with torch {data.torch} and Python {data.python} on {data.machine}, {data.date}: `{COMMAND}`.",
        "",
        "| head | types | read | by probe alone | no attention | neither | patched |",
        "|---|---|---|---|---|---|---|",
        *[_counts(head, [row for row in data.types if head in row.heads], texts) for head in HEADS],
        _counts("any of them", data.types, texts),
        "",
        _WORDS,
        "",
        *_differing(data.texts),
        *table(),
        "## Each type",
        "",
        "Layers of a tiny model, by number and what was measured; a multimodal type is that of its text.",
        "",
        "| type | head | configuration | probe | patched |",
        "|---|---|---|---|---|",
        *[_row(row, texts) for row in data.types],
        "",
    ]
    return "\n".join(lines)


def status(row: TypeRow, texts: Mapping[str, TextProbe]) -> str:
    """Return whether a type is "read", measured "by probe alone", has "no attention", or "neither"."""
    if row.refused is None:
        return "read"
    if row.text in NO_ATTENTION:
        return "no attention"
    found = texts[row.text]
    return "by probe alone" if found.failed is None and not found.partly else "neither"


def _counts(head: str, rows: Sequence[TypeRow], texts: Mapping[str, TextProbe]) -> str:
    found = [status(row, texts) for row in rows]
    counts = [str(found.count(name)) for name in ("read", "by probe alone", "no attention", "neither")]
    return f"| {head} | {len(rows)} | {' | '.join(counts)} | {sum(row.patched for row in rows)} |"


def _differing(texts: Sequence[TextProbe]) -> list[str]:
    compared = [each for each in texts if each.differences is not None]
    differing = [each for each in compared if each.differences]
    lines = [
        f"Probe and configuration are compared for {len(compared)} types of text, and agree for "
        f"{len(compared) - len(differing)}."
    ]
    for each in differing:
        reason = DIFFERENCES.get(each.name, "not explained yet")
        lines.append(f"`{each.name}` differs ({'; '.join(each.differences or ())}): {reason}.")
    return [" ".join(lines), ""]


def _row(row: TypeRow, texts: Mapping[str, TextProbe]) -> str:
    found = texts[row.text]
    read = "read" if row.refused is None else _cell(row.refused)
    read += f", with {_cell(row.chosen)}" if row.chosen else ""
    text = "" if row.text == row.name else f"as `{row.text}`: "
    if row.text in NO_ATTENTION:
        probed = "; ".join(MODEL_TYPES[row.text].notes) if row.text in MODEL_TYPES else "no attention"
    elif found.failed is not None:
        probed = f"not measured: {_cell(found.failed)}"
    else:
        before = "" if found.input in ("none", "not measured") else f"; input: {found.input}"
        probed = text + _cell("; ".join(found.layers)) + before
        if row.refused is None and found.differences is not None:
            probed += " (differs)" if found.differences else " (agrees)"
    patched = "yes" if row.patched else _cell(why_unpatched(row))
    return f"| `{row.name}` | {', '.join(row.heads)} | {read} | {probed} | {patched} |"


def why_unpatched(row: TypeRow) -> str:
    """Return why `ww.patch` does not support a type that is read; "" of others."""
    return "" if row.patched or row.refused else UNPATCHED.get(_PARTS.get(row.text, row.text), "")


def _cell(text: str) -> str:
    for character, shown in (("|", "\\|"), ("<", "&lt;"), ("_", "\\_"), ("[", "\\["), ("*", "\\*")):
        text = text.replace(character, shown)
    return text
