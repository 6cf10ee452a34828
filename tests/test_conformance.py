"""docs/conformance.md is what examples/check_peers.py writes, and docs/engines.md what check_engines.py recorded."""

import importlib
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+e[+-]\d+")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "examples"))
        return importlib.import_module("check_peers")


@pytest.fixture(scope="module")
def checked(example):
    return example.check_all()


def test_the_page_was_made_with_what_is_installed(example):
    words = " ".join(PAGE.split())
    for package in example.PACKAGES:
        assert f"{package} {version(package).split('+')[0]}" in words, f"run {example.COMMAND}"
    assert example.COMMAND in PAGE


def test_the_page_is_what_the_command_writes(example, checked):
    """Word for word; of the errors one digit is given, and another processor may round it to the next."""
    now = example.page(checked)
    assert NUMBER.sub("#", now) == NUMBER.sub("#", PAGE), f"run {example.COMMAND}"
    assert [float(n) for n in NUMBER.findall(now)] == pytest.approx([float(n) for n in NUMBER.findall(PAGE)], rel=0.6)


def test_whatwhere_passes_every_law(checked):
    for reports in checked.values():
        name, own = next(iter(reports.items()))
        assert name.startswith("whatwhere")
        own.require()


def test_every_failure_is_explained_and_nothing_else(example, checked):
    for section, reports in checked.items():
        failing = {finding.law for report in reports.values() for finding in report.failed}
        assert failing == set(example.MEANING.get(section, {}))


def test_the_command_prints_the_tables_and_writes_the_page(example, checked, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "check_all", lambda: checked)
    example.main(["--reports", "--write", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == example.page(checked)
    printed = capsys.readouterr().out
    assert all(f"{section}\n\n| law | whatwhere" in printed for section in example.SECTIONS)
    assert "check_rotary(head_dim=64" in printed


# Engines, which are not installed here: their measurements are committed.


@pytest.fixture(scope="module")
def engines() -> ModuleType:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "examples"))
        return importlib.import_module("check_engines")


@pytest.fixture(scope="module")
def recorded(engines):
    return engines.read_data()


def test_the_page_of_engines_is_that_of_the_committed_data(engines, recorded):
    assert engines.PAGE.read_text(encoding="utf-8") == engines.page(recorded), f"run {engines.COMMAND}"
    assert [(one.package, one.name, one.rule) for one in recorded] == [
        (engine.package, engine.name, engine.rule) for engine in engines.ENGINES
    ]


def test_every_failure_of_an_engine_has_a_reason(engines, recorded):
    failures = [(one, finding) for one in recorded for finding in one.failed]
    assert failures
    assert all(engines.reason(one, finding) for one, finding in failures)
    known = {(one.package, one.rule, finding.law) for one, finding in failures}
    assert set(engines.MEANING) <= known  # and no reason is left of a fault that was repaired
    assert set(engines.LAW_MEANING) <= {law for *_, law in known}
