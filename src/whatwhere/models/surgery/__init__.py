"""Surgery on checkpoints: add, remove, renumber, repair or cast tokens and positions; other tensors keep each byte.

Output is written atomically, and inputs are never overwritten. For modules in memory see `whatwhere.what.resizing`.
"""

from whatwhere.models.surgery.convert import convert_dtype, convert_format, damage
from whatwhere.models.surgery.repair import repair_checkpoint
from whatwhere.models.surgery.report import Changed, Report
from whatwhere.models.surgery.resize import resize_checkpoint
from whatwhere.models.surgery.retokenize import move_to_tokenizer
from whatwhere.models.surgery.rotary_layout import convert_layout
from whatwhere.models.surgery.trim import read_ids, trim_checkpoint

__all__ = [
    "Changed",
    "Report",
    "convert_dtype",
    "convert_format",
    "convert_layout",
    "damage",
    "move_to_tokenizer",
    "read_ids",
    "repair_checkpoint",
    "resize_checkpoint",
    "trim_checkpoint",
]
