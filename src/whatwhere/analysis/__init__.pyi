"""The public names, for type checkers and editors, and for __init__.py."""

from whatwhere.analysis.added_positions import trained_positions as trained_positions
from whatwhere.analysis.added_positions import variance_split as variance_split
from whatwhere.analysis.biases import effective_range as effective_range
from whatwhere.analysis.nearest_neighbors import Search as Search
from whatwhere.analysis.nearest_neighbors import analogy as analogy
from whatwhere.analysis.nearest_neighbors import neighbors as neighbors
from whatwhere.analysis.pca import principal_components as principal_components
from whatwhere.analysis.position_similarity import by_distance as by_distance
from whatwhere.analysis.position_similarity import fingerprint as fingerprint
from whatwhere.analysis.position_similarity import similarity as similarity
from whatwhere.analysis.position_similarity import vectors as vectors
from whatwhere.analysis.rotary import rotary_agreement as rotary_agreement
from whatwhere.analysis.rotary import rotary_spectrum as rotary_spectrum
from whatwhere.analysis.token_map import make_map as make_map
from whatwhere.analysis.walkthrough import attention_scores as attention_scores

__all__: list[str]
