"""Tables, positions and attention on many processes."""

from typing import TYPE_CHECKING

from whatwhere.public_names import loader

if TYPE_CHECKING:
    from whatwhere.parallel.gradient_norm import clip_gradient_norm as clip_gradient_norm
    from whatwhere.parallel.mesh import gathered as gathered
    from whatwhere.parallel.mesh import replicated as replicated
    from whatwhere.parallel.mesh import summed as summed
    from whatwhere.parallel.ring import ring_attention as ring_attention
    from whatwhere.parallel.row_owners import RowOwners as RowOwners
    from whatwhere.parallel.row_owners import deal_rows as deal_rows
    from whatwhere.parallel.vocabulary_shards import VocabularyParallel as VocabularyParallel
    from whatwhere.parallel.vocabulary_shards import VocabularyShards as VocabularyShards
    from whatwhere.parallel.vocabulary_shards import shard_vocabulary as shard_vocabulary
    from whatwhere.parallel.vocabulary_shards import vocabulary_cross_entropy as vocabulary_cross_entropy
    from whatwhere.where.binding import heads_of as heads_of

# Loaded on first use.
_HOME = {
    "RowOwners": "row_owners",
    "clip_gradient_norm": "gradient_norm",
    "deal_rows": "row_owners",
    "gathered": "mesh",
    "VocabularyParallel": "vocabulary_shards",
    "VocabularyShards": "vocabulary_shards",
    "heads_of": "whatwhere.where.binding",
    "replicated": "mesh",
    "ring_attention": "ring",
    "shard_vocabulary": "vocabulary_shards",
    "summed": "mesh",
    "vocabulary_cross_entropy": "vocabulary_shards",
}

__all__ = [*_HOME]

if not TYPE_CHECKING:  # else a misspelt name would be Any
    __getattr__ = loader(__name__, _HOME)
