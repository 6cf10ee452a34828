"""The public surface: every name loads, importing costs nothing, and the code of the first page runs."""

import ast
import dataclasses
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import whatwhere as ww
from whatwhere import public_names


def python(code):
    """Run code in a fresh interpreter; return what it prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("name", ww.__all__)
def test_every_public_name_loads(name):
    value = getattr(ww, name)
    assert value is getattr(ww, name)  # the second time from the module itself
    assert name in vars(ww)


def test_all_is_what_dir_shows_and_has_no_name_twice():
    assert dir(ww) == sorted(ww.__all__)
    assert len(set(ww.__all__)) == len(ww.__all__)


def test_public_modules_load_by_name():
    names = "analysis comparison errors frequencies rotary_layout scaling temperature testing text"
    assert all(isinstance(getattr(ww, name), ModuleType) for name in names.split())
    for name in ww.analysis.__all__:
        assert getattr(ww.analysis, name) is getattr(ww.analysis, name)
    with pytest.raises(AttributeError, match="has no attribute 'neighbours'"):
        _ = ww.analysis.neighbours


@pytest.mark.parametrize("name", ["analysis", "comparison", "parallel"])
def test_no_module_hides_a_public_name_that_is_loaded_late(name):
    package = import_module(f"whatwhere.{name}")
    modules = {path.stem for path in Path(package.__path__[0]).iterdir()}
    assert not modules & set(package.__all__), "importing the module would replace what the name is"


def test_a_cell_shows_an_inspection_in_one_line(tmp_path):
    np.save(tmp_path / "table.npy", np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32))
    inspection = ww.inspect(tmp_path / "table.npy")
    shown = f"<inspection of {tmp_path}/table.npy (500 × 16): sizes, norms, spectrum, diagnostics>"
    assert repr(inspection) == shown
    hostile = dataclasses.replace(inspection, path="\u202e")
    assert repr(hostile).startswith("<inspection of ⟨U+202E⟩ (500 × 16): ")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError) as caught:
        _ = ww.Rotery
    assert str(caught.value) == "module 'whatwhere' has no attribute 'Rotery'"
    assert not hasattr(ww, "__wrapped__")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("RoPE", "ww.Rotary("), ("alibi", "ww.ALiBi."), ("kv_cache", "ww.KVCache"), ("YaRN", "ww.scaling"),
        ("SlidingWindow", "ww.Where(..., window="), ("resize", "whatwhere.surgery"),
    ],
)  # fmt: skip
def test_a_name_that_people_try_is_answered_with_ours(name, instead):
    with pytest.raises(AttributeError, match="has no attribute") as caught:
        getattr(ww, name)
    assert f"Write {instead}" in str(caught.value)


def test_python_suggests_nothing_else_for_such_a_name():
    code = [sys.executable, "-c", "import whatwhere as ww; ww.RoPE"]
    shown = subprocess.run(code, capture_output=True, text=True, timeout=120, check=False).stderr
    assert shown.rstrip().endswith("has no attribute 'RoPE'.\nWrite ww.Rotary(head_dim).")


def test_no_name_that_people_try_is_a_public_one():
    names = {name.lower().replace("_", "") for name in ww.__all__}
    tried = [name for each in public_names._ELSEWHERE.values() for name in each.split()]
    assert len(tried) == len(set(tried))
    assert not names.intersection(tried)


def test_import_loads_none_of_the_heavy_packages():
    loaded = python("import sys, whatwhere; dir(whatwhere); whatwhere.errors.ShapeError; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "jaxtyping", "tokenizers", "safetensors", "matplotlib", "transformers", "rich"}
    assert not heavy & set(loaded)
    assert {name for name in loaded if name.startswith("whatwhere")} == {
        "whatwhere",
        "whatwhere.errors",
        "whatwhere.public_names",
    }


def test_the_library_loads_neither_the_comparison_nor_what_is_optional():
    findings = ["analogy", "analysis", "check", "compare", "comparison", "export", "inspect", "neighbors", "parameters"]
    names = [name for name in ww.__all__ if name not in (*findings, "show")]
    code = f"import sys, whatwhere as ww; [getattr(ww, name) for name in {names}]; print(*sys.modules)"
    loaded = set(python(code).split())
    assert "torch" in loaded
    assert not {"matplotlib", "transformers", "beartype", "hypothesis", "rich", "typer"} & loaded
    assert not {name for name in loaded if name.startswith(("whatwhere.comparison", "whatwhere.analysis"))}


def test_building_a_model_loads_little_beyond_torch():
    """The compiler and FlexAttention are for those who use them: they take longer than the rest together."""
    homes = tuple(f"whatwhere.{room}" for room in ("position", "what.embedding", "where."))
    names = [name for name in ww.__all__ if getattr(getattr(ww, name), "__module__", "").startswith(homes)]
    assert {"Where", "Rotary", "ALiBi", "T5", "InputLayer", "positions", "scheme"} <= set(names)
    code = f"""
import sys, torch
before = set(sys.modules)
import whatwhere as ww
from whatwhere import public_names
from whatwhere.where.catalogue import Scheme
[getattr(ww, name) for name in {names}]
x = ww.InputLayer(5, 8, input=ww.Learned(8, 4))(torch.tensor([[1, 2]]))
q = k = v = x[:, None]
here = ww.Where(query_key=ww.Rotary(8), score=ww.ALiBi(1)).at(ww.positions(2))
here.attention(*here.query_key(q, k), v).sum().backward()
print(*(set(sys.modules) - before))
"""
    loaded = set(python(code).split())
    roots = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
    assert {"whatwhere"} < roots <= {"whatwhere", "torch", "numpy", "jaxtyping", "wadler_lindig"}
    heavy = ("torch._dynamo", "torch._inductor", "torch.nn.attention", "whatwhere.comparison", "whatwhere.models")
    assert not {name for name in loaded if name.startswith(heavy)}


def test_the_stub_exports_the_public_names():
    stub = ast.parse(Path(ww.__file__).with_suffix(".pyi").read_text())
    imports = [(node.module, alias) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {alias.asname for _, alias in imports} | {"__version__"} == set(ww.__all__)
    for module, alias in imports:
        assert getattr(ww, alias.asname) is getattr(import_module(module), alias.name), alias.name
