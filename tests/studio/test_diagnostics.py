"""Diagnostics: the lists of a real model, of a table that was spoiled on purpose, and on the page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from whatwhere.analysis import subject
from whatwhere.analysis.diagnostics import unreachable
from whatwhere.escape import visible_token
from whatwhere.report.section import Chart, Section, Table
from whatwhere.studio.api import JOBS
from whatwhere.studio.session import Session

from ..analysis.test_files import spoiled
from .conftest import csv_rows, opened, quiet


def examined(session: Session) -> dict[str, Section]:
    return {section.name: section for section in JOBS["diagnostics.examine"](session, {}, quiet).sections}


def charts(session: Session, section: str) -> list[Chart]:
    return [part for part in examined(session)[section].parts if isinstance(part, Chart)]


def table_of(section: Section) -> Table:
    return next(part for part in section.parts if isinstance(part, Table))


def column(section: Section, name: str) -> list[str]:
    table = table_of(section)
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.fixture(scope="module")
def sampled(minilm: Path) -> Iterator[Session]:
    """Open the real model with few sampled rows in the search for hubs; the session keeps its diagnostics."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subject, "HUB_QUERIES", 64)
        yield Session.open(minilm)


def test_histograms_are_of_usable_rows_and_of_the_suspicious_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", spoiled())
    for chart in charts(Session.open(tmp_path / "table.npy"), "spread"):
        assert {each.name: sum(each.values) for each in chart.series} == {
            "all rows": 1997,  # less the zero and the broken ones
            "under-trained": 20,
        }


def test_a_real_model(sampled: Session, minilm: Path) -> None:
    reports: list[tuple[float, str]] = []
    JOBS["diagnostics.examine"](sampled, {}, lambda share, said: reports.append((share, said)))
    assert [share for share, _ in reports] == sorted(share for share, _ in reports)
    lists = examined(sampled)
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
    never, lost = lists["under_trained"], lists["unreachable"]
    (norms,) = (each.values for each in table_of(never).exact if each.name == "norm")
    ids = [int(name[1:]) for name in column(never, "id")]
    np.testing.assert_allclose(norms, np.linalg.norm(table[ids], axis=1))
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for text, read in zip(column(lost, "text tried"), column(lost, "encoded as"), strict=True):
        tokens = tokenizer.encode(text, add_special_tokens=False).tokens[:8]
        assert read == " ".join(map(visible_token, tokens))
    out_of_reach = set(unreachable(tokenizer, range(len(table))).tolist())
    assert {int(name[1:]) for name in column(lost, "id")} == out_of_reach
    both = [n for n, reachable in zip(ids, column(never, "reachable"), strict=True) if reachable == "no"]
    assert both == [n for n in ids if n in out_of_reach]
    assert f"“glitch tokens”), {len(both):,} of them unreachable" in str(never.parts[0])
    assert str(never.parts[0]).startswith(f"{JOBS['diagnostics.examine'](sampled, {}, quiet).headline}: ")
    assert charts(sampled, "counts")[0].x == (0, len(table)), "bars are shares of all rows"


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    session = opened(tmp_path, {"model_type": "llama", "vocab_size": 6000}, **{"embed_tokens.weight": np.eye(6000, 4)})
    zero = examined(session)["zero"]
    assert (zero.title, len(table_of(zero).rows)) == ("Zero: 5,996", 5000)
    assert table_of(zero).caption == "Zero rows: the first 5,000 of 5,996"


def test_with_nothing_loaded_all_is_well(fresh: Session) -> None:
    counts = charts(fresh, "counts")[0]
    assert [row[1] for row in counts.table.rows] == ["0"] * 8
    assert set(examined(fresh)) == {"counts", "empty", "spread"}
    assert JOBS["diagnostics.examine"](fresh, {}, quiet).headline == "None of 20 rows is suspicious"


def test_the_page_shows_the_evidence(look: Callable[..., dict[str, Any]], sampled: Session) -> None:
    seen, lists = look(sampled, "diagnostics.mjs"), examined(sampled)
    assert seen["counts"] == [row[1] for row in charts(sampled, "counts")[0].table.rows]
    assert seen["lists"] == [section.title for name, section in lists.items() if name not in ("counts", "spread")]
    never = table_of(lists["under_trained"])
    for shown, table in ((seen["unreachable"], table_of(lists["unreachable"])), (seen["underTrained"], never)):
        for row, right in zip(shown, table.rows, strict=False):
            assert row == [f"{right[0]} map", *right[1:]]
    rows = csv_rows(seen["csv"])
    assert [row["id"] for row in rows] == [row[0] for row in never.rows]
    for each in never.exact:
        assert [float(row[each.name]) for row in rows] == each.values
    assert seen["hash"] == "#/diagnostics?list=under_trained"
    assert "suspected above 0.581" in seen["chart"]
    first = never.rows[0][0][1:]
    assert (seen["card"], seen["big"], seen["map"]) == (f"#/tokens?token=%23{first}", first, f"#/map?token=%23{first}")
