"""Multimodal and axial rotary equal Hugging Face transformers' Qwen2-VL, Qwen3-VL, Qwen3.5 and GLM-4V.

At positions whose three axes differ: with text, where they are alike, a mix-up of the axes cannot be seen.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.glm4v import modeling_glm4v as glm
from transformers.models.glm4v.configuration_glm4v import Glm4vTextConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig, Qwen2VLVisionConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig

import whatwhere as ww

from .shared import require_close

FAR = 2000
# They take angles in float32: at position p a cosine is off by p * 3e-7, of features of up to 5 standard deviations.
ANGLES = 5 * FAR * 3e-7


def scattered(batch: int = 2, tokens: int = 40) -> Tensor:
    """Sample time, height and width, (3, batch, tokens)."""
    return torch.randint(FAR, (3, batch, tokens), generator=torch.Generator().manual_seed(1))


def picture() -> Tensor:
    """Return the positions of three words, a picture of 4 by 6 patches, and two words, as Qwen2-VL counts them."""
    words = torch.arange(3).expand(3, -1)
    patches = torch.stack([torch.zeros(24).long(), torch.arange(24) // 6, torch.arange(24) % 6]) + 3
    later = (torch.arange(2) + int(patches.max()) + 1).expand(3, -1)
    return torch.cat([words, patches, later], dim=-1)[:, None]


def queries_and_keys(ids: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Sample four heads of queries and two of keys."""
    batch, tokens = ids.shape[1:]
    return torch.randn(batch, 4, tokens, head_dim), torch.randn(batch, 2, tokens, head_dim)


IDS = pytest.mark.parametrize("ids", [scattered(), picture()], ids=["scattered", "picture"])


SIZES: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
HALF = {"partial_rotary_factor": 0.5}
CASES: dict[str, tuple[Any, type, dict[str, Any], ww.MultimodalRotary]] = {
    "chunked": (
        qwen2, qwen2.Qwen2VLRotaryEmbedding, {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        ww.MultimodalRotary(128, (16, 24, 24), 1e6),
    ),
    "chunked, with YaRN": (
        qwen2, qwen2.Qwen2VLRotaryEmbedding, {**YARN, "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        ww.MultimodalRotary(128, (16, 24, 24), 1e6, scaling=ww.scaling.YaRN(4.0, 1024)),
    ),
    "interleaved": (
        qwen3, qwen3.Qwen3VLTextRotaryEmbedding, {"rope_theta": 5e6, "mrope_section": [24, 20, 20]},
        ww.MultimodalRotary(128, (24, 20, 20), 5e6, layout="interleaved"),
    ),
    "interleaved, in half of the head": (
        qwen3_5, qwen3_5.Qwen3_5TextRotaryEmbedding, {**HALF, "rope_theta": 1e7, "mrope_section": [11, 11, 10]},
        ww.MultimodalRotary(128, (11, 11, 10), 1e7, layout="interleaved", rotary_dim=64),
    ),
    "chunked in neighboring features of half of the head": (
        glm, glm.Glm4vTextRotaryEmbedding, {**HALF, "rope_theta": 1e4, "mrope_section": [8, 12, 12]},
        ww.MultimodalRotary(128, (8, 12, 12), interleaved=True, rotary_dim=64),
    ),
}  # fmt: skip
CONFIGS: dict[Any, type] = {
    qwen2: Qwen2VLTextConfig, qwen3: Qwen3VLTextConfig, qwen3_5: Qwen3_5TextConfig, glm: Glm4vTextConfig,
}  # fmt: skip


@IDS
@pytest.mark.parametrize("case", CASES)
def test_queries_and_keys(case: str, ids: Tensor) -> None:
    source, module, parameters, rope = CASES[case]
    sizes = SIZES if source is qwen2 else {**SIZES, "head_dim": 128}
    config = CONFIGS[source](**sizes, rope_parameters={"rope_type": "default", **parameters})
    q, k = queries_and_keys(ids, 128)
    theirs = source.apply_rotary_pos_emb(q, k, *module(config)(q, ids))
    require_close(rope(q, k, ids), theirs, ANGLES * rope.magnitude)


@pytest.mark.parametrize("head_dim", [32, 80])
def test_the_vision_part_of_qwen2_vl_is_axial(head_dim: int) -> None:
    config = Qwen2VLVisionConfig(embed_dim=4 * head_dim, num_heads=4)
    p = ww.Positions.grid(30, 50)
    cos, sin = qwen2.Qwen2VLVisionRotaryEmbedding(config)(torch.zeros(1), p.index.transpose(0, 1))
    q, k = torch.randn(2, p.tokens, 4, head_dim)  # (tokens, heads, head_dim) is their order
    theirs = qwen2.apply_rotary_pos_emb_vision(q, k, cos[0], sin[0])
    ours = ww.AxialRotary(head_dim)(q.transpose(0, 1)[None], k.transpose(0, 1)[None], p)
    require_close(tuple(x[0].transpose(0, 1) for x in ours), theirs, 5 * 50 * 3e-7)
