"""What a notebook shows of results: tables and figures, hostile text as text; and how IPython finds them."""

import re
import subprocess
import sys
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

from .page import Page


def shown(result: object) -> Page:
    text = to_html(result)
    assert text is not None
    page = Page(text)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    return page


def tags(result: object) -> list[str]:
    return [tag for tag, _ in shown(result).elements]


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
    page = shown(results)
    assert tags(results).count("svg") == 2
    assert {"none", "alibi", "chance"} <= {row[0] for _, rows in page.tables for row in rows}
    assert "one task (expressions)" in page.words
    answers = ask(results, "First(6,2,1)")
    assert f"{answers.answers[0].top[0].probability:.1%}"[:-1] in shown(answers).words


def test_neighbors_and_analogies_show_a_table_in_which_tokens_are_text(vectors: Path) -> None:
    found = ww.neighbors(vectors, ["king", "man"], k=4)
    assert tags(found).count("table") == 2
    assert "script" not in tags(found)
    assert "<script>alert(1)</script>" in shown(found).words
    assert "queen" in shown(ww.analogy(vectors, "king - man + woman", k=1)).words


def test_an_inspection_and_each_of_its_sections(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    path = tmp_path / "model.safetensors"
    save_file({"wte.weight": table, "wpe.weight": table[:32]}, path)
    inspection = ww.inspect(path)
    assert {"table", "svg", "h4"} <= set(tags(inspection))
    assert "300 tokens × 16" in shown(inspection).words
    assert "table" in tags(inspection.norms)


@pytest.mark.parametrize("name", ["rotary", "alibi", "sinusoidal", "t5", "learned"])
def test_an_encoding_shows_its_curve_by_distance(name: str) -> None:
    where = ww.scheme(name, 32, 2, 16)
    assert "svg" in tags(where)
    assert "svg" in tags(next(part for part in (where.input, where.query_key, where.score) if part))


@pytest.mark.parametrize("name", ["none", "fox"])
def test_an_encoding_without_a_curve_shows_what_it_is(name: str) -> None:
    assert tags(ww.scheme(name, 32, 2, 16)) == ["div", "style", "pre"]


def test_the_rows_of_a_text() -> None:
    torch.manual_seed(0)
    steps = walk("<b>bold", scheme="sinusoidal", dim=8)
    assert "b" not in tags(steps)
    assert f"{float(steps.vectors[0, 0]):.4f}" in shown(steps).words


def test_parameters_and_laws() -> None:
    assert "1,280" in shown(ww.parameters({"vocab_size": 20, "dim": 64})).words
    report = ww.testing.check_rotary(lambda q, k, p: (q, k), head_dim=16)
    assert "laws fail" in shown(report).words


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
