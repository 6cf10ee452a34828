"""Analysis of token tables and positional encodings: functions of arrays with typed results."""

from typing import TYPE_CHECKING

from whatwhere.public_names import loader

if TYPE_CHECKING:
    from whatwhere.analysis.analogies import analogy as analogy
    from whatwhere.analysis.bias_range import effective_range as effective_range
    from whatwhere.analysis.input_variance import variance_split as variance_split
    from whatwhere.analysis.nearest_neighbors import Search as Search
    from whatwhere.analysis.nearest_neighbors import neighbors as neighbors
    from whatwhere.analysis.pca import principal_components as principal_components
    from whatwhere.analysis.position_similarity import by_distance as by_distance
    from whatwhere.analysis.position_similarity import fingerprint as fingerprint
    from whatwhere.analysis.position_similarity import similarity as similarity
    from whatwhere.analysis.position_similarity import vectors as vectors
    from whatwhere.analysis.position_table import trained_positions as trained_positions
    from whatwhere.analysis.rotary_frequencies import rotary_agreement as rotary_agreement
    from whatwhere.analysis.rotary_frequencies import rotary_spectrum as rotary_spectrum
    from whatwhere.analysis.token_map import make_map as make_map
    from whatwhere.analysis.walkthrough import attention_scores as attention_scores

# Loaded on first use: reading checkpoints does not need torch.
_HOME = {
    "Search": "nearest_neighbors",
    "analogy": "analogies",
    "attention_scores": "walkthrough",
    "by_distance": "position_similarity",
    "effective_range": "bias_range",
    "fingerprint": "position_similarity",
    "make_map": "token_map",
    "neighbors": "nearest_neighbors",
    "principal_components": "pca",
    "rotary_agreement": "rotary_frequencies",
    "rotary_spectrum": "rotary_frequencies",
    "similarity": "position_similarity",
    "trained_positions": "position_table",
    "variance_split": "input_variance",
    "vectors": "position_similarity",
}

__all__ = [*_HOME]

if not TYPE_CHECKING:  # else a misspelt name would be Any
    __getattr__ = loader(__name__, _HOME)
