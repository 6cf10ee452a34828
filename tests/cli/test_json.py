"""What commands print with --json has a schema, which every test compares it with (running.whatwhere, fitting)."""

import os
from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from docs.book.reference import commands
from docs.generate.json_schemas import PRINTED
from reliability.commands import Command
from reliability.commands import commands as writing_commands
from whatwhere.comparison import experiment

from ..running import fitting, json_of, schema, whatwhere

READING = {
    "demo": "demo --workers 1 --out OUT/demo",
    "ask": "ask IN/results aKcR?c",
    "encode": "encode Max(1,6,2)",
    "schemes": "schemes",
    "inspect": "inspect IN/model",
    "check": "check IN/model",
    "probe": "probe opt",
    "neighbors": "neighbors IN/model w3",
    "analogy": "analogy IN/model w1 w2 w3",
    "similarity": "similarity IN/model w1 w2",
    "extend": "extend IN/model OUT/new --to 256",
    "verify": "verify OUT/golden OUT/golden/golden.safetensors",
    "doctor": "doctor",
}
"""The commands that `reliability.commands` lacks, for they write nothing, or much, or load transformers."""
OTHER_FORMS = {"studio": ["studio", "--export", "OUT/nothing.html"]}
"""Commands that print something else too."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Command]]:
    folder = tmp_path_factory.mktemp("inputs")
    made: dict[str, Command] = {}
    for each in writing_commands(folder):
        made.setdefault(each.words.split()[0], each)
    return folder, made


def test_every_command_has_json_and_a_schema_of_it() -> None:
    names = {name for name, _ in commands()}
    assert names == set(PRINTED)
    assert all("--json" in whatwhere(name, "--help").out for name in names)


@pytest.mark.parametrize("command", PRINTED)
def test_schemas_are_valid(command: str) -> None:
    Draft202012Validator.check_schema(schema(command).schema)


@pytest.mark.parametrize("command", PRINTED)
def test_what_a_command_prints_fits_its_schema(
    command: str, inputs: tuple[Path, dict[str, Command]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    if command == "demo":  # which has no settings
        few = {"seeds": 1, "steps": 2, "dim": 8, "layers": 1, "feedforward": 8, "batch": 4, "test_sequences": 4}
        monkeypatch.setattr(experiment, "compare", partial(experiment.compare, **few))
    folder, writing = inputs
    if command == "probe":
        pytest.importorskip("transformers")
    assert command in READING.keys() ^ writing.keys()
    line = READING[command] if command in READING else writing[command].words
    lines = [line.split(), *([OTHER_FORMS[command]] if command in OTHER_FORMS else [])]
    if command in writing:
        writing[command].prepare(tmp_path)
    if command == "verify":
        assert whatwhere("golden", folder / "model" / "config.json", "--out", tmp_path / "golden").status == 0
    for words in lines:
        here = [word.replace("IN/", f"{folder}/").replace("OUT/", f"{tmp_path}/") for word in words]
        status, out, err = whatwhere(*here, *([] if "--json" in here else ["--json"]))
        assert status == 0, err
        assert fitting(command, out)


def test_a_schema_refuses_what_no_command_prints() -> None:
    right = json_of("doctor")
    name = next(iter(right))
    for wrong in ({**right, "more": 1}, {name: right[name]}, {**right, name: {"no": "such value"}}):
        with pytest.raises(ValidationError):
            schema("doctor").validate(wrong)
