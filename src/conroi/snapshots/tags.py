"""Tags of one table in pylance's file format, created and moved by compare-and-swap, which pylance itself does not do.

A tag is created by put-if-absent. It is moved or deleted by claiming its current content: for each content that a file
had, one successor can be recorded, and only the writer that recorded it changes the file. A reader follows the recorded
successors, so it does not matter when, or whether, the file itself was changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conroi.arguments import checked_calls
from conroi.errors import (
    AlreadyExistsError,
    CorruptionError,
    ExpectedVersionMismatch,
    InvalidInputError,
    NotFoundError,
    RetryableConflict,
)
from conroi.format.json import decode_document, encode_document
from conroi.format.on_disk import LAKE_TAG_PREFIX, TAG_CLAIMS_DIR, TAG_ID_KEY, TAGS_DIR
from conroi.snapshots.branch_storage import write_fork
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.objects import ObjectExists, Objects
from conroi.storage.parallel import stays_in_process
from conroi.versions.retention import Retention, retention_of

MOST_MOVES = 100_000
"""Maximum number of successors that are followed; a longer chain is corrupt."""
_NAME = re.compile(r"[A-Za-z0-9._\-]+")


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one version."""

    name: str
    version: int
    created_at: datetime | None = None
    branch: str | None = None
    """pylance's name of the version's branch; None for the main one."""

    def to_dict(self) -> dict[str, object]:
        """The facts as plain values."""
        created = None if self.created_at is None else self.created_at.isoformat()
        return {"name": self.name, "version": self.version, "created_at": created, "branch": self.branch}


@checked_calls
@stays_in_process("The tags of a table or lake", "Hand over the table or the lake.")
class Tags:
    """The tags of a table.

    >>> import conroi
    >>> table = conroi.create_table("memory://tags-example", [{"id": 1}])
    >>> table.tags.create("first").version
    1
    >>> [tag.name for tag in table.tags]
    ['first']
    """

    owner = "table"
    """The kind of the tags' owner, as in messages."""

    def __init__(
        self, files: TableStorage, version: int, *, home: Objects | None = None, branch: str | None = None
    ) -> None:
        self._files = files
        self._version = version
        self._home = files.objects if home is None else home
        """The storage of the tags: those of branches are with the main branch too."""
        self._branch = branch

    def _name_for_errors(self, table: str | None) -> str | None:
        return self._files.name if table is None or table == self._files.root else table

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Tags({', '.join(f'{tag.name}={tag.version}' for tag in self)})"

    def list(self) -> list[Tag]:
        """All tags, by name."""
        paths = [path for path in self._home.list_names(TAGS_DIR) if path.endswith(".json")]
        names = [path.rpartition("/")[2].removesuffix(".json") for path in sorted(paths)]
        found = {name: self._content(name) for name in names}
        root = self._files.root
        return [self._decoded(name, _parsed_json(name, text, root)) for name, text in found.items() if text]

    def get(self, name: str) -> Tag:
        """The tag of this name."""
        return self._decoded(name, self._read(checked_name(name, self._files.root)))

    def create(self, name: str, version: int | None = None) -> Tag:
        """Create a tag on a version (by default the one this table is pinned at). Of concurrent calls exactly one
        succeeds.
        """
        body = self._body(version, created=None)
        try:
            self._home.put_if_absent(_path(checked_name(name, self._files.root)), body)
        except ObjectExists:
            if self._content(name) is None:  # it was deleted, but its file was not removed yet
                self._home.delete([_path(name)])
                return self.create(name, version)
            raise AlreadyExistsError(
                f"There is a tag {name!r} already.", table=self._files.root, hint="Use tags.move() to move it."
            ) from None
        return self._settled(self._decoded(name, _parsed_json(name, body, self._files.root)), body)

    def move(self, name: str, version: int | None = None, *, expect: int | None = None) -> Tag:
        """Move an existing tag to another version; with `expect`, only if it is at that version until then."""
        while True:
            before = self._there(checked_name(name, self._files.root))
            content = _parsed_json(name, before, self._files.root)
            actual = self._decoded(name, content).version
            if expect is not None and actual != expect:
                raise ExpectedVersionMismatch(
                    f"The tag {name!r} was expected at version {expect}, but it is at version {actual}.",
                    table=self._files.root,
                    expected=expect,
                    actual=actual,
                    hint="Look at what the tag names now, and move it again if that is right.",
                )
            body = self._body(version, created=content.get("createdAt"))
            if self._claim(name, before, body):
                self._home.put(_path(name), body)
                return self._settled(self._decoded(name, _parsed_json(name, body, self._files.root)), body, before)

    def delete(self, name: str) -> None:
        """Delete a tag; the version stays until it is collected."""
        while not self._claim(name, self._there(checked_name(name, self._files.root)), b""):
            """It was moved concurrently: look again."""
        self._home.delete([_path(name)])

    def _settled(self, tag: Tag, body: bytes, before: bytes | None = None) -> Tag:
        """The tag, unless its version went away while it was written: then it is as before, and this is the error."""
        error = self._gone(tag)
        if error is not None:
            self._undo(tag.name, body, before)
            raise error
        return tag

    def _gone(self, tag: Tag) -> NotFoundError | None:
        """The error if its version was collected while the tag was written: the race is decided here."""
        objects, versions = self._files.objects, self._files.versions
        if versions.locate(tag.version) is None or retention_of(objects, tag.version) is not Retention.RETAINED:
            return NotFoundError(
                f"Version {tag.version} was just collected as an old version, so it cannot be tagged.",
                table=self._files.root,
                version=tag.version,
                hint="versions() lists all.",
            )
        return None

    def _undo(self, name: str, body: bytes, before: bytes | None) -> None:
        """Back to what the tag was before. What another writer has made of it since stays."""
        if before is None:
            if self._claim(name, body, b""):
                self._home.delete([_path(name)])
            return
        content = _parsed_json(name, before, self._files.root)
        metadata = content.get("metadata")
        content["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), **self._new_id()}
        restored = encode_document(content, indent=2)
        if self._claim(name, body, restored):
            self._home.put(_path(name), restored)
            tag = self._decoded(name, content)
            if tag.branch == self._branch and self._gone(tag) is not None:  # nothing held it meanwhile
                self._undo(name, restored, None)

    def _new_id(self) -> dict[str, str]:
        """So that no content comes back."""
        return {TAG_ID_KEY: str(self._files.environment.new_uuid())}

    def _claim(self, name: str, before: bytes, after: bytes) -> bool:
        """Record the successor of this content; False if another writer did."""
        try:
            self._home.put_if_absent(_claim_path(name, before), after)
        except ObjectExists:
            return False
        return True

    def _body(self, version: int | None, created: str | None) -> bytes:
        version = self._version if version is None else version
        is_number = isinstance(version, int) and 0 < version < 1 << 64  # pyright: ignore[reportUnnecessaryIsInstance]
        located = self._files.versions.locate(version) if is_number else None
        info = None if located is None else self._files.objects.head(located.path)
        if info is None:
            raise NotFoundError(
                f"There is no version {version} to tag.",
                table=self._files.root.removesuffix("/__manifest"),
                hint="lake.history() lists the versions."
                if self.owner == "lake"
                else "table.history() lists the versions.",
            )
        assert located is not None
        # A version from before a branch is tagged there: what is in the branch's own folder stays with the branch.
        write_fork(self._files.objects, located.path)
        now = _timestamp(self._files.environment.now_ns())
        content = {
            "branch": self._branch,
            "version": version,
            "createdAt": created or now,
            "updatedAt": now,
            "manifestSize": info.size,
            "metadata": self._new_id(),
        }
        return encode_document(content, indent=2)

    def _read(self, name: str) -> dict[str, Any]:
        return _parsed_json(name, self._there(name), self._files.root)

    def _there(self, name: str) -> bytes:
        content = self._content(name)
        if content is None:
            raise NotFoundError(
                f"There is no tag {name!r}.",
                table=self._files.root.removesuffix("/__manifest"),
                hint=f"{self.owner}.tags lists all.",
            )
        return content

    def _content(self, name: str) -> bytes | None:
        """The content of the tag, following the recorded successors; None if there is no tag."""
        try:
            content = self._home.get(_path(name))
        except NotFoundError:
            return None
        seen: set[str] = set()
        while content:
            following = _claim_path(name, content)
            if following in seen or len(seen) > MOST_MOVES:
                raise _damaged(name, self._files.root)
            seen.add(following)
            try:
                content = self._home.get(following)
            except NotFoundError:
                return content
        return None

    def _decoded(self, name: str, content: dict[str, Any]) -> Tag:
        version, branch, created = (content.get(key) for key in ("version", "branch", "createdAt"))
        if not isinstance(version, int) or isinstance(version, bool) or not isinstance(branch, str | None):
            raise _damaged(name, self._files.root)
        if not 0 < version < 1 << 64:
            raise _damaged(name, self._files.root)
        return Tag(name, version, _parsed(created) if isinstance(created, str) else None, branch)


@checked_calls
class TagsAtBeginning(Tags):
    """The tags in a transaction's snapshot: looked up once, without later changes.

    A tag has no history. One that was moved since is refused, because its earlier version is not known. Times are those
    of the clocks of the tags' writers.
    """

    def __init__(self, files: TableStorage, version: int, began_ns: int) -> None:
        super().__init__(files, version)
        self._began = datetime.fromtimestamp(began_ns / 1e9, UTC)
        self.seen: list[Tag] | None = None
        """The tags that were returned; None before the first access."""

    def list(self) -> list[Tag]:
        if self.seen is None:
            paths = sorted(path for path in self._home.list_names(TAGS_DIR) if path.endswith(".json"))
            found = [self._at_beginning(path.rpartition("/")[2].removesuffix(".json")) for path in paths]
            self.seen = [tag for tag in found if tag is not None]
        return [*self.seen]

    def _at_beginning(self, name: str) -> Tag | None:
        text = self._content(name)
        if text is None:
            return None
        content = _parsed_json(name, text, self._files.root)
        tag, updated = self._decoded(name, content), content.get("updatedAt")
        moved_at = _parsed(updated) if isinstance(updated, str) else None
        is_newer = tag.version > self._version
        if (tag.created_at is None and is_newer) or (tag.created_at is not None and tag.created_at > self._began):
            return None
        if is_newer or (moved_at is not None and moved_at > self._began):
            raise RetryableConflict(
                f"The tag {name!r} was moved since this transaction began.",
                table=self._files.root,
                version=tag.version,
                base_version=self._version,
                hint="Begin a new transaction; lake.run(function) does that for you.",
            )
        return tag

    def get(self, name: str) -> Tag:
        checked_name(name, self._files.root)
        for tag in self.list():
            if tag.name == name:
                return tag
        raise NotFoundError(
            f"There was no tag {name!r} when this transaction began.",
            table=self._files.root,
            hint="tx[name].tags lists those that there were.",
        )

    def create(self, name: str, version: int | None = None) -> Tag:  # noqa: ARG002
        raise self._refused()

    def move(self, name: str, version: int | None = None, *, expect: int | None = None) -> Tag:  # noqa: ARG002
        raise self._refused()

    def delete(self, name: str) -> None:  # noqa: ARG002
        raise self._refused()

    def _refused(self) -> InvalidInputError:
        return InvalidInputError(
            "Tags are not part of a transaction: they would change at once, also if it fails.",
            table=self._files.root,
            hint="Change the tag after the commit, with lake[name].tags.",
        )


def lake_tag_names(objects: Objects) -> list[str]:
    """The names of the tags in a table that protect what its lake needs."""
    names = [path.rpartition("/")[2].removesuffix(".json") for path in objects.list_names(TAGS_DIR)]
    return sorted(name for name in names if name.startswith(LAKE_TAG_PREFIX))


def put_lake_tag(objects: Objects, name: str, branch: str | None, version: int, size: int, now_ns: int) -> None:
    """Write such a tag, unless it exists: its name has all the information."""
    now = _timestamp(now_ns)
    content = {
        "branch": branch,
        "version": version,
        "createdAt": now,
        "updatedAt": now,
        "manifestSize": size,
        "metadata": {},
    }
    with contextlib.suppress(ObjectExists):
        objects.put_if_absent(_path(name), encode_document(content, indent=2))


def delete_lake_tags(objects: Objects, names: Iterable[str]) -> None:
    """Delete such tags."""
    objects.delete([_path(name) for name in names])


def _parsed_json(name: str, content: bytes, table: str) -> dict[str, Any]:
    try:
        return decode_document(content, f"The tag {name!r}").content
    except CorruptionError as error:
        raise _damaged(name, table) from error


def _damaged(name: str, table: str) -> CorruptionError:
    return CorruptionError(
        f"The tag {name!r} cannot be read.", table=table, hint="Delete its file below _refs/tags, and create it again."
    )


def checked_name(name: str, table: str) -> str:
    """Validate a tag name."""
    is_text = isinstance(name, str) and _NAME.fullmatch(name)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or name.startswith(".") or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInputError(
            f"{name!r} cannot be the name of a tag.",
            table=table,
            hint="Use letters, digits, dots, dashes, underscores.",
        )
    return name


def _path(name: str) -> str:
    return f"{TAGS_DIR}/{name}.json"


def _claim_path(name: str, content: bytes) -> str:
    return f"{TAG_CLAIMS_DIR}/{name}/{hashlib.sha256(content).hexdigest()[:32]}"


def _timestamp(now_ns: int) -> str:
    seconds, nanos = divmod(now_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def _parsed(text: str) -> datetime | None:
    cut = re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(cut)
    except (ValueError, OverflowError):
        return None
