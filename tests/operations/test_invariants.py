"""Any sequence of operations keeps what must always be true of a table with stable row ids."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.row_ids import concat_row_ids, concat_versions, decode_row_ids, decode_versions, take_row_ids
from conroi.operations import Append, Delete, Operation, Overwrite, ReserveFragments, Restore, Rewrite, Step, Update
from tests.operations.tables import built, fragment, index, manifest

KINDS = ("append", "delete", "update", "rewrite", "overwrite", "restore", "reserve")


@dataclass
class History:
    """The versions of a table, and every fragment id that ever held rows."""

    versions: list[Manifest] = field(default_factory=list[Manifest])
    used: set[int] = field(default_factory=set[int])

    @property
    def head(self) -> Manifest:
        return self.versions[-1]

    def commit(self, operation: Operation, step: Step | None = None) -> None:
        before = {each.id for each in self.head.fragments}
        self.versions.append(built(self.head, operation, step))
        new = {each.id for each in self.head.fragments} - before
        if not isinstance(operation, Restore):
            assert new.isdisjoint(self.used), "a fragment id came back"
        self.used |= new


def chosen(data: st.DataObject, table: Manifest, kind: str) -> Operation | None:
    if kind == "append":
        return Append(tuple(fragment(rows=count) for count in data.draw(st.lists(st.integers(1, 4), max_size=3))))
    if kind == "overwrite":
        return Overwrite((fragment(rows=data.draw(st.integers(1, 4))),), tuple(table.fields))
    if kind == "reserve":
        return ReserveFragments(data.draw(st.integers(1, 3)))
    if not table.fragments:
        return None
    one = data.draw(st.sampled_from(table.fragments))
    if kind == "delete":
        return Delete((), (one.id,))
    return update(one) if kind == "update" else rewrite(table)


def update(one: pb.DataFragment) -> Update:
    """The last row moves into a new fragment, and a row is inserted behind it."""
    image = pb.DataFragment.FromString(one.SerializeToString())
    image.deletion_file.num_deleted_rows = 1
    last = take_row_ids(one.inline_row_ids, np.array([one.physical_rows - 1], np.uint64))
    return Update((), (image,), (fragment(rows=2, row_ids=last),))


def rewrite(table: Manifest) -> Rewrite:
    """All fragments become one."""
    new = fragment(0, sum(each.physical_rows for each in table.fragments))
    new.inline_row_ids = concat_row_ids(each.inline_row_ids for each in table.fragments)
    new.inline_created_at_versions = concat_versions(each.inline_created_at_versions for each in table.fragments)
    new.inline_last_updated_at_versions = concat_versions(
        each.inline_last_updated_at_versions for each in table.fragments
    )
    return Rewrite((pb.Transaction.Rewrite.Group(old_fragments=table.fragments, new_fragments=[new]),))


def check(before: Manifest, after: Manifest) -> None:
    ids = [each.id for each in after.fragments]
    assert ids == sorted(set(ids))
    assert all(fragment_id <= after.head.max_fragment_id for fragment_id in ids)
    assert after.head.max_fragment_id >= before.head.max_fragment_id
    assert after.head.next_row_id >= before.head.next_row_id
    for each in after.fragments:
        row_ids = decode_row_ids(each.inline_row_ids, rows=each.physical_rows)
        assert all(row_id < after.head.next_row_id for row_id in row_ids.tolist())
        created = decode_versions(each.inline_created_at_versions, rows=each.physical_rows)
        changed = decode_versions(each.inline_last_updated_at_versions, rows=each.physical_rows)
        assert bool((created <= changed).all())
        assert bool((changed <= after.version).all())
    assert bool(after.head.reader_feature_flags & 1) == any(each.HasField("deletion_file") for each in after.fragments)
    assert after.has_stable_row_ids


def _start() -> Manifest:
    empty = manifest(stable_row_ids=True, indices=[index("id", [0], [])])
    return built(empty, Append((fragment(rows=3), fragment(rows=2))))


@settings(max_examples=60, deadline=None)
@given(kinds=st.lists(st.sampled_from(KINDS), max_size=12), data=st.data())
def test_ids_and_versions_stay_true(kinds: list[str], data: st.DataObject) -> None:
    history = History([_start()], {0, 1})
    for kind in kinds:
        before = history.head
        if kind == "restore":
            target = data.draw(st.sampled_from(history.versions))
            history.commit(Restore(target.version), Step(version=before.version + 1, restored=target))
        else:
            operation = chosen(data, before, kind)
            if operation is None:
                continue
            history.commit(operation)
        check(before, history.head)
