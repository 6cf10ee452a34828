"""Files of ours state a format, a version and a checksum; earlier versions are read or refused with the way out."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import whatwhere as ww
from experiments.suite import read_evidence
from reliability.flips import Readable
from reliability.readable_files import OWN
from whatwhere.comparison.read import read_results
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.golden import read_golden, write_golden
from whatwhere.records import CHECKSUM, Schema, with_checksum

from .comparison.made_up import made_up_folder

NOTES = Schema("notes", 3, "Write it again.", unchecked={2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pages"}, r"notes\.json has the format 'pages', but 'notes' is needed\.\nWrite it again\."),
        ({"version": 1}, r"notes\.json has version 1, but this whatwhere reads version 3\.\nWrite it again\."),
        ({"version": 2}, r"has version 2, but"),  # an earlier version has no checksum
        ({"version": []}, r"has version \[\], but"),
        ({"version": "3"}, r"has version '3', but"),
        ({"number": 0.1}, r"notes\.json has another checksum than it states"),
        ({"more": None}, r"has another checksum"),
        ({CHECKSUM: 7}, r"has another checksum"),
    ],
)
def test_what_was_changed_is_refused(change: dict[str, Any], message: str) -> None:
    content = NOTES.wrap({"number": 1 / 3, "by length": {8: float("nan")}})
    read = json.loads(json.dumps(content, indent=3))  # other spaces
    assert NOTES.unwrap(read, "notes.json") == {
        "format": "notes", "version": 3, "number": 1 / 3, "by length": {"8": None},
    }  # fmt: skip
    with pytest.raises(ww.errors.ResultsError, match=message):
        NOTES.unwrap({**read, **change}, "notes.json")


@pytest.mark.parametrize("content", ["notes", [1], 3, None])
def test_what_is_no_object_is_refused(content: object) -> None:
    with pytest.raises(ww.errors.ResultsError, match=r"notes\.json holds a \w+, but an object is needed\.\nWrite it"):
        NOTES.unwrap(content, "notes.json")


def test_an_earlier_version_without_a_checksum_is_read() -> None:
    content = {"format": "notes", "version": 2, "number": 5}
    assert NOTES.unwrap(content, "notes.json") == {**content, "version": 3}
    with pytest.raises(ww.errors.ResultsError, match="has another checksum"):
        NOTES.unwrap({**content, "version": 3}, "notes.json")


def test_results_evidence_and_golden_vectors_of_the_versions_before_are_read(tmp_path: Path) -> None:
    """Those of 0.1.0, which had no checksum; with one that is wrong they are refused, as any file is."""
    results = made_up_folder(tmp_path / "results", schemes=("none",), seeds=1)
    evidence = tmp_path / "evidence" / "E5.json"
    evidence.parent.mkdir()
    evidence.write_bytes((Path(__file__).parents[1] / "evidence" / "E5.json").read_bytes())
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1, "vocab_size": 7}'
    )
    write_golden(ww.read(tmp_path / "config.json"), tmp_path / "golden")
    files = {
        results / "results.json": lambda: (read_results(results), Checkpoint.open(results)),
        evidence: lambda: read_evidence(evidence.parent),
        tmp_path / "golden" / "golden.json": lambda: read_golden(tmp_path / "golden"),
    }
    for path, read in files.items():
        content = json.loads(path.read_text())
        assert content == with_checksum(content)
        del content[CHECKSUM]
        path.write_text(json.dumps(content))
        with pytest.raises(ww.errors.WhatWhereError, match=r"has another checksum.*\n[A-Z].*\."):
            read()
        path.write_text(json.dumps({**content, "version": content["version"] - 1}))
        assert read()
        path.write_text(json.dumps({**content, "version": content["version"] + 1}))
        with pytest.raises(ww.errors.WhatWhereError, match=r"has version \d, but this whatwhere reads.*\n[A-Z].*\."):
            read()


EARLIER = {
    "comparison.json": "refused",
    "a finished run": "refused",
    "a tokenized text, .json": "read",  # it is made again
    "a pointer to a file at huggingface.co": "refused",
    "steps of a table in training": "refused",
}
"""What comes of the version before, which had no checksum; of other versions with one, all but the ids of a text are
refused."""
MADE_AGAIN = "a tokenized text, .json"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Readable]:
    """Make a file of each format of ours."""
    return {each.name: each for make in OWN.values() for each in make(tmp_path_factory.mktemp("own"))}


@pytest.mark.parametrize("name", EARLIER)
def test_other_versions_are_read_made_again_or_refused_with_the_way_out(name: str, own: Mapping[str, Readable]) -> None:
    file = own[name]
    whole, before = file.path.read_bytes(), repr(file.read())
    assert file.seal is not None
    content, seal = file.path.read_bytes(), file.seal
    (version,) = map(int, re.findall(rb'"version": ?(\d+)', content))
    unchecked = re.sub(rb',\s*"%s": ?"\w+"' % CHECKSUM.encode(), b"", content)
    assert unchecked != content
    try:
        for number, base in ((version - 1, unchecked), (version - 1, content), (version + 1, content)):
            changed = re.sub(rb'("version": ?)\d+', rb"\g<1>%d" % number, base)
            for path, each in seal(changed).items():
                path.write_bytes(each)
            if name == MADE_AGAIN or (base is unchecked and EARLIER[name] == "read"):
                assert repr(file.read()) == before
            else:
                with pytest.raises(
                    ww.errors.WhatWhereError, match=r"version \d+, but this whatwhere reads[^\n]*\n[A-Z]"
                ):
                    file.read()
    finally:
        file.path.write_bytes(whole)
