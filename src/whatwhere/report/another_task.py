"""The same schemes on text, from the committed evidence: beside a comparison on another task, which alone misleads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import Spread, spread
from whatwhere.records import from_json
from whatwhere.report.comparison_conclusions import last_length
from whatwhere.report.comparison_sentences import length_text, score_text
from whatwhere.report.scheme_looks import looks
from whatwhere.report.section import Chart, Paragraph, Section, Series, Table
from whatwhere.report.text import count, decimals
from whatwhere.report.text import spread as spread_text

DRAWN = ("none", "sinusoidal", "rotary", "alibi", "t5", "kerple")
FIRST, SECOND = "none", "rotary"
"""The two schemes whose order is compared: without positions and with rotary ones."""


@dataclass(frozen=True)
class TextLosses:
    """Losses on text by length, over the seeds of the committed evidence.

    Args:
        experiment: that trained the models.
        created: when, in UTC.
        seeds: of each scheme.
        steps: of each run.
        trained: length of the windows in training, in bytes.
        losses: in nats per byte, by scheme and length.
        difference: loss of "none" minus that of rotary in one seed, by length.
    """

    experiment: str
    created: str
    seeds: int
    steps: int
    trained: int
    losses: Mapping[str, Mapping[int, Spread]]
    difference: Mapping[int, Spread]


def text_losses(experiment: str, results: Comparison) -> TextLosses:
    """Return what the report keeps of a comparison on text.

    Args:
        experiment: its id in the evidence.
        results: of the comparison.
    """
    lengths = [*results.trained, *results.beyond]
    from whatwhere.evidence.bench import paired, score  # loads PyTorch, which reports do without

    between = {n: spread(paired(results, SECOND, FIRST, score(n), learned=False)) for n in lengths}
    losses = {name: {n: results.score(name, n) for n in lengths} for name in DRAWN}
    return TextLosses(
        experiment=experiment,
        created=results.record.created,
        seeds=len(results.record.seeds),
        steps=results.record.settings.steps,
        trained=results.trained[-1],
        losses={name: {n: value for n, value in line.items() if value} for name, line in losses.items()},
        difference={n: value for n, value in between.items() if value},
    )


@cache
def committed() -> TextLosses:
    """Return the losses on text of the committed evidence, which `make docs` writes into the package."""
    file = resources.files("whatwhere.report").joinpath("text_losses.json")
    return from_json(TextLosses, json.loads(file.read_text(encoding="utf-8")), file.name)


def sections(results: Comparison) -> list[Section]:
    """Return a section on text beside a comparison on another task; none beside one on text.

    Args:
        results: of the comparison.
    """
    if results.task.name in ("text", "text in tokens"):
        return []
    text = committed()
    return [Section("text", "The same schemes on text", [Paragraph(sentence(results, text)), chart(text)])]


def sentence(results: Comparison, text: TextLosses) -> str:
    """Return how the order of two schemes here stands to that on text, in measured numbers.

    Args:
        results: of a comparison on another task.
        text: the losses on text.
    """
    parts = ["One task alone misleads."]
    last = last_length(results)
    first, second = (results.score(name, last) if name in results.schemes else None for name in (FIRST, SECOND))
    if first is not None and second is not None:
        parts.append(
            f"Here, {length_text(results, last)}, “none” has {score_text(results, first.median)} and rotary "
            f"{score_text(results, second.median)}, medians over the seeds."
        )
    parts.append(f"On text “none” has {_beside(text, text.trained)} within the trained {text.trained} bytes")
    longest = max(text.difference)
    parts[-1] += f", and {_beside(text, longest)} at {longest}." if longest != text.trained else "."
    parts.append(
        f"These are {count(text.seeds, 'run')} a scheme of {text.steps:,} steps on the documentation of Python, median "
        f"and range of the differences in one seed; to repeat them: whatwhere evidence --full --only {text.experiment}."
    )
    return " ".join(parts)


def _beside(text: TextLosses, length: int) -> str:
    """Return by how much the loss of the first scheme is above or below that of the second."""
    values = text.difference[length]
    low, high = sorted((abs(values.min), abs(values.max)))
    size = decimals(abs(values.median), 2)
    if values.min < 0 < values.max:
        return f"a loss from {decimals(-values.min, 2)} nats below that of rotary to {decimals(values.max, 2)} above it"
    side = "more" if values.median > 0 else "less"
    return f"{size} nats ({decimals(low, 2)} to {decimals(high, 2)}) {side} loss than rotary"


def chart(text: TextLosses) -> Chart:
    """Return the losses on text by length, as lines and as a table.

    Args:
        text: the losses on text.
    """
    lengths = sorted(text.difference)
    rows = [[name, *(spread_text(line.get(n), 2) for n in lengths)] for name, line in text.losses.items()]
    caption = "Loss on text in nats per byte, by length in bytes: median, least and greatest"
    table = Table(caption, ["scheme", *map(str, lengths)], rows, range(1, len(lengths) + 1), shorten="never")
    nan = float("nan")
    series = [
        Series(name, [line[n].median if n in line else nan for n in lengths], look)
        for (name, line), look in zip(text.losses.items(), looks(list(text.losses)).values(), strict=True)
    ]
    return Chart(
        "lines",
        "Loss on text, by length",
        "length of the window, bytes",
        "loss, nats per byte",
        [float(n) for n in lengths],
        series,
        table,
        note=f"Lower is better. Trained on windows of {text.trained} bytes; medians over {count(text.seeds, 'seed')}.",
        method=f"The committed evidence, {text.experiment}, {text.created[:10]}.",
        marks=[(float(text.trained), "trained")],
        log_x=True,
    )
