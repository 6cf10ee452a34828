"""The compiled library: its age, its levels, its threads, and the numbers of sixteen bits of native.h."""

import shutil
import sys
from ctypes import c_char_p
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import whatwhere as ww
from whatwhere.kernels import native, rotary

from .running import script

BUILD = Path(__file__).parents[1] / "hatch_build.py"

compiled = pytest.mark.skipif(native.library() is None, reason="no kernels were compiled, or plain ones are asked for")


@pytest.fixture
def level(at_level, monkeypatch) -> None:
    """Rotate at every level in turn."""
    monkeypatch.setattr(rotary, "_kernel", lambda: at_level.function("rotate", c_char_p))


@compiled
@pytest.mark.skipif(not BUILD.exists(), reason="not in a checkout")
def test_the_library_is_made_of_these_sources():
    """Else another kernel is tested than the one that can be read; `python hatch_build.py` compiles it anew."""
    assert native.library().sources == script(BUILD).sources()


@compiled
def test_a_level_that_the_processor_cannot_do_gives_way_to_its_best():
    best = native.Library(native._FILE).level
    for given in native.LEVELS:
        expected = given if native.LEVELS.index(given) <= native.LEVELS.index(best) else best
        assert native.Library(native._FILE, given).level == expected


def through(x: Tensor, c: Tensor) -> Tensor:
    """Send numbers through the kernel: (x c - 0, x 0 + 0 c) for each, side by side."""
    pairs = torch.stack([x, torch.zeros_like(x)], -1).reshape(1, 1, -1, 26)  # 13 pairs: a vector of 8, and a rest
    table = c.reshape(1, 1, -1, 13)
    (turned,) = rotary.computed((pairs,), table, torch.zeros_like(table), interleaved=True)
    return turned.reshape(-1, 2)[:, 0]


def padded(x: Tensor) -> Tensor:
    """A whole number of rows."""
    return torch.cat([x, x.new_zeros(-len(x) % 13)])


def require_same(found: Tensor, wanted: Tensor) -> None:
    """Every bit, but for which NaN it is."""
    assert torch.equal(found.isnan(), wanted.isnan())
    kind = torch.int16 if found.element_size() == 2 else torch.int32
    assert torch.equal(found.nan_to_num().view(kind), wanted.nan_to_num().view(kind))


@compiled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_sixteen_bits_is_read(dtype, level):
    numbers = padded(torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype))
    found = through(numbers, torch.ones(len(numbers)))
    require_same(found, numbers.float().to(dtype))


@compiled
@pytest.mark.parametrize(("dtype", "kept"), [(torch.bfloat16, 16), (torch.float16, 19)])
def test_numbers_are_rounded_to_the_nearest_ties_to_even(dtype, kept, level):
    """All bits that decide, each with what follows: nothing, a little, just below, at, above the tie, all ones."""
    rest = 32 - kept
    tails = [0, 1, 2 ** (rest - 1) - 1, 2 ** (rest - 1), 2 ** (rest - 1) + 1, 2**rest - 1]
    heads = torch.arange(-(2 ** (kept - 1)), 2 ** (kept - 1), dtype=torch.int64) * 2**rest
    for tail in tails:
        numbers = padded((heads + tail).to(torch.int32).view(torch.float32))
        found = through(torch.ones(len(numbers), dtype=dtype), numbers)
        require_same(found, numbers.to(dtype))


@compiled
@pytest.mark.parametrize("tokens", [1, 2, 3, 64, 1000])
@pytest.mark.parametrize("own_threads", [False, True])
def test_each_piece_is_done_once_whatever_the_threads(tokens, own_threads, tmp_path, monkeypatch):
    """On PyTorch's threads, and on threads of our own where these are not found."""
    library = native.library()
    if own_threads:
        library = native.Library(Path(shutil.copy(native._FILE, tmp_path)))  # a second one, with a state of its own
        library._loaded.whatwhere_use_pool(None)
    monkeypatch.setattr(rotary, "_kernel", lambda: library.function("rotate", c_char_p))
    x, angles = torch.randn(3, 8, tokens, 64), torch.randn(1, 1, tokens, 32)
    wanted = rotary.turned(x, angles.cos(), angles.sin(), False)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = x.clone()
            rotary.overwritten(y, angles.cos(), angles.sin(), False)  # twice done would be turned twice
            assert torch.equal(y, wanted)
    finally:
        torch.set_num_threads(before)


def test_whom_kernels_serve():
    x = torch.ones(2)
    assert native.serves(x, torch.nn.Parameter(x)) == (native.library() is not None)
    with ww.plain_kernels():
        assert not native.serves(x)
    with FlopCounterMode(display=False):
        assert not native.serves(x)
    with forward_ad.dual_level():
        assert not native.serves(x)
    assert not native.serves(x, x.to("meta"))
    assert not native.serves(torch.complex(x, x).conj().imag)

    class Mine(Tensor):
        pass

    assert not native.serves(x.as_subclass(Mine))
    said = []
    torch.func.vmap(lambda row: said.append(native.serves(row)) or row)(x)
    make_fx(lambda row: said.append(native.serves(row)) or row)(x)
    y = x.clone().requires_grad_()
    y.register_hook(lambda g: said.append(native.serves(g)))
    torch.autograd.grad((2 * y).sum(), y, torch.ones(3), is_grads_batched=True)
    assert said == [False, False, False]
    assert not native.serves(x.to_sparse())


@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells of its pages on Linux")
def test_large_memory_is_asked_for_in_huge_pages():
    large = native.in_huge_pages(torch.empty(40 << 20, dtype=torch.uint8))
    middle = large.data_ptr() + large.numel() // 2
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(" ")
        if not name.endswith(":"):
            begin, _, end = name.partition("-")
            inside = int(begin, 16) <= middle < int(end, 16)
        elif inside and name == "VmFlags:":
            assert "hg" in value.split()
            return
    pytest.fail("the memory is nowhere")
