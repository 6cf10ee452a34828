"""The section on text beside a comparison on another task: its file is the evidence's, its sentence the numbers'."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparison.made_up import made_up_folder
from whatwhere.comparison import Comparison, read_results
from whatwhere.comparison.results import Spread
from whatwhere.evidence.suite import read_evidence
from whatwhere.report.another_task import DRAWN, TextLosses, committed, sections, sentence, text_losses
from whatwhere.report.figures import draw
from whatwhere.report.html import COLORS
from whatwhere.report.paper import figures
from whatwhere.report.scheme_looks import looks
from whatwhere.report.section import Chart
from whatwhere.studio.api.measurements import measurements

EVIDENCE = Path(__file__).parents[2] / "evidence"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Return a comparison on the expressions that was never trained."""
    return read_results(made_up_folder(tmp_path_factory.mktemp("made-up"), schemes=("none", "rotary")))


def losses(within: Spread, beyond: Spread) -> TextLosses:
    return replace(committed(), trained=64, difference={64: within, 512: beyond})


def test_the_package_has_the_losses_of_the_committed_evidence() -> None:
    (text,) = (each for each in read_evidence(EVIDENCE) if each.id == "E3")
    assert committed() == text_losses(text.id, Comparison(EVIDENCE, text.comparisons["text"]))


def test_the_sentence_says_what_was_measured(results: Comparison) -> None:
    text = sentence(results, losses(Spread(0.5, 0.4, 0.6), Spread(-0.9, -1.2, -0.6)))
    assert "0.50 nats (0.40 to 0.60) more loss than rotary within the trained 64 bytes" in text
    assert "0.90 nats (0.60 to 1.20) less loss than rotary at 512" in text
    mixed = sentence(results, losses(Spread(0.1, -0.2, 0.3), Spread(0.0, 0.0, 0.0)))
    assert "a loss from 0.20 nats below that of rotary to 0.30 above it within" in mixed


def test_the_chart_has_every_scheme_at_every_length(results: Comparison) -> None:
    (section,) = sections(results)
    chart = next(part for part in section.parts if isinstance(part, Chart))
    assert [line.name for line in chart.series] == list(DRAWN)
    assert {len(line.values) for line in chart.series} == {len(chart.x)}
    assert [row[0] for row in chart.table.rows] == list(DRAWN)


def test_a_scheme_has_one_look_in_all_figures(tmp_path: Path) -> None:
    names = ("fope", "rotary", "rotary@dim=16", "none")
    results = read_results(made_up_folder(tmp_path, schemes=names))
    chart = next(part for part in sections(results)[0].parts if isinstance(part, Chart))
    on_text = {line.name: line.look for line in chart.series}
    own = looks(names)
    assert {name: own[name] for name in ("none", "rotary")} == {name: on_text[name] for name in ("none", "rotary")}
    assert len(set(own.values())) == len(names)
    assert {line.name: line.look for line in next(iter(figures(results))).curves if not line.reference} == own
    assert dict(zip(names, measurements(results).looks, strict=True)) == own
    (axes,) = draw(next(iter(figures(results, ["rotary"])))).axes
    assert axes.lines[1].get_color() == COLORS[1 + own["rotary"]]


def test_a_comparison_on_text_needs_no_such_section(tmp_path: Path) -> None:
    assert sections(read_results(made_up_folder(tmp_path, "text", schemes=("none",), seeds=1))) == []
