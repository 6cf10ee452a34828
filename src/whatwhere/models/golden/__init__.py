"""Golden vectors: the numbers of a model's positions in a neutral form, written, and compared with those of a port."""

from whatwhere.models.golden.verify import read_golden, verify
from whatwhere.models.golden.write import Golden, LayerKind, write_golden

__all__ = ["Golden", "LayerKind", "read_golden", "verify", "write_golden"]
