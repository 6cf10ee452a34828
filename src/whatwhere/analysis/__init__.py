from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whatwhere.analysis.nearest_neighbors import Search as Search
    from whatwhere.analysis.nearest_neighbors import neighbors as neighbors
    from whatwhere.analysis.position_similarity import by_distance as by_distance
    from whatwhere.analysis.position_similarity import fingerprint as fingerprint
    from whatwhere.analysis.position_similarity import similarity as similarity
    from whatwhere.analysis.position_similarity import vectors as vectors
    from whatwhere.analysis.word_benchmarks import analogy as analogy

# Loaded when first used: what reads checkpoints needs no torch.
_HOME = {
    "Search": "nearest_neighbors",
    "analogy": "word_benchmarks",
    "by_distance": "position_similarity",
    "fingerprint": "position_similarity",
    "neighbors": "nearest_neighbors",
    "similarity": "position_similarity",
    "vectors": "position_similarity",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    """Return a public name, loaded from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module 'whatwhere.analysis' has no attribute {name!r}")
    value = getattr(import_module(f"whatwhere.analysis.{_HOME[name]}"), name)
    globals()[name] = value
    return value
