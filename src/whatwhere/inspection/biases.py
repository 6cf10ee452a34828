"""Biases by distance: their curve, and how far each head reaches."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.bias_reach import reach
from whatwhere.errors import SettingError
from whatwhere.inspection.subject import Absent, Subject, plain
from whatwhere.inspection.turning import layers_of

if TYPE_CHECKING:
    from whatwhere.interop.huggingface import Description, Plan
    from whatwhere.where.doors import DistanceBias

_FEWEST, _MOST = 4096, 32_768
_POINTS = 48
_TABLES = ("relative_attention_bias.weight", "attn_rel_b.weight")


def biases(subject: Subject) -> dict[str, Any]:
    """Examine the biases of each part of a model and each kind of its layers."""
    found = [
        seen
        for description in _parts(subject)
        for plan, layers in layers_of(description.score)
        for seen in _examined(subject, description, plan, layers)
    ]
    if not found:
        raise Absent("no layer of this model adds a bias to its scores")
    return plain({"settings": found})


def _parts(subject: Subject) -> "list[Description]":
    """Give the description, and that of the encoder besides where the model has two parts."""
    first = subject.description  # before torch is imported: it may be absent
    from whatwhere.interop.huggingface import from_huggingface

    if first.part != "decoder" or subject.checkpoint.config is None:
        return [first]
    try:
        return [first, from_huggingface(subject.checkpoint.config, part="encoder")]
    except SettingError:  # it has no encoder
        return [first]


def _examined(subject: Subject, description: "Description", plan: "Plan", layers: list[int]) -> list[dict[str, Any]]:
    from whatwhere.where.doors import DistanceBias

    facts: dict[str, Any] = {"scheme": plan.scheme.__name__, "part": description.part, "layers": layers}
    if not issubclass(plan.scheme, DistanceBias):
        return [facts | {"missing": "this bias depends on queries and keys, which a checkpoint does not hold"}]
    subject.tell(f"examining {plan.scheme.__name__}")
    scheme: Any = plan.build()
    tables = (
        tables_of(subject, description.part, len(layers) if not plan.shared else 1)
        if hasattr(scheme, "weight")
        else [None]
    )
    if not tables:
        return [facts | {"missing": "its learned table is not in the file"}]
    found = []
    for place, table in enumerate(tables):
        if table is not None:
            fill(scheme, subject, table)
        own = facts | ({"layers": [layers[place]]} if len(tables) > 1 else {}) | {"tensor": table}
        found.append(own | _measured(scheme, description.max_length))
    return found


def tables_of(subject: Subject, part: str | None, count: int) -> list[str | None]:
    """Give the names of a part's learned tables: of the first layer alone where all share it."""
    marks = {"decoder": ("decoder.", "dec."), "encoder": ("encoder.", "enc."), None: ("",)}[part]
    found = [
        name
        for name in subject.checkpoint.tensors
        if name.endswith(_TABLES) and any(name.startswith(m) or f".{m}" in name for m in marks)
    ]
    ordered = sorted(found, key=lambda name: [int(piece) if piece.isdigit() else -1 for piece in name.split(".")])
    return list(ordered[:count])


def fill(scheme: Any, subject: Subject, table: str) -> None:
    """Put a learned table of the checkpoint into a scheme."""
    from torch import from_numpy, no_grad

    values = subject.checkpoint.array(table).astype(np.float32)
    if values.shape != tuple(scheme.weight.shape):
        raise Absent(
            f"{table} has the shape {values.shape}, but the configuration asks for {tuple(scheme.weight.shape)}"
        )
    with no_grad():
        scheme.weight.copy_(from_numpy(values))


def _measured(scheme: Any, max_length: int | None) -> dict[str, Any]:
    looked_at = min(max(max_length or 0, _FEWEST), _MOST)
    both = bool(getattr(scheme, "bidirectional", False))
    past = _curves(scheme, looked_at)
    heads = _reached(past)
    # Where no head has weight left, and where T5's last bucket has begun, there is nothing more to draw.
    endless = hasattr(scheme, "max_distance")
    ends = [2 * scheme.max_distance] if endless else [head["reach"] or looked_at for head in heads]
    last = min(max(ends), looked_at - 1)
    shown = np.unique(np.concatenate([np.arange(9), np.geomspace(8, last, _POINTS).round()])).astype(int)
    found: dict[str, Any] = {
        "heads": past.shape[0],
        "looked_at": looked_at,
        "endless": endless,
        "past": heads,
        "distances": shown,
        "curves": past[:, shown],
    }
    if both:
        found["future"] = _reached(_curves(scheme, -looked_at))
    slopes = getattr(scheme, "slopes", None)
    return found if slopes is None else found | {"slopes": slopes.double().numpy()}


def _reached(bias: Float[np.ndarray, "heads distances"]) -> list[dict[str, Any]]:
    if not np.isfinite(bias).all():
        raise Absent("the bias holds numbers that are not finite")
    seen = reach(bias)
    rows = zip(seen.distance.tolist(), seen.half.tolist(), seen.greatest.tolist(), seen.middle.tolist(), strict=True)
    return [
        {
            "head": n,
            "reach": None if far < 0 else far,
            "half": None if half < 0 else half,
            "greatest": top,
            "middle": mid,
        }
        for n, (far, half, top, mid) in enumerate(rows)
    ]


def _curves(scheme: "DistanceBias", distances: int) -> Float[np.ndarray, "heads distances"]:
    """Give the bias of each head at distance 0, 1, 2, ...; of later keys where the number is negative."""
    import torch

    cpu = torch.device("cpu")
    heads = torch.arange(scheme.num_heads)[:, None]
    with torch.no_grad():
        values = scheme.curve(cpu)(heads, torch.arange(0, distances, 1 if distances > 0 else -1))
    return np.asarray(values.double().numpy())
