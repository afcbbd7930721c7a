"""The storage of one table of a lake: its versions are those that the lake pins, also when others change the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.catalog.tables import LakeTableStorage
from conroi.errors import InvalidInputError, NotFoundError
from conroi.format.naming import DETACHED_BIT, ManifestNaming
from tests.support.arrow import column_values


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 0}])
    lake.create_table("space.u", [{"n": 0}])
    for number in (1, 2):
        lake["t"].append([{"n": number}])
    return lake


def files_of(lake: conroi.Lake, name: str = "t") -> LakeTableStorage:
    files = lake[name]._files
    assert isinstance(files, LakeTableStorage)
    return files


def test_the_versions_of_a_table_are_those_up_to_its_pin(lake: conroi.Lake) -> None:
    versions = files_of(lake).versions
    latest = versions.latest()
    assert latest is not None
    assert latest.version == 3
    assert [each.version for each in versions.all()] == [1, 2, 3]
    found = {number: versions.locate(number) for number in (1, 2, 3, 4, 1 << 63)}
    assert {number: each and each.version for number, each in found.items()} == {
        1: 1,
        2: 2,
        3: 3,
        4: None,
        1 << 63: None,
    }
    assert found[3] == latest == versions.all()[-1]


def test_a_table_that_was_dropped_has_no_versions(lake: conroi.Lake) -> None:
    opened, files = lake["t"], files_of(lake)
    conroi.connect(lake.uri).drop_table("t")
    assert (files.versions.latest(), files.versions.locate(1), files.versions.all()) == (None, None, [])
    with pytest.raises(NotFoundError, match="'t' was dropped"):
        files.versions.put(DETACHED_BIT | 5, ManifestNaming.V2, b"")
    conroi.connect(lake.uri).create_table("t", [{"n": 7}])
    assert files.versions.latest() is None, "another table has the name"
    with pytest.raises(NotFoundError, match="'t' was dropped"):
        opened.append([{"n": 3}])


def test_a_detached_version_is_no_version_of_the_lake(lake: conroi.Lake) -> None:
    before = lake.version
    detached = lake["t"].append([{"n": 9}], detached=True)
    assert detached.version >= DETACHED_BIT
    assert sorted(column_values(detached.to_arrow()["n"])) == [0, 1, 2, 9]
    assert (lake.version, lake["t"].version) == (before, 3)
    located = files_of(lake).versions.locate(detached.version)
    assert located is not None
    assert located.version == detached.version
    assert [each.version for each in files_of(lake).versions.all()] == [1, 2, 3]


def test_what_is_known_to_be_newest_is_not_replaced(lake: conroi.Lake) -> None:
    files = files_of(lake)
    known = files.head()
    assert files.newest(known) is known
    conroi.connect(lake.uri)["t"].append([{"n": 3}])
    assert files.newest(known).version == 4


def test_a_table_of_the_past_refuses_changes_and_knows_the_present(lake: conroi.Lake) -> None:
    files = files_of(lake)
    assert files.current() is files
    files.refuse_past()
    past = lake.at(lake.version)["t"]._files
    assert isinstance(past, LakeTableStorage)
    with pytest.raises(InvalidInputError, match=f"'t' of the lake as it was at version {lake.version}"):
        past.refuse_past()
    past.current().refuse_past()
    assert (files.name, files_of(lake, "space.u").name) == ("t", "space.u")


def test_errors_name_a_table_as_its_user_does(lake: conroi.Lake) -> None:
    catalog = lake.catalog
    uri = catalog.uri
    location = catalog.row("space$u", catalog.state()).location
    assert location is not None
    assert {
        table: catalog.name_for_errors(table)
        for table in (None, "elsewhere", uri, f"{uri}/t.lance", f"{uri}/t.lance/", f"{uri}/{location}",
                      f"{uri}/t.lance/tree/dev-0123abcd", f"{uri}/t.lance.old", f"{uri}/__manifest",
                      f"{uri}/__manifest/tree/dev-0123abcd", f"{uri}/other.lance")
    } == {
        None: None,
        "elsewhere": "elsewhere",
        uri: uri,
        f"{uri}/t.lance": "t",
        f"{uri}/t.lance/": "t",
        f"{uri}/{location}": "space.u",
        f"{uri}/t.lance/tree/dev-0123abcd": "t",
        f"{uri}/t.lance.old": f"{uri}/t.lance.old",
        f"{uri}/__manifest": None,
        f"{uri}/__manifest/tree/dev-0123abcd": None,
        f"{uri}/other.lance": f"{uri}/other.lance",
    }  # fmt: skip


def test_operations_between_two_versions_of_a_table(lake: conroi.Lake) -> None:
    catalog = conroi.connect(lake.uri).catalog
    row = catalog.row("t", catalog.state())
    assert catalog.operations_between(row, 1, 3) == ["Append", "Append"]
    assert catalog.operations_between(row, 2, 3) == ["Append"]
    assert catalog.operations_between(row, 3, 3) == []
    assert catalog.operations_between(row, 3, 5) == ["Unknown"], "a version that cannot be read"


def test_the_lake_has_no_version_before_its_first(lake: conroi.Lake) -> None:
    with pytest.raises(NotFoundError, match="The lake has no version that old"):
        lake.at(as_of="1999-01-01T00:00:00Z")
    with pytest.raises(NotFoundError, match="There is no version 99 of the lake"):
        lake.at(99)
