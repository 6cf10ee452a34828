"""Variants: names that are canonical, settings that vary in one comparison, and tables of every kind."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.cli.compare import compare as command
from whatwhere.comparison import Comparison, ask, compare, load_model, measure
from whatwhere.comparison.answers import answered_at
from whatwhere.comparison.model import token_table
from whatwhere.comparison.results import ParameterCount, RunResult, SettingChoice
from whatwhere.comparison.settings import INITS, Settings, make_settings, with_settings
from whatwhere.comparison.statistics import paired_differences
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import build, one_thread
from whatwhere.comparison.variants import FIXED, choose_settings, make_variants, read_name, write_name
from whatwhere.what.embedding import INITS as ALL_INITS

from .conftest import QUICK, nothing

SETTINGS = make_settings("expressions", [4], dim=24, heads=2, feedforward=16, batch=8, test_sequences=20, steps=3)
SMALL = QUICK | {"dim": 24, "steps": 3}


def names(schemes: list[str], vary: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> list[str]:
    """Return the names of variants, whose settings are checked."""
    variants = [each for scheme in schemes for each in make_variants(scheme, vary, settings)]
    return [name for name, _, varied in variants if with_settings(settings, varied)]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("rotary", "rotary"),
        ("rotary@tied,dim=16", "rotary@dim=16,tied"),
        ("rotary@tied=True,dim=16.0", "rotary@dim=16,tied"),
        ("rotary@dim=24,untied", "rotary"),
        ("rotary@positions=randomized", "rotary@randomized"),
        ("rotary@theta=5e5", "rotary@theta=500000"),
        ("rotary@dim=16,theta=5e5,interleaved=true", "rotary@interleaved=true,theta=500000,dim=16"),
        ("rotary@theta=5e5/none@dim=16", "rotary@theta=500000/none@dim=16"),
        ("rotary@dim=16/none", "rotary/none@dim=16"),
        ("rotary+alibi@learning_rate=1e-3", "rotary+alibi@learning_rate=0.001"),
        ("none@init=0.3,frozen", "none@init=0.3,frozen"),
        ("none@init=glorot_uniform,rank2", "none@init=glorot_uniform,rank2"),
        ("none@encoder, layers=1", "none@layers=1,encoder"),
    ],
)
def test_names_are_canonical(given: str, canonical: str) -> None:
    assert names([given]) == [canonical]
    assert names([canonical]) == [canonical]
    scheme, varied = read_name(canonical)
    assert write_name(scheme, varied) == canonical


def test_every_setting_that_can_vary_has_a_name_that_is_read_again() -> None:
    other: dict[str, Any] = {
        "steps": 9, "batch": 9, "learning_rate": 0.5, "weight_decay": 0.25, "schedule": "constant", "dim": 16,
        "layers": 1, "heads": 4, "feedforward": 9, "direction": "encoder", "init": "torch", "table": "ids",
        "tied": True, "positions": "random_offset", "max_length": 99, "test_positions": "plain",
    }  # fmt: skip
    assert other.keys() | FIXED.keys() == set(Settings.__dataclass_fields__)
    assert INITS == ALL_INITS
    name = write_name("none", other)
    assert read_name(name) == ("none", other)
    # The help and the guide list them.
    known = Settings.__dataclass_fields__.keys() - {"task", "lengths"}
    guide = (Path(__file__).parents[2] / "docs/how-to/which-scheme.md").read_text()
    assert all(f"`{setting}`" in guide for setting in known)
    listed = str(command.__doc__).partition("Settings, for")[2]
    assert all(re.search(rf"\b{setting}\b", listed) for setting in known - {"device", "deterministic"})


def test_values_are_crossed_with_schemes_and_each_other() -> None:
    assert names(["none", "rotary@encoder"], {"dim": ["16", 24], "tied": [False, True]}) == [
        "none@dim=16", "none@dim=16,tied", "none", "none@tied",
        "rotary@dim=16,encoder", "rotary@dim=16,encoder,tied", "rotary@encoder", "rotary@encoder,tied",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schemes", "vary", "words"),
    [
        (["none"], {"lengths": [[8]]}, "lengths cannot vary within one comparison: all runs"),
        (["none"], {"test_sequences": [1, 2]}, "test_sequences cannot vary"),
        (["none"], {"trained": [1, 2]}, "trained cannot vary"),
        (["none@task=text"], None, "task cannot vary"),
        (["none"], {"betas": [(0.5, 0.5)]}, "betas cannot vary within one comparison: it has two numbers"),
        (["none"], {"size": [1, 2]}, r"'size' is not a setting of a comparison\. What can vary: batch, dim"),
        (["none"], {"dim": 16}, r"needs several values"),
        (["none"], {"dim": []}, r"at least one value, each once"),
        (["none"], {"dim": [16, "16"]}, r"at least one value, each once"),
        (["none@dim=16"], {"dim": [8]}, "dim is both varied and in the name"),
        (["none@dim=16,dim=8"], None, "has the option dim twice"),
        (["none@dim=16/rotary@dim=8"], None, "has the setting dim twice"),
        (["none@wide"], None, "'wide' is not a setting: write name=value, or one of plain"),
        (["none@"], None, "empty option"),
        (["none@dim="], None, "empty option"),
        *(([name], None, "whole number") for name in ("rotary*0/none", "rotary*x", "rotary*-1")),
        (["none@heads=5"], None, "heads must divide dim"),
        (["none"], {"table": ["rank99"]}, "a rank is at most dim"),
        (["none"], {"table": ["sparse"]}, "table='sparse'"),
        (["none"], {"init": ["sparse"]}, "init='sparse'"),
        (["none"], {"init": [-1]}, "init=-1"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_what_cannot_vary_is_refused_with_the_reason(schemes: list[str], vary: Any, words: str) -> None:
    with pytest.raises(ww.errors.WhatWhereError, match=words):
        names(schemes, vary)


def test_variants_are_trained_scored_and_loaded_with_their_own_settings(results: Comparison) -> None:
    for run in results.runs:
        settings = results.settings(run)
        assert {name: getattr(settings, name) for name in run.varied} == run.varied
        model = load_model(results, run, build=nothing if run.own else None)
        task = Expressions((2, 3), settings.direction)
        with one_thread():
            again = {length: measure.scores(model, task, length, settings) for length in run.scores}
        assert again == run.scores, run.scheme
        assert len(model.blocks) == settings.layers
        assert run.steps == settings.steps
    by_name = {run.scheme: run for run in results.runs}
    assert results.settings(by_name["rotary@theta=100.5,randomized"]).max_length == 20
    assert (by_name["rotary@theta=100.5,randomized"].base, by_name["mine"].own) == ("rotary@theta=100.5", True)
    tokens = {name: run.parameters.tokens for name, run in by_name.items()}
    assert (tokens["none@onehot"], tokens["none@ids"], tokens["none@steps=2,frozen"]) == (0, 0, 0)
    assert (tokens["learned"], tokens["none@heads=4,rank2,tied"]) == (20 * 24, 2 * (20 + 24))


def test_a_variant_equals_a_comparison_of_these_settings(results: Comparison, tmp_path: Path) -> None:
    alone = compare(["none"], seeds=[3], out=tmp_path / "a", **SMALL | {"layers": 1, "direction": "encoder"}).runs[0]
    run = next(run for run in results.runs if run.scheme == "none@layers=1,encoder")
    assert (alone.losses, alone.scores, alone.shift) == (run.losses, run.scores, run.shift)


def test_variants_answer_where_they_were_trained_to(results: Comparison) -> None:
    answers = ask(results, "Max(1,2)")
    at = {one.scheme: one.at for one in answers.answers}
    assert (at["learned"], at["none@layers=1,encoder"]) == (5, 0)
    assert (answered_at("decoder"), answered_at("encoder")) == (-1, 0)
    sampled = next(one for one in answers.answers if "randomized" in one.scheme)
    assert sampled.positions != tuple(range(6))
    assert [one.scheme for one in answers.without] == ["mine"]


def test_a_folder_is_extended_and_resumed_by_variants(results: Comparison, tmp_path: Path) -> None:
    first = compare(["none"], out=tmp_path / "a", seeds=[3], **SMALL)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "runs").iterdir()}
    more = compare(["none"], out=tmp_path / "a", seeds=[3], vary={"dim": [16, 24]}, **SMALL)
    assert more.schemes == ["none@dim=16", "none"]
    assert more.runs[1] == first.runs[0]
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items()), "nothing is trained twice"
    assert (tmp_path / "a" / "models" / "none@dim=16-3.safetensors").is_file()
    assert more.record.command == f"whatwhere compare --repeat {tmp_path / 'a'}"
    assert (more.record.settings.dim, more.record.settings.steps, more.record.settings.trained) == (24, 3, (2, 3))


def test_a_scheme_of_one_setting_is_compared_against_by_either_name(tmp_path: Path) -> None:
    given = SMALL | {"steps": 1, "vary": {"dim": [16]}}
    for name in ("none", "none@dim=16"):
        found = compare(["none", "rotary"], out=tmp_path / "a", seeds=2, against=name, **given)
        assert found.against == paired_differences(found, None).against == "none@dim=16"
    assert compare(["none", "rotary"], out=tmp_path / "a", seeds=2, **given).against is None, "all pairs claim less"
    with pytest.raises(ww.errors.SettingError, match="chosen after the runs makes p-values too small"):
        compare(["none", "rotary"], out=tmp_path / "a", seeds=3, against="none", **given)
    with pytest.raises(ww.errors.SettingError, match=r"Pass one of: none, rotary\."):  # which of them is chosen later
        compare(["none", "rotary"], out=tmp_path / "a", against="none@dim=16", **given | {"vary": {"dim": [16, 24]}})


def ran(scheme: str, seed: int, loss: float | None, **varied: Any) -> RunResult:
    """Return a run of a scheme with settings, whose last held-out loss this is."""
    curve, none = () if loss is None else ((0, 3.0), (5, loss)), ParameterCount(1, 1, 0)
    run = RunResult(write_name(scheme, varied), seed, none, 5, 1.0, 0.1, (), {}, 0.5, {})
    return replace(run, base=scheme, varied=varied, held_out=curve)


def test_the_setting_of_the_least_held_out_loss_is_chosen() -> None:
    runs = [ran("none", seed, 1.0 + seed, dim=16) for seed in range(2)]
    runs += [ran("none", seed, loss) for seed, loss in enumerate((1.9, 1.0))]  # less in the mean, not in each seed
    runs += [ran("rotary", seed, 0.5, tied=True, dim=16) for seed in range(2)]
    runs += [ran("rotary", seed, 0.75, tied=True) for seed in range(2)]
    assert choose_settings(runs, {"dim": [16, 24]}) == (
        SettingChoice("none", "none", {"none@dim=16": 1.5, "none": pytest.approx(1.45)}),
        SettingChoice("rotary@tied", "rotary@dim=16,tied", {"rotary@dim=16,tied": 0.5, "rotary@tied": 0.75}),
    )
    # Settings in names are schemes of their own; those of a single scheme are compared; without losses nothing is.
    assert choose_settings(runs, {}) == choose_settings(runs[:4], {"dim": [16, 24]}) == ()
    assert choose_settings([*runs[:-1], ran("rotary", 1, None, tied=True)], {"dim": [16, 24]}) == ()


def test_a_variant_of_a_task_that_cannot_follow_is_refused(tmp_path: Path) -> None:
    text = SMALL | {"trained": [8], "lengths": [16]}
    with pytest.raises(ww.errors.SettingError, match="an encoder attends to the next byte"):
        compare(["none@encoder"], "text", out=tmp_path / "a", **text)
    with pytest.raises(ww.errors.SettingError, match=r"one-hot rows of 20 tokens need dim=20 or more, but dim=16"):
        compare(["none@onehot,dim=16"], out=tmp_path / "a", **SMALL)
    with pytest.raises(ww.errors.SettingError, match="'rotary@speed=3' does not take these options"):
        compare(["rotary@speed=3"], out=tmp_path / "a", **SMALL)
    assert not (tmp_path / "a").exists()


def tables(kind: str, seed: int = 0, **changed: Any) -> ww.TokenEmbedding:
    return token_table(
        5, Settings("mine", (4,), dim=6, heads=2, table=kind, **changed), torch.Generator().manual_seed(seed)
    )


def test_raw_ids_are_a_line_at_equal_steps() -> None:
    table = tables("ids").weight.detach().double()
    steps = table.diff(dim=0)
    torch.testing.assert_close(steps, steps[:1].expand(4, -1), atol=1e-6, rtol=0)
    z = torch.arange(5.0).double()
    z = (z - 2) / z.var(correction=0).sqrt()
    torch.testing.assert_close((table - table.mean(0)).norm(dim=1), z.abs(), atol=1e-6, rtol=0)
    torch.testing.assert_close(table.mean(0).norm(), torch.tensor(1.0).double(), atol=1e-6, rtol=0)


def test_a_low_rank_table_is_the_best_approximation_at_the_norm_of_the_sampled_one() -> None:
    low, full = tables("rank2").weight.detach(), tables("learned").weight.detach()
    assert torch.linalg.matrix_rank(low, atol=1e-5) == 2
    torch.testing.assert_close(low.norm(), full.norm())
    u, s, v = torch.linalg.svd(full, full_matrices=False)
    best = (u[:, :2] * s[:2]) @ v[:2]
    torch.testing.assert_close(low / low.norm(), best / best.norm())
    torch.testing.assert_close(tables("rank5").weight.detach(), full)


def test_all_tables_leave_the_same_layers() -> None:
    models = [
        build("none", 7, Expressions(), Settings("expressions", (8,), table=table))
        for table in ("learned", "frozen", "onehot", "ids", "rank3")
    ]
    for model in models[1:]:
        for one, other in zip(model.blocks.parameters(), models[0].blocks.parameters(), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(models[1].input.tokens.weight, models[0].input.tokens.weight)


def test_a_table_that_is_not_trained_does_not_change(results: Comparison) -> None:
    for run in results.runs:
        before, after = (results.tables(run)[name] for name in ("input.tokens.weight@0", "input.tokens.weight"))
        assert (before == after).all() == (run.varied.get("table") in ("frozen", "onehot", "ids")), run.scheme


def test_a_layout_by_layer_is_one_name() -> None:
    from whatwhere.comparison.model import build_wheres

    layout, varied = read_name("rope@512,sink*3/none+temperature@tied")
    assert (layout, varied) == ("rope@sink=true,window=512*3/none+temperature", {"tied": True})
    assert write_name(layout, varied) == "rope@sink=true,window=512*3/none+temperature@tied"
    assert read_name(write_name("none/rotary*3", {"dim": 16})) == ("none/rotary*3", {"dim": 16})
    wheres = build_wheres("rotary@8*3/none+temperature", 64, 4, 128, layers=8)
    assert [where.window.size if where.window else None for where in wheres] == [8, 8, 8, None] * 2
    assert wheres[0] is wheres[2]
    assert type(wheres[3].query_key).__name__ == "QueryTemperature"
