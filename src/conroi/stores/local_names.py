"""Put-if-absent on a local disk: link a complete file to its name, unless the name exists."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from conroi.errors import InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.stores.objects import NameTaken

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_PASSING = {errno.EAGAIN, errno.EINTR, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EBUSY, errno.ENOLCK}
_RENAME_NOREPLACE = 1
COMMIT_LOCK_HINT = "commit under a lock on this storage (a commit lock such as conroi.stores.file_lock.FileLock)"


@dataclass(frozen=True, slots=True)
class Name:
    """A name in an open folder."""

    folder: int
    name: str


def create_name(complete: Name, new: Name, path: str, root: str) -> None:
    """Link the complete file to the name `new`, or raise NameTaken; `complete` may be gone afterwards."""
    try:
        os.link(complete.name, new.name, src_dir_fd=complete.folder, dst_dir_fd=new.folder, follow_symlinks=False)
    except FileExistsError:
        if not _is_same_file(complete, new):
            raise NameTaken(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise store_error(error, "create", path, root) from error
        _rename_without_replacing(complete, new, path, root)


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
        raise NameTaken(path)
    if code in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
        raise _no_way(path, root)
    if code:
        raise store_error(OSError(code, os.strerror(code)), "create", path, root)


def _no_way(path: str, root: str) -> StoreError:
    return StoreError(
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
