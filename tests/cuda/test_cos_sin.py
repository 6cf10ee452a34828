"""Tables of cosines and sines on a GPU: the bits of the compiled kernel for the CPU, exact to float32."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from whatwhere.kernels import backend
from whatwhere.kernels import cos_sin as kernel
from whatwhere.where.frequencies import inverse_frequencies, rotary_tables, sinusoid

from ..kernels.cases import require_near_tables
from ..kernels.inputs import ids_below

gpu = pytest.importorskip("whatwhere.kernels.cuda.cos_sin", reason="needs Triton, which is not installed here")

FREQUENCIES = inverse_frequencies(40)
OF_TOKENS = FREQUENCIES * torch.rand(3, 7, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CASES: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    **{
        f"from {start}": lambda start=start: (torch.arange(start, start + 70)[None, None], FREQUENCIES)
        for start in (0, 1_048_500, 2**30 - 100, -150)
    },
    "magnitude": lambda: (torch.arange(9)[None, None], FREQUENCIES, 1.25),
    "reversed": lambda: (torch.arange(9)[None, None], -FREQUENCIES),
    "one pair": lambda: (torch.arange(9)[None, None], FREQUENCIES[:1]),
    "strided": lambda: (torch.arange(90).view(1, 10, 9).mT, torch.stack([FREQUENCIES, FREQUENCIES], -1)[:, 0]),
    "one row for all": lambda: (torch.arange(9).expand(1, 3, 9), FREQUENCIES),
    "of each token": lambda: (torch.arange(21).view(1, 3, 7), OF_TOKENS),
    "of each token, one row": lambda: (torch.arange(7).view(1, 1, 7), OF_TOKENS),
    "of each sequence": lambda: (torch.arange(21).view(1, 3, 7), OF_TOKENS[:, :1]),
    "axes": lambda: (ids_below(10_000, 3, 2, 9), FREQUENCIES, 1.0, (2, 1, 0, 0) * 5),
    "no tokens": lambda: (torch.zeros(1, 2, 0, dtype=torch.int64), FREQUENCIES),
    "no sequences": lambda: (torch.zeros(1, 0, 3, dtype=torch.int64), FREQUENCIES),
    "many pairs": lambda: (torch.arange(3)[None, None], inverse_frequencies(2 * 150)),
}


@pytest.fixture
def on_gpu(target: torch.device, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Tensor, ...]]:
    """Compute by the kernel for a GPU, and return results on the CPU; the second argument moves to the device."""

    def run(function: Callable[..., tuple[Tensor, ...]], *given: object) -> tuple[Tensor, ...]:
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "_kernel", lambda *tensors: gpu.cos_sin)
            patch.setattr(Tensor, "is_cuda", property(lambda x: True))
            results = function(*(x.to(target) if isinstance(x, Tensor) else x for x in given))
        return tuple(x.cpu() for x in results)

    return run


def tables(*given: object) -> tuple[Tensor, Tensor]:
    made = kernel.tables(*given)
    assert made is not None
    return made


@pytest.mark.every_nth(3)
@pytest.mark.skipif(not backend.COMPILED, reason="no kernels were compiled, or they are disabled")
@pytest.mark.parametrize("case", CASES)
def test_tables_have_the_bits_of_the_cpu(case, on_gpu, equal):
    for one, other in zip(on_gpu(tables, *CASES[case]()), tables(*CASES[case]()), strict=True):
        equal(one, other)


@pytest.mark.parametrize("start", [2**33, 2**60])
def test_far_positions(start, on_gpu):
    """Angles whose multiple of pi / 2 has too many bits are left to the functions of the device."""
    given = torch.arange(start, start + 9)[None, None], FREQUENCIES
    result, wanted = (dict(enumerate(made)) for made in (on_gpu(tables, *given), rotary_tables(*given)))
    require_near_tables(result, wanted, float(start + 9))


@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 0)])
@pytest.mark.parametrize("dim", [4, 26, 320])
def test_sinusoids(dim, shape, layout, on_gpu):
    index = ids_below(100_000, *shape)
    (result,) = on_gpu(lambda index: (sinusoid(index, dim, layout=layout),), index)
    require_near_tables({0: result}, {0: sinusoid(index, dim, layout=layout)}, 0.0 if backend.COMPILED else 1e5)
