"""What tests of the studio need."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("starlette", reason="the studio's extra is not installed")

from starlette.testclient import TestClient

from whatwhere.studio.security import Key
from whatwhere.studio.server import PAGE, create_app, served
from whatwhere.studio.session import Session

WEB = PAGE.parent
ADDRESS = "http://127.0.0.1:4321"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def driven(script: str, **given: Any) -> dict[str, Any]:
    """Drive a browser by a script of browser/, and give what it tells."""
    said = json.dumps({"web": str(WEB), "chromium": CHROMIUM, **given})
    command = ["node", str(Path(__file__).parent / "browser" / script), said]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="session")
def real(minilm: Path) -> Session:
    """Open the real model."""
    return Session.open(minilm)


@pytest.fixture(scope="session")
def fresh() -> Session:
    """Open what the studio shows where nothing is given."""
    return Session.open()


@pytest.fixture
def key() -> Key:
    """Make a key."""
    return Key()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Write a page of two files, and something beside it that is none of its business."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>page</title>", encoding="utf-8")
    (folder / "studio.js").write_text("0", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


@pytest.fixture
def client(fresh: Session, key: Key, page: Path) -> Iterator[TestClient]:
    """Ask the application, without a socket, as a browser that has not been let in yet."""
    with TestClient(create_app(fresh, key, page), base_url=ADDRESS, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def inside(client: TestClient, key: Key) -> TestClient:
    """Ask the application, let in."""
    assert client.get("/", params={"token": key.token}).status_code == 200
    return client


def lacking(what: str) -> NoReturn:
    """Skip a test for want of a tool; on Linux, where CI is set, fail: there the tool is installed."""
    (pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip)(what)


@pytest.fixture(scope="session")
def look() -> Callable[..., dict[str, Any]]:
    """Show a source on the page, drive a browser through it, and give what that tells."""
    if shutil.which("node") is None or CHROMIUM is None or not (WEB / "node_modules" / "playwright-core").is_dir():
        lacking("chromium, Node.js or the page's packages are missing: apt install chromium; make page")
    folder = Path(os.environ.get("STUDIO_PAGE", PAGE))  # of a bundle that is not in place yet
    if not (folder / "index.html").is_file():
        lacking("the page is not bundled: make page")

    def looked(session: Session, script: str, **given: Any) -> dict[str, Any]:
        with served(session, folder) as url:
            return driven(script, url=url, **given)

    return looked
