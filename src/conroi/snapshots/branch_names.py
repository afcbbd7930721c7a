"""Branch names: each is a branch with an id of its own, and moves by compare-and-swap; Lance's branch files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conroi.environment import Environment
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError, NotFoundError
from conroi.format.json import Document, decode_document, encode_document
from conroi.format.on_disk import BRANCH_REFS_DIR, BRANCHES_DIR
from conroi.storage.objects import ObjectExists, Objects

MAIN = "main"
LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]*")


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a lake, as `lake.branches` lists it."""

    name: str
    id: str
    """Its unique id, also different from an earlier branch of its name; `main` for the main branch."""
    parent: str | None = None
    """The id of the branch that it was created from."""
    parent_version: int = 0
    """The version of the parent at which it starts (branch point)."""
    created_at: datetime | None = None
    lance_name: str | None = None
    """What pylance calls it, in `__manifest` and in every table that was written on it."""
    lineage: tuple[tuple[str, int], ...] = ()
    """The folders that have the versions from before it, and up to which, nearest first."""

    @property
    def is_main(self) -> bool:
        return self.lance_name is None

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        return {
            "name": self.name,
            "id": self.id,
            "parent": self.parent,
            "parent_version": self.parent_version,
            "created_at": None if self.created_at is None else self.created_at.isoformat(),
            "lance_name": self.lance_name,
        }

    def __str__(self) -> str:
        return self.name if self.is_main else f"{self.name} (from version {self.parent_version})"


MAIN_BRANCH = Branch(MAIN, MAIN)


class BranchNames:
    """The branch names, stored beside `__manifest`."""

    def __init__(self, manifest: Objects) -> None:
        self._cells = Cells(manifest, BRANCHES_DIR)
        self._root = manifest.root

    def all(self) -> Iterator[Branch]:
        """All branches but the main one, by name."""
        for cell in self._cells.all():
            yield self._branch(cell)

    def get(self, name: str) -> Branch:
        """The branch of this name."""
        if name == MAIN:
            return MAIN_BRANCH
        return self._branch(self._cells.read(checked_branch_name(name)))

    def free(self, name: str) -> Cell:
        """The register of the name, if no branch has it."""
        if name == MAIN:
            raise self._taken(name)
        cell = self._cells.read(checked_branch_name(name))
        if cell.value is not None:
            raise self._taken(name)
        return cell

    def give(self, cell: Cell, branch: Branch) -> None:
        """Give a free name to a branch; of concurrent callers exactly one succeeds."""
        created = None if branch.created_at is None else branch.created_at.isoformat()
        value = {
            "id": branch.id,
            "branch": branch.lance_name,
            "parent": branch.parent,
            "parentVersion": branch.parent_version,
            "createdAt": created,
            "lineage": [list(pair) for pair in branch.lineage],
        }
        if not self._cells.swap(cell, value):
            raise self._taken(cell.name)

    def take_away(self, branch: Branch) -> None:
        """Free the name, if it still belongs to this very branch."""
        cell = self._cells.read(branch.name)
        if cell.value is not None and cell.value.get("id") == branch.id:
            self._cells.swap(cell, None)  # if it moved concurrently, another process removed it

    def _taken(self, name: str) -> AlreadyExistsError:
        return AlreadyExistsError(
            f"There is a branch {name!r} already.", table=self._root, hint="Choose another name, or delete it first."
        )

    def _branch(self, cell: Cell) -> Branch:
        if cell.value is None:
            names = ", ".join([MAIN, *(each.name for each in self._cells.all())][:10])
            raise NotFoundError(
                f"The lake has no branch {cell.name!r}.",
                table=self._root,
                hint=f"It has {names}. lake.branches.create(name) makes one.",
            )
        try:
            return _decoded(cell.name, Document(dict(cell.value), f"The branch {cell.name!r}"))
        except (CorruptionError, ValueError) as error:
            raise CorruptionError(
                f"The branch {cell.name!r} cannot be read.",
                table=self._root,
                hint=f"Look at the newest file in {BRANCHES_DIR}/{cell.name}.",
            ) from error


def _decoded(name: str, value: Document) -> Branch:
    return Branch(
        name=name,
        id=value.text("id"),
        parent=value.text("parent"),
        parent_version=value.integer("parentVersion"),
        created_at=datetime.fromisoformat(value.text("createdAt")),
        lance_name=value.text("branch"),
        lineage=tuple(value.pairs("lineage")),
    )


def new_branch(
    name: str, id_: str, parent: Branch, version: int, lineage: tuple[tuple[str, int], ...], now_ns: int
) -> Branch:
    """The facts of a new branch."""
    return Branch(
        name=name,
        id=id_,
        parent=parent.id,
        parent_version=version,
        created_at=datetime.fromtimestamp(now_ns / 1e9, UTC),
        lance_name=f"{name}-{id_[:8]}",
        lineage=lineage,
    )


def checked_branch_name(name: str) -> str:
    """Validate a branch name."""
    is_text = isinstance(name, str) and _NAME.fullmatch(name)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or len(name) > LONGEST_NAME or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInputError(
            f"{name!r} cannot be the name of a branch.",
            hint="Use letters, digits, dots, dashes and underscores, with a letter or digit in front.",
        )
    return name


_DIGITS = 8

Value = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """A name, its value, and the number of that value; None if it has no value (any more)."""

    name: str
    value: Value | None
    number: int = 0


class Cells:
    """The registers in one folder."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder

    def read(self, name: str) -> Cell:
        """The current value."""
        numbers = [_number(path) for path in self._objects.list_names(f"{self._folder}/{name}")]
        return self._loaded(name, max(numbers, default=0))

    def all(self) -> Iterator[Cell]:
        """All names that have a value, in order."""
        newest: dict[str, int] = {}
        for path in self._objects.list_names(self._folder):
            name = path.removeprefix(f"{self._folder}/").partition("/")[0]
            newest[name] = max(newest.get(name, 0), _number(path))
        for name in sorted(newest):
            cell = self._loaded(name, newest[name])
            if cell.value is not None:
                yield cell

    def swap(self, cell: Cell, value: Value | None) -> bool:
        """Compare-and-swap: set the value, or (None) delete it; False if it changed since the cell was read."""
        path = self._path(cell.name, cell.number + 1)
        try:
            self._objects.put_if_absent(path, b"null" if value is None else encode_document(value, indent=2))
        except ObjectExists:
            return False
        return True

    def _loaded(self, name: str, number: int) -> Cell:
        if not number:
            return Cell(name, None)
        data = self._objects.get(self._path(name, number))
        if data == b"null":
            return Cell(name, None, number)
        try:
            return Cell(name, decode_document(data, f"What {name!r} stands for").content, number)
        except CorruptionError as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: CorruptionError) -> CorruptionError:
        return CorruptionError(
            error.message,
            table=self._objects.root,
            hint=f"Look at the newest file in {self._folder}/{name}; deleting it brings the value before it back.",
        )

    def _path(self, name: str, number: int) -> str:
        return f"{self._folder}/{name}/{number:0{_DIGITS}d}.json"


def _number(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".json")
    return int(stem) if len(stem) == _DIGITS and stem.isdecimal() else 0


def lance_ref_path(branch: str) -> str:
    """The path of a branch file of pylance."""
    return f"{BRANCH_REFS_DIR}/{branch.replace('/', '%2F')}.json"


def write_lance_ref(
    table: Objects, branch: str, parent: str | None, version: int, environment: Environment, *, size: int = 0
) -> None:
    """Write pylance's file of a branch that starts at this version, unless it exists."""
    content = {
        "parentBranch": parent,
        "identifier": {"version_mapping": [[version, environment.new_uuid().hex]]},
        "parentVersion": version,
        "createAt": environment.now_ns() // 1_000_000_000,
        "manifestSize": size,
        "metadata": {},
    }
    with contextlib.suppress(ObjectExists):
        table.put_if_absent(lance_ref_path(branch), encode_document(content, indent=2))


def delete_lance_ref(table: Objects, branch: str) -> None:
    """Delete pylance's file of a branch; the branch's files stay until they are collected."""
    table.delete([lance_ref_path(branch)])
