"""Surgery on token tables: rows added, removed and moved, in live modules and with their optimizer.

`whatwhere.interop.surgery` does the same on files, with the same rows.
"""

from whatwhere.what.surgery.live import keep, rearrange, resize
from whatwhere.what.surgery.pursuit import pursue
from whatwhere.what.surgery.rows import DRAWS, Draw, Rearrangement

__all__ = ["DRAWS", "Draw", "Rearrangement", "keep", "pursue", "rearrange", "resize"]
