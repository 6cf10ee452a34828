"""Write the generated parts of README.md and docs/: `python -m docs.generate`. A test fails if they are old."""

from docs.generate.pages import ROOT, everything, pages, readme, reuse_a_cache


def main() -> None:
    """Write the files; cards of schemes that are no longer in the catalogue are removed."""
    guide = ROOT / "docs" / "how-to" / "reuse-a-cache.md"
    parts = ((ROOT / "README.md", readme), (ROOT / "docs" / "everything.md", everything), (guide, reuse_a_cache))
    for path, write in parts:
        path.write_text(write(path.read_text(encoding="utf-8")), encoding="utf-8")
    written = pages()
    for name, text in written.items():
        path = ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for card in (ROOT / "docs" / "schemes").glob("*.md"):
        if f"schemes/{card.name}" not in written:
            card.unlink()


if __name__ == "__main__":
    main()
