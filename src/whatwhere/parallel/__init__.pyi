"""The public names, for type checkers and editors, and for __init__.py."""

from whatwhere.parallel.mesh import clip_gradient_norm as clip_gradient_norm
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

__all__: list[str]
