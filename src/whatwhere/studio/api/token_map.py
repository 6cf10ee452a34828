"""The token map: where each row lies on a plane, what can color it, and the true neighbors of one token."""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from whatwhere.analysis.table_difference import sample_rows
from whatwhere.analysis.token_map import METHODS, MINIMUM_ROWS, PACKAGES, Method, TokenMap, make_map
from whatwhere.analysis.token_types import TOKEN_TYPES
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint.lookup import find_token
from whatwhere.report.text import percent
from whatwhere.studio.api.settings import known, one_of, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.jobs import Report, run_in_subprocess
from whatwhere.studio.session import Session

MOST = 50_000
"""Rows that t-SNE and UMAP lay out; they are drawn at random where there are more, which would take many minutes."""
MOST_NEIGHBORS = 50
MOST_LEFT = 60_000
"""Rows whose neighbors an exported page holds: 0.8 MB for 30,000 tokens."""
SEED, K = 0, 10


def points(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return where each row lies: by PCA at once, by another method once it was drawn as a job.

    Args:
        settings: method ("pca", "tsne", "umap"); table ("input", "readout").
    """
    known(settings, "method", "table")
    method, which = _method(settings), _which(session, settings)
    table = session.table(which)
    if method == "pca":
        used = np.arange(len(table.weight))
        made: TokenMap | None = session.once(
            ("map", which, method), lambda: make_map(table.weight, method, K, seed=SEED)
        )
    else:
        used = sample_rows(len(table.weight), MOST, SEED)
        made = session.kept(("map", which, method))
    told = {
        "method": method,
        "table": which,
        "name": table.name,
        "rows": table.rows,
        "shown": len(used),
        "left_out": len(table.broken),
        "drawn": made is not None,
        "missing": {name: extra for name, (module, extra) in PACKAGES.items() if find_spec(module) is None},
    }
    if made is None:
        return told
    measured = {name: getattr(made, name) for name in ("kept", "k", "chance")}
    measured |= {"asked": made.queries, "share": made.explained_variance_ratio}
    return told | measured | {"ids": table.ids[used], "coordinates": made.coordinates.astype(np.float32)}


def draw(session: Session, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compute a map by t-SNE or UMAP in a process of its own, and keep it for `points`.

    Args:
        settings: method ("tsne", "umap"); table ("input", "readout").
    """
    known(settings, "method", "table")
    method, which = _method(settings), _which(session, settings)
    table = session.table(which).weight
    rows = table[sample_rows(len(table), MOST, SEED)]
    session.once(
        ("map", which, method),
        lambda: run_in_subprocess(make_map, report, table=rows, method=method, k=K, seed=SEED),
    )
    return points(session, settings)


def labels(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be said of each id: how it is shown, its kind and script, and its length.

    Args:
        settings: table ("input", "readout").
    """
    known(settings, "table")
    which = _which(session, settings)
    table = session.table(which)
    norms = np.full(table.rows, np.nan)
    norms[table.ids] = session.norms(which)
    scripts = sorted(set(session.scripts))
    return {
        "words": _packed(session.words[: table.rows]),
        # A text is sent where it is another than the word.
        "texts": _packed([_text(session, n) for n in range(min(len(session.words), table.rows))]),
        "kinds": _numbered(session.kinds, TOKEN_TYPES, table.rows, TOKEN_TYPES.index("no token")),
        "kind_names": list(TOKEN_TYPES),
        "scripts": _numbered(session.scripts, scripts, table.rows, len(scripts)),
        "script_names": [*scripts, "no token"],
        "norms": norms.astype(np.float32),
    }


def frequencies(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how often each id stands in the corpus, or say that there is none.

    Args:
        settings: table ("input", "readout").
    """
    known(settings, "table")
    rows = session.table(_which(session, settings)).rows
    corpus, tokenizer = session.corpus, session.tokenizer
    if corpus is None or tokenizer is None:
        return {"corpus": None, "whole": True, "counts": None}
    counts = session.once(("counts", rows), lambda: corpus.counts(tokenizer, rows))
    return {"corpus": corpus.path.name, "whole": corpus.whole, "counts": counts, "total": int(counts.sum())}


def near(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the true neighbors of a token: the nearest rows by cosine in the full space.

    Args:
        settings: token, as text or #id; k (10); table ("input", "readout").
    """
    known(settings, "token", "k", "table")
    number = find_token(session.checkpoint, text(settings, "token"))
    which, k = _which(session, settings), whole(settings, "k", K, 1, MOST_NEIGHBORS)
    table = session.table(which)
    row = table.row(number)
    found = session.search(which).nearest(table.weight[row][None], k, without=[[row]])
    return {"id": number, "ids": table.ids[found.ids[0]], "cosines": found.scores[0]}


def neighbors(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the true neighbors of every token, for an exported page; half a minute for 30,000 tokens.

    Args:
        settings: table ("input", "readout").
    """
    known(settings, "table")
    which = _which(session, settings)
    table = session.table(which)

    def search() -> np.ndarray:
        own = np.arange(len(table.weight))[:, None]
        found: np.ndarray = table.ids[session.search(which).nearest(table.weight, K, without=own).ids]
        return found

    ids: np.ndarray = session.once(("all neighbors", which), search)
    return {"of": table.ids, "ids": ids.astype(np.uint16) if table.rows <= 1 << 16 else ids}


def exported(session: Session) -> ExportedView | None:
    """Leave the map by PCA on an exported page, others if they were drawn, and the true neighbors of all tokens."""
    if not session.tables or session.table().rows < MINIMUM_ROWS["pca"]:
        return None
    table = {"table": "input"}
    maps = [found for method in METHODS if (found := points(session, {"method": method, **table}))["drawn"]]
    asked = [("maps.points", {"method": found["method"], **table}) for found in maps]
    asked += [("maps.labels", table), ("maps.frequencies", table)]
    if session.table().rows <= MOST_LEFT:
        asked.append(("maps.neighbors", table))
    head = ("method", "tokens", "nearest kept", "by chance", "of tokens asked")
    rows = [(m["method"], f"{m['shown']:,}", percent(m["kept"]), percent(m["chance"]), f"{m['asked']:,}") for m in maps]
    counts = Counter(session.kinds)
    kinds = [(kind, f"{counts[kind]:,}") for kind in TOKEN_TYPES if counts[kind]]
    sheets = [Sheet(f"How many of the {K} nearest tokens of the full space the map keeps", head, rows)]
    sheets.append(Sheet("Tokens by kind", ("kind", "tokens"), kinds))
    # Who has had another map drawn wants to see it.
    return ExportedView("Token map", asked, sheets, {"method": maps[-1]["method"]})


def _method(settings: Mapping[str, Any]) -> Method:
    return METHODS[METHODS.index(one_of(settings, "method", METHODS))]


def _which(session: Session, settings: Mapping[str, Any]) -> str:
    if not session.tables:
        raise SettingError("there is no table of tokens here, so there is no map of them.")
    return one_of(settings, "table", session.tables)


def _text(session: Session, number: int) -> str:
    meant = session.texts[number]
    return meant if isinstance(meant, str) and meant != session.words[number] else ""


def _packed(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Put texts behind each other, as bytes, with the place where each ends: a list of so many is slow to read."""
    written = [each.encode("utf-8", "replace") for each in texts]
    ends = np.cumsum([len(each) for each in written], dtype=np.int64)
    return {"bytes": np.frombuffer(b"".join(written), np.uint8), "ends": ends}


def _numbered(names: Sequence[str], known_names: Sequence[str], rows: int, otherwise: int) -> np.ndarray:
    numbers = {name: n for n, name in enumerate(known_names)}
    found = np.full(rows, otherwise, np.uint16)
    found[: len(names)] = [numbers[name] for name in names[:rows]]
    return found
