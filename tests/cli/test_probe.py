"""probe: what is printed of a tiny model, and errors in one message."""

import pytest
from typer.testing import CliRunner

from whatwhere.cli import app
from whatwhere.models.probe.findings import Bias, FeatureMap, InputChange, Layer, Probe, Span
from whatwhere.report.probe import ProbeRecord, sections

from ..running import fitting

pytest.importorskip("transformers", reason="a probe runs its models")


def run(*arguments):
    return CliRunner().invoke(app, ["probe", *arguments])


def test_layers_that_are_alike_share_a_row():
    printed = run("gpt_oss")
    assert printed.exit_code == 0, printed.output
    text = " ".join(printed.output.split())
    assert "layers.0.self_attn and 1 other" in text
    assert "the nearest 4 earlier" in text
    assert "learned" in text
    assert "The configuration alone is read alike." in text


def test_rounding_of_measurements_does_not_part_layers_that_are_alike():
    """Frequencies within the residual are one; another theta is not. The largest residual of a row is shown."""

    def layer(number, lowest, residual):
        found = FeatureMap(
            "rotary", residual, (0, 1), "half", start=0, rotary_dim=4, frequencies=(1.0, lowest), scales=()
        )
        span = Span(causal=True, tokens=24)
        return Layer(
            f"layers.{number}", 4, 4, 4, found, found, None, 0.5, Bias("none"), span, sinks=False, softcap=None
        )

    layers = (layer(0, 0.01, 2e-7), layer(1, 0.0100000121, 3e-6), layer(2, 0.009999, 2e-7))
    probe = Probe("t", "T", "interface", True, InputChange("none"), layers, 0, None, (), "2", "5")
    table = sections(ProbeRecord("t", probe, None, "no"))[0].parts[0]
    assert [(row[0], row[4]) for row in table.rows] == [
        ("layers.0 and 1 other", "below 1e-5"),
        ("layers.2", "below 1e-6"),
    ]


def test_json_has_the_findings_and_the_differences():
    record = fitting("probe", run("opt", "--json").stdout)
    assert record["probe"]["input"]["offset"] == 2
    assert record["differences"] == []
    assert record["unread"] is None


def test_a_type_that_is_not_read_says_so_and_is_measured():
    record = fitting("probe", run("jamba", "--json").stdout)
    assert record["probe"]["layers"][0]["query"]["kind"] == "none"
    assert (record["differences"] is None) == (record["unread"] is not None)


@pytest.mark.parametrize(("arguments", "message"), [(["lama"], "no model type"), (["mamba"], "no attention was seen")])
def test_errors_are_one_message(arguments, message):
    printed = run(*arguments)
    assert printed.exit_code == 1
    assert message in printed.stderr
    assert "Traceback" not in printed.stderr
