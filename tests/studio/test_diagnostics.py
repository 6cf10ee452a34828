"""Diagnostics: what the view receives, of a table that was spoiled on purpose and of a real model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from whatwhere.analysis import subject
from whatwhere.analysis.diagnostics import unreachable
from whatwhere.records import Missing
from whatwhere.studio.api import JOBS
from whatwhere.studio.api.inspection import SuspiciousTokens
from whatwhere.studio.session import Session

from ..analysis.test_files import spoiled
from .conftest import csv_rows, opened, quiet


def examined(session: Session) -> SuspiciousTokens:
    """Run the job at once."""
    return JOBS["diagnostics.examine"](session, {}, quiet)


def test_what_was_spoiled_is_found(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", spoiled())
    result = examined(Session.open(tmp_path / "table.npy"))
    assert sorted(result.found.under_trained.ids.tolist()) == list(range(40, 60))
    assert result.norms.groups["all rows"].sum() == 1997  # less the zero and the broken ones
    assert result.cosines.groups["under-trained"].sum() == 20


@pytest.fixture(scope="module")
def sampled(minilm: Path) -> Iterator[Session]:
    """Open the real model with few sampled rows in the search for hubs; the session keeps its diagnostics."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subject, "HUB_QUERIES", 64)
        yield Session.open(minilm)


def test_a_real_model(sampled: Session, minilm: Path) -> None:
    reports: list[tuple[float, str]] = []
    result = JOBS["diagnostics.examine"](sampled, {}, lambda share, said: reports.append((share, said)))
    assert [share for share, _ in reports] == sorted(share for share, _ in reports)
    lists = result.found
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
    never = lists.under_trained
    np.testing.assert_allclose([row.norm for row in never.examples], np.linalg.norm(table[never.ids], axis=1))
    assert never.count == len(never.ids)
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lost = lists.unreachable
    for row in lost.examples:
        assert tokenizer.encode(row.tried, add_special_tokens=False).tokens[:8] == row.read_as
    out_of_reach = unreachable(tokenizer, range(len(table)))
    assert lost.ids.tolist() == out_of_reach.tolist()
    both = [row.id for row in never.examples if not row.reachable]
    np.testing.assert_array_equal(both, [n for n in never.ids if n in out_of_reach])
    assert never.also_unreachable == len(both)


def test_long_lists_are_cut_and_padding_is_found(tmp_path: Path) -> None:
    session = opened(tmp_path, {"model_type": "llama", "vocab_size": 6000}, **{"embed_tokens.weight": np.eye(6000, 4)})
    zero = examined(session).found.zero
    assert (zero.count, len(zero.ids), len(zero.examples)) == (5996, 5996, 5000)


def test_with_nothing_loaded_all_is_well(fresh: Session) -> None:
    result = examined(fresh)
    found = result.found
    assert not isinstance(found.unreachable, Missing)
    assert (found.duplicates.rows, list(found.hubs.rows)) == (0, [])
    lists = (found.under_trained, found.far, found.zero, found.not_finite, found.beyond_vocabulary)
    assert [each.count for each in lists] == [0] * 5


def test_the_page_shows_the_evidence(look: Callable[..., dict[str, Any]], sampled: Session) -> None:
    seen, found = look(sampled, "diagnostics.mjs"), examined(sampled).found
    lost = found.unreachable
    beyond = found.beyond_vocabulary
    counts = [found.under_trained.count, found.far.count, lost.count, found.duplicates.rows, len(found.hubs.rows)]
    counts += [found.zero.count, found.not_finite.count, beyond.count]
    assert seen["counts"] == [f"{count:,}" for count in counts]
    for row, right in zip(seen["unreachable"], lost.examples, strict=False):
        assert int(row[1]) == right.id
        assert row[4:6] == [right.tried, " · ".join(right.read_as)]
    never = found.under_trained
    for row, right in zip(seen["underTrained"], never.examples, strict=False):
        assert int(row[1]) == right.id
        assert row[4:6] == [f"{right.cosine:.3f}", f"{right.proximity:.3f}"]
    rows = csv_rows(seen["csv"])
    assert [int(row["id"]) for row in rows] == never.ids.tolist()
    assert [float(row["norm"]) for row in rows] == [row.norm for row in never.examples]
    assert seen["hash"] == "#/diagnostics?list=under_trained"
    assert "suspected above 0.581" in seen["chart"]
    first = int(never.ids[0])
    assert (seen["card"], seen["big"], seen["map"]) == (
        f"#/tokens?token=%23{first}",
        str(first),
        f"#/map?token=%23{first}",
    )
