"""Short words for families, of which the tables beside are made."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whatwhere.interop.huggingface.family import LLAMA, EmbeddingRule, Family, ScaleRule
from whatwhere.interop.huggingface.inputs import Always
from whatwhere.interop.huggingface.layers import LayerRule
from whatwhere.interop.huggingface.rotary import RopeKeys, RopeSet, Turn
from whatwhere.interop.huggingface.scales import Latent, PreAttentionScalar

NEIGHBORS = Turn(interleaved=True)
PARTIAL = Turn(whole=False)
PARTIAL_NEIGHBORS = Turn(interleaved=True, whole=False)
LATENT_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim")
EMBEDDING_NORM = "a norm of the token vectors follows the token table and is not built"
SENTENCE_KINDS = "a table of sentence kinds (token_type_ids) and a norm follow the token table and are not built"
QUERY_KEY_NORM_AFTER = "queries and keys are normed after they were turned"

_WORDS = {name: keys[0] for name, keys in LLAMA.items()}


def family(
    rope: RopeKeys | None = None,
    *,
    scale: ScaleRule | None = None,
    embedding: EmbeddingRule | None = None,
    notes: tuple[str, ...] = (),
    beside: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> Family:
    """Make a family whose keys go by Llama's names.

    Args:
        rope: how it turns; None is as Llama does.
        scale, embedding, notes, beside: as in Family.
        defaults: by our words, such as key_heads, or by keys.
    """
    named = {_WORDS.get(word, word): value for word, value in defaults.items()}
    defaults = {"tie_word_embeddings": False, **named}
    made = Family((rope or RopeKeys(),), defaults=defaults, notes=notes, beside=beside or {})
    if scale is not None:
        made = replace(made, scale=scale)
    return made if embedding is None else replace(made, embedding=embedding)


def turning(
    theta: float = 10_000.0,
    turn: Turn | None = None,
    layers: LayerRule | None = None,
    share: float = 1.0,
    parameters: Mapping[str, Any] | None = None,
    **others: Any,
) -> RopeKeys:
    """Make a reader of one set of rope parameters."""
    rope = RopeKeys(turn or Turn(), {"": RopeSet(theta=theta, share=share, parameters=parameters or {})}, **others)
    return rope if layers is None else replace(rope, layers=layers)


def by_kind(layers: LayerRule, full: RopeSet, sliding: RopeSet) -> RopeKeys:
    """Make a reader of two sets, for layers that look at everything and layers with a window."""
    return RopeKeys(sets={"sliding_attention": sliding, "full_attention": full}, layers=layers)


def latent(turn: Turn, **others: Any) -> Family:
    """Make a family of latent attention: heads keep the features that turn apart."""
    made = family(turning(turn=turn, **others.pop("rope", {})), scale=Latent(), **others)
    return replace(made, head_dim_parts=LATENT_SIZES)


GEMMA2: dict[str, Any] = {
    "scale": PreAttentionScalar(),
    "embedding": Always(rounded=True),
    "key_heads": 4,
    "head_dim": 256,
    "padding_id": 0,
    "tied": True,
}
