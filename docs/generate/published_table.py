"""The table of published files in docs/models.md, from docs/published.json: what is read of each, and how verified."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whatwhere.errors import WhatWhereError
from whatwhere.models.configuration.description import Description, Plan
from whatwhere.models.configuration.read import from_huggingface

DATA = Path(__file__).resolve().parents[1] / "published.json"
_WORDS = (
    "{} configurations as model repositories publish them, of {} types, with keys of older versions, of training and "
    "of other matters. They are rebuilt from what is publicly known: the keys that concern sizes and positions, and "
    "others that such files have; of LongRoPE's factors and of parts for pictures only the form is theirs. {} are "
    "read, and a test verifies the numbers of each: *transformers* is what transformers makes of the same file, whose "
    "type a probe compares with its model; *by hand* are numbers worked out from the code of the authors. {} are "
    "refused, with the reason."
)


@dataclass(frozen=True)
class Published:
    """One configuration."""

    name: str  # of the public model
    config: Mapping[str, Any]  # as in its file
    source: str | None = None  # by what its numbers were worked out by hand; else transformers has them
    facts: Mapping[str, Any] = field(default_factory=dict)  # those numbers, by fields of Description or of its scheme
    like: str | None = None  # a type of transformers whose model of that size has the same numbers
    refused: str | None = None  # words of the reason why it is not read


def read_published() -> list[Published]:
    """Return the configurations of the file."""
    return [Published(**each) for each in json.loads(DATA.read_text(encoding="utf-8"))]


def table() -> list[str]:
    """Return the lines of the section."""
    published = read_published()
    refused = sum(each.refused is not None for each in published)
    types = len({each.config["model_type"] for each in published})
    return [
        "## Published files",
        "",
        _WORDS.format(len(published), types, len(published) - refused, refused),
        "",
        "| type | model | read | verified |",
        "|---|---|---|---|",
        *[_row(each) for each in published],
        "",
    ]


def _row(each: Published) -> str:
    try:
        read = summary(from_huggingface(each.config))
    except WhatWhereError as problem:
        read = f"refused: {problem}"
    verified = "the reason" if each.refused else f"by hand: {each.source}" if each.source else "transformers"
    verified += "" if each.like is None else f"; transformers' {each.like}"
    texts = [
        text.replace("\n", " ").replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("[", "\\[")
        for text in (each.name, read, verified)
    ]
    return f"| `{each.config['model_type']}` | {' | '.join(texts)} |"


def summary(description: Description) -> str:
    """Return what a configuration was read as, in a line."""
    kinds = Counter(_layer(description, layer) for layer in range(description.layers))
    layers = "; ".join(f"{number} x {kind}" for kind, number in kinds.items())
    both = "" if description.causal else "; both directions"
    rows = description.input.settings.get("max_length") if description.input is not None else None
    before = "" if description.input is None else f"; input: {description.input.scheme}"
    return f"{layers}{both}{before}{'' if rows is None else f', {rows:,} rows'}"


def _layer(description: Description, layer: int) -> str:
    plans = [plan for plan in (description.query_key[layer], description.score[layer]) if isinstance(plan, Plan)]
    heads = description.heads[layer] if description.heads else None
    texts = [_plan(plan, heads.head_dim if heads else 0) for plan in plans] or [
        "no positions" if description.input is None else "none in attention"
    ]
    if (window := description.windows[layer]) is not None:
        texts.append(f"{'chunk' if window.chunked else 'window'} {window.size:,}")
    return ", ".join(texts)


def _plan(plan: Plan, head_dim: int) -> str:
    if not plan.scheme.startswith("rotary"):
        return plan.name
    pairs = "interleaved" if plan.settings["interleaved"] else "half"
    return f"{plan.name}, {pairs}, {plan.rotary_dim} of {head_dim}, theta {plan.settings['theta']:,.10g}"
