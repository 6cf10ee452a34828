"""Files of models in any format: opened by their headers, read tensor by tensor, and never trusted."""

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import Names
from whatwhere.models.checkpoint.projector import write_projector

__all__ = ["Checkpoint", "Entry", "Names", "write_projector"]
