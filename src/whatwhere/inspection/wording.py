"""The sentences that the terminal and the page share."""

from collections.abc import Mapping, Sequence
from typing import Any

TITLES = {
    "sizes": "Sizes",
    "shares": "What against where",
    "norms": "Lengths of the token rows",
    "spectrum": "How the token rows fill their space",
    "unhealthy": "Rows that are not well",
    "positions": "Positions",
    "rotary": "Rotary",
    "biases": "Biases by distance",
}


FAULTS = {
    "duplicates": "equal to another",
    "zero": "all zeros",
    "broken": "broken (NaN or infinity)",
    "beyond": "beyond the tokenizer",
}
"""What may be wrong with a row without any doubt."""


def faultless(found: Mapping[str, Any]) -> str:
    """Say which of these faults no row has."""
    absent = [words for name, words in FAULTS.items() if not found[name].get("count", found[name].get("rows"))]
    return f"No row is {' or '.join(filter(None, (', '.join(absent[:-1]), absent[-1])))}." if absent else ""


def beyond_words(beyond: Mapping[str, Any]) -> str:
    """Say which rows the tokenizer has no token for."""
    length = f"{beyond['median_norm'] or 0:.3g}"
    return f"{beyond['count']:,} rows are beyond the tokenizer, from #{beyond['first']} on, of median length {length}."


def percent(share: float | None) -> str:
    """Write a share; a small one with what it has.

    >>> percent(0.5), percent(0.0002), percent(None)
    ('50.0 %', '0.02 %', '')
    """
    if share is None:
        return ""
    return f"{100 * share:.1f} %" if share >= 0.01 or share == 0 else f"{100 * share:.2g} %"


def short(value: int | float | None, absent: str = "") -> str:
    """Write a number of any size with three digits that count, or its thousands.

    >>> short(46_881_792), short(0.12345), short(None, "never")
    ('46,881,792', '0.123', 'never')
    """
    if value is None:
        return absent
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def tied_words(sizes: Mapping[str, Any]) -> str:
    """Say whether logits are read out with the token table."""
    stored = any(part["part"] == "readout" for part in sizes["parts"])
    if sizes["tied"]:
        return "Tied: logits are read out with the token table" + (", stored twice." if stored else ".")
    if sizes["tied"] is None:
        return "Tied or not: nothing in the file tells, and no readout is stored."
    return "Not tied: logits are read out with a table of their own."


def initial_words(found: Mapping[str, Any]) -> str:
    """Say how wide the table was drawn, as far as its rows tell."""
    rows = f"{found['rows']:,} rows"
    looked = (
        f"{rows} that training seems not to have reached" if found["untouched"] else f"all {rows} (none seems idle)"
    )
    spread = f"Initial scale: the numbers of {looked} have a spread of {found['spread']:.3g} about their mean row"
    if found["rule"]:
        return f"{spread}, near {found['expected']:.3g}, {found['rule']}."
    return f"{spread}, which is no usual initial draw; weight decay shrinks idle rows."


def norm_words(shares: Mapping[str, Any]) -> str:
    """Say what the shares were measured on."""
    after = (
        f"the norm {shares['norm']}"
        if shares["norm"]
        else "a norm to mean 0 and variance 1, for none of its own was found"
    )
    scale = "" if shares["scale"] == 1 else f", token rows times {shares['scale']:.4g}"
    known = "" if shares["scale_known"] else ", the scale of token rows not known and taken as 1"
    return (
        f"Shares of the variance after {after}{scale}{known}, over {shares['tokens']:,} tokens at "
        f"{shares['positions']:,} positions, drawn evenly; what a token and a position change has a mean absolute "
        f"cosine of {shares['angle']:.3f}."
    )


def axes_words(found: Mapping[str, Any]) -> str:
    """Say how many axes count, and how alike rows are."""
    ninety = (
        ""
        if found["for_ninety"] is None
        else f"{found['for_ninety']:,} of {found['dim']:,} axes hold 90 % of the variance; "
    )
    sampled = f", from a sample of {found['rows']:,} rows" if found["sampled"] else ""
    return (
        f"{ninety}the participation ratio is {found['participation']:.4g}; two rows have a mean cosine of "
        f"{found['mean_cosine']:.3f}, and the mean row is {found['mean_length']:.2f} of a row long{sampled}."
    )


def trained_words(found: Mapping[str, Any]) -> str:
    """Say how far training reached."""
    if found["trained"] < found["looked_at"]:
        return (
            f"Training seems to have stopped at position {found['trained']:,}: rows from there on are like no neighbor."
        )
    return "No place is seen where training stopped." if found["learned"] else ""


def shift_words(found: Mapping[str, Any]) -> str:
    """Say how well one map moves each position to the next."""
    if found["shift"] is None:
        return "There are too few positions to ask whether one linear map moves each to the next."
    explained = percent(max(found["shift"], 0.0))
    return f"One linear map from each position to the next explains {explained} of positions left out of its fit."


def length_words(own: Mapping[str, Any]) -> list[str]:
    """Say how the pairs of a rotary stand to the trained and the claimed length."""
    trained, claimed, pairs = own["trained"], own["claimed"], own["pairs"]
    lines = [f"Trained length {trained:,}, claimed {claimed:,}: {own['lengths']}."]
    lines.append(f"{own['unfinished_trained']} of {pairs} pairs never finish a turn in {trained:,} positions.")
    if claimed != trained or own["scaling"]:
        lines.append(
            f"In {claimed:,} positions {own['unfinished_claimed_unscaled']} would not without the scaling, and "
            f"{own['unfinished_claimed']} do not with it."
            if own["scaling"]
            else f"In {claimed:,} positions {own['unfinished_claimed']} do not."
        )
        count = len(own["beyond"])
        who = "1 pair then reaches" if count == 1 else f"{count} pairs then reach"
        lines.append(f"{who} angles that {trained:,} positions do not show.")
    if own["still"]:
        lines.append(f"{len(own['still'])} pairs never turn at all.")
    if own["magnitude"] != 1:
        lines.append(f"Queries and keys are multiplied by {own['magnitude']:.4g}.")
    return lines


def at_round_distances(found: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Pick a few distances out of a curve: those that begin a decade, their eightfold, and the last."""
    pairs = list(zip(found["distances"], found["cosine"], strict=True))
    chosen = {factor * 10**power for factor in (1, 8) for power in range(9)}
    return [pair for n, pair in enumerate(pairs) if pair[0] in chosen or n == len(pairs) - 1]


def pair_columns(own: Mapping[str, Any]) -> dict[str, str]:
    """Name what is worth a column of each pair of a rotary: the scaling only where there is one."""
    columns = {"wavelength": "wavelength"}
    if own["scaling"]:
        columns |= {"unscaled": "unscaled", "slowed": "slowed"}
    columns["turns_trained"] = f"turns in {own['trained']:,}"
    if own["claimed"] != own["trained"]:
        columns["turns_claimed"] = f"turns in {own['claimed']:,}"
    return columns


def layers_words(layers: Sequence[int], of: int | None = None) -> str:
    """Name layers, runs of them by their ends.

    >>> layers_words([0, 1, 2, 4], 8), layers_words([0, 1], 2)
    ('Layers 0-2, 4 of 8', 'All 2 layers')
    """
    if of is not None and len(layers) == of:
        return f"All {of} layers"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], layer]
        else:
            runs.append([layer])
    named = ", ".join("-".join(map(str, run)) for run in runs)
    return named if of is None else f"Layers {named} of {of}"


def reach_words(reach: int | None, own: Mapping[str, Any]) -> str:
    """Write a reach, or that it is farther than was looked, or that it has no end."""
    if reach is not None:
        return f"{reach:,}"
    return "no end" if own["endless"] else f"over {own['looked_at'] - 1:,}"
