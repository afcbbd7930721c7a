"""Path resolution on local disk that follows no symbolic link below a root, and the local put-if-absent."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from conroi.errors import CorruptionError, InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.storage.objects import ObjectExists, UnsupportedByStorage

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_DIRECTORY | _CLOEXEC | getattr(os, "O_PATH", 0)
_REGULAR = os.O_NOFOLLOW | os.O_NONBLOCK | _CLOEXEC
READ_ONLY = os.O_RDONLY | _REGULAR
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _REGULAR
WRITE = os.O_WRONLY | os.O_CREAT | _REGULAR
READ_WRITE = os.O_RDWR | os.O_CREAT | _REGULAR
_LINKED = {errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENOTDIR}
"""What the system answers for a link, a FIFO without a reader, a socket; and for a link in place of a folder."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class LocalFolder:
    """A folder at or below a root; all paths are relative to the folder."""

    def __init__(self, folder: str, root: str | None = None) -> None:
        self.folder = folder
        self.root = folder if root is None or not is_below(folder, root) else root
        """The place that may be a link."""
        inside = folder[len(self.root) :].strip("/")
        self._above: tuple[str, ...] = tuple(inside.split("/")) if inside else ()

    def open_folder(self, path: str = "") -> int:
        """A descriptor of a folder, for calls with `dir_fd`; FileNotFoundError, NotADirectoryError."""
        parts = (*self._above, *path.split("/")) if path else self._above
        if not parts:
            return os.open(self.root, _FOLDER)
        try:
            folder = os.open(f"{self.root}/{parts[0]}", _FOLDER | os.O_NOFOLLOW)
            for part in parts[1:]:
                above = folder
                try:
                    folder = os.open(part or ".", _FOLDER | os.O_NOFOLLOW, dir_fd=above)
                finally:
                    os.close(above)
        except OSError as error:
            if error.errno in _LINKED:
                self._refuse_irregular(parts)
            raise
        return folder

    @contextlib.contextmanager
    def opened(self, path: str = "") -> Generator[int]:
        """The same, closed afterwards."""
        folder = self.open_folder(path)
        try:
            yield folder
        finally:
            os.close(folder)

    def open_file(self, path: str, flags: int = READ_ONLY) -> int:
        """A descriptor of a regular file; what is no regular file is refused. `flags` are those of this module."""
        above, _, name = path.rpartition("/")
        folder = self.open_folder(above)
        try:
            file = os.open(name, flags, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in _LINKED:
                self._refuse_irregular((*self._above, *path.split("/")))
            raise
        finally:
            os.close(folder)
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            os.close(file)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise self.refused(path, mode)
        return file

    def stat(self, path: str) -> os.stat_result | None:
        """Facts about a regular file; None for a folder. What is neither is refused."""
        above, _, name = path.rpartition("/")
        folder = self.open_folder(above)
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
        if stat.S_ISREG(found.st_mode):
            return found
        if stat.S_ISDIR(found.st_mode):
            return None
        raise self.refused(path, found.st_mode)

    def run_of(self, path: str, names: Iterable[str]) -> list[os.stat_result]:
        """Facts about the files of these names in one folder, up to the first that is not there."""
        found: list[os.stat_result] = []
        folder = self.open_folder(path)
        try:
            for name in names:
                facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    break
                if not stat.S_ISREG(facts.st_mode):
                    raise self.refused(f"{path}/{name}", facts.st_mode)
                found.append(facts)
        except FileNotFoundError:
            pass
        finally:
            os.close(folder)
        return found

    def make_folder(self, path: str) -> list[str]:
        """Make a folder and those above it; the ones that were missing, as paths below this folder's root."""
        with contextlib.suppress(FileNotFoundError), self.opened(path):
            return []
        os.makedirs(self.root, exist_ok=True)
        parts = (*self._above, *(part for part in path.split("/") if part))
        made: list[str] = []
        outer = LocalFolder(self.root)
        for count in range(1, len(parts) + 1):
            with outer.opened("/".join(parts[: count - 1])) as above, contextlib.suppress(FileExistsError):
                os.mkdir(parts[count - 1], dir_fd=above)
                made.append("/".join(parts[:count]))
        os.close(self.open_folder(path))
        return made

    def sync_folder(self, path: str = "") -> None:
        """Wait until the names in a folder are on the disk."""
        with self.opened(path) as folder:
            readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC, dir_fd=folder)
        try:
            os.fsync(readable)
        finally:
            os.close(readable)

    def entries(self, path: str = "") -> list[tuple[str, os.stat_result]]:
        """Names and facts of all that is in a folder, links themselves and not what they lead to."""
        with self._scanned(path) as entries:
            found: list[tuple[str, os.stat_result]] = []
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
            return found

    def names(self, path: str = "") -> list[tuple[str, bool]]:
        """The names in a folder, and whether each is a folder; a link to a folder is none."""
        with self._scanned(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    @contextlib.contextmanager
    def _scanned(self, path: str) -> Generator[Iterator[os.DirEntry[str]]]:
        with self.opened(path) as folder:
            readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(readable) as entries:
                yield entries
        finally:
            os.close(readable)

    def remove_empty(self, path: str = "") -> None:
        """Remove the folder and those in it that are empty; what is not empty stays."""
        with contextlib.suppress(OSError):
            for name, is_folder in self.names(path):
                if is_folder:
                    self.remove_empty(f"{path}/{name}" if path else name)
        parts = (*self._above, *(part for part in path.split("/") if part))
        with contextlib.suppress(OSError):
            if not parts:
                os.rmdir(self.root)
                return
            with LocalFolder(self.root).opened("/".join(parts[:-1])) as above:
                os.rmdir(parts[-1], dir_fd=above)

    def refused(self, path: str, mode: int) -> CorruptionError:
        """The error for something that is neither a file nor a folder."""
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        return CorruptionError(
            f"{path} is {kind}, which conroi does not follow, read, write or delete below the root of a table or lake.",
            table=self.folder,
            hint="Put the file or folder itself there, or remove it; doctor() lists all of them. Only the root may be "
            "a link.",
        )

    def _refuse_irregular(self, parts: Sequence[str]) -> None:
        """Raise for the first part that is neither a file nor a folder; return if there is none."""
        for count in range(1, len(parts) + 1):
            try:
                mode = os.lstat("/".join((self.root, *parts[:count]))).st_mode
            except OSError:
                return
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise self.refused("/".join(parts[len(self._above) : count]) or parts[count - 1], mode)


def is_below(path: str, root: str) -> bool:
    """Whether a path is the root or below it, by its letters."""
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


def irregular_kind(mode: int) -> str | None:
    """What something is that is neither a file nor a folder."""
    is_regular = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return None if is_regular else _KINDS.get(stat.S_IFMT(mode), "no regular file")


_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_PASSING = {errno.EAGAIN, errno.EINTR, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EBUSY, errno.ENOLCK}
_RENAME_NOREPLACE = 1
COMMIT_LOCK_HINT = "commit under a lock on this storage (a commit lock such as conroi.stores.FileLock)"


@dataclass(frozen=True, slots=True)
class Name:
    """A name in an open folder."""

    folder: int
    name: str


def create_name(complete: Name, new: Name, path: str, root: str) -> None:
    """Link the complete file to the name `new`, or raise ObjectExists; `complete` may be gone afterwards."""
    try:
        os.link(complete.name, new.name, src_dir_fd=complete.folder, dst_dir_fd=new.folder, follow_symlinks=False)
    except FileExistsError:
        if not _is_same_file(complete, new):
            raise ObjectExists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise store_error(error, "create", path, root) from error
        _rename_without_replacing(complete, new, path, root)


def rename_new(old: Name, new: Name, source: str, target: str, folder: LocalFolder) -> None:
    """Give a regular file a new name, or raise ObjectExists; both paths are for errors."""
    try:
        mode = os.stat(old.name, dir_fd=old.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        raise _no_file(source, folder) from None
    except OSError as error:
        raise store_error(error, "look at", source, folder.folder) from error
    if stat.S_ISDIR(mode):
        raise _no_file(source, folder)
    if not stat.S_ISREG(mode):
        raise folder.refused(source, mode)
    create_name(old, new, target, folder.folder)
    unlink(old.name, old.folder)


def _no_file(path: str, folder: LocalFolder) -> NotFoundError:
    return NotFoundError(f"There is no file {path}", table=folder.folder)


_OURS = secrets.token_hex(8)  # another host may have a process of the same number
_number = itertools.count()


def temporary_name() -> str:
    """A name that no other writer has, and that no reader takes for a manifest."""
    return f".tmp_conroi_{_OURS}_{os.getpid()}_{next(_number)}"


def unlink(name: str, folder: int) -> None:
    """Remove a file that may be gone already; a leftover is no failure."""
    try:  # noqa: SIM105  (with every commit)
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass


def store_error(error: OSError, verb: str, path: str, root: str) -> StoreError | InvalidInputError | NotFoundError:
    """The typed error for a failed system call."""
    message = f"Could not {verb} {path}: {error.strerror or type(error).__name__}"
    if error.errno in _PASSING:
        return StoreUnavailable(message, table=root, hint="it may pass; try again")
    if error.errno in (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
        return InvalidInputError(message, table=root, hint="choose another path for the table")
    if error.errno == errno.ENOENT:
        return NotFoundError(message, table=root, hint="check the path")
    hints = {
        errno.EACCES: "check who owns the folder and its permissions",
        errno.EROFS: "the disk is mounted read-only",
        errno.ENOSPC: "the disk is full; nothing was committed",
        errno.EDQUOT: "the disk quota is used up; nothing was committed",
        errno.EMFILE: "too many files are open in this process",
    }
    return StoreError(message, table=root, hint=hints.get(error.errno or 0))


def _is_same_file(complete: Name, new: Name) -> bool:
    # A network disk may lose the answer to a link that worked, send it again and be told that the name exists.
    with contextlib.suppress(OSError):
        one, other = (os.stat(name.name, dir_fd=name.folder, follow_symlinks=False) for name in (complete, new))
        return os.path.samestat(one, other)
    return False


def _rename_without_replacing(complete: Name, new: Name, path: str, root: str) -> None:
    rename = _renameat2()
    if rename is None:
        raise _no_way(path, root)
    code = rename(complete, new)
    if code == errno.EEXIST:
        raise ObjectExists(path)
    if code in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
        raise _no_way(path, root)
    if code:
        raise store_error(OSError(code, os.strerror(code)), "create", path, root)


def _no_way(path: str, root: str) -> StoreError:
    return UnsupportedByStorage(
        f"Could not create {path}: this disk can neither link files nor rename without replacing",
        table=root,
        hint=COMMIT_LOCK_HINT,
    )


@functools.cache
def _renameat2() -> Callable[[Name, Name], int] | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]

    def rename(source: Name, target: Name) -> int:
        failed = function(
            source.folder, os.fsencode(source.name), target.folder, os.fsencode(target.name), _RENAME_NOREPLACE
        )
        return ctypes.get_errno() if failed else 0

    return rename


_has_settable_times = False


def changed_ns(found: os.stat_result) -> int:
    """When a local file was last changed, by the clock of its file system.

    Not its modification time: `cp -a`, `rsync -a` and archives set that to the age of the original, so a file that
    arrived a moment ago would look old. The change time cannot be set. The later of both, for file systems that keep
    no change time.
    """
    return found.st_mtime_ns if _has_settable_times else max(found.st_ctime_ns, found.st_mtime_ns)


@contextlib.contextmanager
def settable_times() -> Generator[None]:
    """For tests: local files are as old as their modification time, which can be set."""
    global _has_settable_times
    before, _has_settable_times = _has_settable_times, True
    try:
        yield
    finally:
        _has_settable_times = before
