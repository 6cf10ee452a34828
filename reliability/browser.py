"""Drive a browser through pages of the studio, by the scripts of tests/studio/browser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from whatwhere.studio.server import PAGE

WEB = PAGE.parent
SCRIPTS = Path(__file__).resolve().parents[1] / "tests" / "studio" / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FIREFOX = shutil.which("firefox") or shutil.which("firefox-esr")


def lacking(page: Path = PAGE) -> str:
    """Return what is missing to drive Chromium through the page, and how to get it; "" where all is there.

    Args:
        page: the folder of its bundle.
    """
    if shutil.which("node") is None or CHROMIUM is None or not (WEB / "node_modules" / "playwright-core").is_dir():
        return "chromium, Node.js or the page's packages are missing: apt install chromium; make page"
    return "" if (page / "index.html").is_file() else "the page is not bundled: make page"


def driven(script: str, **given: Any) -> dict[str, Any]:
    """Run a script, and return what it tells.

    Args:
        script: its name.
        given: what it is told, as JSON.

    Raises:
        RuntimeError: If it fails; the message is what it printed.
    """
    told = json.dumps({"web": str(WEB), "chromium": CHROMIUM, **given})
    done = subprocess.run(
        ["node", str(SCRIPTS / script), told], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
