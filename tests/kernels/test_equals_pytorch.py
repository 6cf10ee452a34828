"""Every compiled kernel computes what PyTorch's operations compute, at every level of processors and by any threads."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.kernels import backend, embedding

from .cases import CASES, Case, Results

THREADS = (1, 3)

compiled = pytest.mark.skipif(not backend.COMPILED, reason="no kernels were compiled, or they are disabled")


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernel for few numbers too."""
    monkeypatch.setattr(embedding, "_WORTH", 0)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Collect the names of the kernels that are used."""
    names: set[str] = set()
    on_cpu = backend.on_cpu

    def noting(name: str, *tensors: Tensor) -> Any:
        if (kernel := on_cpu(name, *tensors)) is not None:
            names.add(name)
        return kernel

    monkeypatch.setattr(backend, "on_cpu", noting)
    return names


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_kernel_has_a_case():
    of_cpu = {name for name, kernel in backend.KERNELS.items() if kernel.arguments is not None}
    assert {case.kernel for case in CASES.values()} == of_cpu


def arguments() -> Iterator[Any]:
    """Yield the arguments of all cases, of which other types in other layouts at once are slow."""
    for name, case in CASES.items():
        for dtype, shape, layout in case.arguments():
            sizes = "x".join(map(str, shape))
            both = dtype != case.dtypes[0] and layout != next(iter(case.layouts))
            marks = [pytest.mark.slow] if both else []
            yield pytest.param(case, dtype, shape, layout, id=f"{name}-{dtype}-{sizes}-{layout}", marks=marks)


@pytest.mark.every_nth(7)
@compiled
@pytest.mark.parametrize(("case", "dtype", "shape", "layout"), list(arguments()))
@pytest.mark.usefixtures("threads")
def test_a_compiled_kernel_computes_what_pytorch_does(
    case, dtype, shape, layout, served, all_levels, monkeypatch, request
):
    request.addfinalizer(backend.compiled.cache_clear)
    for options, threads in product(case.options, THREADS):
        given = (dtype, shape, case.layouts[layout])
        torch.set_num_threads(threads)  # for both: PyTorch's own products may round otherwise on other threads
        served.clear()
        with ww.pytorch_only():
            wanted = case.run(*given, **options)
        assert not served, "PyTorch's operations are compared with"
        for library, streamed in product(all_levels, (False, True) if case.streams else (False,)):
            monkeypatch.setattr(backend, "library", lambda library=library: library)
            backend.compiled.cache_clear()
            if case.streams:
                monkeypatch.setattr(case.streams, "_STREAM", 0 if streamed else 1 << 40)
            served.clear()
            found = case.run(*given, **options)
            assert case.kernel in served, f"PyTorch's operations are compared with themselves: {options}"
            try:
                case.require(found, wanted)
            except AssertionError as error:
                error.add_note(f"with {options}, {library.level}, past the caches: {streamed}, {threads} threads")
                raise


def smallest(case: Case) -> Results:
    """Return the results of PyTorch's operations for one set of arguments that has results."""
    with ww.pytorch_only():
        for dtype, shape, layout in case.arguments():
            results = case.run(dtype, shape, case.layouts[layout], **case.options[0])
            if all(x.numel() for x in results.values()):
                return results
    pytest.fail("no arguments of this case have results")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_wrong_number_in_any_result_is_seen(case):
    """By one unit in the last place; where rounding is left open, by a thousandth."""
    wanted = smallest(case)
    case.require(wanted, wanted)
    for name, x in wanted.items():
        wrong = x.clone().contiguous()
        first = wrong.view(-1)[:1]
        if not x.is_floating_point():
            first.logical_not_() if x.dtype == torch.bool else first.add_(1)
        elif case.kernel in ("cos_sin", "adamw_rules"):
            first.add_(1e-3)
        else:
            first.copy_(torch.nextafter(first.nan_to_num(), torch.full_like(first, torch.inf)))
        with pytest.raises(AssertionError):
            case.require(wanted | {name: wrong}, wanted)
