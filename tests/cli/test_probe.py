"""probe: what is printed of a tiny model, and errors in one message."""

import json

import pytest
from typer.testing import CliRunner

from whatwhere.cli import app

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


def test_a_model_of_fewer_positions_than_a_probe_needs_is_one_message(tmp_path):
    config = {"model_type": "gpt2", "vocab_size": 40, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 20}
    (tmp_path / "config.json").write_text(json.dumps(config))
    printed = run(str(tmp_path))
    assert (printed.exit_code, "does not run on 24 tokens" in printed.stderr) == (1, True), printed.output
