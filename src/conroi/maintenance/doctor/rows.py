"""Row check of a table: data files open; row counts, deletion vectors, row ids and keys match the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from conroi.data.file_facts import is_in_data_folder, rows_read_from_file, rows_scanned
from conroi.data.keys import repeated, scan_keys, shown
from conroi.data.pinned import Pinned
from conroi.data.pylance import rows_in_file
from conroi.data.rows import count_rows
from conroi.errors import ConroiError, NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions
from conroi.format.fields import key_columns
from conroi.format.manifest_checks import manifest_problems
from conroi.format.naming import deletion_path
from conroi.format.rowids import decode_row_ids, without
from conroi.format.segments import U64Array
from conroi.maintenance.doctor.contents import Contents, is_still_there
from conroi.maintenance.doctor.indices import check_indices
from conroi.maintenance.doctor.lines import FragmentUse, Line
from conroi.maintenance.doctor.subject import Place, Subject, base_of

MOST_ROWS_IN_PASSING = 1_000_000
"""Number of rows above which keys are compared only by a deep examination."""

_Problem = tuple[str, str, str | None]


def check_rows(subject: Subject, line: Line, contents: Contents, *, has_names: bool = False) -> None:
    """The newest version thoroughly; if deep, every file of every version, and all keys."""
    uses = _uses(subject, line)
    whole = [use for use in uses if id(use) not in contents.broken]
    gone = _check_deletions(subject, whole)
    sound = _check_files(subject, whole)
    if line.head is None or subject.is_gone:
        return
    in_head = _in_head(whole)
    _check_row_ids(subject, line, [use for use in in_head if id(use) in gone], gone)
    is_whole = {id(use) for use in _in_head(uses)} <= sound & gone.keys()
    if is_whole and line.is_sound:
        _check_contradictions(subject, line)
        if subject.examination.deep and line.is_sound:
            _check_scan(subject, line)
        if not has_names:
            _check_keys(subject, line)
        if subject.examination.deep and line.is_sound:
            check_indices(subject, line)


def _uses(subject: Subject, line: Line) -> list[FragmentUse]:
    """The fragments to be looked into: all of them, or those of the newest version."""
    uses = list(line.fragments.values())
    if subject.examination.deep:
        return uses
    return [] if subject.is_gone else _in_head(uses)


def _in_head(uses: Sequence[FragmentUse]) -> list[FragmentUse]:
    return [use for use in uses if use.is_in_head]


# --------------------------------------------------------------------------------------- data files


@dataclass(frozen=True)
class _DataFile:
    use: FragmentUse
    place: Place
    name: str
    rows: int


def _check_files(subject: Subject, uses: Sequence[FragmentUse]) -> set[int]:
    """The fragments whose files have all the rows they should have."""
    files = list(_data_files(subject, uses))
    bad: set[int] = set()
    look = _read if subject.examination.deep else _open
    for file, problem in zip(files, subject.each(look, files, by_pylance=True), strict=True):
        subject.examination.looked_at("rows", file.rows)
        if problem is not None:
            bad.add(id(file.use))
            kind, what = problem
            if is_still_there(subject, file.use):
                subject.add(kind, what, version=file.use.version, path=f"{file.place.data_dir}/{file.name}")
    return {id(use) for use in uses} - bad


def _data_files(subject: Subject, uses: Sequence[FragmentUse]) -> Iterator[_DataFile]:
    seen: set[tuple[str, str]] = set()
    for use in uses:
        for file in use.fragment.files:
            place = subject.place(use.bases, base_of(file))
            is_new_format = file.file_major_version >= 2
            if place is None or not is_new_format or not is_in_data_folder(place.data_dir):
                continue
            if (place.objects.root, file.path) not in seen:
                seen.add((place.objects.root, file.path))
                yield _DataFile(use, place, file.path, use.fragment.physical_rows)


def _open(file: _DataFile) -> tuple[str, str] | None:
    try:
        rows = rows_in_file(file.place.objects, file.name)
    except ConroiError as error:
        return "damaged-data-file", f"The file cannot be opened: {_short(error)}."
    return _counted(file, rows)


def _read(file: _DataFile) -> tuple[str, str] | None:
    problem = _open(file)
    if problem is not None:
        return problem
    try:
        rows = rows_read_from_file(file.place.objects, file.name)
    except ConroiError as error:
        return "unreadable-rows", f"A value cannot be decoded: {_short(error)}."
    return None if rows is None else _counted(file, rows)


def _counted(file: _DataFile, rows: int) -> tuple[str, str] | None:
    if rows == file.rows:
        return None
    return "row-count-mismatch", f"Fragment {file.use.fragment.id} has {file.rows:,} rows, but its file has {rows:,}."


def _short(error: ConroiError) -> str:
    return error.message.splitlines()[0][:200].rstrip(".")


# ---------------------------------------------------------------------------------------- deletions


def _check_deletions(subject: Subject, uses: Sequence[FragmentUse]) -> dict[int, BitMap]:
    """The deleted rows of each fragment, without those whose deletion file is not right."""
    gone: dict[int, BitMap] = {}

    def load(use: FragmentUse) -> BitMap | _Problem:
        return _load(subject, use)

    for use, answer in zip(uses, subject.each(load, uses), strict=True):
        if isinstance(answer, BitMap):
            gone[id(use)] = answer
        elif is_still_there(subject, use):
            subject.add(answer[0], answer[1], version=use.version, path=answer[2])
    return gone


def _load(subject: Subject, use: FragmentUse) -> BitMap | _Problem:
    fragment = use.fragment
    if not fragment.HasField("deletion_file"):
        return BitMap()
    file = fragment.deletion_file
    path = deletion_path(fragment.id, file)
    place = subject.place(use.bases, base_of(file))
    uncounted = pb.DeletionFile()
    uncounted.CopyFrom(file)
    uncounted.num_deleted_rows = 0  # compared here, to tell a wrong count from a damaged file
    try:
        assert place is not None, "its file is there"
        deleted = decode_deletions(place.objects.get(path), uncounted)
    except NotFoundError:
        return "missing-deletion-file", f"The deletion file of fragment {fragment.id} does not exist.", path
    except ConroiError as error:
        return "damaged-deletion-file", error.message, path
    if file.num_deleted_rows and len(deleted) != file.num_deleted_rows:
        what = f"Fragment {fragment.id} has lost {file.num_deleted_rows:,} rows, but its file names {len(deleted):,}."
        return "deletion-count-mismatch", what, path
    if deleted and deleted.max() >= fragment.physical_rows:
        what = f"The deletion file names row {deleted.max():,} of a fragment with {fragment.physical_rows:,} rows."
        return "deletion-out-of-range", what, path
    return deleted


# ------------------------------------------------------------------------------------------ row ids


def _check_row_ids(subject: Subject, line: Line, uses: Sequence[FragmentUse], gone: dict[int, BitMap]) -> None:
    assert line.head is not None
    manifest = line.head.manifest
    if not manifest.has_stable_row_ids:
        return
    found: list[tuple[FragmentUse, U64Array]] = []
    for use in uses:
        if not use.fragment.HasField("inline_row_ids"):
            continue
        try:
            ids = decode_row_ids(use.fragment.inline_row_ids, rows=use.fragment.physical_rows)
        except ConroiError as error:
            what = f"Fragment {use.fragment.id}: {error.message}"
            subject.add("row-ids-damaged", what, version=use.version, path=use.manifest_path)
            line.is_sound = False
            continue
        if len(ids):
            found.append((use, ids))
    largest = max((int(ids.max()) for _, ids in found), default=-1)
    if largest >= manifest.head.next_row_id:
        what = f"A row has the id {largest}, but the next row to come gets {manifest.head.next_row_id}."
        subject.add("next-row-id-too-low", what, version=manifest.version, path=line.head.located.path)
    live = [without(ids, gone[id(use)]) for use, ids in found]
    twice = _ids_twice([ids for ids in live if len(ids)])
    if len(twice):
        some = ", ".join(map(str, twice[:5].tolist()))
        what = f"{len(twice):,} row ids occur twice, such as {some}."
        subject.add("row-id-twice", what, version=manifest.version, path=line.head.located.path)


def _ids_twice(parts: list[U64Array]) -> U64Array:
    """Duplicate ids; only parts with overlapping ranges are compared one by one."""
    parts.sort(key=lambda ids: int(ids.min()))
    meeting: set[int] = set()
    highest, holder = -1, -1
    for number, ids in enumerate(parts):
        if int(ids.min()) <= highest:
            meeting |= {number, holder}
        if int(ids.max()) > highest:
            highest, holder = int(ids.max()), number
    alone = [ids for number, ids in enumerate(parts) if number not in meeting]
    inside = [np.concatenate([parts[number] for number in sorted(meeting)])] if meeting else []
    found = [_repeated_in(ids) for ids in (*alone, *inside)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def _repeated_in(ids: U64Array) -> U64Array:
    values = np.sort(ids)
    return np.unique(values[1:][values[1:] == values[:-1]])


# ---------------------------------------------------------------------------- keys, and all the rest


def _check_contradictions(subject: Subject, line: Line) -> None:
    assert line.head is not None
    for problem in manifest_problems(line.head.manifest):
        what = f"The manifest contradicts itself: {problem}."
        subject.add("manifest-contradiction", what, version=line.head.version, path=line.head.located.path)
        line.is_sound = False


def _check_scan(subject: Subject, line: Line) -> None:
    """The newest version as a reader sees it: all columns of a row together, with what is in blobs."""
    head = line.head
    assert head is not None
    rows = count_rows(head.manifest.fragments)
    try:
        found = rows_scanned(Pinned(subject.files, head))
    except UnsupportedError:
        return
    except ConroiError as error:
        subject.add("unreadable-rows", f"The version cannot be scanned: {_short(error)}.", version=head.version)
        return
    if found != rows:
        what = f"The version has {rows:,} rows, but a scan gives {found:,}."
        subject.add("row-count-mismatch", what, version=head.version)


def _check_keys(subject: Subject, line: Line) -> None:
    head = line.head
    assert head is not None
    columns = key_columns(head.manifest.fields)
    rows = sum(f.physical_rows - f.deletion_file.num_deleted_rows for f in head.manifest.fragments)
    if not columns or not rows or not line.is_sound:
        return
    if rows > MOST_ROWS_IN_PASSING and not subject.examination.deep:
        subject.add("keys-not-checked", f"The table has {rows:,} rows.", version=head.version)
        return
    try:
        scanned = scan_keys(Pinned(subject.files, head), columns)
    except UnsupportedError:
        return
    except ConroiError as error:
        subject.add("unreadable-rows", f"The key cannot be read: {_short(error)}.", version=head.version)
        return
    keys = scanned.select([name for name in scanned.column_names if name != "_rowaddr"])
    subject.examination.looked_at("keys", keys.num_rows)
    again = repeated(keys)
    if again.num_rows:
        what = f"{again.num_rows:,} keys ({', '.join(columns)}) occur more than once: {shown(again)}."
        subject.add("duplicate-key", what, version=head.version)
