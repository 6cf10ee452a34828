"""Other packages' positional encodings, each as the plain function that whatwhere.testing takes.

Each is called by its own functions. For what it cannot express, such as positions that are not consecutive, its
function raises NotImplementedError: that law does not apply.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.reference import t5_bias
from whatwhere.testing import Report, check_bias, check_input_encoding, check_rotary

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is downloaded
HEAD_DIM, HEADS, T5_HEADS, DIM = 64, 12, 4, 16


@dataclass(frozen=True)
class Peer:
    """An implementation: its name and its check."""

    name: str
    check: Callable[[], Report]


def start_of(positions: Tensor) -> int:
    """Return the first of consecutive positions; raise NotImplementedError for others."""
    start = int(positions[0])
    if not torch.equal(positions, torch.arange(start, start + len(positions))):
        raise NotImplementedError("its positions come from a length and an offset")
    return start


def x_transformers() -> Any:
    """Load x-transformers, which calls torch.jit.script when imported; PyTorch 2.13 deprecates that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        from x_transformers import x_transformers as peer

    return peer


# Rotary


def own_rotary() -> Report:
    """Check our own."""
    rope = ww.Rotary(HEAD_DIM)
    queries, keys = (lambda x, positions, n=n: rope(x, x, positions)[n] for n in (0, 1))
    return check_rotary(queries, HEAD_DIM, keys=keys, module=rope)


def llama(scaling: ww.scaling.YaRN | None = None) -> Report:
    """Check transformers' Llama, plain or with YaRN."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as peer

    parameters = {"rope_type": "default", "rope_theta": 10_000.0}
    if scaling is not None:
        original = scaling.original_length
        parameters |= {"rope_type": "yarn", "factor": scaling.factor, "original_max_position_embeddings": original}
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        head_dim=HEAD_DIM,
        max_position_embeddings=16_384,
        rope_parameters=parameters,
    )
    module = peer.LlamaRotaryEmbedding(config)

    def rotate(x: Tensor, positions: Tensor, which: int = 0) -> Tensor:
        cos, sin = module(x, positions[None])
        return peer.apply_rotary_pos_emb(x, x, cos, sin)[which]

    return check_rotary(rotate, HEAD_DIM, scaling=scaling, keys=partial(rotate, which=1), module=module)


def rotary_embedding_torch() -> Report:
    """Check rotary-embedding-torch."""
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(HEAD_DIM)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return module.rotate_queries_or_keys(x, offset=start_of(positions))

    return check_rotary(rotate, HEAD_DIM, interleaved=True, keys=rotate, module=module)


def x_transformers_rotary() -> Report:
    """Check x-transformers' rotary."""
    peer = x_transformers()
    module = peer.RotaryEmbedding(HEAD_DIM)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        return peer.apply_rotary_pos_emb(x, *module(positions))

    return check_rotary(rotate, HEAD_DIM, interleaved=True, keys=rotate, module=module)


# Biases


def own_alibi() -> Report:
    """Check our own."""
    alibi = ww.ALiBi(HEADS)
    return check_bias(lambda q, k, dtype=None: alibi(q, k, dtype=dtype)[0], HEADS, expected="alibi", module=alibi)


def bloom() -> Report:
    """Check transformers' BLOOM, whose bias is made for keys alone."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    return check_bias(of_keys(build_alibi_tensor), HEADS, expected="alibi")


def falcon() -> Report:
    """Check transformers' Falcon, before it divides by the square root of head_dim."""
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    return check_bias(of_keys(build_alibi_tensor), HEADS, expected="alibi")


def of_keys(build: Callable[[Tensor, int, torch.dtype], Tensor]) -> Callable[..., Tensor]:
    """Return the function of positions behind a peer's bias of keys alone, which it builds from a mask."""

    def bias(queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        mask = torch.ones(1, int(keys.max()) + 1, dtype=torch.int64)
        return build(mask, HEADS, dtype or torch.float32)[:, :, keys].expand(-1, len(queries), -1)

    return bias


def mpt() -> Report:
    """Check transformers' MPT, whose bias is that of the last query."""
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    def bias(queries: Tensor, keys: Tensor) -> Tensor:
        return build_mpt_alibi_tensor(HEADS, int(keys.max()) + 1)[:, :, keys].expand(-1, len(queries), -1)

    return check_bias(bias, HEADS, expected="alibi")


def x_transformers_alibi() -> Report:
    """Check x-transformers' ALiBi."""
    module = x_transformers().AlibiPositionalBias(HEADS)
    return check_bias(module.forward_custom_pos, HEADS, expected="alibi", module=module)


def own_t5() -> Report:
    """Check our own."""
    t5 = ww.T5(T5_HEADS, std=1.0)
    return check_t5(lambda q, k, dtype=None: t5(q, k, causal=True, dtype=dtype)[0], t5.weight, t5)


def transformers_t5() -> Report:
    """Check transformers' T5 as a decoder decodes: one query over all keys so far."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    module = T5Attention(T5Config(num_heads=T5_HEADS, is_decoder=True), has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(module.relative_attention_bias.weight)

    def bias(queries: Tensor, keys: Tensor) -> Tensor:
        rows = [module.compute_bias(1, int(keys.max()) + 1, past_seen_tokens=p)[0] for p in queries.tolist()]
        return torch.cat(rows, dim=1)[:, :, keys]

    return check_t5(bias, module.relative_attention_bias.weight, module.relative_attention_bias)


def x_transformers_t5() -> Report:
    """Check x-transformers' T5 as a decoder decodes: one query over all keys so far, none later."""
    peer = x_transformers()
    module = peer.RelativePositionBias(scale=1, causal=True, heads=T5_HEADS)
    torch.nn.init.normal_(module.relative_attention_bias.weight)

    def bias(queries: Tensor, keys: Tensor) -> Tensor:
        later = int(keys.max()) + 1
        rows = [torch.nn.functional.pad(module(1, p + 1), (0, max(later - p - 1, 0))) for p in queries.tolist()]
        return torch.cat([row[:, :, keys] for row in rows], dim=1)

    return check_t5(bias, module.relative_attention_bias.weight, module)


def check_t5(bias: Callable[..., Tensor], weight: Tensor, module: torch.nn.Module) -> Report:
    """Check a bias of 32 buckets up to distance 128 with these weights."""
    table = weight.detach().double().numpy().copy()
    return check_bias(bias, T5_HEADS, expected=lambda q, k: t5_bias(table, q, k), module=module, max_length=65_536)


# Input encodings


def own_sinusoidal() -> Report:
    """Check our own."""
    encoding = ww.Sinusoidal(DIM)
    return check_input_encoding(lambda positions: encoding(positions)[0], DIM, module=encoding)


def positional_encodings() -> Report:
    """Check positional-encodings: it encodes the shape of its input, from which rows are taken."""
    from positional_encodings.torch_encodings import PositionalEncoding1D

    module = PositionalEncoding1D(DIM)
    return check_input_encoding(lambda p: module(torch.zeros(1, int(p.max()) + 1, DIM))[0, p], DIM, module=module)


def x_transformers_sinusoidal() -> Report:
    """Check x-transformers' sinusoid, with its scale set to 1."""
    module = x_transformers().ScaledSinusoidalEmbedding(DIM)
    torch.nn.init.ones_(module.scale)
    return check_input_encoding(lambda p: module(torch.zeros(1, len(p), DIM), pos=p), DIM, layout="half", module=module)


def marian() -> Report:
    """Check transformers' Marian: a table of 2048 rows."""
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    module = MarianSinusoidalPositionalEmbedding(2048, DIM)
    with torch.no_grad():
        module.weight.copy_(module.create_weight())
    return check_input_encoding(
        lambda p: module(torch.Size([1, len(p)]), position_ids=p), DIM, layout="half", module=module, max_length=2048
    )


def m2m_100() -> Report:
    """Check transformers' M2M100: the table that its module computes again when a text is longer."""
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    return check_input_encoding(
        lambda p: M2M100SinusoidalPositionalEmbedding.get_embedding(int(p.max()) + 1, DIM)[p],
        DIM,
        layout="tensor2tensor",
    )


ROTARY = (
    Peer("whatwhere `Rotary`", own_rotary),
    Peer("transformers `LlamaRotaryEmbedding`", llama),
    Peer("transformers Llama, YaRN", lambda: llama(ww.scaling.YaRN(factor=4.0, original_length=4096))),
    Peer("rotary-embedding-torch `RotaryEmbedding`", rotary_embedding_torch),
    Peer("x-transformers `RotaryEmbedding`", x_transformers_rotary),
)
ALIBI = (
    Peer("whatwhere `ALiBi`", own_alibi),
    Peer("transformers BLOOM", bloom),
    Peer("transformers Falcon", falcon),
    Peer("transformers MPT", mpt),
    Peer("x-transformers `AlibiPositionalBias`", x_transformers_alibi),
)
T5 = (
    Peer("whatwhere `T5`", own_t5),
    Peer("transformers `T5Attention`", transformers_t5),
    Peer("x-transformers `RelativePositionBias`", x_transformers_t5),
)
SINUSOIDAL = (
    Peer("whatwhere `Sinusoidal`", own_sinusoidal),
    Peer("positional-encodings `PositionalEncoding1D`", positional_encodings),
    Peer("x-transformers `ScaledSinusoidalEmbedding`", x_transformers_sinusoidal),
    Peer("transformers Marian", marian),
    Peer("transformers M2M100", m2m_100),
)
