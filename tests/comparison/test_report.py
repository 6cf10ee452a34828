"""The report: complete, safe with hostile names, the same bytes twice, and true to results.json.

The folders here are made up: random numbers of a plausible shape, marked as such by their `command`. They stand for
no run.
"""

import base64
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from whatwhere.comparison.page.wording import spread_of
from whatwhere.comparison.report import write_report
from whatwhere.errors import MissingExtra, ResultsError

pytest.importorskip("matplotlib")

SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")
DOORS = {"sinusoidal": ["input"], "learned": ["input"], "rotary": ["query_key"], "alibi": ["score"]}
SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)
TOKENS = ["PAD", "EOS", *"0123456789", "First", "Second", "Last", "Max", "Min", "(", ")", ","]
GROUPS = ["First", "Second", "Last", "Max", "Min"]
HOSTILE = "</title></style><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>$\\frac{\u202egnp\ud800\x00"


def made_up_task(name: str) -> dict[str, Any]:
    if name == "expressions":
        lengths = [8, 12, 16, 24, 32]
        guesses = {"chance": 0.1, "always 9 or 0": 0.12, "order-free ceiling": 0.658}
        baselines = {guess: {str(n): value for n in [*range(1, 7), *lengths]} for guess, value in guesses.items()}
        return _task(name, "arguments", list(range(1, 7)), lengths, GROUPS, "accuracy", baselines, TOKENS)
    if name == "recall":
        letters = [chr(97 + i) for i in range(26)]
        chance = {"chance": {str(n): 1 / 26 for n in (8, 16, 32, 64)}}
        return _task(name, "pairs", [4, 8], [8, 16, 32, 64], [], "accuracy", chance, letters)
    symbols = [chr(i) if 32 < i < 127 else f"0x{i:02x}" for i in range(256)]
    blind = {
        "all bytes alike": dict.fromkeys(("64", "128", "256"), 5.545),
        "frequency of bytes": {"64": 1.6, "256": 1.6},
    }
    return _task(name, "bytes", [64], [64, 128, 256], ["last quarter"], "nats per byte", blind, symbols)


def _task(
    name: str,
    unit: str,
    trained: list[int],
    lengths: list[int],
    groups: list[str],
    measure: str,
    baselines: Any,
    tokens: list[str],
) -> dict[str, Any]:
    better = "higher" if measure == "accuracy" else "lower"
    return {
        "name": name,
        "unit": unit,
        "trained": trained,
        "lengths": lengths,
        "groups": groups,
        "measure": measure,
        "better": better,
        "baselines": baselines,
        "tokens": tokens,
    }


def made_up_folder(folder: Path, task: str = "expressions", schemes: tuple[str, ...] = SCHEMES, seeds: int = 3) -> Path:
    """Make a valid results folder from random but plausible numbers. Nothing was trained."""
    (folder / "layers").mkdir(parents=True, exist_ok=True)
    described = made_up_task(task)
    runs = [_run(folder, described, scheme, seed) for scheme in schemes for seed in range(seeds)]
    data = {
        "format": "whatwhere-results",
        "version": 1,
        "created": "2026-01-02T03:04:05Z",
        "seconds": 106.4,
        "versions": {"whatwhere": "0.1.0", "torch": "2.13.0", "python": "3.11.9", "numpy": "2.4.6"},
        "machine": {"processor": "made-up processor", "cores": 2, "system": "Linux"},
        "command": f"whatwhere compare --task {task} (made up: no run behind these numbers)",
        "settings": {
            "task": task,
            "schemes": list(schemes),
            "lengths": described["lengths"],
            "seeds": list(range(seeds)),
            "steps": 800,
            "batch": 64,
            "learning_rate": 0.002,
            "dim": 64,
            "layers": 2,
            "heads": 4,
            "feedforward": 256,
            "direction": "decoder",
            "token_init_std": 0.15,
            "threads_per_run": 1,
        },
        "task": described,
        "runs": runs,
        "summary": {s: _summary([r for r in runs if r["scheme"] == s]) for s in schemes},
        "schemes": {scheme: _scheme(scheme) for scheme in schemes},
        "verdicts": _verdicts() if task == "expressions" else [],
    }
    (folder / "results.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def _run(folder: Path, task: dict[str, Any], scheme: str, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng([seed, *scheme.encode("utf-8", "replace")])
    file = f"layers/{re.sub(r'[^A-Za-z0-9_.-]', '_', scheme)[:60]}-{seed}.safetensors"
    words, dim = len(task["tokens"]), 64
    start = draw.normal(0, 0.15, (words, dim))
    change = draw.normal(0, 0.05, (words, dim))
    if task["name"] == "expressions":  # a number line, and Max against Min
        change[2:12] += np.linspace(-1, 1, 10)[:, None] * draw.normal(0, 0.1, dim)
        change[15], change[16] = (side := draw.normal(0, 0.1, dim)), -side
    tables = {"tokens.weight@0": start, "tokens.weight@20": start + 0.5 * change, "tokens.weight": start + change}
    save_file({name: values.astype(np.float32) for name, values in tables.items()}, folder / file)
    trained = max(task["trained"])
    hold = float(draw.uniform(0.1, 0.9))
    scores: dict[str, Any] = {}
    for length in sorted({*task["trained"], *task["lengths"]}):
        row = scheme == "learned" and length > trained
        reach = math.log2(max(length / trained, 1)) * hold * 0.3
        values = [max(0.05, 1 - reach * float(draw.uniform(0.6, 1.4))) for _ in range(1 + len(task["groups"]))]
        values = values if task["better"] == "higher" else [2.4 - v for v in values]
        named = zip(["all", *task["groups"]], values, strict=True)
        scores[str(length)] = {name: None if row else value for name, value in named}
    fixed = scheme not in {"sinusoidal", "learned"}
    shift = {
        str(s): {
            "score": 0.99 if fixed or s == 0 else 0.6 / math.sqrt(s),
            "largest_logit_change": 0.0
            if s == 0 or scheme == "none"
            else float(draw.uniform(0.5, 1)) * (1e-5 if fixed else 20),
        }
        for s in SHIFTS
    }
    if scheme == "learned":
        shift |= {str(s): {"score": None, "largest_logit_change": None} for s in SHIFTS if s > 0}
    return {
        "scheme": scheme,
        "seed": seed,
        "parameters": {"total": 104_320, "tokens": 1280, "positions": 896 if scheme == "learned" else 0},
        "steps": 800,
        "seconds": 20.1,
        "seconds_per_step": 0.0125 + 0.001 * seed,
        "losses": [[0, 2.3], [800, 0.01]],
        "scores": scores,
        "in_length": scores[str(trained)]["all"],
        "shift": shift,
        "story": _story(draw) if task["name"] == "expressions" else None,
        "file": file,
    }


def _story(draw: np.random.Generator) -> dict[str, Any]:
    snapshots = []
    for percent, std in ((0, 0.15), (20, 0.17), (100, 0.19)):
        numbers = {"mean": float(draw.normal(0, 0.002)), "std": std, "min": -3.5 * std, "max": 3.4 * std}
        cosine = {
            "Max-Min": -0.003 * percent,
            "First-Last": -0.002 * percent,
            "within digits": -0.01,
            "within operators": -0.05,
            "within syntax": 0.003 * percent,
        }
        snapshots.append(
            {
                "percent": percent,
                "table": numbers,
                "with_position": {**numbers, "std": std + 0.6},
                "cosine": cosine,
                "number_line": None if percent == 0 else float(draw.uniform(0.8, 0.97)),
            }
        )
    return {"at": [0, 20, 100], "snapshots": snapshots}


def _spread(values: list[Any]) -> dict[str, float] | None:
    found = spread_of(values)
    return None if found is None else dict(zip(("median", "min", "max"), found, strict=True))


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    first = runs[0]
    return {
        "scores": {
            n: {g: _spread([r["scores"][n][g] for r in runs]) for g in groups} for n, groups in first["scores"].items()
        },
        "in_length": _spread([r["in_length"] for r in runs]),
        "shift": {
            s: {m: _spread([r["shift"][s][m] for r in runs]) for m in found} for s, found in first["shift"].items()
        },
        "parameters": first["parameters"],
        "seconds_per_step": _spread([r["seconds_per_step"] for r in runs]),
    }


def _scheme(scheme: str) -> dict[str, Any]:
    place, pair = np.arange(66)[:, None], 10_000.0 ** (-np.arange(32) / 32)
    angle, near = place * pair, np.arange(33)
    waves = {
        "label": "similarity of two rows (cosine)",
        "distances": near.tolist(),
        "curves": {"all pairs": np.cos(near[:, None] * pair).mean(axis=1).tolist()},
    }
    slopes = 2.0 ** (-2 * np.arange(1, 5))
    shown = {
        "sinusoidal": ("rows by dimension", np.stack([np.sin(angle), np.cos(angle)], -1).reshape(66, 64), waves),
        "learned": ("rows by dimension", np.random.default_rng(3).normal(0, 0.1, (14, 64)), waves),
        "rotary": ("cos of the angle of each pair", np.cos(place * pair[::4]), waves),
        "alibi": (
            "bias by distance, one column a head",
            -place * slopes,
            {
                "label": "bias added to the score",
                "distances": near.tolist(),
                "curves": {f"head {h}": (-near * s).tolist() for h, s in enumerate(slopes)},
            },
        ),
    }
    if scheme not in shown:
        return {"door": DOORS.get(scheme, []), "fingerprint": None, "by_distance": None}
    label, values, curves = shown[scheme]
    return {"door": DOORS[scheme], "fingerprint": {"label": label, "values": values.tolist()}, "by_distance": curves}


def _verdicts() -> list[dict[str, str]]:
    return [
        {
            "claim": "Max and Min become similar",
            "claimed": "alike",
            "measured": "cosine −0.30 (−0.33 to −0.21)",
            "verdict": "fails",
            "why": "The model spends one direction on which of the two it is.",
        },
        {
            "claim": "The mean of the table stays near 0",
            "claimed": "about 0",
            "measured": "0.001",
            "verdict": "holds",
            "why": "Nothing pushes it anywhere.",
        },
        {
            "claim": "Standard deviation after training",
            "claimed": "0.8",
            "measured": "0.19 (0.18 to 0.20)",
            "verdict": "fails",
            "why": "Growth stops when the loss is near 0.",
        },
        {
            "claim": "Sinusoidal positions generalize to longer inputs",
            "claimed": "yes",
            "measured": "55 % at 12 arguments",
            "verdict": "depends",
            "why": "On the seed, and on what is asked.",
        },
        {
            "claim": "93.5 to 99.2 % after 50 epochs",
            "claimed": "99.2 %",
            "measured": "–",
            "verdict": "not measured",
            "why": "This run has its own number of steps.",
        },
    ]


class Page(HTMLParser):
    """Read a page: its elements, its text, its tables; an element that is not closed where it must be fails."""

    def __init__(self, written: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.ids: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(written)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        assert len(named) == len(attrs), f"<{tag}> has an attribute twice"
        self.elements.append((tag, named))
        self.ids += [named["id"]] if "id" in named else []
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][1][-1].append("")
        if tag not in {"meta", "br"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words += data
        if "caption" in self._open:
            self.tables[-1] = (self.tables[-1][0] + data, self.tables[-1][1])
        elif "td" in self._open or "th" in self._open:
            separator = " | " if "small" in self._open and self.tables[-1][1][-1][-1] else ""
            self.tables[-1][1][-1][-1] += separator + data

    def cell(self, caption: str, row: str, column: str) -> str:
        """Find the one cell of this row and column in the tables whose caption starts so."""
        found = []
        for title, (head, *rows) in self.tables:
            if title.startswith(caption) and column in head:
                found += [line[head.index(column)] for line in rows if line[0] == row]
        assert len(found) == 1, f"{caption}: {row}, {column}: {found}"
        return found[0]


@pytest.fixture(scope="module", params=["expressions", "recall", "text"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder = made_up_folder(tmp_path_factory.mktemp(request.param), request.param)
    written = write_report(folder).read_text(encoding="utf-8")
    return json.loads((folder / "results.json").read_text(encoding="utf-8")), written


def written_after(folder: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """Write the report of a folder whose results.json was changed."""
    path = folder / "results.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return write_report(folder).read_text(encoding="utf-8")


def test_the_page_is_one_file_that_loads_and_runs_nothing(made: tuple[dict[str, Any], str]) -> None:
    _, written = made
    page = Page(written)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "img",
        "form",
        "base",
        "foreignobject",
        "use-image",
    }
    pictures = 0
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action", "xlink:href"}
            if name == "href" and tag == "image":
                kind, _, data = value.partition(",")
                assert kind == "data:image/png;base64"
                assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
                pictures += 1
            elif name == "href":
                assert value.startswith("#")
            assert "url(" not in value.replace("url(#", "")
    assert pictures > 3
    style = written[written.index("<style>") : written.index("</style>")]
    assert not re.search(r"@import|url\(|https?:", style)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


def test_the_page_is_whole(made: tuple[dict[str, Any], str]) -> None:
    _, written = made
    page = Page(written)  # fails where elements are not closed
    assert len(page.ids) == len(set(page.ids))
    for _, attributes in page.elements:
        named = attributes.get("aria-labelledby", "").split()
        named += [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        named += re.findall(r"url\(#([^)]*)\)", " ".join(attributes.values()))
        assert set(named) <= set(page.ids)
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert all(a.get("aria-labelledby") or a.get("aria-hidden") for a in drawings)
    assert not re.search("#0[ab]000[0-9]", written), "a color stands there that was to become the page's own"
    assert all(caption for caption, _ in page.tables)
    assert all(len({len(row) for row in rows}) == 1 for _, rows in page.tables)
    assert [tag for tag, _ in page.elements if tag in {"h1", "h2"}] == ["h1"] + 8 * ["h2"]
    assert len(written) < 900_000


def cell_of(found: dict[str, float] | None, factor: float, digits: int) -> str:
    """Write a spread as a reader expects it."""
    if found is None:
        return "no row"
    middle, least, greatest = (
        f"{found[part] * factor:.{digits}f}".replace("-", "\u2212") for part in ("median", "min", "max")
    )
    return middle if least == greatest else f"{middle} | {least} to {greatest}"


def test_every_number_of_the_summary_stands_in_its_place_in_a_table(made: tuple[dict[str, Any], str]) -> None:
    data, written = made
    page, unit = Page(written), data["task"]["unit"]
    form = (100.0, 1) if data["task"]["measure"] == "accuracy" else (1.0, 3)
    for scheme, summary in data["summary"].items():
        assert page.cell("Scores", scheme, "in length") == cell_of(summary["in_length"], *form)
        assert page.cell("Scores", scheme, "ms per step") == cell_of(summary["seconds_per_step"], 1000.0, 1)
        total, position = (f"{summary['parameters'][part]:,}" for part in ("total", "positions"))
        assert page.cell("Scores", scheme, "parameters") == f"{total} | {position} for position"
        assert page.cell("One line", f"{scheme}, seed 0", "of tokens") == str(summary["parameters"]["tokens"])
        for length, groups in summary["scores"].items():
            assert page.cell(f"By {unit}", scheme, length) == cell_of(groups.pop("all"), *form)
            for group, found in groups.items():
                assert page.cell("By group", f"{group}, {scheme}", length) == cell_of(found, *form)
            if int(length) > max(data["task"]["trained"]):
                assert page.cell("Scores", scheme, f"at {length}") == page.cell(f"By {unit}", scheme, length)
        moved, still = (summary["shift"][shift]["score"] for shift in ("1", "0"))
        stands = [f"{found['median'] * form[0]:.{form[1]}f}" for found in (moved, still) if found]
        expected = " | unmoved ".join(stands) if moved else "no row"
        assert page.cell("Scores", scheme, "moved by 1") == expected
        for shift, found in summary["shift"].items():
            assert page.cell("By shift", scheme, shift) == cell_of(found["score"], *form)
            assert_change(page.cell("Largest change", scheme, shift), found["largest_logit_change"])


def assert_change(cell: str, found: dict[str, float] | None) -> None:
    """Compare a cell such as "8.1 x 10^-6, 7.2 x 10^-6 to 9.0 x 10^-6", written with two digits."""
    if found is None:
        assert cell == "no row"
        return
    middle, _, rest = cell.partition(" | ")
    least, _, greatest = rest.replace(" | ", "").partition(" to ") if rest else (middle, "", middle)
    for text, part in ((middle, "median"), (least, "min"), (greatest, "max")):
        number = float(re.sub(r" × 10(.*)", r"e\1", text.replace("\u2212", "-")))
        assert number == pytest.approx(found[part], rel=0.06)


def test_what_can_be_scored_without_positions_is_drawn_or_told(made: tuple[dict[str, Any], str]) -> None:
    data, written = made
    page, unit = Page(written), data["task"]["unit"]
    chart = written[written.index('id="accuracy-chart-title"') : written.index('id="accuracy-chart-narrow-title"')]
    for name, scores in data["task"]["baselines"].items():
        far = name == "all bytes alike"
        assert (f"> {name}</text>" in chart) != far
        assert (f"Too far away to be drawn: {name}" in page.words) == far
        for length, value in scores.items():
            shown = f"{100 * value:.1f}" if data["task"]["measure"] == "accuracy" else f"{value:.3f}"
            assert page.cell(f"By {unit}", name, length) == shown


def test_every_run_setting_and_verdict_is_on_the_page(made: tuple[dict[str, Any], str]) -> None:
    data, written = made
    page = Page(written)
    for run in data["runs"]:
        assert page.cell("One line", f"{run['scheme']}, seed {run['seed']}", "trained input layer") == run["file"]
    for name in data["settings"]:
        assert page.cell("The settings", name, "value")
    for verdict in data["verdicts"]:
        assert page.cell("Each claim", verdict["claim"], "why") == verdict["why"]
        assert page.cell("Each claim", verdict["claim"], "verdict").endswith(verdict["verdict"])
    assert data["command"] in page.words


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    import matplotlib

    first = write_report(made_up_folder(tmp_path / "one", seeds=2)).read_bytes()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30, "svg.fonttype": "path"}):
        assert write_report(tmp_path / "two").read_bytes() == first
    assert not list(tmp_path.glob("*/*.part"))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, schemes=("none", HOSTILE, "learned"), seeds=1)

    def poison(data: dict[str, Any]) -> None:
        task, groups = data["task"], data["task"]["groups"]
        task["groups"] = [*groups[:-1], HOSTILE]
        task["tokens"][17] = task["unit"] = task["measure"] = task["name"] = HOSTILE
        task["baselines"][HOSTILE] = task["baselines"].pop("chance")
        for part in [*data["runs"], *data["summary"].values()]:
            for scores in part["scores"].values():
                scores[HOSTILE] = scores.pop(groups[-1])
        fingerprint = {"label": HOSTILE, "values": [[1.0, -1.0]]}
        curves = {"label": HOSTILE, "distances": [0, 1], "curves": {HOSTILE: [1.0, 0.5], HOSTILE * 2: [0.5, 0.1]}}
        data["schemes"][HOSTILE] = {"door": [HOSTILE], "fingerprint": fingerprint, "by_distance": curves}
        data["verdicts"][0] = dict.fromkeys(data["verdicts"][0], HOSTILE)
        data["settings"][HOSTILE] = data["machine"]["processor"] = data["created"] = data["command"] = HOSTILE
        data["versions"]["torch"] = HOSTILE

    written = written_after(folder, poison)
    page = Page(written)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.words.count("<script>alert(1)</script>") > 10
    assert sum("<script>" in (attributes.get("aria-label") or "") for _, attributes in page.elements) > 1
    assert not set("\x00\u202e") & set(written)
    assert len(page.ids) == len(set(page.ids))


def test_a_scheme_without_rows_is_drawn_as_no_row_and_said_so(tmp_path: Path) -> None:
    with_learned = write_report(made_up_folder(tmp_path / "with", seeds=1)).read_text(encoding="utf-8")
    chart = with_learned[with_learned.index('id="accuracy"') : with_learned.index('id="shift"')]
    assert re.search(r"<text[^>]*>no row</text>", chart)
    page = Page(with_learned)
    assert {page.cell("By arguments", "learned", str(length)) for length in (8, 12, 16, 24, 32)} == {"no row"}
    assert page.cell("By arguments", "learned", "6") != "no row"
    assert "learned has no row there" in page.words
    without = write_report(made_up_folder(tmp_path / "without", schemes=("none", "rotary"), seeds=1))
    assert "no row" not in without.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize(("task", "best"), [("expressions", "alibi"), ("text", "rotary")])
def test_the_answer_comes_first_and_knows_which_side_is_better(tmp_path: Path, task: str, best: str) -> None:
    def decide(data: dict[str, Any]) -> None:
        longest = str(data["task"]["lengths"][-1])
        for scheme, score in (("rotary", 0.5), ("alibi", 0.9)):
            data["summary"][scheme]["scores"][longest]["all"] = dict.fromkeys(("median", "min", "max"), score)
            data["summary"][scheme]["in_length"] = dict.fromkeys(
                ("median", "min", "max"), 0.92 if task != "text" else 0.49
            )

    written = written_after(made_up_folder(tmp_path, task, schemes=("rotary", "alibi")), decide)
    first = re.sub("<[^>]*>", "", written[written.index('class="seen"') :].partition("</p>")[0])
    assert first.startswith(f'class="seen">Of 2 schemes, {best} holds best at')
    assert ("lower is better" if task == "text" else "higher is better") in Page(written).words


@pytest.mark.parametrize(
    ("rotary", "alibi", "words"),
    [
        ((0.99, 0.97, 0.2, 0.1, 0.1), (0.94, 0.99, 0.99, 0.99, 0.3), "Longest to hold: rotary, to 12."),
        ((0.99, 0.97, 0.98, 0.1, 0.1), (0.96, 0.99, 0.99, 0.99, 0.3), "Longest to hold: alibi, to 24."),
        ((0.99, 0.96, 0.2, 0.1, 0.1), (0.96, 0.97, 0.3, 0.1, 0.1), "Longest to hold: alibi and rotary, to 12."),
        ((0.9, 0.9, 0.9, 0.9, 0.9), (0.8, 0.99, 0.99, 0.99, 0.3), "None holds even at 8."),
    ],
)
def test_where_no_scheme_holds_to_the_end_the_page_says_how_far(
    tmp_path: Path, rotary: tuple[float, ...], alibi: tuple[float, ...], words: str
) -> None:
    def spoil(data: dict[str, Any]) -> None:
        for scheme, scores in (("rotary", rotary), ("alibi", alibi)):
            summary = data["summary"][scheme]
            summary["in_length"] = dict.fromkeys(("median", "min", "max"), 1.0)
            for length, score in zip(data["task"]["lengths"], scores, strict=True):
                summary["scores"][str(length)]["all"] = dict.fromkeys(("median", "min", "max"), score)

    written = Page(written_after(made_up_folder(tmp_path, schemes=("rotary", "alibi")), spoil)).words
    assert "No scheme holds at 32 arguments" in written
    assert words in written


def test_one_scheme_one_seed_and_no_test_beyond(tmp_path: Path) -> None:
    def cut(data: dict[str, Any]) -> None:
        summary = data["summary"]["rotary"]
        summary["scores"] = {n: found for n, found in summary["scores"].items() if int(n) <= 6}
        summary["shift"] = data["schemes"] = {}
        data["runs"][0]["losses"] = []

    words = Page(written_after(made_up_folder(tmp_path, schemes=("rotary",), seeds=1), cut)).words
    assert "a single seed" in words
    assert "This run has no shift test." in words
    assert "1 schemes" not in words


def test_scores_that_are_not_finite_are_named_so(tmp_path: Path) -> None:
    def diverge(data: dict[str, Any]) -> None:
        broken = dict.fromkeys(("median", "min", "max"), math.nan)
        data["summary"]["none"]["scores"]["32"]["all"] = data["summary"]["none"]["in_length"] = broken

    folder = made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=1)
    save_file(
        {name: np.full((20, 64), np.nan) for name in ("tokens.weight", "tokens.weight@0")},
        folder / "layers/none-0.safetensors",
    )
    page = Page(written_after(folder, diverge))
    assert page.cell("By arguments", "none", "32") == "not finite"
    assert "Of 2 schemes, rotary" in page.words or "of 2 schemes, rotary" in page.words


def test_without_the_trained_tables_the_page_lacks_their_pictures_alone(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, seeds=1)
    assert 'id="heat-0-title"' in write_report(folder).read_text(encoding="utf-8")
    shutil.rmtree(folder / "layers")
    written = write_report(folder).read_text(encoding="utf-8")
    assert 'id="heat-0-title"' not in written
    assert 'id="digits-0-title"' not in written
    assert "The trained tables are not in this folder" in written
    assert "The story in numbers" in written


@pytest.mark.parametrize("file", ["../outside.safetensors", "/etc/hostname", "layers/../../outside.safetensors"])
def test_a_file_outside_the_folder_is_refused(tmp_path: Path, file: str) -> None:
    folder = made_up_folder(tmp_path / "inner", schemes=("rotary",), seeds=1)
    shutil.copy(folder / "layers/rotary-0.safetensors", tmp_path / "outside.safetensors")
    with pytest.raises(ResultsError, match="lies outside its own folder"):
        written_after(folder, lambda data: data["runs"][0].update(file=file))


def nested(data: dict[str, Any], *path: Any) -> Any:
    for step in path:
        data = data[step]
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format="results"), "not a comparison of ours"),
        (lambda data: data.update(version=2), "has version 2, but this whatwhere reads version 1"),
        (lambda data: data.pop("summary"), "lacks summary"),
        (lambda data: data.update(runs={}), "lacks runs"),
        (lambda data: data["task"].pop("unit"), r"lacks task\.unit"),
        (lambda data: data["runs"].__setitem__(0, None), r"lacks runs\[0\]"),
        (lambda data: nested(data, "summary", "none").pop("shift"), r"lacks summary\['none'\]\.shift"),
        (lambda data: data["summary"].update(none=None), r"lacks summary\['none'\]"),
        (lambda data: data["summary"].clear(), "lacks any scheme"),
        (lambda data: nested(data, "summary", "none", "in_length").pop("min"), "a part that cannot be read: KeyError"),
        (lambda data: nested(data, "summary", "none", "in_length").update(min="?"), "a part that cannot be read"),
        (lambda data: data["runs"][0].update(file="layers/\0"), "a part that cannot be read"),
        (lambda data: data["task"].update(trained=[]), "any trained length"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_and_the_old_page_stays(tmp_path: Path, change: Any, message: str) -> None:
    folder = made_up_folder(tmp_path, schemes=("none",), seeds=1)
    (folder / "report.html").write_text("the old page")
    with pytest.raises(ResultsError, match=message) as caught:
        written_after(folder, change)
    assert len(str(caught.value).splitlines()) > 1, "what to do stands on a line of its own"
    assert (folder / "report.html").read_text() == "the old page"
    assert not (folder / "report.html.part").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff\xfe", "[" * 100_000])
def test_what_is_no_results_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultsError, match=r"results\.json"):
        write_report(tmp_path)


def test_an_empty_folder_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"holds no results\.json.*\n.*whatwhere compare"):
        write_report(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 64])
def test_a_damaged_table_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = made_up_folder(tmp_path, schemes=("none",), seeds=1)
    (folder / "layers/none-0.safetensors").write_bytes(content)
    with pytest.raises(ResultsError, match="cannot be read as safetensors"):
        write_report(folder)
    save_file({"tokens.weight": np.zeros(3), "tokens.weight@0": np.zeros(3)}, folder / "layers/none-0.safetensors")
    with pytest.raises(ResultsError, match=r"not \(tokens, dim\)"):
        write_report(folder)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made_up_folder(tmp_path, schemes=("none",), seeds=1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r'pip install "whatwhere\[report\]"'):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_the_results_are_not_changed(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, schemes=("none",), seeds=1)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_report(folder)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after.pop(folder / "report.html")
    assert after == before
