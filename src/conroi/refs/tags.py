"""Tags of one table, in the files pylance keeps them in; created by compare-and-swap, which pylance's own are not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conroi.commit.files import TableFiles
from conroi.errors import AlreadyExistsError, CorruptionError, InvalidInputError, NotFoundError
from conroi.stores.objects import NameTaken

_FOLDER = "_refs/tags"
_NAME = re.compile(r"[A-Za-z0-9._\-]+")


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one version."""

    name: str
    version: int
    created_at: datetime | None = None
    branch: str | None = None


class Tags:
    """The tags of a table.

    >>> import conroi
    >>> table = conroi.create_table("memory://tags-example", [{"id": 1}])
    >>> table.tags.create("first").version
    1
    >>> [tag.name for tag in table.tags]
    ['first']
    """

    def __init__(self, files: TableFiles, version: int) -> None:
        self._files = files
        self._version = version

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Tags({', '.join(f'{tag.name}={tag.version}' for tag in self)})"

    def list(self) -> list[Tag]:
        """All tags, by name."""
        paths = [path for path in self._files.objects.list_names(_FOLDER) if path.endswith(".json")]
        return [self.get(path.rpartition("/")[2].removesuffix(".json")) for path in sorted(paths)]

    def get(self, name: str) -> Tag:
        """The tag of this name."""
        return self._decoded(name, self._read(checked_name(name, self._files.root)))

    def create(self, name: str, version: int | None = None) -> Tag:
        """Name a version (by default the one this table is pinned at). Of two who create one name, one succeeds."""
        body = self._body(version, created=None)
        try:
            self._files.objects.put_if_absent(_path(checked_name(name, self._files.root)), body)
        except NameTaken:
            raise AlreadyExistsError(
                f"There is a tag {name!r} already.", table=self._files.root, hint="Use tags.move() to move it."
            ) from None
        return self.get(name)

    def move(self, name: str, version: int | None = None) -> Tag:
        """Point a tag that is there at another version."""
        created = self._read(checked_name(name, self._files.root)).get("createdAt")
        self._files.objects.put(_path(name), self._body(version, created=created))
        return self.get(name)

    def delete(self, name: str) -> None:
        """Forget a tag; the version stays until it is collected."""
        self.get(name)
        self._files.objects.delete([_path(name)])

    def _body(self, version: int | None, created: str | None) -> bytes:
        version = self._version if version is None else version
        is_number = isinstance(version, int) and 0 < version < 1 << 64  # pyright: ignore[reportUnnecessaryIsInstance]
        located = self._files.versions.locate(version) if is_number else None
        info = None if located is None else self._files.objects.head(located.path)
        if info is None:
            raise NotFoundError(
                f"There is no version {version} to tag.", table=self._files.root, hint="versions() lists what is there."
            )
        now = _timestamp(self._files.environment.now_ns())
        content = {
            "branch": None,
            "version": version,
            "createdAt": created or now,
            "updatedAt": now,
            "manifestSize": info.size,
            "metadata": {},
        }
        return json.dumps(content, indent=2).encode()

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self._files.objects.get(_path(name))))
        except NotFoundError:
            raise NotFoundError(
                f"There is no tag {name!r}.",
                table=self._files.root,
                hint="table.tags lists those that are there.",
            ) from None
        except (ValueError, TypeError) as error:
            raise _damaged(name, self._files.root) from error

    def _decoded(self, name: str, content: dict[str, Any]) -> Tag:
        version = content.get("version")
        if not isinstance(version, int):
            raise _damaged(name, self._files.root)
        created = content.get("createdAt")
        return Tag(name, version, _parsed(created) if isinstance(created, str) else None, content.get("branch"))


def _damaged(name: str, table: str) -> CorruptionError:
    return CorruptionError(
        f"The tag {name!r} cannot be read.", table=table, hint="Delete its file below _refs/tags, and create it again."
    )


def checked_name(name: str, table: str) -> str:
    """The name, if a tag can have it."""
    is_text = isinstance(name, str) and _NAME.fullmatch(name)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or name.startswith(".") or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInputError(
            f"{name!r} cannot be the name of a tag.",
            table=table,
            hint="Use letters, digits, dots, dashes, underscores.",
        )
    return name


def _path(name: str) -> str:
    return f"{_FOLDER}/{name}.json"


def _timestamp(now_ns: int) -> str:
    seconds, nanos = divmod(now_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def _parsed(text: str) -> datetime | None:
    cut = re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(cut)
    except ValueError:
        return None
