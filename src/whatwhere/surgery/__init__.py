"""Surgery on checkpoints: add, remove, renumber, repair or cast tokens and positions; other tensors keep each byte.

Output is written atomically, and inputs are never overwritten. For modules in memory see `whatwhere.what.resizing`.
"""

from whatwhere.surgery.convert import convert_dtype as convert_dtype
from whatwhere.surgery.convert import convert_format as convert_format
from whatwhere.surgery.convert import convert_layout as convert_layout
from whatwhere.surgery.repair import repair_checkpoint as repair_checkpoint
from whatwhere.surgery.report import Report as Report
from whatwhere.surgery.resize import extend_checkpoint as extend_checkpoint
from whatwhere.surgery.resize import resize_checkpoint as resize_checkpoint
from whatwhere.surgery.retokenize import move_to_tokenizer as move_to_tokenizer
from whatwhere.surgery.trim import read_ids as read_ids
from whatwhere.surgery.trim import trim_checkpoint as trim_checkpoint
