"""What is open: the line at the head of the page, and which views have something to show."""

from collections.abc import Mapping
from typing import Any

from whatwhere import __version__
from whatwhere.studio.api import pipeline, positions, variance
from whatwhere.studio.api.settings import known
from whatwhere.studio.session import Source
from whatwhere.studio.standing import has_own, runs


def about(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the source from headers alone."""
    known(settings)
    checkpoint = source.checkpoint
    tokens = {
        which: {"name": name, "rows": entry.shape[0], "dim": entry.shape[1], "dtype": entry.dtype}
        for which in source.tables
        if (name := checkpoint.token_table if which == "input" else checkpoint.output_projection) is not None
        for entry in [checkpoint.entry(name)]
    }
    places = checkpoint.position_table
    model = (checkpoint.config or {}).get("model_type")
    return {
        "version": __version__,
        "kind": source.kind,
        "name": source.name,
        "path": "" if source.kind == "fresh" else str(checkpoint.path),
        "format": checkpoint.format,
        "model": model if isinstance(model, str) else None,
        "tables": tokens,
        "tied": checkpoint.tied,
        "guessed": checkpoint.names.guessed,
        "positions": list(checkpoint.entry(places).shape) if places is not None else None,
        "begin": {
            "pipeline": pipeline.begin(source),
            "positions": positions.begin(source),
            "against": variance.begin(source),
        },
        "own": has_own(source),
        "runs": runs(source),
        "other": None if source.other is None else str(source.other.path),
        "words": len(source.words),
        "tokenizer": source.tokenizer is not None,
        "examples": examples(source),
        "analogy": analogy(source),
    }


def examples(source: Source) -> list[str]:
    """Return some tokens to begin with, all of which the vocabulary has."""
    asked = [*_written("king"), *_written("Paris"), *_written("paris"), "##ing", "ing", "1999", "Max", "First", "("]
    known_words = set(source.words)
    found = [word for word in asked if word in known_words][:6]
    if found or not source.tables:
        return found
    return [f"#{n}" for n in source.table().ids[:6].tolist()]  # rows that hold numbers


def analogy(source: Source) -> list[str]:
    """Return the three words of an analogy that the vocabulary has, in one way of writing, or none."""
    known_words = set(source.words)
    for words in (("man", "woman", "king"), ("First", "Last", "Max")):
        for written in zip(*map(_written, words), strict=True):
            if known_words.issuperset(written):
                return list(written)
    return []


def _written(word: str) -> tuple[str, ...]:
    """Return a word as vocabularies write the beginning of one."""
    return (f"Ġ{word}", f"▁{word}", word)
