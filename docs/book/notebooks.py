"""The course as notebooks, made from the chapters when the site is built."""

import doctest
import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

_BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[([^\]]+)\]\([^)]+\)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https://)[^)]+\)")
_COMMENT = re.compile(r"^<!-- .* -->\n+", re.MULTILINE)


def write_notebooks(chapters: Path, folder: Path, repository: str = "") -> frozenset[str]:
    """Write a notebook for each chapter, and return the names of the chapters, without the ending.

    Args:
        chapters: the folder of the course.
        folder: to write into.
        repository: OWNER/NAME on GitHub, whose package the notebooks install where it is not there; none if empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for chapter in sorted(chapters.glob("*.md")):
        made = notebook(chapter.read_text(encoding="utf-8"))
        if repository:
            made.cells.insert(0, _installation(repository))
        nbformat.write(made, folder / f"{chapter.stem}.ipynb")
        names.add(chapter.stem)
    return frozenset(names)


def notebook(text: str) -> nbformat.NotebookNode:
    """Return a chapter as a notebook: its examples are code cells, without their output.

    Links and pictures of the site become words, since a downloaded notebook is not beside them. A cell that shows an
    error is marked, so that running all cells does not end there.
    """
    cells, end = [], 0
    for match in _BLOCK.finditer(text):
        cells += [_words(text[end : match.start()]), _code(match.group(1))]
        end = match.end()
    cells.append(_words(text[end:]))
    kept = [cell for cell in cells if cell.source]
    for number, cell in enumerate(kept):
        cell.id = f"cell-{number}"  # random otherwise: two builds would differ
    result = new_notebook(cells=kept, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nbformat.validate(result)
    return result


def colab_address(repository: str, chapter: str) -> str:
    """Return where Colab opens a chapter, from the branch `notebooks` of a repository.

    Args:
        repository: OWNER/NAME on GitHub.
        chapter: its name, without the ending.

    Examples:
        >>> colab_address("someone/whatwhere", "01-text-to-ids")
        'https://colab.research.google.com/github/someone/whatwhere/blob/notebooks/01-text-to-ids.ipynb'
    """
    return f"https://colab.research.google.com/github/{repository}/blob/notebooks/{chapter}.ipynb"


def _installation(repository: str) -> nbformat.NotebookNode:
    package = f"whatwhere[studio] @ git+https://github.com/{repository}"
    cell = new_code_cell(
        f"import importlib.util\n\nif not importlib.util.find_spec('whatwhere'):\n    %pip install -q '{package}'"
    )
    cell.id = "installation"
    return cell


def _words(text: str) -> nbformat.NotebookNode:
    text = _PICTURE.sub(r"*Figure: \1*", _COMMENT.sub("", text))
    return new_markdown_cell(_LINK.sub(r"\1", text).strip())


def _code(block: str) -> nbformat.NotebookNode:
    examples = doctest.DocTestParser().get_examples(block)
    cell = new_code_cell("".join(example.source for example in examples).strip())
    if any(example.exc_msg for example in examples):
        cell.metadata["tags"] = ["raises-exception"]
    return cell
