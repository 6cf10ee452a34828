"""What the kernels compile to, which needs no GPU: wide accesses, separate rounding, nothing spilled."""

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from whatwhere import KERPLE, T5, Positions, ScoreBias, Where, Window
from whatwhere.kernels.embedding import Rows
from whatwhere.kernels.row_adamw import Moments, Step

triton = pytest.importorskip("triton", reason="needs Triton, which is not installed here")
compiler, target, nvidia = (
    import_module(f"triton.{name}") for name in ("compiler", "backends.compiler", "backends.nvidia.compiler")
)
attention, embedding, rotary, cos_sin, row_adamw = (
    import_module(f"whatwhere.kernels.cuda.{name}")
    for name in ("attention", "embedding", "rotary", "cos_sin", "row_adamw")
)

POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.float16: "*fp16",
    torch.int64: "*i64", torch.int32: "*i32",
}  # fmt: skip
SHARED_MEMORY = {80: 99 << 10, 90: 227 << 10}
"""Bytes that a program may have: 8.6 and 8.9, which run code of 8.0, have the least."""
OPTIONS = ("num_warps", "num_stages", "debug", "sanitize_overflow")
HALVES = [torch.bfloat16, torch.float32]


class Calls:
    """Stand in for `launch`, and keep what it was given."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, kernel: Any, grid: tuple[int, ...], device: torch.device, *given: Any, **constants: Any) -> None:
        self.kept.append((kernel, grid, given, constants))


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """No kernel runs, and none is taken from an earlier run's cache."""
    seen = Calls()
    for module in (rotary, cos_sin, embedding, row_adamw, attention):
        monkeypatch.setattr(module, "launch", seen)
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        yield seen


def compiled(kernel: Any, given: tuple[Any, ...], constants: dict[str, Any], capability: int) -> Any:
    """Compile for a GPU as Triton would for these arguments: it notes what is 1, and what 16 divides."""
    signature, fixed, divided = {}, {}, {}
    for n, (name, value) in enumerate(zip(kernel.arg_names, given, strict=False)):
        if isinstance(value, float):
            signature[name] = "fp32"
        elif value is None or (isinstance(value, int) and value == 1):
            signature[name], fixed[(n,)] = "constexpr", value
        else:
            address = value.data_ptr() if isinstance(value, Tensor) else value
            signature[name] = POINTERS[value.dtype] if isinstance(value, Tensor) else "i32"
            if address % 16 == 0:
                divided[(n,)] = [["tt.divisibility", 16]]
    for name, value in constants.items():
        if name not in OPTIONS:
            signature[name], fixed[(kernel.arg_names.index(name),)] = "constexpr", value
    options = {name: value for name, value in constants.items() if name in OPTIONS}
    source = compiler.ASTSource(kernel, signature, fixed, divided)
    return triton.compile(source, target.GPUTarget("cuda", capability, 32), {**options, "enable_fp_fusion": False})


def require_no_spill(made: Any, folder: Any) -> None:
    """Raise unless what Triton compiled has all numbers in registers, and its shared memory fits."""
    file = folder / "kernel.cubin"
    file.write_bytes(made.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(file)]
    usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:0 .*LOCAL:0 ", usage)
    assert found, usage
    assert int(found[1]) <= 255
    assert made.metadata.shared <= SHARED_MEMORY[made.metadata.target.arch]


def require_fits(made: Any, folder: Any) -> None:
    """Raise unless the assembler finds registers and shared memory for it on this GPU, and spills none."""
    file = folder / "kernel.ptx"
    file.write_text(made.asm["ptx"])
    (architecture,) = re.findall(r"^\.target (\w+)", made.asm["ptx"], re.MULTILINE)
    capability = made.metadata.target.arch
    assert architecture.startswith(f"sm_{capability}")
    command = [nvidia.get_ptxas(capability).path, "-v", "--fmad=false", f"--gpu-name={architecture}", str(file)]
    command += ["-o", "/dev/null"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    assert registers, said
    assert max(registers) <= 255
    assert set(re.findall(r"(\d+) bytes spill", said)) == {"0"}, said
    fixed = sum(int(number) for number in re.findall(r"(\d+) bytes smem", said))
    assert fixed + made.metadata.shared <= SHARED_MEMORY[capability]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", HALVES)
def test_rows_are_read_and_written_16_bytes_at_once(dtype, capability, calls, tmp_path):
    """By the rotation and the lookup; their products and sums are rounded separately, as PyTorch's, and ids checked."""
    tensors = [torch.empty(2, 16, count, 128, dtype=dtype).transpose(1, 2) for count in (32, 32)]
    rotary.rotate(tensors, tensors, *torch.empty(2, 1, 1, 16, 64), False)
    weight, ids = torch.empty(100, 768, dtype=dtype), torch.zeros(2, 16, dtype=torch.int64)
    embedding.embed(weight, ids, 2.0, Rows(torch.empty(1, 16, 768, dtype=dtype)))
    embedding.embed(weight, ids, 2.0, Rows(torch.empty(64, 768, dtype=dtype), ids[:1]))
    assert [grid for _, grid, _, _ in calls.kept] == [(2 * 16, 1, 1), (2 * 16 // 2, 1), (2 * 16 // 2, 1)]
    for (kernel, _, given, constants), checks in zip(calls.kept, (0, 1, 2), strict=True):
        made = compiled(kernel, given, constants, capability)
        reads, writes = (set(re.findall(rf"\b{way}\.global\.([.\w]*)", made.asm["ptx"])) for way in ("ld", "st"))
        assert reads <= {"v4.b32", "v2.b64", "v2.b32", "b64"}
        assert writes == {"v4.b32"}
        assert not re.search(r"\bfma\.rn\.f(?:32|64)", made.asm["ptx"])
        assert len(re.findall(r"call\S*\s+__assertfail", made.asm["ptx"])) == checks
        require_no_spill(made, tmp_path)


def variants() -> Iterator[Any]:
    """Yield calls that together compile each kernel for every dtype, with and without what it may leave out."""
    for dtype, (dim, pairs), interleaved in product(
        (*HALVES, torch.float16, torch.float64), ((64, 20), (80, 40), (512, 256)), (False, True)
    ):
        tensors = [torch.empty(2, 16, n, dim, dtype=dtype).transpose(1, 2) for n in (32, 4)][: 1 + (dim != 80)]
        given = tensors, [y.contiguous() for y in tensors], *torch.empty(2, 2, 1, 16, pairs), interleaved, True
        few = dim == 64 or (dim, dtype) == (512, torch.float64)
        yield of("rotary", dtype, dim, interleaved, run=partial(rotary.rotate, *given), slow=not few)
    ids, wide = torch.zeros(2, 16, dtype=torch.int64), torch.ones(2, 16, 64, dtype=torch.float64)
    for index, frequencies, axes, interleaved in (
        (ids[None], wide[0, 0], None, False),
        (ids[None], wide, None, True),
        (ids.expand(3, 2, 16), wide[0, 0], torch.zeros(64, dtype=torch.int64), False),
    ):
        given = index, frequencies, *torch.empty(2, 32, 128), 128, 1.25, axes, interleaved
        yield of("tables", interleaved, axes is None, run=partial(cos_sin.cos_sin, *given))
    for dtype, dim in product((*HALVES, torch.float16), (768, 4096)):
        weight = torch.empty(100, dim, dtype=dtype)
        indexed = Rows(torch.empty(64, dim), ids.mT.contiguous().mT, 2)
        for n, rows in enumerate((None, indexed, Rows(torch.empty(2, 16, dim, dtype=dtype)))):
            run = partial(embedding.embed, weight, ids.int().mT.contiguous().mT if n else ids, 2.0, rows)
            yield of("embed", dtype, dim, n, run=run, slow=(dtype == torch.float16) == (dim == 768))


def of(*names: object, run: Any, slow: bool = False) -> Any:
    return pytest.param(run, id=" ".join(map(str, names)), marks=[pytest.mark.slow] if slow else [])


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("run", list(variants()))
def test_every_variant_fits(run, calls, tmp_path):
    """No register is spilled, on either GPU; offsets of numbers have 64 bits, and so has all that they are made of."""
    run()
    ((kernel, _, given, constants),) = calls.kept
    for capability in (80, 90):
        made = compiled(kernel, given, constants, capability)
        require_fits(made, tmp_path)
    offsets = re.findall(r"tt\.addptr .*, (?:tensor<[x\d]*x)?(i\d+)", made.asm["ttir"])
    assert offsets
    assert set(offsets) == {"i64"}


@pytest.mark.parametrize("dtype", HALVES)
def test_a_step_of_adamw_fits_and_is_rounded_as_that_of_pytorch(dtype, calls, tmp_path):
    table, rows, gradient = Moments.of(torch.zeros(64, 1024, dtype=dtype)), torch.arange(8), torch.zeros(8, 1024)
    row_adamw.adamw_catch_up(table, rows, torch.zeros(64, 9, dtype=torch.float64), 3, 5, 1e-8, 21.0)
    row_adamw.adamw_update(table, rows, gradient.to(dtype), None, Step(3, 1e-3, (0.9, 0.98), 1e-8, 0.1))
    row_adamw.sum_by_row(gradient.to(dtype), rows, rows)
    for (kernel, _, given, constants), capability in product(calls.kept, (80, 90)):
        made = compiled(kernel, given, constants, capability)
        require_fits(made, tmp_path)
        assert set(re.findall(r"\b(?:div|sqrt)\.\w+\.f32", made.asm["ptx"])) <= {"sqrt.rn.f32", "div.rn.f32"}
        assert not re.search(r"\bfma\.rn\.f(?:32|64)", made.asm["ptx"])


def attention_kernels(score: ScoreBias, window: Window | None, head_dim: int, dtype: torch.dtype) -> None:
    """Launch the three kernels, documents and learned numbers included."""
    p = Positions.packed([100, 156])
    mask, bias = Where(score, window=window).at(p)._cache.flash(score, True, window)
    q, k = torch.empty(2, 8, 256, head_dim, dtype=dtype), torch.empty(2, 2, 256, head_dim, dtype=dtype)
    numbers = bias.numbers.detach().float()
    attention.flash_attention(q, k, k, mask, bias, numbers, 1.0, torch.zeros(8), dtype)
    logs = torch.empty(2, 8, 256)
    attention.flash_attention_backward(q, k, k, q, mask, bias, numbers, 1.0, logs, logs, True)


@pytest.mark.parametrize("capability", [pytest.param(80, marks=pytest.mark.slow), 90])
@pytest.mark.parametrize(
    ("head_dim", "score", "window"),
    [
        (64, lambda: T5(8, scale=None), Window(64, first=2)),
        pytest.param(128, lambda: T5(8, scale=None), Window(64, first=2), marks=pytest.mark.slow),
        pytest.param(96, lambda: T5(8, scale=None), None, marks=pytest.mark.slow),
        pytest.param(256, lambda: T5(8, scale=None), Window(64, chunked=True), marks=pytest.mark.slow),
        pytest.param(128, lambda: KERPLE(8, kind="power"), None, marks=pytest.mark.slow),
    ],
)
def test_attention(head_dim, score, window, capability, calls, tmp_path):
    """Everything stays in registers and in the shared memory of a program, and nothing is added atomically."""
    attention_kernels(score(), window, head_dim, torch.bfloat16)
    assert [len(grid) for _, grid, _, _ in calls.kept] == [1, 1, 1]
    for kernel, _, given, constants in calls.kept:
        made = compiled(kernel, given, constants, capability)
        code = made.asm["ptx"]
        assert not re.search(r"\b(?:atom|red)\.", code)
        assert re.search(r"\b(?:mma|wgmma)\b", code)
        require_no_spill(made, tmp_path)
