"""The report of a comparison in a real browser: opened from the disk, beside its results.json, and under attack."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from whatwhere.studio import export
from whatwhere.studio.session import Session

from ..comparison.made_up import hostile_folder


@pytest.fixture
def opened(look: Callable[..., dict[str, Any]], fresh: Session, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write the report of a folder, open it in a browser, and give what that tells."""

    def write_and_look(folder: Path, **given: Any) -> dict[str, Any]:
        file = export.write_page(Session.open(folder), tmp_path / "report.html")
        result = look(fresh, "report.mjs", file=str(file), **given)
        assert result["opened"] == dict.fromkeys(result["views"], 0)
        assert (result["title"], result["views"][0]) == ("Compare", "Compare")
        return result

    return write_and_look


def test_the_report_shows_what_was_measured(opened: Callable[..., dict[str, Any]], results: Path) -> None:
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))
    result = opened(results, fingerprint="Fingerprint of learned")
    assert {"Compare", "Training replay", "Attention by distance", "Pipeline", "Token card"} <= set(result["views"])
    (head, *rows), (costs, *counts) = result["summary"]
    for name, said in written["summary"].items():
        row, cost = (next(cells for cells in each if cells[0] == name) for each in (rows, counts))
        for title, spread in {
            "in length": said["in_length"],
            "at 4": said["scores"]["4"]["all"],
            "at 6": said["scores"]["6"]["all"],
        }.items():
            shown = row[head.index(title)].replace("(", "").replace(")", "").replace(" to", "").split()
            ends = [] if spread is None else [f"{100 * spread[end]:.1f}" for end in ("median", "min", "max")]
            assert shown == (ends if len(set(ends[1:])) > 1 else ends[:1] or ["no", "row"])
        assert cost[costs.index("parameters")] == f"{said['parameters']['total']:,}"
    layer = load_file(results / "models/learned-0.safetensors")
    rows = [line.split(",") for line in result["csv"].removeprefix("\ufeff").splitlines()[1:]]
    table = next(tensor for name, tensor in layer.items() if tensor.shape == (8, 16))
    np.testing.assert_allclose(np.array(rows, float)[:, 1:], table, atol=1e-3)
    assert result["cut"] == result["wide"] == []
    assert result["paper"] == "#ffffff"
    assert result["replay"].startswith("step 7 of 7"), "it begins where the training ended"
    assert sorted(result["runs"]) == ["learned, seed 0", "rotary+alibi, seed 0"]
    assert result["replayed"] == []
    for said in (result["answer"], written["command"]):
        assert said in result["main"]
        assert said.replace("\xa0", " ") in result["plain"].replace("\xa0", " ")


def test_a_report_of_hostile_names_shows_them(opened: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = opened(hostile_folder(tmp_path / "hostile"))
    assert "</title></style><script>alert(1)</script>" in result["main"]
    assert "</title></style><script>alert(1)</script>" in result["plain"]
    assert "\u202e" not in result["main"] + result["plain"]
