"""The ways of saying where that a view can be asked for: the model's own, the runs', and those of the catalogue."""

from collections.abc import Mapping
from typing import Any

from whatwhere.studio.api.settings import known, text, whole
from whatwhere.studio.session import Source
from whatwhere.studio.standing import MODEL, Standing, has_own, runs, standing

MOST_FEATURES, MOST_HEADS = 1024, 64


def schemes(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """List the catalogue, and the runs of a comparison."""
    known(settings)
    from whatwhere.where.catalogue import catalogue

    rows = [
        {"name": row.name, "door": row.door, "formula": row.formula, "learned": row.learned, "url": row.url}
        for row in catalogue.values()
    ]
    return {"schemes": rows, "runs": runs(source)}


def usual(source: Source, otherwise: str, of_odd: str | None = None) -> str:
    """Name the scheme that a view begins with: the model's own, else a run that tells positions, else another.

    Args:
        otherwise: needs pairs of features.
        of_odd: needs none, and takes its place where the rows of what is open have an odd number of them.
    """
    if has_own(source):
        return MODEL
    there = runs(source)
    telling = [run for run in there if run.startswith(("learned", "sinusoidal", "rotary", "alibi"))]
    table = source.checkpoint.token_table
    odd = table is not None and source.checkpoint.entry(table).shape[1] % 2 == 1
    return (telling or there or [of_odd if of_odd and odd else otherwise])[0]


def asked(source: Source, settings: Mapping[str, Any], rows: int, dim: int | None = None) -> Standing:
    """Build what is asked for by scheme, dim, heads and seed; 0 takes what goes with the source.

    Args:
        rows: positions of a learned table that is drawn.
        dim: overrules the setting.
    """
    features = whole(settings, "dim", 0, 0, MOST_FEATURES)
    heads = whole(settings, "heads", 0, 0, MOST_HEADS)
    seed = whole(settings, "seed", 0, 0, 1 << 31)
    name = text(settings, "scheme")
    return standing(source, name, dim=dim or features or None, num_heads=heads or None, rows=rows, seed=seed)


def in_python(settings: Mapping[str, Any], rows: int, dim: int | None = None) -> str:
    """Write the Python that builds what `asked` does; PATH stands for the file."""
    sizes = {name: whole(settings, name, 0, 0, 1 << 31) for name in ("dim", "heads", "seed")}
    more = {"dim": dim or sizes["dim"], "num_heads": sizes["heads"], "rows": rows, "seed": sizes["seed"]}
    given = "".join(f", {name}={value}" for name, value in more.items() if value)
    return (
        "from whatwhere.studio.session import Source\nfrom whatwhere.studio.standing import standing\n"
        f"where = standing(Source.open(PATH), {text(settings, 'scheme')!r}{given}).where"
    )


def doors(found: Standing) -> list[dict[str, Any]]:
    """Describe what stands at each door that is in use."""
    there = {door: getattr(found.where, door) for door in ("input", "query_key", "score")}
    return [
        {"door": door, "name": type(scheme).__name__, "said": " ".join(repr(scheme).split())}
        for door, scheme in there.items()
        if scheme is not None
    ]
