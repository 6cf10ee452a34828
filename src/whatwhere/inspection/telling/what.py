"""The sections on what tokens are: sizes, shares, lengths, spectrum."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from whatwhere.inspection.telling.parts import Part, Table
from whatwhere.inspection.wording import axes_words, initial_words, norm_words, percent, short, tied_words
from whatwhere.page.wording import capital, count

_BARS = 16


def sizes(found: Mapping[str, Any]) -> list[Part]:
    """Tell how large the parts are."""
    named = sum((part["share"] or 0.0 for part in found["parts"] if part["part"] != "the rest"), 0.0)
    told: list[Part] = [f"{found['parameters']:,} parameters, {percent(named)} of them in the tables that are named."]
    told.append(tied_words(found))
    if found["guessed"]:
        told.append("The token table was found by the number of its rows, not by its name.")
    if found["initial_scale"] is not None:
        told.append(initial_words(found["initial_scale"]))
    rows = [_size(part) for part in found["parts"]]
    whole = (f"{found['parameters']:,}", "", short(found["bytes"]), "", count(found["tensors"], "tensor"))
    head = ("part", "shape", "type", "parameters", "share", "bytes", "of bytes", "tensor")
    table = Table("Parameters and bytes by part", head, [*rows, ["all", "", "", *whole]], (3, 4, 5, 6), short="whole")
    return [*told, table]


def _size(part: Mapping[str, Any]) -> list[str]:
    shape = "" if part["shape"] is None else " x ".join(f"{n:,}" for n in part["shape"])
    numbers = f"{part['parameters']:,}", percent(part["share"]), short(part["bytes"]), percent(part["share_of_bytes"])
    return [part["part"], shape, part["dtype"], *numbers, part["tensor"] or ""]


def shares(found: Mapping[str, Any]) -> list[Part]:
    """Tell what is the token's and what the position's."""
    parts = (("what: the token", "token"), ("where: the position", "position"), ("both together", "interaction"))
    return [
        f"{percent(found['token'])} of what the first layer sees is which token it is, {percent(found['position'])} "
        f"where it stands, and {percent(found['interaction'])} what the norm makes of both.",
        norm_words(found),
        Table(
            "Shares of the variance",
            ("part", "share"),
            [[words, percent(found[name])] for words, name in parts],
            (1,),
            bars=[found[name] for _, name in parts],
        ),
    ]


def norms(found: Mapping[str, Any]) -> list[Part]:
    """Tell how long the rows are."""
    each = found["percentiles"]
    told: list[Part] = [
        f"The median length is {each['50']:.3g}; 90 % are from {each['5']:.3g} to {each['95']:.3g}.",
        Table(
            "Percentiles of the lengths",
            ("of the rows", *(f"{name} %" for name in each)),
            [["are below", *(f"{value:.3g}" for value in each.values())]],
            range(1, len(each) + 1),
        ),
        _histogram(found["histogram"]),
    ]
    if not isinstance(found["by_kind"], list):
        return [*told, f"By kind and script: {found['by_kind']['missing']}."]
    return [
        *told,
        _groups("Lengths by kind of token", "kind", found["by_kind"]),
        _groups("Lengths by script", "script", found["by_script"]),
    ]


def _histogram(found: Mapping[str, Any]) -> Table:
    counts, edges = _fewer(found["counts"], found["edges"])
    rows = [
        [f"{low:.3g} to {high:.3g}", f"{count:,}"] for count, (low, high) in zip(counts, pairwise(edges), strict=True)
    ]
    bars = [count / max(counts) for count in counts]
    return Table("Lengths of the rows", ("length", "rows"), rows, (1,), bars=bars, short="whole", drawn="lengths")


def _groups(caption: str, name: str, groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [group["name"], f"{group['rows']:,}", *(f"{group[part]:.3g}" for part in ("p5", "median", "p95"))]
        for group in groups
    ]
    return Table(caption, (name, "rows", "5 %", "median", "95 %"), rows, (1, 2, 3, 4))


def spectrum(found: Mapping[str, Any]) -> list[Part]:
    """Tell how rows fill their space."""
    told = axes_words(found)
    top = found["shares"][0] or 1.0
    rows = [[str(n), percent(share)] for n, share in enumerate(found["shares"], 1)]
    bars = [share / top for share in found["shares"]]
    table = Table(
        "Share of the variance by principal axis", ("axis", "share"), rows, (0, 1), bars=bars, drawn="spectra"
    )
    return [capital(told), table]


def _fewer(counts: Sequence[int], edges: Sequence[float]) -> tuple[list[int], list[float]]:
    """Join neighbors of a histogram until a reader has room for it."""
    together = -(-len(counts) // _BARS)
    starts = range(0, len(counts), together)
    return [sum(counts[n : n + together]) for n in starts], [*(edges[n] for n in starts), edges[-1]]
