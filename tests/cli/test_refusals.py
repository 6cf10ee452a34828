"""What each command refuses: a message without a traceback, and no file is written or changed."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from whatwhere.what.expressions import expression_tokenizer

from ..models.checkpoint import samples
from ..running import whatwhere

REFUSED = {
    "encode x --scheme rotery": "Did you mean rotary",
    "encode x --scheme sinusoidal+learned": "two schemes at the door 'input'",
    "encode x --dim 7": "dim=7, but needs an even number",
    "encode x --seed 99999999999999999999": "needs a whole number from 0",
    "encode": "needs a text, a file or ids",
    "encode ''": "the text is empty",
    "encode --ids 4,-1": "id -1 at (1,) is negative",
    "encode --ids 1,two": "--ids got '1,two', but needs comma-separated whole numbers",
    "encode --ids 1,,2": "--ids got '1,,2', but needs comma-separated whole numbers",
    "encode --ids 20 --tokenizer tokenizer.json": "id 20 is unknown to this tokenizer",
    "encode x --tokenizer none.json": "there is no such file",
    "encode x --tokenizer text.txt": "is not a tokenizer of the tokenizers library",
    "encode --file none.txt": "cannot be read: No such file",
    "encode --file latin.txt": "is not UTF-8: byte 0xf6",
    "encode x --save .": "cannot be written: Is a directory",
    "encode x --save none/x": "cannot be written: No such file",
    "encode x --run rotary-0": "--from",
    "compare none --set direction": "needs name=value, as in",
    "compare none --set lengths=8": "--set got lengths, which is not a setting",
    "compare none --log csv:x": "log got 'csv:x'",
    "compare none --steps 2 --set steps=3": "steps was passed twice",
    "compare none --lengths 8 12": "--lengths 8,12, not 8 12",
    "compare none --out text.txt/out": "cannot be written: Not a directory",
    "neighbors v.vec nothing": "no token of",
    "neighbors v.vec kin": "Similar are 'king'",
    "neighbors v.vec #3": "id 3 lies outside the table, which has 3 rows",
    "neighbors v.vec #99999999999999999": "lies outside",
    "neighbors v.vec ''": "the text is empty",
    "neighbors v.vec king --metric taxi": "knows only: cosine, dot, euclidean",
    "neighbors v.vec king --table other": "has no tensor 'other'",
    "neighbors v.vec king --table output": "has no output projection",
    "neighbors one.npz king --table one": "a table has (rows, dim)",
    "neighbors t.npy king": "has no tokens as text",
    "neighbors nan.npy #0": "every row",
    "neighbors complex.npy #0": "complex",
    "neighbors empty.npy #0": "is empty",
    "neighbors nowhere king": "cannot be read",
    "neighbors config.json king": "is a configuration, without tensors",
    "neighbors . king": "model.pt is a pickle",
    "analogy v.vec king queen mat": "needs an answer beside its three words",
    "analogy t.npy #0 #1 #2 --rule divide": "need one of: add, multiply",
    "analogy t.npy #0 #1 #29": "id 29 lies outside",
    "map t.npy --out map.png": "writes .svg, .tsv, .json",
    "map t.npy --out t.npy": "writes .svg",
    "map projector/vectors.tsv --out projector/vectors.tsv": "the model itself",
    "map t.npy --out folder.svg": "a folder",
    "map projector --tsv projector": "the model itself",
    "map projector/vectors.tsv --tsv projector": "the model itself",
    "map t.npy --out nowhere/map.svg": "cannot be written",
    "map t.npy --method mds": "knows only: pca, tsne, umap",
    "map two.npy": "at least 3 finite rows",
    "map t.npy --method tsne --rows 3": "at least 16 finite rows",
    "map nowhere": "cannot be read",
    "map t.npy --tsv t.npy": "which is a file",
    "diff nowhere v.vec": "nowhere",
    "diff v.vec projector/none": "holds no weights",
    "diff v.vec v.npz": "nothing that could be compared",
    "diff v.vec v.vec --table other": "nothing that could be compared",
    "diff v.vec model.pt": "allow",
}
USAGE = {
    "encod x": "No such command 'encod'",
    "encode x --dim eight": "Invalid value for '--dim'",
    "encode x --dim 0": "Invalid value for '--dim'",
    "encode x --heads 0": "Invalid value for '--heads'",
    "compare none --workers 0": "Invalid value for '--workers'",
}


@pytest.mark.usefixtures("our_own_checks")
@pytest.mark.parametrize("line", REFUSED | USAGE)
def test_wrong_input_gets_a_message(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The cat sat on the mat.", encoding="utf-8")
    Path("latin.txt").write_bytes("zwölf".encode("latin-1"))
    expression_tokenizer().save("tokenizer.json")
    Path("config.json").write_text('{"model_type": "gpt2"}')
    Path("v.vec").write_text("3 2\nking 1 0\nqueen 0.9 0.1\nmat 0 1\n")
    Path("model.pt").write_bytes(samples.pickled())
    table = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    for name, rows in {
        "t": table, "two": table[:2], "nan": np.full((3, 2), np.nan), "complex": np.ones((3, 2), np.complex64),
        "empty": np.ones((3, 0), np.float32),
    }.items():  # fmt: skip
        np.save(f"{name}.npy", rows)
    np.savez("one.npz", one=np.ones(3), table=np.ones((3, 2)))
    np.savez("v.npz", a=np.ones(3), b=np.ones(4))
    Path("folder.svg").mkdir()
    Path("projector/none").mkdir(parents=True)
    Path("projector/vectors.tsv").write_text("1\t2\n3\t4\n5\t6\n")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    said = whatwhere(*shlex.split(line))
    assert (said.status, said.out) == (2 if line in USAGE else 1, "")
    assert said.err.startswith("Usage: whatwhere" if line in USAGE else "whatwhere: ")
    assert (REFUSED | USAGE)[line] in said.err
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert after == before
