"""Files of models, of whatever format: opened by their headers, read tensor by tensor, and never trusted."""

from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.names import Names
from whatwhere.interop.checkpoint.projector import write_projector

__all__ = ["Checkpoint", "Entry", "Names", "write_projector"]
