"""doctor: what is installed, and what is missing."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from whatwhere import installation
from whatwhere.installation import CHECKOUT_EXTRAS, EXTRAS, examine
from whatwhere.kernels import backend

from ..running import json_of, whatwhere

ROOT = Path(__file__).parents[2]


def test_it_works_here_and_says_so() -> None:
    found = json_of("doctor")["installation"]
    assert found["whatwhere"] in json_of("doctor")["headline"]
    torch = next(each for each in found["packages"] if each["name"] == "torch")
    assert (torch["installed"], torch["necessary"], torch["serves"]) == (
        importlib.metadata.version("torch"),
        True,
        True,
    )
    shown = whatwhere("doctor")
    assert (shown.status, shown.err) == (0, "")
    assert "works here" in shown.out


def test_every_extra_for_users_says_what_needs_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*EXTRAS, *CHECKOUT_EXTRAS} == set(project["optional-dependencies"])


def test_a_missing_package_ends_with_status_1_and_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "msgspec":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.0.1" if name == "tokenizers" else importlib.metadata.version(name)

    # The requirements are fixed here: those of an editable installation may be older than pyproject.toml.
    monkeypatch.setattr(installation, "requires", lambda name: ["msgspec>=0.19", "tokenizers>=0.22"])
    monkeypatch.setattr(installation, "version", version)
    found = examine()
    assert [(each.what, each.remedy) for each in found.missing if each.necessary] == [
        ("msgspec>=0.19 is not installed.", "pip install 'msgspec>=0.19'"),
        ("tokenizers>=0.22 is version 0.0.1.", "pip install 'tokenizers>=0.22'"),
    ]
    status, out, _ = whatwhere("doctor")
    assert status == 1
    assert "2 things to mend" in out
    assert "is not installed. To mend it: pip install" in " ".join(out.split())


def test_without_the_compiled_library_it_says_what_that_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backend, "library", lambda: None)
    monkeypatch.setattr(backend, "FILE", tmp_path / "_native.so")
    (missing,) = (each for each in examine().missing if "compiled library" in each.what)
    assert "same results" in missing.what
    assert "pip install" in missing.remedy
    assert not missing.necessary


def test_sources_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation, "requires", requires)
    found = examine()
    assert "not installed" in found.missing[0].what
    assert found.missing[0].necessary
