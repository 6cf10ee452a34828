"""Build the first layer of a model, or of a run of a comparison, with the learned tables that its file has."""

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import CheckpointError, SettingError, WhatWhereError
from whatwhere.inspection.subject import Absent
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.studio.examined import subject
from whatwhere.studio.session import Source

if TYPE_CHECKING:
    from whatwhere.models.huggingface import Description
    from whatwhere.where.base import InputEncoding
    from whatwhere.where.binding import Where

MODEL = "model"
"""The model's own way of saying where."""
TOKENS = "/tokens.weight"
"""How the token table of a run is named."""
USUAL_HEADS = 2


@dataclass(frozen=True, eq=False)
class Standing:
    """How the tokens of one layer stand.

    Args:
        name: what it was asked for by.
        title: what to call it.
        where: the schemes, with the learned tables that the file has.
        dim: features of a token vector.
        num_heads, head_dim: of the attention.
        notes: what a reader must know: tables that are not in the file, what stands between.
        max_length: positions that a table or a configuration ends at; None for any.
    """

    name: str
    title: str
    where: "Where"
    dim: int
    num_heads: int
    head_dim: int
    notes: tuple[str, ...] = ()
    max_length: int | None = None


def heads_of(source: Source, dim: int) -> int:
    """Return the model's number of heads where it divides dim, else a small number that leaves rotary its pairs."""
    config = source.checkpoint.config or {}
    own = config.get("num_attention_heads", config.get("n_head"))
    if isinstance(own, int) and not isinstance(own, bool) and own > 0 and dim % own == 0:
        return own
    return USUAL_HEADS if dim % (2 * USUAL_HEADS) == 0 else 1


def of_model(source: Source) -> Standing:
    """Build the first layer of the model that has a scheme; of layer 0 if none has."""
    try:
        description = subject(source).description
    except Absent as problem:
        return _of_table(source, str(problem))
    from whatwhere.where.binding import Where

    notes = list(description.notes)
    wheres = _at_the_first(description)
    layer, query_key, score = wheres
    if description.layers > 1 and (query_key is not None or score is not None):
        notes.append(f"shown is layer {layer} of {description.layers}, counted from 0")
    if score is not None and (missing := _fill_bias(source, description, layer, score)):
        notes.append(missing)
    encoding, missing = _input(source, description)
    if missing:
        notes.append(missing)
    size = query_key.head_dim if query_key is not None else description.head_dim
    return Standing(
        MODEL,
        f"the model's own ({description.model_type})",
        Where(input=encoding, query_key=query_key, score=score, scale=description.scale_of(layer, query_key, score)),
        description.token_dim if encoding is None else encoding.dim,
        description.num_heads,
        size,
        tuple(notes),
        description.max_length if description.input is not None else None,
    )


def _of_table(source: Source, why: str) -> Standing:
    """Take a table of positions of which no configuration tells."""
    from whatwhere.where.binding import Where

    if source.checkpoint.position_table is None:
        raise SettingError(f"nothing here says where tokens stand: {why}.\nChoose a scheme of the catalogue.")
    encoding = _learned(source)
    dim = encoding.dim
    heads = heads_of(source, dim)
    note = "there is no configuration: that the table is added to the tokens is taken from its name"
    title = "the table of positions in the file"
    return Standing(MODEL, title, Where(input=encoding), dim, heads, dim // heads, (note,), encoding.max_length)


def _at_the_first(description: "Description") -> tuple[int, Any, Any]:
    """Build the attention's schemes of the first layer that has any; of layer 0 if none has."""
    plans = list(zip(description.query_key, description.score, strict=True))
    layer = next((n for n, pair in enumerate(plans) if any(plan is not None for plan in pair)), 0)
    query_key, score = (None if plan is None else plan.build() for plan in plans[layer])
    return layer, query_key, score


def _input(source: Source, description: "Description") -> "tuple[InputEncoding | None, str | None]":
    """Build what is added to the token vectors, and say why there is nothing where something should be."""
    plan = description.input
    if source.checkpoint.position_table is not None:
        return _learned(source), None
    if plan is None:
        return None, None
    if "max_length" in plan.settings:
        return None, f"its positions are {plan.class_name}'s, but no table of them is in the file"
    built: Any = plan.build()
    return built, None


def _learned(source: Source) -> Any:
    import torch

    from whatwhere.where.input.learned import Learned

    checkpoint = source.checkpoint
    offset = checkpoint.position_offset or 0
    table = np.asarray(checkpoint.array(str(checkpoint.position_table)), np.float32)
    if table.ndim != 2 or len(table) <= offset or not table.size:
        raise CheckpointError(f"the table of positions has the shape {table.shape}, but (positions, dim) is needed.")
    made = Learned(table.shape[1], len(table) - offset, offset, device="meta")
    made.weight = torch.nn.Parameter(torch.from_numpy(table.copy()), requires_grad=False)
    return made


def _fill_bias(source: Source, description: "Description", layer: int, scheme: Any) -> str | None:
    """Put the learned table of a layer's bias into it; say why not where that cannot be."""
    from whatwhere.inspection.biases import fill, tables_of

    if not any(True for _ in scheme.parameters()):
        return None
    plan = description.score[layer]
    known = subject(source)
    shared = plan is not None and plan.shared
    names = tables_of(known, description.part, 1 if shared else layer + 1) if hasattr(scheme, "weight") else []
    drawn = f"the learned numbers of {type(scheme).__name__} are not in the file under a known name: they are drawn"
    if not names:
        return drawn
    try:
        fill(scheme, known, str(names[0 if shared else min(layer, len(names) - 1)]))
    except Absent as problem:
        return f"{drawn} ({problem})"
    return None


def of_run(checkpoint: Checkpoint, name: str) -> Standing:
    """Build the first layer of a run, with the tables that were saved of it."""
    import torch

    from whatwhere.analysis.walkthrough import random_scheme

    settings = checkpoint.metadata.get("settings")
    heads = settings.get("heads") if isinstance(settings, dict) else None
    dim = checkpoint.entry(name + TOKENS).shape[1]
    heads = heads if isinstance(heads, int) and heads > 0 and dim % heads == 0 else gcd(dim, USUAL_HEADS)
    records = checkpoint.metadata.get("runs")
    made = (
        [run for run in records if run.get("file") == f"layers/{name}.safetensors"] if isinstance(records, list) else []
    )
    scheme = str(made[0].get("scheme")) if made else name.rpartition("-")[0]
    begin = f"{name}/where."
    saved = {key.removeprefix(begin): key for key in checkpoint.tensors if key.startswith(begin) and "@" not in key}
    rows = max((checkpoint.entry(key).shape[0] for key in saved.values()), default=64)
    notes: list[str] = []
    try:
        where = random_scheme(scheme.partition("/")[0], dim, heads, rows)  # the first layer of a mixture by layer
    except WhatWhereError:
        raise SettingError(
            f"the run {name} has a scheme of somebody's own, which its results do not hold.\nChoose another."
        ) from None
    own = where.state_dict()
    fitting = {
        key: name for key, name in saved.items() if key in own and own[key].shape == checkpoint.entry(name).shape
    }
    where.load_state_dict(
        {key: torch.from_numpy(checkpoint.array(name)) for key, name in fitting.items()}, strict=False
    )
    if left := sorted(set(own) - set(fitting)):
        notes.append(f"the run did not save {', '.join(left)}: shown as drawn, with seed 0")
    size = where.query_key.head_dim if where.query_key is not None else dim // heads
    seed = name.rpartition("-")[2]
    longest = rows if saved else None
    return Standing(name, f"{scheme}, seed {seed}", where, dim, heads, size, tuple(notes), longest)
