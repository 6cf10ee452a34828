"""What tests of comparisons need."""

from pathlib import Path

import pytest


@pytest.fixture
def bundle(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the bundle, which not every installation has, by a page of three small files."""
    folder = tmp_path_factory.mktemp("bundle")
    for name, content in (("index.html", ""), ("studio.js", "const page = 0;"), ("studio.css", "p { color: red }")):
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr("whatwhere.studio.export.PAGE", folder)
    return folder
