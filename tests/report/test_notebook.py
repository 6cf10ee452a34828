"""What a notebook shows of results: tables and figures, hostile text as text; and how IPython finds them."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import whatwhere as ww
from tests.comparison.made_up import HOSTILE
from whatwhere.analysis.walkthrough import walk
from whatwhere.comparison import ask, compare
from whatwhere.report.notebook import WRITERS, register, to_html


class Tags(HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(result: object) -> Tags:
    text = to_html(result)
    assert text is not None
    return Tags(text)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "few.vec"
    path.write_text("5 2\nman 1 0\nwoman 1 1\nking 3 0\nqueen 3 1.8\n<script>alert(1)</script> 2 0.1\n")
    return path


@pytest.mark.parametrize(("module", "name"), WRITERS)
def test_every_type_that_is_named_exists(module: str, name: str) -> None:
    assert isinstance(getattr(import_module(f"whatwhere.{module}"), name), type)


def test_a_comparison_shows_its_scores_figures_and_conclusion(tmp_path: Path) -> None:
    small = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 2, "trained": [2, 3]}
    results = compare(["none", "alibi"], lengths=[4], seeds=1, out=tmp_path / "a", workers=1, progress=False, **small)
    tags = shown(results)
    assert tags.names.count("svg") == 2
    assert {"none", "alibi", "chance"} <= set(tags.texts)
    assert any("one task (expressions)" in text for text in tags.texts)
    answers = ask(results, "First(6,2,1)")
    assert f"{answers.answers[0].top[0].probability:.1%}"[:-1] in " ".join(shown(answers).texts)


def test_neighbors_and_analogies_show_a_table_in_which_tokens_are_text(vectors: Path) -> None:
    tags = shown(ww.neighbors(vectors, ["king", "man"], k=4))
    assert tags.names.count("table") == 2
    assert "script" not in tags.names
    assert any("<script>alert(1)</script>" in text for text in tags.texts)
    tags = shown(ww.analogy(vectors, "king - man + woman", k=1))
    assert "queen" in tags.texts


def test_an_inspection_and_each_of_its_sections(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    path = tmp_path / "model.safetensors"
    save_file({"wte.weight": table, "wpe.weight": table[:32]}, path)
    inspection = ww.inspect(path)
    whole = shown(inspection)
    assert {"table", "svg", "h4"} <= set(whole.names)
    assert any("300 tokens × 16" in text for text in whole.texts)
    assert inspection.norms is not None
    assert shown(inspection.norms).names.count("table") >= 1


@pytest.mark.parametrize("name", ["rotary", "alibi", "sinusoidal", "t5", "learned"])
def test_an_encoding_shows_its_curve_by_distance(name: str) -> None:
    where = ww.scheme(name, 32, 2, 16)
    assert "svg" in shown(where).names
    assert "svg" in shown(next(part for part in (where.input, where.query_key, where.score) if part)).names


@pytest.mark.parametrize("name", ["none", "fox"])
def test_an_encoding_without_a_curve_shows_what_it_is(name: str) -> None:
    assert shown(ww.scheme(name, 32, 2, 16)).names == ["div", "style", "pre"]


def test_the_rows_of_a_text() -> None:
    torch.manual_seed(0)
    steps = walk("<b>bold", scheme="sinusoidal", dim=8)
    tags = shown(steps)
    assert "b" not in tags.names
    assert f"{float(steps.vectors[0, 0]):.3f}".replace("-", "−") in tags.texts


def test_parameters_and_laws() -> None:
    assert "1,280" in shown(ww.parameters({"vocab_size": 20, "dim": 64})).texts
    report = ww.testing.check_rotary(lambda q, k, p: (q, k), head_dim=16)
    assert any("laws fail" in text for text in shown(report).texts)


def test_what_has_no_tables_is_left_to_ipython() -> None:
    assert to_html(3) is None
    assert to_html(ww.Positions) is None
    hostile = SimpleNamespace(text=HOSTILE)
    assert to_html(hostile) is None


def test_register_names_types_without_loading_them() -> None:
    """Else each import of whatwhere in a notebook would load PyTorch."""
    code = (
        "import sys\nnamed = []\n"
        "class F:\n    def for_type_by_name(self, module, name, writer): named.append((module, name))\n"
        "class S: pass\n"
        "shell, shell.display_formatter = S(), S()\nshell.display_formatter.formatters = {'text/html': F()}\n"
        "class IPython:\n    @staticmethod\n    def get_ipython(): return shell\n"
        "shell = S(); shell.display_formatter = S(); shell.display_formatter.formatters = {'text/html': F()}\n"
        "sys.modules['IPython'] = IPython\n"
        "import whatwhere\n"
        "print(('whatwhere.comparison.read', 'Comparison') in named, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "True False"


def test_nothing_is_registered_outside_of_a_notebook() -> None:
    code = "import sys, whatwhere; print('whatwhere.report.notebook' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_ipython_shows_it(vectors: Path) -> None:
    """By IPython's own formatter, where it is installed."""
    formatters = pytest.importorskip("IPython.core.formatters")
    shell: Any = SimpleNamespace(display_formatter=formatters.DisplayFormatter())
    register(shell)
    data, _ = shell.display_formatter.format(ww.neighbors(vectors, "king", k=1))
    assert "<table>" in data["text/html"]
    data, _ = shell.display_formatter.format(ww.Rotary(16))  # found by the class that it extends
    assert "<svg" in data["text/html"]
    data, _ = shell.display_formatter.format(torch.ones(2))
    assert "text/html" not in data


def test_pages_have_no_style_of_their_own_beyond_the_class() -> None:
    """A notebook has tables of its own, which must stay as they are."""
    text = to_html(ww.parameters({"vocab_size": 20, "dim": 64})) or ""
    style = re.search(r"<style>(.*?)</style>", text)
    assert style is not None
    assert all(selector.strip().startswith(".whatwhere ") for selector in re.findall(r"([^{},]+)(?=[,{])", style[1]))
