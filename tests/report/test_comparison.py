"""The report: true to results.json, in answers and in tables; safe with hostile names; the same bytes twice."""

import base64
import gzip
import html
import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from whatwhere.comparison import paired_differences, read_results
from whatwhere.errors import CheckpointError, ResultsError
from whatwhere.report import comparison_sentences as sentences
from whatwhere.report.comparison import sections
from whatwhere.report.comparison import summary as scores_table
from whatwhere.report.comparison_sentences import headline, last_length, learned, scope_sentence
from whatwhere.report.section import Chart, Table
from whatwhere.studio.export import unpack, write_page
from whatwhere.studio.session import Session

from ..comparison import made_up
from ..comparison.made_up import change, hostile_folder, made_up_folder
from ..running import whatwhere
from .page import Page

TASKS = ("expressions", "recall", "text")


def results_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return result


def answers(page: str) -> dict[str, dict[str, Any]]:
    """Read the answers of an exported page by its own rules: base64, gzip, our wire."""
    data = json.loads(re.search(r'id="exported">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    return {key: unpack(gzip.decompress(base64.b64decode(data["blocks"][n]))) for key, n in data["answers"].items()}


def charts(folder: Path) -> dict[str, Chart]:
    parts = [part for section in sections(read_results(folder)) for part in section.parts]
    return {part.title: part for part in parts if isinstance(part, Chart)}


def write_report(folder: Path) -> Path:
    return write_page(Session.open(folder), folder / "report.html")


def report(folder: Path) -> Page:
    page = Page("")
    parts = [part for section in sections(read_results(folder)) for part in section.parts]
    drawn = [each for each in parts if isinstance(each, Chart)]
    page.words = "\n".join([each for each in parts if isinstance(each, str)] + [chart.note for chart in drawn])
    tables = [each.table if isinstance(each, Chart) else each for each in parts if not isinstance(each, str)]
    page.tables = [(each.caption, [list(each.columns), *map(list, each.rows)]) for each in tables if each.columns]
    return page


def alike(score: float) -> dict[str, float]:
    return dict.fromkeys(("median", "min", "max"), score)


@pytest.fixture(scope="module", params=TASKS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = made_up_folder(tmp_path_factory.mktemp(request.param), request.param)
    return results_of(folder), folder


def test_the_page_contains_what_the_views_request(tmp_path: Path, bundle: None) -> None:
    folder = made_up_folder(tmp_path, seeds=2)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    path = write_report(folder)
    written = path.read_text(encoding="utf-8")
    result = answers(written)
    about = result["about?{}"]
    assert (next(iter(about["views"])), about["exported"], about["path"]) == ("compare", True, "")
    assert {"compare", "replay", "attention", "tokens", "map", "diagnostics"} <= set(about["views"])
    schemes = result["compare.results?{}"]["sections"][0]["parts"][2]["rows"]
    best = _best_first(folder)
    assert [row[0] for row in schemes[: len(best)]] == [*results_of(folder)["summary"]]
    assert [key for key in result if key.startswith("replay.frames")] == [
        f'replay.frames?{{"run":"{scheme}-0"}}' for scheme in best
    ]
    assert about["run"] == f"{best[0]}-0"
    page = Page(written)
    assert headline(read_results(folder)) in page.words
    assert page.cell("Scores", "rotary", "at 8") == page.cell("By arguments", "rotary", "8")
    assert all(caption and len({len(row) for row in rows}) == 1 for caption, rows in page.tables)
    assert len(written) < 1_000_000
    assert write_report(folder).read_text(encoding="utf-8") == written, "the same bytes, whenever it is written"
    assert {path: path.read_bytes() for path in before} == before


def _best_first(folder: Path) -> list[str]:
    summary = results_of(folder)["summary"]
    medians = {name: (each["scores"]["32"]["all"] or {}).get("median", math.nan) for name, each in summary.items()}
    best = max((name for name in medians if not math.isnan(medians[name])), key=medians.__getitem__)
    return sorted(medians, key=lambda name: name != best)


def cell_of(result: dict[str, float] | None, factor: float, digits: int) -> str:
    if result is None:
        return "no row"
    middle, least, greatest = (
        f"{result[part] * factor:.{digits}f}".replace("-", "\u2212") for part in ("median", "min", "max")
    )
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def test_every_number_of_the_summary_is_in_its_table_cell(made: tuple[dict[str, Any], Path]) -> None:
    data, folder = made
    page, unit = report(folder), data["task"]["unit"]
    form = (100.0, 1) if data["task"]["measure"] == "accuracy" else (1.0, 3)
    for scheme, summary in data["summary"].items():
        assert page.cell("Scores", scheme, "in length") == cell_of(summary["in_length"], *form)
        assert page.cell("Costs", scheme, "ms per step") == cell_of(summary["seconds_per_step"], 1000.0, 1)
        assert page.cell("Costs", scheme, "parameters") == f"{summary['parameters']['total']:,}"
        assert page.cell("Costs", scheme, "of positions") == f"{summary['parameters']['positions']:,}"
        assert page.cell("One row", f"{scheme}, seed 0", "of tokens") == f"{summary['parameters']['tokens']:,}"
        for length, groups in summary["scores"].items():
            assert page.cell(f"By {unit}", scheme, length) == cell_of(groups["all"], *form)
            for group in data["task"]["groups"]:
                assert page.cell(f"{group} alone", scheme, length) == cell_of(groups[group], *form)
            if int(length) > max(data["task"]["trained"]):
                assert page.cell("Scores", scheme, f"at {length}") == cell_of(groups["all"], *form)
        for shift, result in summary["shift"].items():
            assert page.cell("By how far", scheme, shift) == cell_of(result["score"], *form)


def test_what_can_be_scored_without_positions_is_listed(made: tuple[dict[str, Any], Path]) -> None:
    data, folder = made
    page, unit = report(folder), data["task"]["unit"]
    chart = next(chart for title, chart in charts(folder).items() if title.endswith("by length"))
    near = {each.name for each in chart.series if each.reference}
    assert near == data["task"]["baselines"].keys() - {"all bytes alike"}
    for name, scores in data["task"]["baselines"].items():
        assert f"{name}: " in page.words
        for length, value in scores.items():
            text = f"{100 * value:.1f}" if data["task"]["measure"] == "accuracy" else f"{value:.3f}"
            assert page.cell(f"By {unit}", name, length) == text


def test_every_run_and_setting_is_reported(made: tuple[dict[str, Any], Path]) -> None:
    data, folder = made
    page = report(folder)
    for run in data["runs"]:
        assert page.cell("One row", f"{run['scheme']}, seed {run['seed']}", "trained model") == run["file"]
        assert page.cell("One row", f"{run['scheme']}, seed {run['seed']}", "last loss") == "0.01"
    for name in data["settings"]:
        assert page.cell("Settings", name, "value")
    assert data["command"] in page.words
    minutes, seconds = divmod(round(20.1 * len(data["runs"])), 60)
    took = f"{len(data['runs'])} runs took {minutes} min {seconds} s, added up, on a machine of 2 cores"
    assert f"{took} (made-up processor)" in page.words


def test_the_token_table_is_reported_through_the_training(made: tuple[dict[str, Any], Path]) -> None:
    data, folder = made
    page = report(folder)
    stories = [run["token_table"] for run in data["runs"] if run["token_table"]]
    if not stories:
        assert "The digits on a line, by scheme" not in charts(folder)
        assert "% of that of E0" in page.words
        return
    for index, percent in enumerate((0, 20, 100)):
        column = f"at {percent} %"
        for row, (part, name, digits) in {
            "mean": ("table", "mean", 3),
            "standard deviation": ("table", "std", 3),
            "cosine of Max and Min": ("change_cosines", "max_min", 2),
            "mean cosine within the digits": ("change_cosines", "within_digits", 2),
        }.items():
            values = [story[index][part][name] for story in stories if story[index][part] is not None]
            if not values:
                assert page.cell("The token table", row, column) == "–"
                continue
            spread = {"median": float(np.median(values)), "min": min(values), "max": max(values)}
            written = cell_of(spread, 1.0, digits)
            same = page.cell("The token table", row, column)
            assert same == written or float(same) == 0 == round(spread["median"], digits)
    lines = [story[2]["number_line"] for story in stories]
    line_up = page.cell("The token table", "digits on a line, |r|", "at 100 %")
    assert line_up == f"{np.median(lines):.2f} ({min(lines):.2f} to {max(lines):.2f})"
    names = [line.name for line in charts(folder)["The digits on a line, by scheme"].series]
    assert [name.partition(",")[0] for name in names] == list(data["summary"])


def test_a_table_that_did_not_move_has_no_cosines(tmp_path: Path) -> None:
    def freeze(data: dict[str, Any]) -> None:
        for run in data["runs"]:
            for snapshot in run["token_table"]:
                snapshot["number_line"] = None

    page = report(change(made_up_folder(tmp_path / "frozen"), freeze))
    assert page.cell("The token table", "cosine of Max and Min", "at 100 %") == "–"


def test_the_part_that_fails_first_is_that_of_the_best_scheme(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path / "made")
    assert sentences.first_to_fail(read_results(folder)).replace("\u00a0", " ") == (
        "With alibi, Second fails first: 92.9 % at 8 arguments, where Min has 96.7 %. There, Second has 95.1 % with "
        "sinusoidal, 90.1 % with “none” and 89.4 % with rotary."
    )


def test_the_positions_setting_is_reported(made: tuple[dict[str, Any], Path]) -> None:
    data, folder = made
    drawn, page = charts(folder), report(folder)
    pictured = {name: scheme for name, scheme in data["schemes"].items() if scheme["fingerprint"]}
    assert [title for title in drawn if "Fingerprint" in title] == [f"Fingerprint of {name}" for name in pictured]
    for name, scheme in pictured.items():
        rows = [row.values for row in drawn[f"Fingerprint of {name}"].series]
        np.testing.assert_allclose(rows, scheme["fingerprint"]["values"], rtol=1e-6)
        found = scheme["by_distance"]
        label = found["label"][:1].upper() + found["label"][1:]
        chart = drawn.get(label) or drawn[f"{label}, {name}"]  # one curve is named by the title
        curves = {each.name: each.values for each in chart.series if each.name.partition(",")[0] == name}
        for curve, right in zip(curves.values(), found["curves"].values(), strict=True):
            np.testing.assert_array_equal(curve[: len(right)], right)  # a table may end earlier than others
        written = f"{next(iter(curves.values()))[1]:.3f}".replace("-", "\u2212")
        assert page.cell(chart.table.caption, "1", next(iter(curves))) == written
    assert "No positional encoding: \u201cnone\u201d; added to the token's vector: sinusoidal and learned" in page.words


def test_hostile_names_stay_text(tmp_path: Path, bundle: None) -> None:
    written = write_report(hostile_folder(tmp_path)).read_text(encoding="utf-8")
    page = Page(written)
    assert [tag for tag, _ in page.elements].count("script") == written.count("<script") == 2
    assert "img" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.words.count("</title></style><script>alert(1)</script>") > 4
    assert not set("\x00\u202e") & set(written)
    assert "⟨U+202E⟩" in page.words
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', written)[1])  # type: ignore[index]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_a_scheme_without_rows_is_reported_as_such(tmp_path: Path) -> None:
    page = report(made_up_folder(tmp_path / "with", seeds=1))
    assert {page.cell("By arguments", "learned", str(length)) for length in (8, 12, 16, 24, 32)} == {"no row"}
    assert page.cell("By arguments", "learned", "6") != "no row"
    assert "learned has no row there" in page.words
    without = report(made_up_folder(tmp_path / "without", schemes=("none", "rotary"), seeds=1))
    assert "no row" not in without.words + str(without.tables)


@pytest.mark.parametrize(("task", "best"), [("expressions", "alibi"), ("text", "rotary")])
def test_the_answer_comes_first_and_names_the_better_side(tmp_path: Path, task: str, best: str) -> None:
    def decide(data: dict[str, Any]) -> None:
        longest = str(data["task"]["lengths"][-1])
        for scheme, score in (("rotary", 0.5), ("alibi", 0.9)):
            data["summary"][scheme]["scores"][longest]["all"] = alike(score)
            data["summary"][scheme]["in_length"] = alike(0.92 if task != "text" else 0.49)

    folder = change(made_up_folder(tmp_path, task, schemes=("rotary", "alibi")), decide)
    assert len(headline(read_results(folder)).split()) <= 20
    page = report(folder)
    assert page.words.startswith(f"Of 2 schemes, {best} has the best median at")
    assert ("lower is better" if task == "text" else "higher is better") in page.tables[0][0]


@pytest.mark.parametrize(
    ("rotary", "alibi", "words"),
    [
        ((0.99, 0.97, 0.2, 0.1, 0.1), (0.94, 0.99, 0.99, 0.99, 0.3), "Longest to hold: rotary, to 12."),
        ((0.99, 0.97, 0.98, 0.1, 0.1), (0.96, 0.99, 0.99, 0.99, 0.3), "Longest to hold: alibi, to 24."),
        ((0.99, 0.96, 0.2, 0.1, 0.1), (0.96, 0.97, 0.3, 0.1, 0.1), "Longest to hold: alibi and rotary, to 12."),
        ((0.9, 0.9, 0.9, 0.9, 0.9), (0.8, 0.99, 0.99, 0.99, 0.3), "Not one holds even at 8."),
    ],
)
def test_where_no_scheme_generalizes_to_the_longest_length_the_answer_states_how_far(
    tmp_path: Path, rotary: tuple[float, ...], alibi: tuple[float, ...], words: str
) -> None:
    def spoil(data: dict[str, Any]) -> None:
        for scheme, scores in (("rotary", rotary), ("alibi", alibi)):
            summary = data["summary"][scheme]
            summary["in_length"] = alike(1.0)
            for length, score in zip(data["task"]["lengths"], scores, strict=True):
                summary["scores"][str(length)]["all"] = alike(score)

    answer = first_sentences(change(made_up_folder(tmp_path, schemes=("rotary", "alibi")), spoil))
    assert "No scheme holds at 32 arguments" in answer
    assert words in answer


def test_one_scheme_one_seed_and_no_test_beyond(tmp_path: Path) -> None:
    def cut(data: dict[str, Any]) -> None:
        summary = data["summary"]["rotary"]
        for part in (summary, data["runs"][0]):
            part["scores"] = {n: result for n, result in part["scores"].items() if int(n) <= 6}
        summary["shift"], data["schemes"] = {}, {}
        data["runs"][0]["losses"] = []

    folder = change(made_up_folder(tmp_path, schemes=("rotary",), seeds=1), cut)
    words = report(folder).words
    assert words.startswith("rotary: ")
    assert "These runs have no shift test." in words
    assert "; a single seed; " in scores_table(read_results(folder)).caption
    assert "1 scheme" not in words
    beyond = first_sentences(made_up_folder(tmp_path / "beyond", schemes=("rotary",), seeds=1))
    assert re.match(r"rotary (holds|does not hold) at 32 arguments: ", beyond)


def test_scores_that_are_not_finite_are_named_so(tmp_path: Path) -> None:
    def diverge(data: dict[str, Any]) -> None:
        data["summary"]["none"]["scores"]["32"]["all"] = data["summary"]["none"]["in_length"] = alike(math.nan)

    folder = made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=1)
    save_file(
        {name: np.full((20, 64), np.nan) for name in ("input.tokens.weight", "input.tokens.weight@0")},
        folder / "models/none-0.safetensors",
    )
    page = report(change(folder, diverge))
    assert page.cell("By arguments", "none", "32") == "not a number"
    assert re.search("rotary (has the best|holds)", page.words)


def test_without_the_trained_tables_the_page_lacks_their_pictures_alone(tmp_path: Path, bundle: None) -> None:
    folder = made_up_folder(tmp_path, seeds=1)
    shutil.rmtree(folder / "models")
    result = answers(write_report(folder).read_text(encoding="utf-8"))
    assert not [title for title in charts(folder) if "digits" in title]
    assert report(folder).cell("The token table", "mean", "at 0 %")
    assert "tokens" not in result["about?{}"]["views"]
    loss = next(value for key, value in result.items() if key.startswith("replay.frames"))
    assert (loss["frames"], loss["losses"].tolist()) == (None, [2.3, 0.01])


@pytest.mark.parametrize(
    "file", ["../outside.safetensors", "/etc/hostname", "models/../../outside.safetensors", "models/\0"]
)
def test_a_file_that_is_not_in_the_folder_is_refused(tmp_path: Path, bundle: None, file: str) -> None:
    folder = made_up_folder(tmp_path / "inner", schemes=("rotary",), seeds=1)
    shutil.copy(folder / "models/rotary-0.safetensors", tmp_path / "outside.safetensors")
    with pytest.raises((ResultsError, CheckpointError), match=r"outside its own folder|only a plain name|null"):
        write_report(change(folder, lambda data: data["runs"][0].update(file=file)))


def nested(data: dict[str, Any], *path: Any) -> Any:
    for step in path:
        data = data[step]
    return data


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda data: data.update(format="results"), "has the format 'results', but"),
        (lambda data: data.update(version=1), r"has version 1, but this whatwhere reads version 4\.\nRun the"),
        (lambda data: data.pop("summary"), "`summary`"),
        (lambda data: data["task"].pop("unit"), "`unit`"),
        (lambda data: data["runs"].__setitem__(0, None), r"`\$\.runs\[0\]`"),
        (lambda data: data["summary"].update(none=None), r"`\$\.summary\[\.\.\.\]`"),
        (lambda data: data["summary"].clear(), "no scheme"),
        (lambda data: nested(data, "summary", "none", "in_length").update(min="?"), "Expected `float`, got `str`"),
        (lambda data: nested(data, "summary", "none", "scores").update({"\ud800": {}}), "results.json"),
        (lambda data: data["settings"].update(steps=-1), "steps=-1"),
        (lambda data: data["task"].update(trained=[]), "no trained length"),
        (lambda data: data.update(runs=[]), "in its summary or in its runs, but not in both"),
        (lambda data: data["summary"].update(other=data["summary"].pop("none")), "or in its runs, but not in both"),
        (lambda data: data["runs"].append(data["runs"][0]), "has the run 'none', seed 0, twice"),
        (lambda data: data.update(choices=[{"scheme": "none", "chosen": "gone", "losses": {"none": 1.0}}]),
         "has the setting 'gone' of a scheme, but no run of it"),
    ],
)  # fmt: skip
def test_damaged_results_are_refused(tmp_path: Path, how: Any, message: str) -> None:
    folder = change(made_up_folder(tmp_path, schemes=("none",), seeds=1), how)
    with pytest.raises(ResultsError, match=message) as caught:
        read_results(folder)
    assert len(str(caught.value).splitlines()) > 1, "the way out is on a line of its own"


def test_an_empty_folder_names_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"holds no results\.json.*\n.*whatwhere compare"):
        read_results(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 64])
def test_a_damaged_table_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = made_up_folder(tmp_path, schemes=("none",), seeds=1)
    (folder / "models/none-0.safetensors").write_bytes(content)
    results = read_results(folder)
    with pytest.raises(ResultsError, match="cannot be read as safetensors"):
        sections(results)
    save_file(
        {"input.tokens.weight": np.zeros(3), "input.tokens.weight@0": np.zeros(3)}, folder / "models/none-0.safetensors"
    )
    with pytest.raises(ResultsError, match=r"not \(tokens, dim\)"):
        sections(results)


def first_sentences(folder: Path) -> str:
    results = read_results(folder)
    return " ".join(sentences.first_sentences(results, paired_differences(results, last_length(results))))


TOO_FEW = "cannot show any difference at the 5\u00a0% level: 1 pair of schemes needs at least 6 seeds."


@pytest.mark.parametrize(
    ("seeds", "ahead", "conclusion"),
    [
        (1, 1, f"1 seed {TOO_FEW}"),
        (5, 5, f"5 seeds {TOO_FEW}"),
        (6, 6, "alibi is better than rotary by 1.5 points, the mean of the paired differences (95\u00a0% interval "),
        (6, 5, "At 32 arguments, these seeds do not separate alibi from rotary."),
        (9, 8, "alibi is better than rotary by 1.2 points, "),  # 12 / 2^9: five gains are as small as the loss
        (9, 7, "At 32 arguments, these seeds do not separate alibi from rotary."),
    ],
)
def test_a_difference_is_claimed_where_the_seeds_show_it_alone(
    tmp_path: Path, seeds: int, ahead: int, conclusion: str
) -> None:
    gains = [(0.01 + 0.01 * (seed % 2)) * (1 if seed < ahead else -1) for seed in range(seeds)]
    scores = {"rotary": [0.5] * seeds, "alibi": [0.5 + gain for gain in gains]}
    text = first_sentences(made_up.scored_folder(tmp_path, 32, scores))
    assert conclusion in text
    assert ("hint" in text) == (seeds < 6)
    assert ("better than" in text) == (conclusion.startswith("alibi"))


def test_the_conclusion_covers_every_pair(tmp_path: Path) -> None:
    rng, seeds = np.random.default_rng(0), 9
    base = rng.uniform(0.5, 0.6, seeds)
    scores = {
        "none": base,
        "alibi": base + 0.3 + rng.uniform(0, 0.01, seeds),
        "rotary": base + 0.3 - 0.01 * (-1.0) ** np.arange(seeds),
        "learned": [None] * seeds,
    }
    folder = made_up.scored_folder(tmp_path, 32, {name: list(values) for name, values in scores.items()})
    text = first_sentences(folder)
    interval = r"\(95\u00a0% interval 30\.\d to 30\.\d; p = 0\.012, Holm\)"
    assert re.search(
        rf"At 32 arguments, these seeds show that alibi is better than “none” by 30\.\d points, .* {interval}", text
    )
    assert text.endswith("; these seeds do not separate alibi from rotary; the other pair is separated.")
    page = report(folder)
    assert page.cell("Paired differences at 32 arguments", "rotary", "conclusion") == "better"
    cells = next(rows[1:] for caption, rows in page.tables if caption.startswith("Paired"))
    assert [(row[0], row[1], row[5], row[7], row[2]) for row in cells] == [
        ("alibi", "rotary", "5 of 9", cells[0][7], "not separated by these seeds"),
        ("alibi", "none", "9 of 9", "0.0039", "better"),
        ("rotary", "none", "9 of 9", "0.0039", "better"),
    ]
    assert "corrected for 3 pairs of schemes" in page.words


def test_where_no_scheme_learned_the_task_no_score_is_kept_or_lost(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, schemes=("sinusoidal", "alibi"), seeds=2)
    said = sentences.shift_sentence(read_results(folder))
    assert said.startswith("No logit changes by 0.001 when every position is shifted: alibi; a shift by 1 takes: sinus")
    unlearned = read_results(made_up.set_scores(folder, None, {"sinusoidal": [0.2, 0.2], "alibi": [0.2, 0.2]}))
    said = sentences.shift_sentence(unlearned)
    assert "no score to keep, for the task was not learned: sinusoidal" in said
    assert not re.search("takes|stays", said)


def test_where_no_scheme_learned_the_task_nothing_is_said_of_longer_inputs(tmp_path: Path) -> None:
    folder = made_up.scored_folder(tmp_path, None, {"none": [0.6], "alibi": [0.65]})
    said = first_sentences(folder)
    assert said.startswith("Of 2 schemes, not one learned the task: the best score in length is 65.0\u00a0% (alibi).")
    assert "a predictor that ignores order has 65.8\u00a0% (order-free ceiling). So nothing can be concluded" in said
    assert said.endswith("No scheme learned the task: differences at 32 arguments do not rank the schemes.")
    made_up.set_scores(folder, None, {"none": [0.6], "alibi": [0.66]})
    assert [learned(read_results(folder), scheme) for scheme in ("none", "alibi")] == [False, True]
    assert "not one learned" not in first_sentences(folder)
    text = made_up_folder(tmp_path / "text", "text", ("none",), seeds=1)
    for loss, well in ((1.59, True), (1.61, False)):  # the frequency of bytes has 1.6
        assert learned(read_results(made_up.set_scores(text, None, {"none": [loss]})), "none") == well


def test_without_scipy_the_report_states_what_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    folder = made_up_folder(tmp_path, seeds=9)
    assert "better was not tested: differences are tested with SciPy, which is not installed" in first_sentences(folder)
    assert not any(caption.startswith("Paired") for caption, _ in report(folder).tables)


def test_what_was_not_tested_is_said(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, schemes=("none", "alibi"))
    said = scope_sentence(read_results(folder))
    assert "one task (expressions) and one model (learning rate 0.002; dim 64; layers 2; heads 4)" in said
    assert "it was not tested here" in said
    assert "so every pair of schemes is compared" in report(folder).words
    change(folder, lambda data: data["runs"][0].update(varied={"dim": 16, "layers": 3}))
    assert "models of one kind (learning rate 0.002; dim 64 or 16; layers 2 or 3; " in scope_sentence(
        read_results(folder)
    )
    assert "\nRuns of one seed share test sets and what their settings " in report(folder).words
    for unknown, words in ((None, ", but bits per byte do, of nearly"), (0.01, "1.00% of them unknown, of 2.00 bytes")):
        text = {"tokenizer": "m/tokenizer.json", "tokenizer_sha256": "", "tokens": 9, "bytes_per_token": 2.0}
        text |= {"unknown": unknown}
        change(folder, lambda data, text=text: data["task"].update(tokenized=text, bytes_per_token={"1": 2.0}))
        assert words in (said := scope_sentence(read_results(folder)))
        assert ("nor do bits per byte" in said) == (unknown is not None)


def test_a_comparison_of_a_custom_scheme_has_no_command(tmp_path: Path) -> None:
    call = 'whatwhere.compare([("mine", build)], seeds=[0])'
    folder = change(made_up_folder(tmp_path, seeds=1), lambda data: data.update(command=None, python=call))
    assert f"versions, threads and processor: {call}" in report(folder).words


def test_compare_continues_without_a_page(tmp_path: Path, bundle: None, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "none", "--lengths", "8", "--seeds", "1", "--steps", "2", "--set", "test_sequences=20"]
    words += ["--workers", "1", "--out"]
    done = whatwhere(*words, tmp_path / "a")
    assert done.status == 0, done.err
    assert (tmp_path / "a/report.html").is_file()
    assert "report.html" in done.out + done.err
    monkeypatch.setattr("whatwhere.studio.export.PAGE", tmp_path / "no page")
    done = whatwhere(*words, tmp_path / "a")
    assert done.status == 0, done.err
    assert "make page" in done.out + done.err
    assert not (tmp_path / "a/report.html").exists(), "an older page would tell of other results"


def test_layouts_are_grouped_by_which_layers_have_a_window(tmp_path: Path) -> None:
    schemes = ("rotary@window=16*3/none", "rotary", "rotary@window=16", "alibi@sink=true/rotary@chunk=8", "mine 3*x@")
    (section,) = [
        one for one in sections(read_results(made_up_folder(tmp_path, schemes=schemes))) if one.name == "layouts"
    ]
    table = section.parts[1]
    assert isinstance(table, Table)
    # The made-up models have two layers, so that of the first name only its first part is used.
    assert [row[:4] for row in table.rows] == [
        ["no layer", "rotary", "–", "2: rotary"],
        ["no layer", "mine 3*x@", "–", "2: mine 3*x@"],
        ["every layer", "rotary@window=16*3/none", "2: rotary, 16 tokens", "–"],
        ["every layer", "rotary@window=16", "2: rotary, 16 tokens", "–"],
        ["some layers", "alibi@sink=true/rotary@chunk=8", "1: rotary, chunks of 8", "1: alibi, sinks"],
    ]
    plain = made_up_folder(tmp_path / "plain", schemes=("rotary", "none"), seeds=1)
    assert "layouts" not in [one.name for one in sections(read_results(plain))]
