"""Build the site into build/site: `python -m docs.book`.

Where GITHUB_REPOSITORY names a repository, as in its workflows, Colab opens the chapters from its branch `notebooks`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from docs.book.check import problems_of_navigation, problems_of_site
from docs.book.live import write_live_pages
from docs.book.machines import write_texts_for_machines
from docs.book.notebooks import write_notebooks
from docs.book.pages import ROOT, stage_pages
from docs.book.reference import write_reference
from docs.generate.scheme_cards import scheme_navigation
from docs.generate.scheme_figures import write_scheme_figures
from experiments.suite import read_evidence

OUT = ROOT / "build" / "site"


def stage(folder: Path, *, full: bool = True) -> None:
    """Write all that the site is built from into a folder: pages, figures, notebooks, reference, configuration.

    Args:
        folder: where to write.
        full: see write_live_pages.
    """
    pages = folder / "pages"
    live = write_live_pages(pages / "live", full=full)
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    notebooks = write_notebooks(ROOT / "docs" / "course", pages / "notebooks", repository)
    figures = write_scheme_figures(pages / "schemes", read_evidence(ROOT / "evidence"))
    stage_pages(pages, live, notebooks, figures, repository)
    navigation = write_reference(pages / "reference")
    config = (ROOT / "docs" / "book" / "zensical.toml").read_text(encoding="utf-8")
    config = config.replace('"written from docstrings"', navigation).replace("SOURCES", str(ROOT / "src"))
    config = config.replace('"written from the catalogue"', scheme_navigation())
    (folder / "zensical.toml").write_text(config, encoding="utf-8")
    write_texts_for_machines(folder)


def build(folder: Path, *, full: bool = True) -> Path:
    """Build the site in a folder, and return the folder of its pages.

    Args:
        folder: where to build.
        full: see write_live_pages.

    Raises:
        RuntimeError: If the build warns of anything: a link that leads nowhere, a page that is not there.
    """
    stage(folder, full=full)
    _require_none(problems_of_navigation(folder))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(folder / "zensical.toml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode or done.stderr.strip() != "No issues found":
        said = re.sub("\x1b\\[[0-9;]*m", "", done.stderr).partition("Traceback")[0]
        raise RuntimeError(f"The site was not built without warnings:\n{said}")
    _require_none(problems_of_site(folder / "site"))
    return folder / "site"


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise RuntimeError("The site has faults:\n" + "\n".join(problems))


def main() -> None:
    """Build the site, and replace the former one when it is whole."""
    with tempfile.TemporaryDirectory() as folder:
        site = build(Path(folder))
        shutil.rmtree(OUT, ignore_errors=True)
        shutil.copytree(site, OUT)
    sys.stdout.write(
        f"Wrote {OUT / 'index.html'}. Search needs a server: python -m http.server --bind 127.0.0.1 -d {OUT}\n"
    )


if __name__ == "__main__":
    main()
