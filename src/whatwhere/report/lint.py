"""The findings of `whatwhere check` in words: one line each, with the way out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from whatwhere.analysis.lint import CheckedModel, ModelFinding, Severity
from whatwhere.report.section import Headline, Part
from whatwhere.report.text import count, number

_SHOWN = 5
WORDS: Mapping[str, str] = {
    "configuration": "{reason}. No position is checked before that is right.",
    "small-factor": "{scaling} has the factor {factor}, so positions rotate farther than in training. A factor is the "
    "new length over the trained one: write at least 1.",
    "length-factor": "{scaling} with the original length {original} and the factor {factor} is for {product} "
    "positions, but {claimed} are claimed, {ratio} times the original. Correct what is wrong; the factor is what "
    "rotates.",
    "original-length": "{scaling} extends the original length {original}, but {claimed} positions are claimed. "
    "max_position_embeddings is the extended length: correct that, or the original length.",
    "dynamic-length": "dynamic scaling begins beyond max_position_embeddings, {claimed}, and does not read the "
    "original length {original}. Write {original} as max_position_embeddings: the factor extends it.",
    "scaled-below-original": "YaRN with the factor {factor} is on at every length, but {claimed} positions are "
    "claimed, of an original length {original}. Write {product} as max_position_embeddings, or remove the scaling.",
    "static-scaling": "YaRN with the factor {factor} is on at every length: texts below {original} tokens are scaled "
    "too. If the model was not trained so, use a copy without it for short texts.",
    "cached-keys": "{scaling} has different frequencies beyond {original} tokens, which keys cached before do not fit. "
    "Fix the length for both: where.at(queries, keys, regime_length=...), or fill the cache again at {original}.",
    "table-rows": "{table} has {rows} rows, but by the configuration {needed}. Correct the size in the configuration, "
    "or the table: whatwhere resize.",
    "wrong-shape": "{table} has {stored} {axis}, but by {keys} of the configuration {needed}. Positions follow the "
    "configuration: correct it, or take the weights that it belongs to.",
    "tied-tables": "tie_word_embeddings, or its default, is {described}, but the output projection is {stored} in the "
    "file. Programs read it differently: write what is meant, or save the model again.",
    "special-ids": "{key} of {file} is {ids}, but the table has {rows} rows. Correct {file}. A token from #{rows} on "
    "may be meant to be added: whatwhere resize --add-token.",
    "tokenizer": "{reason}.",
    "tokens-without-row": "tokens of the tokenizer beyond the {rows} rows of the table: {count}, the first {token} "
    "(#{id}). Texts with them fail: whatwhere resize --vocab-size, or remove the tokens.",
    "padded-rows": "rows without a token: {count}, #{first} to #{last}. Omit their logits when you sample.",
    "non-finite-rows": "{table} has rows with NaN or infinity, which spread to every score: {count}, {ids}. Replace "
    "them: whatwhere repair.",
    "near-zero-rows": "{table} has rows of zeros or below a hundredth of the median norm {median}: {count}, {ids}. "
    "The model hardly knows these tokens: whatwhere repair, or whatwhere trim.",
    "duplicate-rows": "{table} has equal rows, which no layer tells apart: {count}, {ids}. All: whatwhere inspect.",
    "quantized-table": "{table} is stored as {type}, {bits} bits a number, so its rows are rounded. Measure what that "
    "costs: whatwhere diff with the original.",
}
"""What is found by each rule, and the way out; in braces the names of its values."""


@dataclass(frozen=True)
class CheckRecord(CheckedModel, Headline):
    """What `check --json` prints."""

    lines: Sequence[str]  # the findings in words, in their order


def headline(checked: CheckedModel) -> str:
    """Return how many findings of each severity there are, without a full stop."""
    found = [each.severity for each in checked.findings]
    return ", ".join(count(found.count(one), one) for one in get_args(Severity) if one in found) or "nothing found"


def line(found: ModelFinding) -> str:
    """Return one line on a finding: its severity, its rule, what was found, and the way out."""
    values = {name: _shown(value) for name, value in found.values.items()}
    return f"{found.severity} {found.rule}: {WORDS[found.rule].format(**values)}"


def parts(record: CheckRecord) -> Iterator[Part]:
    """Return a line for each finding, then what was not checked, and how many findings there are."""
    yield from record.lines
    yield from (f"not checked, {name}: {why}." for name, why in record.unchecked.items())
    yield f"{record.path}: {record.headline}."


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"#{each}" for each in value[:_SHOWN]) + (", ..." if len(value) > _SHOWN else "")
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    return f"{value:,.0f}" if value == int(value) else number(value, 4)
