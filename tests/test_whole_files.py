"""Files that are taken for whole ones, and what is seen of the others."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from reliability.whole_files import incomplete
from whatwhere.records import with_checksum

WHOLE = {
    "a.csv": b"a,b,c\n1,2,3\n4,5,6\n",
    "a.html": b"<p>words</p></html>\n",
    "a.json": json.dumps(with_checksum({"a": [1, 2]})).encode(),
    "a.pdf": b"%PDF-1.4\n%%EOF\n",
    "a.safetensors": save({"a": torch.zeros(3)}),
    "a.svg": b"<svg><path/></svg>\n",
    "a.tex": b"\\begin{table}\n\\end{table}\n",
    "a.tsv": b"a\tb\tc\n1\t2\t3\n4\t5\t6\n",
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_cut_or_empty_is_not_whole(name: str, tmp_path: Path) -> None:
    (path := tmp_path / name).write_bytes(WHOLE[name])
    assert incomplete(path) == ""
    for end in (0, len(WHOLE[name]) // 2, len(WHOLE[name]) - 2):
        path.write_bytes(WHOLE[name][:end])
        assert incomplete(path)


def test_another_number_behind_a_checksum_is_seen(tmp_path: Path) -> None:
    (path := tmp_path / "a").write_bytes(WHOLE["a.json"].replace(b"1, 2", b"1, 3"))
    assert "checksum" in incomplete(path, ".json")
