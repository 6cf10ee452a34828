"""What tests of pages need."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace the bundle, which not every installation has, by a page of three small files."""
    folder = tmp_path_factory.mktemp("bundle")
    for name, content in (("index.html", ""), ("studio.js", "const page = 0;"), ("studio.css", "p { color: red }")):
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whatwhere.studio.export.PAGE", folder)
        yield
