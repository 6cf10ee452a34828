"""The page in a terminal: one short table or drawing for each thing that was found."""

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.inspection.answer import there
from whatwhere.inspection.wording import (
    FAULTS,
    TITLES,
    at_round_distances,
    axes_words,
    beyond_words,
    faultless,
    initial_words,
    layers_words,
    length_words,
    norm_words,
    pair_columns,
    percent,
    reach_words,
    shift_words,
    short,
    tied_words,
    trained_words,
)
from whatwhere.terminal import new_table, visible

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 12
_BARS = 16
_WIDTH = 40


def show(data: Mapping[str, Any], console: "Console", rows: int = _ROWS) -> None:
    """Print everything that was found.

    Args:
        data: as `gather` gives it.
        console: where to.
        rows: of each list.
    """
    console.print(visible(data["path"]), style="bold", soft_wrap=True)
    console.print(visible(data["answer"]) + ".")
    views = {
        "sizes": _sizes, "shares": _shares, "norms": _norms, "spectrum": _spectrum, "unhealthy": _unhealthy,
        "positions": _positions, "rotary": _rotary, "biases": _biases,
    }  # fmt: skip
    for name, found in data["sections"].items():
        console.print(f"\n{TITLES[name]}", style="bold")
        if there(found):
            views[name](found, console, rows)
        else:
            console.print(f" {visible(found['missing'])}.")


def _sizes(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    table = new_table("part", "shape", "type")
    for name in ("parameters", "share", "bytes", "of bytes"):
        table.add_column(name, justify="right")
    table.add_column("tensor")
    for part in found["parts"]:
        shape = "" if part["shape"] is None else " x ".join(f"{n:,}" for n in part["shape"])
        numbers = (
            f"{part['parameters']:,}",
            percent(part["share"]),
            short(part["bytes"]),
            percent(part["share_of_bytes"]),
        )
        table.add_row(part["part"], shape, part["dtype"], *numbers, visible(part["tensor"] or ""))
    table.add_row(
        "all", "", "", f"{found['parameters']:,}", "", short(found["bytes"]), "", f"{found['tensors']:,} tensors"
    )
    console.print(table)
    console.print(f" {tied_words(found)}")
    if found["guessed"]:
        console.print(" The token table was found by the number of its rows, not by its name.")
    if found["initial_scale"] is not None:
        console.print(f" {initial_words(found['initial_scale'])}")


def _shares(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    table = new_table()
    table.show_header = False
    for name, words in (
        ("token", "what: the token"),
        ("position", "where: the position"),
        ("interaction", "both together"),
    ):
        table.add_row(words, percent(found[name]), _bar(found[name]))
    console.print(table)
    console.print(f" {norm_words(found)}")


def _norms(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    counts, edges = _fewer(found["histogram"]["counts"], found["histogram"]["edges"])
    table = new_table("length", "")
    table.add_column("rows", justify="right")
    top = max(counts)
    for count, (low, high) in zip(counts, pairwise(edges), strict=True):
        table.add_row(f"{low:.3g} to {high:.3g}", _bar(count / top), f"{count:,}")
    console.print(table)
    each = found["percentiles"].items()
    console.print(" percentiles  " + "  ".join(f"{name}%: {value:.3g}" for name, value in each))
    for name in ("by_kind", "by_script"):
        groups = found[name]
        if not isinstance(groups, list):
            continue
        table = new_table(name.removeprefix("by_"))
        for column in ("rows", "5 %", "median", "95 %"):
            table.add_column(column, justify="right")
        for group in groups[:rows]:
            numbers = (f"{group[part]:.3g}" for part in ("p5", "median", "p95"))
            table.add_row(visible(group["name"]), f"{group['rows']:,}", *numbers)
        console.print("")
        console.print(table)
        _rest(console, len(groups), rows, "more")


def _spectrum(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    console.print(f" {axes_words(found)}")
    table = new_table("axis")
    table.add_column("share", justify="right")
    table.add_column("")
    top = found["shares"][0] or 1.0
    for n, share in enumerate(found["shares"][: min(rows, 8)]):
        table.add_row(str(n + 1), percent(share), _bar(share / top))
    console.print(table)


def _unhealthy(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    never, lost, hubs = found["never_trained"], found["unreachable"], found["hubs"]
    also = (
        "" if never["also_unreachable"] is None else f", {never['also_unreachable']:,} of them out of reach of any text"
    )
    console.print(
        f" {never['count']:,} rows look as if training never reached them{also}: their cosine to the mean of the "
        f"{len(never['seeds']):,} rows of lowest length is above {never['threshold']:.2f}."
    )
    table = new_table("id", "token", "length", "cosine", "reachable")
    for row in never["shown"][:rows]:
        reachable = {None: "?", True: "yes", False: "no"}[row["reachable"]]
        table.add_row(*_named(row), f"{row['norm']:.3g}", f"{row['cosine']:.3f}", reachable)
    _listed(console, table, never["count"], rows)
    if there(lost):
        console.print(f" {lost['count']:,} rows no text can reach: what they stand for is read as other tokens.")
        table = new_table("id", "token", "length", "its text is read as")
        for row in lost["shown"][:rows]:
            table.add_row(*_named(row), f"{row['norm']:.3g}", " ".join(visible(part) for part in row["reads_as"]))
        _listed(console, table, lost["count"], rows)
    else:
        console.print(f" Out of reach: not known, {visible(lost['missing'])}.")
    console.print(
        f" {len(hubs['shown'])} hubs: rows that are among the {hubs['neighbors']} nearest of many more than the "
        f"{hubs['expected']:.2f} rows that are usual, of {hubs['asked']:,} asked."
    )
    table = new_table("id", "token", "times")
    for row in hubs["shown"][:rows]:
        table.add_row(*_named(row), str(row["times"]))
    _listed(console, table, len(hubs["shown"]), rows)
    _plainly_bad(found, console, rows)


def _plainly_bad(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    double, beyond = found["duplicates"], found["beyond"]
    if double["rows"]:
        console.print(f" {double['rows']:,} rows in {double['groups']:,} groups are equal to each other.")
    for group in double["shown"][:rows]:
        console.print("   " + "  ".join(" ".join(_named(row)) for row in group), soft_wrap=True)
    for name in ("zero", "broken"):
        if found[name]["count"]:
            console.print(f" {found[name]['count']:,} rows are {FAULTS[name]}.")
        for row in found[name]["shown"][:rows]:
            more = f"  {row['nan']} NaN, {row['infinite']} infinite" if "nan" in row else ""
            console.print(f"   {' '.join(_named(row))}{more}", soft_wrap=True)
    if beyond["count"]:
        console.print(f" {beyond_words(beyond)}")
    console.print(f" {faultless(found)}")


def _positions(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    kind = "Learned" if found["learned"] else "Fixed"
    console.print(
        f" {kind}: {found['positions']:,} positions x {found['dim']:,}; median length {found['median_norm']:.3g}."
    )
    console.print(f" {trained_words(found)} {shift_words(found)} {axes_words(found['spectrum'])}")
    outliers = "  ".join(f"{row['position']} ({row['norm']:.3g})" for row in found["outliers"][:rows])
    console.print(f" Positions of unusual length: {outliers or 'none'}.")
    table = new_table("distance", "mean cosine")
    table.add_column("")
    known = [d for d in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if d < len(found["by_distance"])]
    for distance in known:
        value = found["by_distance"][distance]
        table.add_row(str(distance), f"{value:.3f}", _bar(max(value, 0.0)))
    console.print(table)


def _rotary(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    for n, own in enumerate(found["settings"]):
        scaling = f", {visible(own['scaling'])}" if own["scaling"] else ", no scaling"
        turning = f"{own['scheme']}, theta {own['theta']:,.6g}, {own['pairs']} pairs of {own['head_dim']} features"
        console.print(f" {layers_words(own['layers'], found['layers'])}: {turning}{scaling}.", soft_wrap=True)
        for line in length_words(own):
            console.print(f" {line}")
        table = new_table()
        columns = pair_columns(own)
        for name in ("pair", *columns.values()):
            table.add_column(name, justify="right")
        for pair in _spread(own["pairs"], rows):
            table.add_row(str(pair), *(short(own[part][pair], "never") for part in columns))
        console.print(table)
        if own["scaling"]:
            _agreement(console, "with and without the scaling", own["effect"])
        for other in found["between"]:
            if other["other"] == n:
                _agreement(console, "and those of the first kind of layer", other)
    if found["without"]:
        console.print(f" {layers_words(found['without'], found['layers'])}: nothing turns.")


def _agreement(console: "Console", words: str, found: Mapping[str, Any]) -> None:
    shown = "  ".join(f"{distance:,}: {cosine:.3f}" for distance, cosine in at_round_distances(found))
    console.print(f" Cosine of a vector turned {words}, by distance:  {shown}")


def _biases(found: Mapping[str, Any], console: "Console", rows: int) -> None:
    for own in found["settings"]:
        part = f"{own['part']}, " if own["part"] else ""
        console.print(f" {part}layers {layers_words(own['layers'])}: {own['scheme']}.")
        if not there(own):
            console.print(f" {own['missing']}.")
            continue
        table = new_table()
        names = ["head", "reach", "half", "greatest at"]
        for name in (*names, *(["reach ahead"] if "future" in own else []), *(["slope"] if "slopes" in own else [])):
            table.add_column(name, justify="right")
        for head in _spread(own["heads"], max(rows, 16)):
            past = own["past"][head]
            cells = [str(head), reach_words(past["reach"], own), reach_words(past["half"], own), str(past["greatest"])]
            cells += [reach_words(own["future"][head]["reach"], own)] if "future" in own else []
            cells += [f"{own['slopes'][head]:.4g}"] if "slopes" in own else []
            table.add_row(*cells)
        console.print(table)
        console.print(" Reach: the distance from which on every weight is below 1 % of the greatest; half: below 50 %.")


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"#{row['id']}", "" if row["token"] is None else visible(row["token"])


def _listed(console: "Console", table: Any, count: int, rows: int) -> None:
    if table.row_count:
        console.print(table)
        _rest(console, count, min(rows, table.row_count), "more: --json lists them")


def _rest(console: "Console", count: int, shown: int, words: str) -> None:
    if count > shown:
        console.print(f"   and {count - shown:,} {words}")


def _spread(count: int, most: int) -> list[int]:
    """Give numbers from 0 to count - 1, evenly, the first and the last among them."""
    return sorted({round(n) for n in np.linspace(0, count - 1, min(count, most))})


def _fewer(counts: Sequence[int], edges: Sequence[float]) -> tuple[list[int], list[float]]:
    """Join neighbors of a histogram until a terminal has room for it."""
    together = -(-len(counts) // _BARS)
    starts = range(0, len(counts), together)
    return [sum(counts[n : n + together]) for n in starts], [*(edges[n] for n in starts), edges[-1]]


def _bar(share: float, width: int = _WIDTH) -> str:
    """Draw a share as a bar, to an eighth of a sign where the terminal has such signs."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if not encoding.lower().replace("-", "").startswith("utf"):
        return "#" * round(eighths / 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
