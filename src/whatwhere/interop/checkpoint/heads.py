"""Whether logits are read out with the token table."""

from typing import TYPE_CHECKING

import numpy as np

from whatwhere.errors import MissingExtra

if TYPE_CHECKING:
    from whatwhere.interop.checkpoint.checkpoint import Checkpoint

_ROWS = 256
_WITH_HEAD = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining")


def is_tied(checkpoint: "Checkpoint") -> bool | None:
    """Tell whether the token table is the readout too.

    A readout that is stored is compared with the table, in 256 rows spread over both: two copies of one table are tied,
    as some writers leave them. Without one, the model is tied if its configuration says so, or leaves the key out and
    names a class that has a head; a GGUF file is, for the format has no other way to say it.
    """
    table, readout = checkpoint.token_table, checkpoint.readout
    if table is None:
        return None
    if readout is not None:
        return _same(checkpoint, table, readout)
    if checkpoint.format == "gguf":
        return True
    config = checkpoint.config or {}
    said = config.get("tie_word_embeddings")
    if said is None and isinstance(inner := config.get("text_config"), dict):
        said = inner.get("tie_word_embeddings")
    if isinstance(said, bool):
        return True if said else None
    classes = config.get("architectures")
    named = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    return True if any(name.endswith(_WITH_HEAD) for name in named) else None


def _same(checkpoint: "Checkpoint", table: str, readout: str) -> bool | None:
    one, other = checkpoint.entry(table), checkpoint.entry(readout)
    if one.shape != other.shape:
        return False
    rows = np.unique(np.linspace(0, max(one.shape[0] - 1, 0), _ROWS).astype(np.int64))[: one.shape[0]]
    try:
        left, right = (checkpoint.array(name, rows) for name in (table, readout))
    except MissingExtra:
        return None
    return bool(np.array_equal(left, right, equal_nan=True))
