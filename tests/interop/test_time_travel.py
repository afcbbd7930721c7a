"""The past of a table that both wrote: by number, by tag and by time, and back to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import lance
import pytest

import conroi
from conroi.format import lance_pb2 as pb
from tests.interop.model import Model
from tests.interop.readers import assert_seen, lineage, rows_of
from tests.interop.tables import Kind, Stable, newest_manifest, two_kinds
from tests.interop.verbs import named
from tests.support.arrow import column_values
from tests.support.parity import read_version

pytestmark = pytest.mark.contract("T10")

STEPS = (
    "append",
    "delete",
    "update rows",
    "merge",
    "add a column by SQL",
    "compact",
    "drop a column",
    "update every row",
)


def written_by_both(root: Path, model: Model) -> dict[int, Model]:
    """The model of every version since the table was made: they write in turn."""
    past = {conroi.open_table(root).version: model.copy()}
    for number, name in enumerate(STEPS):
        verb = named(name)
        assert verb.ours
        assert verb.theirs
        if number % 2:
            verb.ours(conroi.open_table(root), model)
        else:
            verb.theirs(lance.dataset(str(root)), model)
        verb.change(model)
        past[conroi.open_table(root).version] = model.copy()
    return past


def assert_past(root: Path, past: dict[int, Model]) -> None:
    newest = conroi.open_table(root)
    for version, model in past.items():
        expected = model.sorted_rows()
        assert rows_of(newest.at(version).to_arrow()) == expected
        assert rows_of(conroi.open_table(root, version=version).to_arrow()) == expected
        assert rows_of(lance.dataset(str(root), version=version).to_table()) == expected


@pytest.mark.parametrize("kind", [*two_kinds("conroi"), *two_kinds("pylance")], ids=str)
def test_every_past_version_reads_by_number(tables: Stable, kind: Kind) -> None:
    root, model = tables.copy(kind)
    past = written_by_both(root, model)
    assert_past(root, past)
    for missing in (0, -1, max(past) + 1, 10**6):
        with pytest.raises((conroi.NotFoundError, conroi.InvalidInputError)):
            conroi.open_table(root).at(missing)


def test_a_tag_of_either_is_read_moved_and_deleted_by_the_other(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    past = written_by_both(root, model)
    early, late = sorted(past)[1], sorted(past)[-2]
    table = conroi.open_table(root)
    table.tags.create("ours", early)
    lance.dataset(str(root)).tags.create("theirs", late)
    assert {tag.name: tag.version for tag in table.tags} == {"ours": early, "theirs": late}
    assert {name: tag["version"] for name, tag in lance.dataset(str(root)).tags.list().items()} == {
        "ours": early,
        "theirs": late,
    }
    assert rows_of(lance.dataset(str(root), version="ours").to_table()) == past[early].sorted_rows()
    assert rows_of(table.at(tag="theirs").to_arrow()) == past[late].sorted_rows()
    assert rows_of(conroi.open_table(root, tag="ours").to_arrow()) == past[early].sorted_rows()
    lance.dataset(str(root)).tags.update("ours", late)
    table.tags.move("theirs", early)
    assert table.at(tag="ours").version == late
    assert lance.dataset(str(root), version="theirs").version == early
    with pytest.raises(conroi.AlreadyExistsError):
        table.tags.create("theirs")
    lance.dataset(str(root)).tags.delete("ours")
    table.tags.delete("theirs")
    assert not table.tags.list()
    assert not lance.dataset(str(root)).tags.list()
    with pytest.raises(conroi.NotFoundError, match="no tag"):
        table.at(tag="ours")


def test_a_tag_of_ours_keeps_its_version_from_the_cleanup_of_pylance(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    past = written_by_both(root, model)
    kept = sorted(past)[2]
    conroi.open_table(root).tags.create("keep", kept)
    lance.dataset(str(root)).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
    )
    newest = conroi.open_table(root)
    assert newest.versions() == [kept, newest.version]
    assert rows_of(newest.at(tag="keep").to_arrow()) == past[kept].sorted_rows()
    assert_seen(root, model)
    with pytest.raises(conroi.NotFoundError, match="no version"):
        newest.at(kept + 1)
    newest.append(model.new(range(700, 703)))
    model.append(model.make(range(700, 703)))
    assert_seen(root, model)


def test_every_past_version_reads_by_time(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    past = written_by_both(root, model)
    times = {commit.version: commit.timestamp for commit in conroi.open_table(root).history()}
    versions = lance.dataset(str(root)).versions()
    by_pylance = {each["version"]: cast("datetime", each["timestamp"]) for each in versions}
    table = conroi.open_table(root)
    for version, model_then in past.items():
        assert abs(times[version] - by_pylance[version].astimezone(UTC)) < timedelta(milliseconds=1)
        after = datetime.fromtimestamp(nanoseconds(root, version) / 1e9 + 1e-6, UTC)
        assert table.at(as_of=after).version == version
        assert table.at(as_of=after.isoformat()).version == version
        assert rows_of(table.at(as_of=after).to_arrow()) == model_then.sorted_rows()
    assert table.at(as_of=datetime.now(UTC)).version == table.version
    with pytest.raises(conroi.NotFoundError, match="that old"):
        table.at(as_of=datetime(2001, 1, 1, tzinfo=UTC))


def nanoseconds(root: Path, version: int) -> int:
    stamp = manifest(root, version).timestamp
    return stamp.seconds * 10**9 + stamp.nanos


def manifest(root: Path, version: int | None = None) -> pb.Manifest:
    """A manifest, decoded by hand."""
    path = newest_manifest(root) if version is None else root / conroi.open_table(root).naming.path(version)
    return read_version(path).manifest.full()


@pytest.mark.parametrize("by", ["conroi", "pylance"])
@pytest.mark.parametrize("kind", [*two_kinds("conroi"), *two_kinds("pylance")], ids=str)
def test_a_restore_is_a_new_version_and_no_id_comes_back(tables: Stable, kind: Kind, by: str) -> None:
    root, model = tables.copy(kind)
    past = written_by_both(root, model)
    before = conroi.open_table(root)
    used_fragments = {f.id for version in before.versions() for f in manifest(root, version).fragments}
    used_rows = (
        set().union(*(row_ids(root, version) for version in before.versions())) if kind.stable_row_ids else set()
    )
    marks = manifest(root)

    target = sorted(past)[1]
    if by == "conroi":
        assert before.restore(target).version == before.version + 1
    else:
        lance.dataset(str(root), version=target).restore()
    assert_seen(root, past[target], version=before.version + 1)
    assert manifest(root).max_fragment_id >= marks.max_fragment_id
    assert manifest(root).next_row_id >= marks.next_row_id
    assert_past(root, past)  # what came between is still there

    model = past[target].copy()
    append = named("append")
    for turn in ("conroi", "pylance"):
        known = {f.id for f in manifest(root).fragments}
        if turn == "conroi":
            assert append.ours
            append.ours(conroi.open_table(root), model)
        else:
            assert append.theirs
            append.theirs(lance.dataset(str(root)), model)
        append.change(model)
        assert_seen(root, model)
        new = {f.id for f in manifest(root).fragments} - known
        assert new
        assert new.isdisjoint(used_fragments)
        used_fragments |= new
    if kind.stable_row_ids:
        fresh = {row["_rowid"] for i, row in lineage(root).items() if i not in past[target].rows}
        assert len(fresh) == 14
        assert fresh.isdisjoint(used_rows)


def row_ids(root: Path, version: int) -> set[int]:
    return set(column_values(lance.dataset(str(root), version=version).to_table(["_rowid"])["_rowid"]))


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_restoring_an_empty_past_does_not_lower_the_marks(tmp_path: Path, stable: bool) -> None:
    root, model = tmp_path / "table", Model()
    table = conroi.create_table(root, model.schema, stable_row_ids=stable)
    table = table.append(model.new(range(5))).append(model.new(range(5, 9)))
    table = table.restore(1)
    assert_seen(root, model, version=4)
    lance.dataset(str(root)).insert(model.new(range(5)))
    model.append(model.make(range(5)))
    assert_seen(root, model)
    assert [f.id for f in manifest(root).fragments] == [2]
    if stable:
        assert {row["_rowid"] for row in lineage(root).values()} == set(range(9, 14))
        assert manifest(root).next_row_id == 14


def test_restore_by_tag_and_by_time(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    past = written_by_both(root, model)
    first, second = sorted(past)[1:3]
    conroi.open_table(root).tags.create("good", first)
    conroi.open_table(root).restore(tag="good")
    assert_seen(root, past[first])
    when = datetime.fromtimestamp(nanoseconds(root, second) / 1e9 + 1e-6, UTC)
    conroi.open_table(root).restore(as_of=when)
    assert_seen(root, past[second])
