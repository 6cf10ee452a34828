"""Encoders with learned or rotary positions whose attention or token table has a form of its own.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.head_keys import BottleneckHeads, HeadRatio
from whatwhere.models.configuration.input_keys import LearnedKeys, MaskedTokenScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import ByType
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.configuration.rotary_keys import RopeDefaults, RopeKeys
from whatwhere.models.configuration.theta_keys import LearnedOrRotary
from whatwhere.models.configuration.window_keys import BothSides
from whatwhere.models.registry.bert_bart_variants import VARIANTS
from whatwhere.models.registry.bert_gpt_t5 import bert_like, roberta_like
from whatwhere.models.registry.llama import BY_TYPE, SEGMENTS, llama_like
from whatwhere.models.registry.llama_variants import rope_by_type
from whatwhere.what.token_ids import LEARNED_AFTER_PADDING

APPROXIMATE = "attention is an approximation of the softmax over all keys, which is not built"

MASKED: Mapping[str, ModelType] = {
    "convbert": bert_like(
        SEGMENTS,
        "half of each layer is a convolution, which is not built",
        readers=(LearnedKeys(),),
        defaults={"pad_token_id": 1, "embedding_size": 768},
        token_dim="embedding_size",
        causal=False,
        heads=HeadRatio(),
    ),
    "esm": bert_like(
        "token_dropout multiplies the vectors by 0.88 / (1 - masked share), and sets those of masked tokens to 0",
        readers=(LearnedOrRotary(LearnedKeys("padding", counted=True)),),
        defaults={"max_position_embeddings": 1026, "pad_token_id": LEARNED_AFTER_PADDING["esm"]},
        embedding=MaskedTokenScale(),
        segments=None,
        causal=False,
    ),
    "esmc": replace(llama_like(causal=False, max_length=2048, padding_idx=1), can_tie=False),
    "flaubert": VARIANTS["xlm"],
    "ibert": roberta_like(
        LEARNED_AFTER_PADDING["ibert"],
        readers=(LearnedKeys("padding", counted=True),),
        causal=False,
    ),
    "jina_embeddings_v3": bert_like(
        readers=(RopeKeys(sets={"": RopeDefaults(theta=20_000.0)}),),
        defaults={"max_position_embeddings": 8194, "pad_token_id": 1},
        segments=1,
        causal=False,
    ),
    "layoutlm": bert_like(
        SEGMENTS,
        "tables of the corners, the height and the width of a token's box on the page are added and not built",
        readers=(LearnedKeys(),),
        causal=False,
        unread={"max_2d_position_embeddings": ANY},
    ),
    "longformer": roberta_like(
        LEARNED_AFTER_PADDING["longformer"],
        SEGMENTS,
        "chosen tokens attend to all, by projections of their own (global attention): not built",
        readers=(LearnedKeys("padding", counted=True),),
        windows=BothSides(),
        causal=False,
    ),
    "luke": roberta_like(
        LEARNED_AFTER_PADDING["luke"],
        SEGMENTS,
        "entities have a token table and positions of their own, which are not built",
        readers=(LearnedKeys("padding", counted=True),),
        causal=False,
        can_tie=False,
    ),
    "mobilebert": bert_like(
        SEGMENTS,
        "the vectors of three neighboring tokens are joined before the projection (trigram_input): not built",
        readers=(LearnedKeys(by_tokens=False),),
        defaults={"embedding_size": 128},
        token_dim="embedding_size",
        causal=False,
        heads=BottleneckHeads(),
    ),
    "mra": bert_like(
        SEGMENTS,
        APPROXIMATE,
        readers=(LearnedKeys(2),),
        defaults={"pad_token_id": 1},
        segments=1,
        causal=False,
    ),
    "nystromformer": bert_like(
        SEGMENTS,
        APPROXIMATE,
        readers=(LearnedKeys(2),),
        defaults={"max_position_embeddings": 510, "pad_token_id": 1},
        causal=False,
    ),
    "squeezebert": bert_like(
        readers=(LearnedKeys(),),
        defaults={"embedding_size": 768},
        token_dim="embedding_size",
        causal=False,
    ),
    "tapas": bert_like(
        "seven tables of the table's cells (token_type_ids) and a norm follow the token table and are not built; "
        "positions restart in each cell (reset_position_index_per_cell)",
        readers=(LearnedKeys(),),
        defaults={"max_position_embeddings": 1024},
        segments=None,
        unread={"reset_position_index_per_cell": ANY},
    ),
    "ultrabert": llama_like(
        rope_by_type(
            ByType(3),
            full=RopeDefaults(theta=2_560_000.0, theta_key=None),
            sliding=RopeDefaults(theta_key=None),
            reads_rope_scaling=False,
        ),
        windows=replace(BY_TYPE, added=1),
        causal=False,
        sliding_window=128,
        max_length=32_768,
        padding_idx=0,
    ),
    "yoso": bert_like(
        SEGMENTS,
        APPROXIMATE,
        readers=(LearnedKeys(2),),
        defaults={"max_position_embeddings": 4096, "pad_token_id": 1},
        segments=1,
        causal=False,
    ),
}
"""Hugging Face's `model_type` -> how its configuration is read."""
