"""Which kernel computes; the compiled library: its age, levels, threads, and the numbers of sixteen bits of
native.h."""

import shutil
import threading
from ctypes import c_char_p
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import whatwhere as ww
from whatwhere.kernels import backend, rotary

from ..running import script

BUILD = Path(__file__).parents[2] / "hatch_build.py"

compiled = pytest.mark.skipif(not backend.COMPILED, reason="no kernels were compiled, or they are disabled")


@compiled
@pytest.mark.skipif(not BUILD.exists(), reason="not in a checkout")
def test_the_library_is_made_of_these_sources():
    """Else another kernel is tested than the one that can be read; `python hatch_build.py` compiles it anew."""
    assert backend.library().sources == script(BUILD).sources()


@compiled
def test_an_unsupported_level_falls_back_to_the_best_supported():
    best = backend.Library(backend.FILE).level
    for given in backend.LEVELS:
        expected = given if backend.LEVELS.index(given) <= backend.LEVELS.index(best) else best
        assert backend.Library(backend.FILE, given).level == expected


def through(x: Tensor, c: Tensor) -> Tensor:
    """Send numbers through the kernel: (x c - 0, x 0 + 0 c) for each, side by side."""
    pairs = torch.stack([x, torch.zeros_like(x)], -1).reshape(1, 1, -1, 26)  # 13 pairs: a vector of 8, and a rest
    table = c.reshape(1, 1, -1, 13)
    (rotated,) = rotary.run_kernel(
        backend.compiled("rotate"), (pairs,), table, torch.zeros_like(table), interleaved=True
    )
    return rotated.reshape(-1, 2)[:, 0]


def padded(x: Tensor) -> Tensor:
    """A whole number of rows."""
    return torch.cat([x, x.new_zeros(-len(x) % 13)])


def require_same(result: Tensor, wanted: Tensor) -> None:
    """Every bit, but for which NaN it is."""
    assert torch.equal(result.isnan(), wanted.isnan())
    kind = torch.int16 if result.element_size() == 2 else torch.int32
    assert torch.equal(result.nan_to_num().view(kind), wanted.nan_to_num().view(kind))


@compiled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_sixteen_bits_is_read(dtype, level):
    numbers = padded(torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype))
    result = through(numbers, torch.ones(len(numbers)))
    require_same(result, numbers.float().to(dtype))


@compiled
@pytest.mark.parametrize(("dtype", "kept"), [(torch.bfloat16, 16), (torch.float16, 19)])
def test_numbers_are_rounded_to_the_nearest_ties_to_even(dtype, kept, level):
    """All bits that decide, each with what follows: nothing, a little, just below, at, above the tie, all ones."""
    rest = 32 - kept
    tails = [0, 1, 2 ** (rest - 1) - 1, 2 ** (rest - 1), 2 ** (rest - 1) + 1, 2**rest - 1]
    heads = torch.arange(-(2 ** (kept - 1)), 2 ** (kept - 1), dtype=torch.int64) * 2**rest
    for tail in tails:
        numbers = padded((heads + tail).to(torch.int32).view(torch.float32))
        result = through(torch.ones(len(numbers), dtype=dtype), numbers)
        require_same(result, numbers.to(dtype))


@compiled
@pytest.mark.parametrize("tokens", [1, 2, 3, 64, 1000])
@pytest.mark.parametrize("own_threads", [False, True])
def test_each_part_is_done_once_by_any_number_of_threads(tokens, own_threads, tmp_path, monkeypatch):
    """On PyTorch's threads, and on threads of our own where these are not found."""
    loaded = backend.library()
    if own_threads:
        loaded = backend.Library(Path(shutil.copy(backend.FILE, tmp_path)))  # a second one, with a state of its own
        loaded._loaded.whatwhere_use_pool(None)
    kernel = loaded.function("rotate", c_char_p)
    x, angles = torch.randn(3, 8, tokens, 64), torch.randn(1, 1, tokens, 32)
    wanted = rotary.rotate_in_pytorch(x, angles.cos(), angles.sin(), False)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = x.clone()
            rotary.run_kernel(
                kernel, (y,), angles.cos(), angles.sin(), False, in_place=True
            )  # twice done would rotate twice
            assert torch.equal(y, wanted)
    finally:
        torch.set_num_threads(before)


def serves(*tensors: Tensor) -> bool:
    return backend.on_cpu("rotate", *tensors) is not None


def test_a_backward_pass_in_another_thread_has_no_kernels_either():
    """Autograd has a thread of its own for each GPU, which knows no variables of the thread that called it."""
    seen = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda slope: seen.append(backend.disabled()))
    with ww.pytorch_only():
        thread = threading.Thread(target=x.sum().backward)
        thread.start()
        thread.join()
    x.sum().backward()
    assert seen == [True, backend.requested_kernels() == "pytorch"]


def test_which_tensors_kernels_support():
    x = torch.ones(2)
    assert serves(x, torch.nn.Parameter(x)) == backend.COMPILED
    with ww.pytorch_only():
        assert not serves(x)
    with FlopCounterMode(display=False):
        assert not serves(x)
    with forward_ad.dual_level():
        assert not serves(x)
    assert not serves(x, x.to("meta"))
    assert not serves(torch.complex(x, x).conj().imag)

    class Mine(Tensor):
        pass

    assert not serves(x.as_subclass(Mine))
    said = []
    torch.func.vmap(lambda row: said.append(serves(row)) or row)(x)
    make_fx(lambda row: said.append(serves(row)) or row)(x)
    y = x.clone().requires_grad_()
    y.register_hook(lambda g: said.append(serves(g)))
    torch.autograd.grad((2 * y).sum(), y, torch.ones(3), is_grads_batched=True)
    assert said == [False, False, False]
    assert not serves(x.to_sparse())
