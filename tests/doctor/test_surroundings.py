"""What is around the tables: the storage, the software, stores and branches of lakes; and how findings are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import conroi
from conroi.doctor import diagnose, examine_table
from conroi.doctor.kinds import GROUPS, KINDS
from conroi.doctor.subject import find_java
from conroi.table_location import table_storage
from conroi.testing import FaultyObjects, fail
from conroi.versions.retention import other_ages
from tests.doctor import damage
from tests.doctor.damage import Later, examine, kinds
from tests.support.cloud_servers import BucketServer
from tests.support.servers import S3Server
from tools.doctor_page import page

pytestmark = pytest.mark.contract("M4")

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"

# ------------------------------------------------------------------------------------ the storage


def test_a_storage_that_keeps_conditions_is_healthy_and_left_as_it_was(bucket: BucketServer) -> None:
    uri, options = bucket.new_uri(), bucket.options
    lake = conroi.connect(uri, storage_options=options)
    lake.create_table("t", [{"n": 1}]).append([{"n": 2}])
    diagnosis = lake.doctor(deep=True)
    assert diagnosis.findings == (), str(diagnosis)
    assert diagnosis.environment["storage"].endswith("conditional put kept")
    assert not list(lake.catalog.root.list_names("_conroi"))


def test_a_storage_that_ignores_conditions_is_named(rclone: S3Server) -> None:
    files = table_storage(rclone.new_uri(), storage_options=rclone.options)
    files.objects.put("data/x", b"x")
    assert kinds(examine_table(files), "error") == {"conditions-ignored"}


def test_a_storage_that_does_not_answer_is_named(tmp_path: Path) -> None:
    files = conroi.create_table(str(tmp_path / "t.lance"), [{"n": 1}]).pinned.files
    broken = replace(files, objects=FaultyObjects(files.objects, [fail("list")]))
    diagnosis = examine_table(broken)
    assert kinds(diagnosis) == {"store-unreachable"}


def test_java_is_found_and_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\ntouch started")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.9"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.chdir(tmp_path)
    assert find_java() == f"21.0.9 at {tmp_path / 'jdk'}"
    assert not (tmp_path / "started").exists()


# ------------------------------------------------------------------------------- stores and branches


def test_a_lake_with_a_store_is_examined_too(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'lake.db'}"
    uri = str(tmp_path / "lake")
    lake = conroi.connect(uri, store=store)
    lake.create_table("orders", [{"id": 1}], key="id").append([{"id": 2}])
    lake.create_table("old", [{"n": 1}])
    lake.drop_table("old")
    assert diagnose(uri, store=store, deep=True, environment=Later()).findings == lake.doctor().findings == ()
    (tmp_path / "lake" / "__conroi.json").unlink()
    damage.newest(tmp_path / "lake" / "orders.lance").unlink()
    assert kinds(lake.doctor()) == {"lake-marker", "missing-pin"}


def test_branches_of_a_lake_are_healthy_and_what_they_pin_is_looked_for(lake: Path) -> None:
    opened = conroi.connect(str(lake))
    opened.branches.create("dev")
    branch = opened.branch("dev")
    branch["sales.customers"].append([{"name": "on the branch"}])
    assert examine(lake, deep=True).findings == ()
    assert branch.doctor().findings == ()
    folder = next((damage.customers(lake) / "tree").iterdir())
    damage.newest(folder).unlink()
    diagnosis = examine(lake)
    assert {each.kind for each in diagnosis.findings if each.severity == "error"} == {"missing-pin"}, str(diagnosis)
    assert "a branch of the lake" in diagnosis.of_kind("missing-pin")[0].what


def test_after_old_versions_went_nothing_is_missing_and_nothing_is_left_over(lake: Path) -> None:
    opened = conroi.connect(str(lake))
    opened["orders"].append([{"id": 500, "text": "x"}])
    with other_ages(0.0, 0.0):
        opened.expire("0s", keep=1, dry_run=False)
        diagnosis = examine(lake, deep=True)
        assert diagnosis.is_healthy
        assert {"orphan-files", "orphan-folder"} == kinds(diagnosis)
        opened.gc(min_age="0s", dry_run=False)
        assert examine(lake, deep=True).findings == ()


def test_what_is_no_lake_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(conroi.NotFoundError, match="no lake"):
        diagnose(str(tmp_path))
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------ how it is told


def test_a_diagnosis_can_be_read_by_programs(lake: Path) -> None:
    damage.data_file(lake / damage.ORDERS).unlink()
    facts: dict[str, Any] = json.loads(json.dumps(examine(lake).to_dict()))
    assert facts["is_healthy"] is False
    assert facts["environment"]["conroi"] == conroi.__version__
    (finding,) = facts["findings"]
    assert finding["kind"] == "missing-data-file"
    assert finding["severity"] == "error"
    assert finding["table"] == "orders"
    assert finding["path"].startswith("data/")
    assert finding["fixed"] is False


def test_many_findings_of_one_kind_are_cut_short_for_people(lake: Path) -> None:
    for number in range(30):
        (lake / damage.ORDERS / "_refs" / "tags" / f"t{number}.json").write_text('{"version": 99}')
    diagnosis = examine(lake)
    assert len(diagnosis.of_kind("tag-nowhere")) == 30
    assert str(diagnosis).count("tag-nowhere [") == 10
    assert "… and 20 more of tag-nowhere" in str(diagnosis)


def test_an_older_version_of_a_lake_is_not_examined(lake: Path) -> None:
    with pytest.raises(conroi.InvalidInputError, match="can only be read"):
        cast("Any", conroi.connect(str(lake)).at(version=2)).doctor()


def test_every_kind_is_on_the_page_once_and_the_page_is_up_to_date() -> None:
    assert len(KINDS) == sum(len(group.kinds) for group in GROUPS)
    rendered = page()
    assert all(rendered.count(f"| `{slug}` |") == 1 for slug in KINDS)
    assert PAGE.read_text("utf-8") == rendered
