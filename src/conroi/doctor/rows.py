"""Rows and indices as the doctor checks them against the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from conroi.data.keys import repeated, scan_keys, shown_keys
from conroi.data.pylance import file_session, pylance_errors, rows_in_file
from conroi.data.table_version import TableVersion
from conroi.doctor.contents import Contents, is_still_there
from conroi.doctor.subject import Place, Subject, base_of
from conroi.doctor.versions import FragmentUse, Line
from conroi.errors import ConroiError, NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions
from conroi.format.fields import key_columns
from conroi.format.manifest import count_rows, manifest_problems
from conroi.format.naming import check_relative_path, deletion_path
from conroi.format.on_disk import DATA_DIR
from conroi.format.row_ids import U64Array, decode_row_ids, without
from conroi.operations.indices import covered_fragments, is_system
from conroi.storage.objects import Objects

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
        found = rows_scanned(TableVersion(subject.files, head))
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
        scanned = scan_keys(TableVersion(subject.files, head), columns)
    except UnsupportedError:
        return
    except ConroiError as error:
        subject.add("unreadable-rows", f"The key cannot be read: {_short(error)}.", version=head.version)
        return
    keys = scanned.select([name for name in scanned.column_names if name != "_rowaddr"])
    subject.examination.looked_at("keys", keys.num_rows)
    again = repeated(keys)
    if again.num_rows:
        what = f"{again.num_rows:,} keys ({', '.join(columns)}) occur more than once: {shown_keys(again)}."
        subject.add("duplicate-key", what, version=head.version)


EXACT_KINDS = ("BTreeIndexDetails", "BitmapIndexDetails", "ZoneMapIndexDetails", "BloomFilterIndexDetails")
"""Kinds of index that answer comparisons of one column, exactly once the rows were looked at again."""
VALUES_OF_A_FRAGMENT = 16
"""How many values of each fragment are looked up one by one."""


def check_indices(subject: Subject, line: Line) -> None:
    """Every scalar index of the newest version finds the rows that a scan finds."""
    assert line.head is not None
    pinned = TableVersion(subject.files, line.head)
    seen: set[str] = set()
    for index in line.head.indices:
        column = _column(pinned, index)
        if column is None or index.name in seen:
            continue
        seen.add(index.name)
        probes = _probes(pinned, column)
        try:
            hidden = max((_hidden(pinned, where) for where in probes), default=0)
        except ConroiError:  # its files are examined by themselves
            continue
        if hidden:
            what = f"A filter on {column!r} misses {hidden:,} rows when it uses the index {index.name!r}."
            subject.add("index-misses-rows", what, version=line.head.version, path=line.head.located.path)


def _column(pinned: TableVersion, index: pb.IndexMetadata) -> str | None:
    """The one top-level column of an index that can be compared; None for other indices."""
    covered = covered_fragments(index)
    is_exact = index.index_details.type_url.endswith(EXACT_KINDS)
    if is_system(index) or not is_exact or len(index.fields) != 1 or not covered:
        return None
    found = [field for field in pinned.manifest.fields if field.id == index.fields[0] and field.parent_id == -1]
    return found[0].name if found else None


def _probes(pinned: TableVersion, column: str) -> list[Any]:
    """Filters that together ask for rows of every fragment: the whole range, and some values of each fragment."""
    type_ = pinned.schema.field(column).type
    values: set[Any] = set()
    with pylance_errors(pinned.root):
        whole = pinned.dataset.scanner(columns=[column]).to_table()[column].drop_null()
        for fragment in pinned.dataset.get_fragments():
            few: pa.Table = fragment.scanner(columns=[column], limit=VALUES_OF_A_FRAGMENT).to_table()
            values |= set(few[column].drop_null().to_pylist())
    try:
        bounds: Any = pc.min_max(whole)  # pyright: ignore[reportUnknownMemberType]
    except pa.ArrowNotImplementedError:  # a type that has no order
        return []
    if not bounds["min"].is_valid:
        return []
    field: Any = pc.field(column)
    return [(field >= bounds["min"]) & (field <= bounds["max"]), field.isin(pa.array(list(values), type_))]


def _hidden(pinned: TableVersion, where: Any) -> int:
    """How many rows that a scan finds are not found through the indices."""
    with pylance_errors(pinned.root):
        by_index, by_scan = (
            pinned.dataset.scanner(columns=[], filter=where, with_row_address=True, use_scalar_index=uses)
            .to_table()["_rowaddr"]
            .to_numpy()
            for uses in (True, False)
        )
    return len(set(by_scan.tolist()) - set(by_index.tolist()))


BATCH_ROWS = 8192


def rows_read_from_file(objects: Objects, name: str) -> int | None:
    """How many rows come out when every value of the file is decoded and looked at; None if only a scan can do that.

    A file with blobs does not say by itself which of its columns are inside them.
    """
    rows = 0
    with pylance_errors(objects.root):
        reader = file_session(objects, check_relative_path(name)).open_reader(name)
        if any(b"lance-encoding:blob" in (field.metadata or {}) for field in _all_fields(reader.metadata().schema)):
            return None
        for batch in reader.read_all(batch_size=BATCH_ROWS).to_batches():
            batch.validate(full=True)
            rows += batch.num_rows
    return rows


def _all_fields(fields: Iterable[pa.Field[Any]]) -> Iterator[pa.Field[Any]]:
    for field in fields:
        yield field
        yield from _all_fields(field.type.field(number) for number in range(field.type.num_fields))


def rows_scanned(pinned: TableVersion) -> int:
    """How many rows come out when every value of the version is looked at as a reader sees it, blobs included."""
    rows = 0
    with pylance_errors(pinned.root):
        scanner = pinned.dataset.scanner(blob_handling="all_binary", batch_size=BATCH_ROWS)
        for batch in scanner.to_batches():
            batch.validate(full=True)
            rows += batch.num_rows
    return rows


def is_in_data_folder(data_dir: str) -> bool:
    """Whether files of a place are where a table has its data, so that they can be opened by name."""
    return data_dir == DATA_DIR
