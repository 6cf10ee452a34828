"""The one decision about a flush of several tables: a marker in the folder of the first, which exists once it is made.

Each table has its changes in a log and its next steps in prepared.safetensors, which names the marker. Then the marker
is written: from then on the flush has happened in all tables, and in none if it is missing. Each table goes on from the
marker alone, whenever it is opened; the marker goes once no table needs it.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError
from whatwhere.what.matrix_file import own_errors

_PATTERN = "flush-*.json"


@dataclass(frozen=True)
class Place:
    """Where a file or folder is, as seen from a folder: the same after both were copied together, or one was moved.

    Args:
        relative: to the folder.
        absolute: without links.
    """

    relative: str
    absolute: str

    @classmethod
    def of(cls, path: Path, folder: Path) -> "Place":
        """Return the place of a path.

        Args:
            path: of a file or folder.
            folder: from which it will be searched.
        """
        absolute = os.path.realpath(path)
        return cls(os.path.relpath(absolute, os.path.realpath(folder)), absolute)

    def paths(self, folder: Path) -> tuple[Path, Path]:
        """Return where it may be now.

        Args:
            folder: from which it is searched.
        """
        return Path(os.path.realpath(folder)) / self.relative, Path(self.absolute)


@dataclass(frozen=True)
class Marker:
    """The marker of a flush, as a table names it.

    Args:
        place: of the marker, from the folder of the table.
        header: of the first table, in whose folder the marker is.
    """

    place: Place
    header: str

    def exists(self, prepared: Path, header: Callable[[Path], str | None]) -> bool:
        """Return whether the flush has happened.

        Args:
            prepared: the file of the table that names this marker.
            header: returns that of the table whose state is in a folder; None where there is none.

        Raises:
            CheckpointError: If the first table is not there, so that nobody knows.
        """
        for marker in self.place.paths(prepared.parent):
            if header(marker.parent) == self.header:
                return marker.exists()
        raise CheckpointError(
            f"{prepared} is a flush of several tables that was interrupted. Whether it has happened is known in "
            f"{Path(self.place.absolute).parent}, the folder of a table that is not there.\nPut that table and its "
            f"folder back, or beside this one as before; or remove {prepared.name}: then this table is as at its flush "
            "before."
        )


def new_marker(folder: Path) -> Path:
    """Return the path of a new marker, which is not there yet.

    Args:
        folder: with the state of the first table.
    """
    return folder / _PATTERN.replace("*", token_hex(16))


def write_marker(marker: Path, folders: Sequence[Path], numbers: Sequence[int]) -> None:
    """Decide that a flush has happened: the marker appears whole or not at all, and is on the disk.

    Args:
        marker: of `new_marker`.
        folders: of the state of each table.
        numbers: of the last step of each table.

    Raises:
        CheckpointError: If it cannot be written.
    """
    tables = [
        {**asdict(Place.of(folder, marker.parent)), "step": number}
        for folder, number in zip(folders, numbers, strict=True)
    ]
    with own_errors(marker):
        write_atomic(marker, json.dumps({"format": "whatwhere-flush", "tables": tables}), follow=False)


def remove_markers(folder: Path, prepared: str) -> None:
    """Remove markers that no table needs: each of their tables is there, and none has still to follow the marker.

    Args:
        folder: with the state of a table.
        prepared: the name of the file in the folders of tables that have still to follow a marker.
    """
    for marker in folder.glob(_PATTERN):
        with suppress(OSError, ValueError, KeyError, TypeError):  # one that cannot be read stays
            tables = [Place(each["relative"], each["absolute"]) for each in json.loads(marker.read_bytes())["tables"]]
            folders = [[path for path in each.paths(folder) if path.is_dir()] for each in tables]
            if all(folders) and not any((path / prepared).exists() for some in folders for path in some):
                marker.unlink()
