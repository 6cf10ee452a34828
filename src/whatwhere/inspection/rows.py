"""Rows of the token table that are not well, with the evidence for each."""

from typing import Any

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.health import expected, unreachable
from whatwhere.inspection.subject import Absent, Subject, plain

SHOWN = 100
"""Rows of each list that come with their evidence; the ids of all come besides."""


def unhealthy(subject: Subject) -> dict[str, Any]:
    """List the rows that are not well, by what is wrong with them."""
    found, (asked, named) = subject.health, subject.hubs
    out_of_reach = _tried_unreachable(subject)
    lost = set(out_of_reach.get("ids", []))
    never = [
        _row(subject, n)
        | {"cosine": found.cosine[n], "likeness": found.likeness[n], "reachable": _told(lost, n, out_of_reach)}
        for n in found.untrained[:SHOWN].tolist()
    ]
    groups = [[_row(subject, n) for n in group[:10]] for group in found.duplicates[:SHOWN]]
    beyond = found.beyond
    return plain({
        "rows": len(found.norms),
        "never_trained": {
            "count": len(found.untrained), "ids": found.untrained, "seeds": found.seeds, "threshold": found.threshold,
            "also_unreachable": len(lost.intersection(found.untrained.tolist())) if "ids" in out_of_reach else None,
            "shown": never,
        },
        "unreachable": out_of_reach,
        "duplicates": {
            "groups": len(found.duplicates), "rows": sum(map(len, found.duplicates)), "ids": found.duplicates,
            "shown": groups,
        },
        "hubs": {
            "asked": asked, "neighbors": 10, "expected": expected(asked, len(subject.sound)),
            "shown": [_row(subject, n) | {"times": times} for n, times in named],
        },
        "zero": {"count": len(found.zero), "ids": found.zero, "shown": _rows(subject, found.zero)},
        "broken": {"count": len(found.broken), "ids": found.broken, "shown": _broken(subject, found.broken)},
        "beyond": {
            "count": len(beyond), "first": int(beyond[0]) if len(beyond) else None,
            "median_norm": np.median(found.norms[beyond]) if len(beyond) else None,
        },
    })  # fmt: skip


def _tried_unreachable(subject: Subject) -> dict[str, Any]:
    try:
        tokenizer = subject.tokenizer
    except Absent as problem:
        return {"missing": str(problem)}
    subject.tell("asking the tokenizer for every token")
    try:
        ids = unreachable(tokenizer, len(subject.table))
        texts = [tokenizer.decode([n], skip_special_tokens=False) for n in ids[:SHOWN].tolist()]
        back = [tokenizer.encode(text, add_special_tokens=False).tokens[:8] for text in texts]
    except Exception as problem:
        if type(problem) is not Exception:  # the tokenizers library raises no other
            raise
        return {"missing": f"the tokenizer cannot read some texts: {problem}"}
    evidence = zip(ids.tolist(), texts, back, strict=False)
    shown = [_row(subject, n) | {"text": text, "reads_as": read} for n, text, read in evidence]
    return {"count": len(ids), "ids": ids.tolist(), "shown": shown}


def _told(lost: set[int], row: int, out_of_reach: dict[str, Any]) -> bool | None:
    return row not in lost if "ids" in out_of_reach else None


def _row(subject: Subject, row: int) -> dict[str, Any]:
    try:
        token: str | None = subject.words[row] or None
    except Absent:
        token = None
    return {"id": row, "token": token, "norm": subject.norms[row]}


def _rows(subject: Subject, ids: Int64[np.ndarray, " ids"]) -> list[dict[str, Any]]:
    return [_row(subject, n) for n in ids[:SHOWN].tolist()]


def _broken(subject: Subject, ids: Int64[np.ndarray, " ids"]) -> list[dict[str, Any]]:
    """Say how many numbers of each row are none, and how many are infinite."""
    found = []
    for row in _rows(subject, ids):
        values = subject.table[row["id"]]
        found.append(row | {"nan": int(np.isnan(values).sum()), "infinite": int(np.isinf(values).sum())})
    return found
