"""What tests of the studio need."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytest.importorskip("starlette", reason="the studio's extra is not installed")

from starlette.testclient import TestClient

from reliability.browser import driven, lacking
from whatwhere.studio.server import PAGE, Key, create_app, served
from whatwhere.studio.session import Session

ADDRESS = "http://127.0.0.1:4321"


@pytest.fixture(scope="session")
def real(minilm: Path) -> Session:
    return Session.open(minilm)


@pytest.fixture(scope="session")
def fresh() -> Session:
    return Session.open()


@pytest.fixture(scope="session")
def session(results: Path) -> Session:
    return Session.open(results)


@pytest.fixture(scope="session")
def table(minilm: Path) -> np.ndarray:
    return load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)


def quiet(fraction: float, message: str) -> None:
    """Ignore progress."""


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def opened(folder: Path, config: dict[str, Any], **tensors: np.ndarray) -> Session:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({name: table.astype(np.float32) for name, table in tensors.items()}, folder / "model.safetensors")
    return Session.open(folder)


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Write a page of two files, and something beside it that is none of its business."""
    return small_page(tmp_path)


def small_page(beside: Path) -> Path:
    folder = beside / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>page</title>", encoding="utf-8")
    (folder / "studio.js").write_text("0", encoding="utf-8")
    (beside / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link.txt").symlink_to(beside / "secret.txt")
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


def require_browser() -> None:
    """Skip a test for want of a tool; on Linux, where CI is set, fail: there the tool is installed."""
    if missing := lacking(PAGE):
        (pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip)(missing)


@pytest.fixture(scope="session")
def look() -> Callable[..., dict[str, Any]]:
    """Show a source on the page, drive a browser through it, and give what that tells; nothing may be wrong."""
    require_browser()

    def looked(session: Session, script: str, **given: Any) -> dict[str, Any]:
        with served(session) as url:
            result = driven(script, url=url, **given)
        assert result.pop("wrong", []) == []
        return result

    return looked
