"""What commands print with --json has a schema, which every test compares it with (running.whatwhere, fitting)."""

import json
from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from docs.book.reference import commands
from docs.generate.json_schemas import PRINTED
from whatwhere.comparison import experiment

from ..running import json_of, schema, whatwhere


def test_every_command_has_json_and_a_schema_of_it() -> None:
    names = {name for name, _ in commands()}
    assert names == set(PRINTED)
    assert all("--json" in whatwhere(name, "--help").out for name in names)


@pytest.mark.parametrize("command", PRINTED)
def test_schemas_are_valid(command: str) -> None:
    Draft202012Validator.check_schema(schema(command).schema)


@pytest.mark.parametrize(
    "lines",
    [
        "check RESULTS --run learned-0",
        "tables RESULTS --out OUT/tables",
        "figures RESULTS --out OUT/figures --format svg",
        "studio --export OUT/nothing.html; studio RESULTS --export OUT/page.html",
        "golden OUT/config.json --out OUT/golden; verify OUT/golden OUT/golden/golden.safetensors",
    ],
)
def test_what_a_command_prints_fits_its_schema(lines: str, results: Path, tmp_path: Path) -> None:
    """Of the other commands, each test that passes --json shows it."""
    config = {"model_type": "llama", "vocab_size": 40, "hidden_size": 64, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    for line in lines.split("; "):
        words = line.replace("RESULTS", str(results)).replace("OUT/", f"{tmp_path}/").split()
        done = whatwhere(*words, "--json")
        assert (done.status, done.out != "") == (0, True), done.err


def test_the_demo_prints_what_fits_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small, for the demo has no settings."""
    few = {"seeds": 1, "steps": 2, "dim": 8, "layers": 1, "feedforward": 8, "batch": 4, "test_sequences": 4}
    monkeypatch.setattr(experiment, "compare", partial(experiment.compare, **few))
    done = whatwhere("demo", "--workers", "1", "--out", tmp_path / "demo", "--json")
    assert (done.status, done.out != "") == (0, True), done.err


def test_a_schema_refuses_what_no_command_prints() -> None:
    right = json_of("doctor")
    name = next(iter(right))
    for wrong in ({**right, "more": 1}, {name: right[name]}, {**right, name: {"no": "such value"}}):
        with pytest.raises(ValidationError):
            schema("doctor").validate(wrong)
