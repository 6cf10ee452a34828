"""The page as it was bundled when the package was built, and what to do where it was not."""

from pathlib import Path

from whatwhere.errors import MissingExtra

PAGE = Path(__file__).parent / "web" / "dist"


def check_page(page: Path = PAGE) -> None:
    """Raise MissingExtra where this installation has no page."""
    if not (page / "index.html").is_file():
        raise MissingExtra(
            "this installation has no page for the studio: it was built without Node.js.\n"
            "In a checkout: make page. Else install Node.js 20 or later and build anew: "
            "pip install --force-reinstall --no-deps --no-binary whatwhere whatwhere"
        )
