"""Lance's own clean-up of old versions beside lake tags and branches (finding J2).

lancedb's `optimize()` deletes versions that are older than 7 days, straight in the storage; so does pylance's
`cleanup_old_versions()`. Both spare what Lance tags of the table name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import lancedb
import pytest
from lancedb.namespace import LanceNamespaceDBConnection

import conroi
from conroi.catalog.lance_tags import repair_lance_tags
from conroi.environment import SystemEnvironment
from conroi.namespace import ConroiNamespace
from conroi.testing import CountingObjects, Meter, connect_through
from conroi.versions.retention import other_ages
from tests.namespace.clients import ids, opened, rows

MONTH_S = 30 * 86400


class MonthAgo(SystemEnvironment):
    def now_ns(self) -> int:
        return time.time_ns() - MONTH_S * 10**9


def make_old(root: Path) -> None:
    then = time.time() - MONTH_S
    for file in root.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))


def lance_tags(root: Path, table: str = "t") -> list[str]:
    """The protecting tags, as pylance lists them."""
    tags = lance.dataset(str(root / f"{table}.lance")).tags.list()
    return sorted(name for name in tags if name.startswith("conroi."))


def by_lancedb(lake: conroi.Lake) -> None:
    LanceNamespaceDBConnection(ConroiNamespace(lake)).open_table("t").optimize()


def by_pylance(lake: conroi.Lake) -> None:
    opened(ConroiNamespace(lake), "t").cleanup_old_versions(older_than=timedelta(days=7))


def by_pylance_without_error(lake: conroi.Lake) -> None:
    opened(ConroiNamespace(lake), "t").cleanup_old_versions(
        older_than=timedelta(days=7), error_if_tagged_old_versions=False
    )


def history_of_a_month(root: Path, share: Callable[[conroi.Lake], None]) -> conroi.Lake:
    """A lake with a tag, a branch and versions of a table that are a month old: its rows are 1, then 2, then 3."""
    old = conroi.connect(root, environment=MonthAgo())
    old.create_table("t", rows(1))
    old["t"].append(rows(2))
    share(old)
    old.tags.create("audit", version=2)
    old.branches.create("dev")
    old["t"].append(rows(3))
    make_old(root)
    return conroi.connect(root)


def opened_before(lake: conroi.Lake) -> None:
    opened(ConroiNamespace(lake), "t")


def not_yet(_: conroi.Lake) -> None:
    """Only the client that cleans up opens the table."""


@pytest.mark.contract("N4")
@pytest.mark.parametrize("share", [opened_before, not_yet])
@pytest.mark.parametrize("clean_up", [by_lancedb, by_pylance, by_pylance_without_error])
def test_tagged_versions_and_branches_survive_the_clean_up_of_a_client(
    tmp_path: Path, clean_up: Callable[[conroi.Lake], None], share: Callable[[conroi.Lake], None]
) -> None:
    root = tmp_path / "lake"
    lake = history_of_a_month(root, share)
    lake["t"].append(rows(4))
    try:
        clean_up(lake)
    except (OSError, RuntimeError) as refused:  # Lance's default: it says which tags are in the way
        assert "conroi.tag.audit.1" in str(refused)  # noqa: PT017
    fresh = conroi.connect(root)
    assert fresh.at(tag="audit")["t"].to_arrow()["id"].to_pylist() == [1]
    assert ids(fresh.branch("dev"), "t") == [1, 2]
    assert ids(fresh, "t") == [1, 2, 3, 4]
    fresh.branch("dev")["t"].append(rows(50))
    assert fresh.merge("dev").version
    assert ids(fresh, "t") == [1, 2, 3, 4, 50]


@pytest.mark.contract("N4")
def test_the_control_a_table_that_no_client_opened_through_the_namespace_is_not_protected(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = history_of_a_month(root, not_yet)
    lake["t"].append(rows(4))
    lancedb.connect(root).open_table("t").optimize()
    with pytest.raises(conroi.ConroiError):
        conroi.connect(root).at(tag="audit")["t"].to_arrow()


@pytest.mark.contract("N4")
def test_a_client_that_opened_the_table_long_ago_is_told_of_new_tags(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = conroi.connect(root)
    lake.create_table("t", rows(1))
    lake.create_table("u", rows(1))
    opened(ConroiNamespace(conroi.connect(root)), "t")
    lake.tags.create("audit")
    lake.branches.create("dev")
    (branch,) = [each.lance_name for each in lake.branches if not each.is_main]
    assert lance_tags(root) == [f"conroi.branch.{branch}.1", "conroi.tag.audit.1"]
    assert lance_tags(root, "u") == []
    assert lance.dataset(str(root / "t.lance"), version="conroi.tag.audit.1").count_rows() == 1


@pytest.mark.contract("N5")
def test_the_tags_end_with_what_needs_them(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = conroi.connect(root)
    lake.create_table("t", rows(1))
    opened(ConroiNamespace(lake), "t")
    lake.tags.create("audit")
    lake.tags.create("other")
    lake["t"].append(rows(2))
    lake.tags.move("audit", lake.version)
    assert lance_tags(root) == ["conroi.tag.audit.2", "conroi.tag.other.1"]
    lake.tags.delete("other")
    lake.branches.create("dev")
    lake.branch("dev")["t"].append(rows(9))
    lake.branch("dev").tags.create("on-dev")
    (branch,) = [each.lance_name for each in lake.branches if not each.is_main]
    assert lance_tags(root) == [f"conroi.branch.{branch}.2", "conroi.tag.audit.2", "conroi.tag.on-dev.3"]
    lake.tags.delete("on-dev")
    lake.branches.delete("dev")
    lake.tags.delete("audit")
    assert lance_tags(root) == []


@pytest.mark.contract("N5")
def test_what_a_crash_left_is_repaired(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = conroi.connect(root)
    lake.create_table("t", rows(1))
    opened(ConroiNamespace(lake), "t")
    lake.tags.create("audit")
    folder = root / "t.lance/_refs/tags"
    (folder / "conroi.tag.audit.1.json").rename(folder / "conroi.tag.gone.1.json")
    lake.gc(dry_run=True)
    assert lance_tags(root) == ["conroi.tag.gone.1"]
    lake.gc(dry_run=False)
    assert lance_tags(root) == ["conroi.tag.audit.1"]
    assert repair_lance_tags(lake.catalog) == ()
    (folder / "conroi.tag.audit.1.json").unlink()
    opened(ConroiNamespace(conroi.connect(root)), "t")
    assert lance_tags(root) == ["conroi.tag.audit.1"]


@pytest.mark.contract("N5")
def test_expire_is_not_kept_by_them(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = conroi.connect(root)
    lake.create_table("t", rows(1))
    opened(ConroiNamespace(lake), "t")
    lake.tags.create("audit")
    lake["t"].append(rows(2))
    lake["t"].append(rows(3))
    folder = root / "t.lance/_refs/tags"
    with other_ages(version_s=0.0, file_s=0.0):
        lake.expire("0s", keep=1, dry_run=False)
        assert [each["version"] for each in lance.dataset(str(root / "t.lance")).versions()] == [1, 3]
        lake.tags.delete("audit")
        (folder / "conroi.tag.audit.1.json").write_bytes(b"{}")  # as if its deletion had failed
        lake.expire("0s", keep=1, dry_run=False)
    assert lance_tags(root) == []
    assert len(lance.dataset(str(root / "t.lance")).versions()) == 1


@pytest.mark.contract("N5")
def test_a_tag_costs_the_same_whatever_the_number_of_tables_that_only_conroi_uses(tmp_path: Path) -> None:
    requests: list[int] = []
    for tables in (1, 30):
        root, meter = str(tmp_path / f"lake{tables}"), Meter()
        lake = conroi.connect(root)
        for number in range(tables):
            lake.create_table(f"t{number}", rows(1))
        counted = connect_through(root, lambda objects, meter=meter: CountingObjects(objects, meter))
        counted.catalog.state()
        with meter.measure() as measured:
            counted.tags.create("audit")
        requests.append(measured.requests())
    assert requests[0] == requests[1]
