"""Resize the vocabulary of modules in memory: rows added, removed and rearranged, with the state of their optimizer.

`whatwhere.surgery` does the same on files, with the same rows.
"""

from whatwhere.what.resizing.modules import TrainedRows, keep, rearrange, resize
from whatwhere.what.resizing.new_rows import DRAWS, Draw, Rearrangement, pursue

__all__ = ["DRAWS", "Draw", "Rearrangement", "TrainedRows", "keep", "pursue", "rearrange", "resize"]
