"""Where the tokens of a source stand: as the model says, as a run of a comparison had it, or by a fresh scheme."""

from whatwhere.errors import SettingError
from whatwhere.inspection.subject import Absent
from whatwhere.studio.building import MODEL as MODEL
from whatwhere.studio.building import TOKENS, heads_of, of_model, of_run
from whatwhere.studio.building import Standing as Standing
from whatwhere.studio.examined import subject as subject
from whatwhere.studio.session import Source

USUAL_DIM = 16


def has_own(source: Source) -> bool:
    """Return whether the file itself says where tokens stand, by headers alone."""
    named = source.checkpoint.config is not None or source.checkpoint.position_table is not None
    return source.kind == "checkpoint" and named


def runs(source: Source) -> list[str]:
    """Name the runs of a comparison, as their tensors begin: "rotary-0"."""
    if source.kind != "results":
        return []
    return [name.removesuffix(TOKENS) for name in source.checkpoint.tensors if name.endswith(TOKENS)]


def token_tensor(source: Source, name: str) -> str:
    """Return the name of the token table that goes with a standing: a run has its own."""
    if name in runs(source):
        return name + TOKENS
    if source.checkpoint.token_table is None:
        raise SettingError("no tensor of this file is known as its token table: take the words of the text instead.")
    return source.checkpoint.token_table


def token_factor(source: Source) -> float:
    """Return what the model multiplies token vectors by; 1 where nothing says so."""
    if source.kind != "checkpoint" or source.checkpoint.config is None or not source.tables:
        return 1.0
    try:
        scale = subject(source).description.embedding_scale
    except Absent:
        return 1.0
    if scale is None:
        return 1.0
    import torch

    from whatwhere.what.embedding import TokenEmbedding

    entry = source.checkpoint.entry(source.table().name)
    stored = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(entry.dtype, torch.float32)
    return float(TokenEmbedding(1, entry.shape[1], scale=scale, device="meta", dtype=stored).factor or 1.0)


def standing(
    source: Source, name: str, *, dim: int | None = None, num_heads: int | None = None, rows: int = 64, seed: int = 0
) -> Standing:
    """Build what a name stands for.

    Args:
        source: what is open.
        name: "model", a run, or a row of the catalogue, or rows joined by "+".
        dim, num_heads: of a scheme of the catalogue; None takes what goes with the source.
        rows: positions of a learned table that is drawn fresh.
        seed: of what is drawn.
    """
    if name == MODEL:
        return source.once("standing", lambda: of_model(source))
    if name in runs(source):
        return source.once(("standing", name), lambda: of_run(source.checkpoint, name))
    from whatwhere.analysis.walkthrough import random_scheme

    features = dim or (source.checkpoint.entry(table).shape[1] if (table := source.checkpoint.token_table) else None)
    features = features or USUAL_DIM
    heads = num_heads or heads_of(source, features)
    where = random_scheme(name, features, heads, rows, seed)
    learned = sum(parameter.numel() for parameter in where.parameters())
    notes = (f"what it learns is drawn anew, with seed {seed}",) if learned else ()
    size = where.query_key.head_dim if where.query_key is not None else features // heads
    return Standing(name, name, where, features, heads, size, notes)
