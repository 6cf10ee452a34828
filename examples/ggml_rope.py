"""ggml_rope_ext on the CPU through ctypes, of the libraries that llama-cpp-python builds."""

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np


class _Settings(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("allocate_nothing", ctypes.c_bool))


def ggml_rope(
    mode: int, theta: float, factor: float | None, original_length: int, beta_fast: float, beta_slow: float
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return ggml's rotation as a function of NumPy arrays.

    Args:
        mode: 0 for interleaved pairs, 2 for halves.
        theta: of the rotation.
        factor: of YaRN; None for no scaling.
        original_length: of YaRN.
        beta_fast: of YaRN.
        beta_slow: of YaRN.

    Raises:
        ImportError: If llama_cpp is not installed.
    """
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise ImportError("llama_cpp is not installed")
    folder = Path(found.origin).parent / "lib"
    base, cpu = (ctypes.CDLL(str(folder / f"libggml-{n}.so"), ctypes.RTLD_GLOBAL) for n in ("base", "cpu"))
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    for name in ("ggml_init", "ggml_new_tensor_4d", "ggml_new_tensor_1d", "ggml_get_data", "ggml_new_graph"):
        getattr(base, name).restype = pointer
    base.ggml_init.argtypes = [_Settings]
    base.ggml_new_tensor_4d.argtypes = [pointer, whole, *[ctypes.c_int64] * 4]
    base.ggml_new_tensor_1d.argtypes = [pointer, whole, ctypes.c_int64]
    base.ggml_rope_ext.argtypes = [*[pointer] * 4, *[whole] * 3, *[real] * 6]
    base.ggml_rope_ext.restype = pointer
    base.ggml_get_data.argtypes = base.ggml_new_graph.argtypes = base.ggml_free.argtypes = [pointer]
    base.ggml_build_forward_expand.argtypes = [pointer, pointer]
    cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, whole]
    scaled = factor is not None
    numbers = (theta, 1 / factor if scaled else 1.0, float(scaled), 1.0, beta_fast, beta_slow)

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        if x.dtype != np.float32:
            raise NotImplementedError("float32 alone is asked")
        rows = np.ascontiguousarray(x.swapaxes(1, 2))
        at = np.ascontiguousarray(positions, np.int32)
        context = base.ggml_init(_Settings(4 * rows.nbytes + 2**22, None, False))
        inputs = base.ggml_new_tensor_4d(context, 0, *reversed(rows.shape))
        where = base.ggml_new_tensor_1d(context, 26, len(at))
        ctypes.memmove(base.ggml_get_data(inputs), rows.ctypes.data, rows.nbytes)
        ctypes.memmove(base.ggml_get_data(where), at.ctypes.data, at.nbytes)
        result = base.ggml_rope_ext(context, inputs, where, None, x.shape[-1], mode, original_length, *numbers)
        graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, result)
        status = cpu.ggml_graph_compute_with_ctx(context, graph, 1)
        out = np.empty_like(rows)
        ctypes.memmove(out.ctypes.data, base.ggml_get_data(result), out.nbytes)
        base.ggml_free(context)
        if status:
            raise RuntimeError(f"ggml ended with status {status}")
        return out.swapaxes(1, 2)

    return rotate
