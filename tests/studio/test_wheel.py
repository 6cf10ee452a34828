"""The built wheel, installed where nothing of the checkout is, serves the page; and what a build asks for."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from whatwhere.studio.server import PAGE

from ..running import fitting, script

ROOT = PAGE.parents[4]
LEFT_OUT = shutil.ignore_patterns("node_modules", "__pycache__", "*.so", "*.pyc")

pytestmark = pytest.mark.skipif(not (ROOT / "hatch_page.py").is_file(), reason="not in a checkout")


def copied(folder: Path) -> Path:
    """Copy what a build reads."""
    for name in ("src", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "hatch_page.py", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without Node and without a compiler: the page that is there goes along, the kernels stay out."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    bare = {name: value for name, value in os.environ.items() if name not in ("PATH", "PYTHONPATH")}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "built"]
    environment = bare | {"PATH": str(folder), "CXX": "no-compiler"}
    checkout = copied(folder / "checkout")
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "built").glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")
    return folder / "site"


def test_the_wheel_holds_the_package_alone_and_no_benchmark(site: Path) -> None:
    (metadata,) = site.glob("whatwhere-*.dist-info")
    assert set(site.iterdir()) == {metadata, site / "whatwhere"}
    assert (site / "whatwhere" / "position" / "positions.py").is_file()
    assert not list((site / "whatwhere").glob("benchmark*"))


@pytest.mark.skipif(
    not (PAGE / "index.html").is_file(), reason="the page is not bundled: make page, which needs Node.js"
)
def test_an_installed_wheel_serves_every_asset(site: Path, tmp_path: Path) -> None:
    served = site / "whatwhere" / "studio" / "web"
    assert {path.name for path in served.iterdir()} == {"dist"}
    assert {path.name for path in (served / "dist").iterdir()} == {path.name for path in PAGE.iterdir()}
    command = [sys.executable, "-m", "whatwhere", "studio", "--no-browser", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said = fitting("studio", process.stdout.readline())
            with httpx2.Client(trust_env=False) as client:
                assert client.get(said["url"]).status_code == 200
                for file in (served / "dist").iterdir():
                    assert client.get(f"http://127.0.0.1:{said['port']}/{file.name}").content == file.read_bytes()
        finally:
            process.kill()


def test_a_build_asks_for_node_only_where_it_must(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = script(copied(tmp_path / "checkout") / "hatch_page.py", "hatch_page_of_a_copy")
    shutil.rmtree(page.DIST, ignore_errors=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert page.dependencies() == [page.NODE]
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    with pytest.raises(OSError, match=r"Node\.js 20 or later"):
        page.build()
    page.DIST.mkdir()
    page.STAMP.write_text(page.sources(), encoding="utf-8")
    assert page.dependencies() == []
    assert page.build() == page.DIST  # as it is, without Node
    with (page.WEB / "src" / "main.tsx").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert (page.is_current(), page.dependencies()) == (False, [page.NODE])
