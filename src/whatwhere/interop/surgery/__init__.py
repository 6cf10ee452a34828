"""Surgery on files: tokens and positions added, removed, moved, cast; other tensors copied byte for byte.

What is written appears whole or not at all, and no input is ever overwritten. Live modules: `whatwhere.what.surgery`.
"""

from whatwhere.interop.surgery.converting import convert_dtype, convert_layout, damage
from whatwhere.interop.surgery.formats import convert_format
from whatwhere.interop.surgery.moving import move_to_tokenizer
from whatwhere.interop.surgery.report import Changed, Report
from whatwhere.interop.surgery.resizing import resize_checkpoint
from whatwhere.interop.surgery.trimming import read_ids, trim_checkpoint

__all__ = [
    "Changed",
    "Report",
    "convert_dtype",
    "convert_format",
    "convert_layout",
    "damage",
    "move_to_tokenizer",
    "read_ids",
    "resize_checkpoint",
    "trim_checkpoint",
]
