"""Each view of the studio as people use it otherwise: axe, the keyboard alone, little motion, 200 %, forced colors.

And in Firefox: drawn by the studio and from the disk as one file, by keyboard, light and dark, saved as a picture.
"""

import tempfile
from pathlib import Path
from typing import Any

from reliability.browser import FIREFOX, driven
from reliability.findings import Trial
from reliability.studio import real_model, small_results
from whatwhere.studio.export import render_page
from whatwhere.studio.server import served
from whatwhere.studio.session import Session

VIEWS = 14
LEAST = 500 / VIEWS
"""Controls of a view, on the average: fewer were not all of them."""
OF_RESULTS = ("Compare", "Ask")
"""Views that tell, in place of an error, which results they need."""
RIGHT: dict[str, Any] = {
    "axe": [], "moving": 0, "left": [], "unmarked": [], "round": True, "lost": [], "pale": 0, "overflow": 0,
}  # fmt: skip
"""What access.mjs finds of a view without a fault."""


def run(views: int) -> tuple[Trial, ...]:
    """Look at views of a studio on results and, where it is all of them, on a checkpoint and in Firefox.

    Args:
        views: how many.

    Raises:
        RuntimeError: If all are wanted, and firefox is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Session.open(small_results(Path(folder)))
        trials = [_otherwise("results", results, views)]
        if views < VIEWS:  # the tests
            return tuple(trials)
        if FIREFOX is None:
            raise RuntimeError("firefox is missing: apt install firefox-esr")
        checkpoint = Session.open(real_model())
        trials.append(_otherwise("a checkpoint", checkpoint, views))
        trials += [_in_firefox("results", results), _in_firefox("a checkpoint", checkpoint)]
    return tuple(trials)


def _otherwise(source: str, session: Session, views: int) -> Trial:
    with served(session) as url:
        found = driven("access.mjs", url=url, views=views)
    failures = [f"{name}: {_wrong(view)}" for name, view in found["views"].items() if view != RIGHT]
    failures += found["complaints"]
    if len(found["views"]) != views or found["reached"] <= LEAST * views:
        failures.append("views or controls are missing")
    seen = f"{found['reached']} controls reached by Tab, in {len(found['views'])} views"
    what = "by axe, by keyboard alone, with little motion, at 200 % and in forced colors"
    return Trial(f"views on {source}: {what}", len(found["views"]), len(failures), seen, tuple(failures[:3]))


def _wrong(view: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in view.items() if value != RIGHT[name]}


def _in_firefox(source: str, session: Session) -> Trial:
    with tempfile.TemporaryDirectory() as folder, served(session) as url:
        (file := Path(folder) / "page.html").write_text(render_page(session), encoding="utf-8")
        (saved := Path(folder) / "saved").mkdir()
        # Some views of a checkpoint tell what they need, and no more.
        shown = "main :is(figure, table, .answer)" if source == "results" else "main :is(figure, table, .answer, p)"
        found = driven("firefox.mjs", firefox=FIREFOX, url=url, file=str(file), saved=str(saved), shown=shown)
        pictures = [picture.read_text(encoding="utf-8") for picture in saved.glob("*.svg")]
    drawn, exported = found["views"], found["exported"]
    failures = [
        f"{name}: {count} errors"
        for each in (drawn, exported)
        for name, count in each.items()
        if count != (source != "results" and name in OF_RESULTS)
    ]
    failures += found["complaints"]
    expected = {
        "another browser": found["browser"] == "firefox",
        "views are missing": len(drawn) == VIEWS and len(exported) > 5,
        "no picture was saved": len(pictures) == 1 and pictures[0].startswith("<svg"),
        "light is as dark": found["light"] != found["dark"],
        "the focus has no mark": found["focused"] == ["A solid", "BUTTON solid"] + VIEWS * ["A solid"],
    }
    failures += [problem for problem, right in expected.items() if not right]
    seen = f"{len(drawn)} views of the studio and {len(exported)} of the exported page drawn, one saved as a picture"
    return Trial(f"views on {source} in Firefox", len(drawn) + len(exported), len(failures), seen, tuple(failures[:3]))
