"""Local storage: the files of a table in a folder, by plain system calls."""

from __future__ import annotations

import builtins
import contextlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.naming import check_path
from conroi.storage.cloud_options import StorageOptions, read_options
from conroi.storage.local_folders import (
    CREATE,
    READ_ONLY,
    WRITE,
    LocalFolder,
    Name,
    changed_ns,
    create_name,
    irregular_kind,
    rename_new,
    store_error,
    temporary_name,
    unlink,
)
from conroi.storage.objects import ObjectExists, ObjectInfo, Objects, Reach, own_reach, pieces, reach_of

_PIECE_BYTES = 1024 * 1024


class LocalObjects:
    """The files of one table in a folder of this machine.

    A new file is written under a temporary name (`.tmp_conroi_…`, which pylance neither reads as a manifest nor keeps
    when it cleans up) and then gets its real name in one step.
    """

    is_local = True
    is_listing_ordered = False

    def __init__(
        self,
        folder: str,
        *,
        durable: bool = False,
        storage_options: Mapping[str, str] | None = None,
        reach: Reach | None = None,
    ) -> None:
        self.root = folder
        self.is_durable = durable
        self.storage_options: StorageOptions = read_options(storage_options or {})
        self.reach = reach or own_reach(folder)
        self.folder = LocalFolder(folder, self.reach.root)
        self._base = folder if folder.endswith("/") else folder + "/"

    def __repr__(self) -> str:
        return f"LocalObjects({self.root!r}{', durable=True' if self.is_durable else ''})"

    def get(self, path: str) -> bytes:
        file = self._open(path)
        try:
            return read(file, 0, os.fstat(file).st_size)
        except OSError as error:
            raise store_error(error, "read", path, self.root) from error
        finally:
            os.close(file)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        if not 0 <= start <= end:
            raise InvalidInputError(f"There are no bytes {start} to {end} in a file")
        file = self._open(path)
        try:
            return read(file, start, end - start)
        except OSError as error:
            raise store_error(error, "read", path, self.root) from error
        finally:
            os.close(file)

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        with self._opened(path) as file:
            size = os.fstat(file).st_size
            start = max(0, size - length)
            return read(file, start, size - start), size

    def head(self, path: str) -> ObjectInfo | None:
        check_path(path)
        try:
            found = self.folder.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise store_error(error, "look at", path, self.root) from error
        return None if found is None else ObjectInfo(path, found.st_size, changed_ns(found))

    def run_of(self, folder: str, names: Iterable[str]) -> builtins.list[os.stat_result]:
        """Facts about the files of these names in one folder, up to the first that is not there."""
        try:
            return self.folder.run_of(folder, names)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise store_error(error, "look at", folder, self.root) from error

    def put(self, path: str, data: bytes) -> None:
        folder = self._open_folder_of(path)
        try:
            temporary = Name(folder, temporary_name())
            self._write_new(temporary, path, (data,))
            try:
                self._replace(temporary, Name(folder, path.rpartition("/")[2]), path)
            except BaseException:
                unlink(temporary.name, folder)
                raise
        finally:
            os.close(folder)

    def put_best_effort(self, path: str, data: bytes) -> None:
        # In place: replacing a file by rename makes ext4 write it out first, which costs more than the whole commit.
        check_path(path)
        try:
            file = self.folder.open_file(path, WRITE)
            try:
                found = os.fstat(file)
                if found.st_nlink == 1:
                    os.pwrite(file, data, 0)
                    if found.st_size > len(data):
                        os.ftruncate(file, len(data))
                    return
            finally:
                os.close(file)
        except OSError as error:
            raise store_error(error, "write", path, self.root) from error
        self.put(path, data)  # the file has another name too (a copy made of hard links), which keeps its content

    def put_unique(self, path: str, data: bytes) -> None:
        folder = self._open_folder_of(path)
        try:
            self._write_new(Name(folder, path.rpartition("/")[2]), path, (data,))
        finally:
            os.close(folder)
        if self.is_durable:
            self._sync_folder(os.path.dirname(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        folder = self._open_folder_of(path)
        try:
            name = Name(folder, path.rpartition("/")[2])
            with contextlib.suppress(
                OSError
            ):  # before a file is written and removed, which makes later ones slow on ext4
                os.stat(name.name, dir_fd=folder, follow_symlinks=False)
                raise ObjectExists(path)
            temporary = Name(folder, temporary_name())
            self._write_new(temporary, path, (data,))
            try:
                create_name(temporary, name, path, self.root)
            finally:
                unlink(temporary.name, folder)
        finally:
            os.close(folder)
        if self.is_durable:
            self._sync_folder(os.path.dirname(path))

    def rename_if_absent(self, source: str, target: str) -> None:
        check_path(source)
        old_folder, _, old_name = source.rpartition("/")
        new_folder, _, new_name = target.rpartition("/")
        new = self._open_folder_of(target)
        try:
            old = new if old_folder == new_folder else self._open_folder_of(source)
            try:
                rename_new(Name(old, old_name), Name(new, new_name), source, target, self.folder)
            finally:
                if old != new:
                    os.close(old)
        finally:
            os.close(new)
        if self.is_durable:
            self._sync_folder(new_folder)

    def copy(self, source: str, target: str) -> None:
        self.copy_from(self, target, source)

    def copy_if_absent(self, source: str, target: str) -> None:
        with self._temporary(target, self.pieces(source)) as (temporary, name):
            create_name(temporary, name, target, self.root)
        if self.is_durable:
            self._sync_folder(os.path.dirname(target))

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        there = path if there is None else there
        found = source.pieces(there) if isinstance(source, LocalObjects) else pieces(source, there)
        with self._temporary(path, found) as (temporary, name):
            self._replace(temporary, name, path)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)
            folder, _, name = path.rpartition("/")
            try:
                with self.folder.opened(folder) as above:
                    os.unlink(name, dir_fd=above)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise store_error(error, "delete", path, self.root) from error

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        for path, found in self._walk(prefix):
            if irregular_kind(found.st_mode) is not None:
                raise self.folder.refused(path, found.st_mode)
            if after is None or path > after:
                yield ObjectInfo(path, found.st_size, changed_ns(found))

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        folders = [prefix.strip("/")]
        while folders:
            folder = folders.pop()
            try:
                names = self.folder.names(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise store_error(error, "list", folder, self.root) from error
            for name, is_folder in names:
                path = f"{folder}/{name}" if folder else name
                if is_folder:
                    folders.append(path)
                elif after is None or path > after:
                    yield path

    def regular(self) -> tuple[list[ObjectInfo], dict[str, str]]:
        """All files, and by path what is neither a file nor a folder: `list` refuses to go past that."""
        files: list[ObjectInfo] = []
        irregular: dict[str, str] = {}
        for path, found in self._walk(""):
            kind = irregular_kind(found.st_mode)
            if kind is None:
                files.append(ObjectInfo(path, found.st_size, changed_ns(found)))
            else:
                irregular[path] = kind
        return files, irregular

    def sync(self, paths: Sequence[str]) -> None:
        if not self.is_durable:
            return
        folders: set[str] = set()
        for path in paths:
            with self._opened(path) as file:
                os.fsync(file)
            folders.add(os.path.dirname(path))
        for folder in folders:
            self._sync_chain(folder)

    def pylance_uri(self, path: str = "") -> str:
        return self._base + path if path else self.root

    def _open(self, path: str) -> int:
        """A descriptor of a file that is to be read."""
        check_path(path)
        try:
            return self.folder.open_file(path, READ_ONLY)
        except (FileNotFoundError, NotADirectoryError):
            raise self._not_found(path) from None
        except OSError as error:
            raise store_error(error, "read", path, self.root) from error

    @contextlib.contextmanager
    def _opened(self, path: str) -> Generator[int]:
        file = self._open(path)
        try:
            yield file
        except OSError as error:
            raise store_error(error, "read", path, self.root) from error
        finally:
            os.close(file)

    def pieces(self, path: str) -> Iterator[bytes]:
        """The file, piece by piece."""
        with self._opened(path) as file:
            start = 0
            while piece := read(file, start, _PIECE_BYTES):
                yield piece
                start += len(piece)

    def _not_found(self, path: str) -> NotFoundError:
        return NotFoundError(f"There is no file {path}", table=self.root)

    def _open_folder_of(self, path: str) -> int:
        """A descriptor of the folder of a file, which is made if it is missing."""
        check_path(path)
        folder = path.rpartition("/")[0]
        try:
            try:
                return self.folder.open_folder(folder)
            except FileNotFoundError:
                self._make_folder(folder)
                return self.folder.open_folder(folder)
        except OSError as error:
            raise store_error(error, "make the folder of", os.path.basename(path), self.root) from error

    @contextlib.contextmanager
    def _temporary(self, path: str, data: Iterable[bytes]) -> Generator[tuple[Name, Name]]:
        """The written file under a name that is gone afterwards, and the name that it is for.

        The temporary name is one that no other writer has, and that no reader takes for a manifest.
        """
        folder = self._open_folder_of(path)
        try:
            temporary = Name(folder, temporary_name())
            self._write_new(temporary, path, data)
            try:
                yield temporary, Name(folder, path.rpartition("/")[2])
            finally:
                unlink(temporary.name, folder)
        finally:
            os.close(folder)

    def _write_new(self, new: Name, path: str, data: Iterable[bytes]) -> None:
        try:
            file = os.open(new.name, CREATE, 0o666, dir_fd=new.folder)
        except OSError as error:  # also if the name is taken: that file is not ours, so it stays
            raise store_error(error, "write", path, self.root) from error
        try:
            try:
                for piece in data:
                    written = os.write(file, piece)
                    while written < len(piece):  # a single write ends at about 2 GiB
                        written += os.write(file, memoryview(piece)[written:])
                if self.is_durable:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            unlink(new.name, new.folder)
            raise store_error(error, "write", path, self.root) from error
        except BaseException:  # the pieces come from another store, which may fail too
            unlink(new.name, new.folder)
            raise

    def _replace(self, temporary: Name, name: Name, path: str) -> None:
        try:
            os.replace(temporary.name, name.name, src_dir_fd=temporary.folder, dst_dir_fd=name.folder)
        except OSError as error:
            raise store_error(error, "write", path, self.root) from error
        if self.is_durable:
            self._sync_folder(os.path.dirname(path))

    def _make_folder(self, folder: str) -> None:
        missing: list[str] = []
        above = self.folder.root
        while not os.path.isdir(above):  # the root itself, and folders above it
            missing.append(above)
            above = os.path.dirname(above)
        made = self.folder.make_folder(folder)
        if self.is_durable:
            outer = LocalFolder(self.folder.root)
            for each in reversed(made):
                outer.sync_folder(os.path.dirname(each))
            for each in missing:
                LocalFolder(os.path.dirname(each)).sync_folder()

    def _sync_folder(self, folder: str) -> None:
        try:
            self.folder.sync_folder(folder)
        except OSError as error:
            raise store_error(error, "sync", folder, self.root) from error

    def _sync_chain(self, folder: str) -> None:
        # pylance may have made the folder, and every one above it up to the root, just now.
        while True:
            self._sync_folder(folder)
            if not folder:
                return
            folder = os.path.dirname(folder)

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """All that is below a folder and is no folder itself."""
        folders = [prefix.strip("/")]
        while folders:
            folder = folders.pop()
            try:
                entries = self.folder.entries(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise store_error(error, "list", folder, self.root) from error
            for name, found in entries:
                path = f"{folder}/{name}" if folder else name
                if stat.S_ISDIR(found.st_mode):
                    folders.append(path)
                else:
                    yield path, found


def local_folder(objects: Objects) -> LocalFolder:
    """The folder of local objects."""
    return objects.folder if isinstance(objects, LocalObjects) else LocalFolder(objects.root, reach_of(objects).root)


def check_folders(objects: Objects, folders: Iterable[str]) -> None:
    """Refuse folders of a local table that are links: pylance would read and write at their other end."""
    if not objects.is_local:
        return
    local = local_folder(objects)
    try:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), local.opened(folder):
                pass
    except OSError as error:
        raise store_error(error, "open", objects.root, objects.root) from error


def check_file(objects: Objects, path: str) -> None:
    """Refuse a single file of a local table that is no regular file."""
    if objects.is_local:
        with contextlib.suppress(OSError):  # what is missing, or may not be read, pylance says itself
            local_folder(objects).stat(path)


def read(file: int, start: int, length: int) -> bytes:
    """Up to `length` bytes from `start`."""
    data = os.pread(file, length, start)
    while len(data) < length:  # a single read ends at about 2 GiB
        more = os.pread(file, length - len(data), start + len(data))
        if not more:
            break
        data += more
    return data
