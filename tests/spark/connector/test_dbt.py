"""dbt on a lake: the project of examples/dbt, run by dbt-spark in a session that has the lake as its catalog."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
import pytest

import conroi
from conroi.spark.connector.configuration import connector_jar
from conroi.spark.sessions import java_home
from tests.spark.connector import dbt_program
from tests.spark.support import FAST_START, SINCE_4_2, by_pylance
from tests.support.source import REPOSITORY
from tools.overlays import overlay

pytestmark = [pytest.mark.contract("S23"), pytest.mark.timeout(600), SINCE_4_2]

PROJECT = REPOSITORY / "examples" / "dbt"
PACKAGES = REPOSITORY / "tests" / "support" / "dbt" / "requirements.lock"
FIRST = [
    {"id": 1, "country": "PL", "status": "open", "amount": 5.0, "updated_at": datetime(2026, 1, 1)},
    {"id": 2, "country": "DE", "status": "paid", "amount": 7.0, "updated_at": datetime(2026, 1, 2)},
]
CHANGES = [
    {"id": 1, "country": "PL", "status": "paid", "amount": 6.0, "updated_at": datetime(2026, 1, 3)},
    {"id": 3, "country": "FR", "status": "open", "amount": 9.0, "updated_at": datetime(2026, 1, 4)},
]


class Dbt:
    """The command `dbt`, in a copy of the project."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.lake = conroi.connect(folder / "lake")
        self._log = (folder / "spark.log").open("w")
        home = java_home()
        made_of = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:8]
        place = REPOSITORY / ".ring" / f"dbt-{made_of}-pyspark-{pyspark.__version__}"
        python = overlay(place, ["-r", str(PACKAGES)])
        (folder / "conf").mkdir()
        defaults = FAST_START | {"spark.master": "local[2]", "spark.ui.enabled": "false"}
        (folder / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {defaults[key]}\n" for key in defaults))
        settings = {
            "CONROI_SPARK_JAR": connector_jar(home),
            "LAKE": self.lake.uri,
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "UTC",
            **({} if home is None else {"JAVA_HOME": home}),
        }
        self._process = subprocess.Popen(
            [str(python), "-m", dbt_program.__name__],
            cwd=folder,
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def begin(self, *, is_one_transaction: bool) -> None:
        """A fresh copy of the project, and a lake that has only the rows of the source."""
        shutil.rmtree(self.project, ignore_errors=True)
        shutil.copytree(PROJECT, self.project, ignore=shutil.ignore_patterns("target", "logs", ".user.yml"))
        if not is_one_transaction:
            settings = self.project / "dbt_project.yml"
            lines = settings.read_text().splitlines()
            settings.write_text("\n".join(line for line in lines if not line.startswith("on-run-")))
        for name in self.lake.tables():
            self.lake.drop_table(name)
        self.lake.create_table("raw.orders", FIRST, key="id")

    def __call__(self, *arguments: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        places = ["--project-dir", str(self.project), "--profiles-dir", str(self.project)]
        self._process.stdin.write(json.dumps([*arguments, *places, "--no-use-colors"]) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(dbt_program.ANSWER):
                return {**json.loads(line.removeprefix(dbt_program.ANSWER)), "said": "".join(said)}
            said.append(line)
        raise AssertionError("dbt ended: " + "".join(said) + Path(self._log.name).read_text()[-4000:])

    def change(self, rows: list[dict[str, Any]]) -> None:
        """Rows that another client merges into the source."""
        merge = self.lake["raw.orders"].merge(rows, on="id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table as pylance reads them."""
        found = by_pylance(self.lake[table].uri).to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in found)

    def close(self) -> None:
        with self._log, self._process:  # its input ends, and with it the process
            pass


@pytest.fixture(scope="module")
def dbt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dbt]:
    """One process with one Spark for all tests: each begins with a new project and an empty lake."""
    made = Dbt(tmp_path_factory.mktemp("dbt"))
    yield made
    made.close()


def ran(answer: dict[str, Any], status: str = "success") -> list[str]:
    """The nodes with this status, of a command that succeeded."""
    assert answer["success"], answer["said"] + answer["error"]
    return sorted(name for name, node in answer["nodes"].items() if node["status"] == status)


ORDERS = ("id", "country", "status", "amount")
HISTORY = ("id", "status", "dbt_valid_from", "dbt_valid_to")


def test_seeds_models_snapshots_and_tests_of_dbt_work_on_a_lake(dbt: Dbt):
    dbt.begin(is_one_transaction=False)
    assert ran(dbt("seed")) == ["countries"]
    assert ran(dbt("run")) == ["orders", "payments", "totals"]
    assert ran(dbt("snapshot")) == ["order_history"]
    assert dbt.rows("shop.countries", "code", "name") == [("DE", "Germany"), ("FR", "France"), ("PL", "Poland")]
    assert dbt.rows("shop.orders", *ORDERS) == [(1, "PL", "open", 5.0), (2, "DE", "paid", 7.0)]
    assert dbt.rows("shop.payments", "order_id", "amount") == [(2, 7.0)]
    assert dbt.rows("shop.totals", "country", "orders", "amount") == [("Germany", 1, 7.0), ("Poland", 1, 5.0)]
    assert dbt.lake["shop.orders"].key == ("id",)

    dbt.change(CHANGES)
    before = dbt.lake.version
    assert ran(dbt("run")) == ["orders", "payments", "totals"]
    assert dbt.lake.version == before + 3, "each model is one commit: a table is replaced and never missing"
    assert (dbt.lake["shop.orders"].version, dbt.lake["shop.payments"].version) == (2, 2), "they were not made again"
    assert ran(dbt("snapshot")) == ["order_history"]
    assert dbt.rows("shop.orders", *ORDERS) == [(1, "PL", "paid", 6.0), (2, "DE", "paid", 7.0), (3, "FR", "open", 9.0)]
    assert dbt.rows("shop.payments", "order_id", "amount") == [(1, 6.0), (2, 7.0)]
    totals = [("France", 1, 9.0), ("Germany", 1, 7.0), ("Poland", 1, 6.0)]
    assert dbt.rows("shop.totals", "country", "orders", "amount") == totals
    first, second, third, fourth = (datetime(2026, 1, day) for day in (1, 2, 3, 4))
    assert dbt.rows("shop.order_history", *HISTORY) == [
        (1, "open", first, third),
        (1, "paid", third, None),
        (2, "paid", second, None),
        (3, "open", fourth, None),
    ]
    assert len(ran(dbt("test"), "pass")) == 4

    dbt.change([{"id": 4, "country": "XX", "status": "lost", "amount": 1.0, "updated_at": datetime(2026, 1, 5)}])
    assert ran(dbt("run", "--select", "orders")) == ["orders"]
    tests = dbt("test")
    assert not tests["success"], "the negative control: two tests must fail"
    failed = sorted(name.split("_orders_")[0] for name, node in tests["nodes"].items() if node["status"] == "fail")
    assert failed == ["accepted_values", "relationships"]


def test_a_build_is_one_commit_and_a_failed_test_rolls_it_back(dbt: Dbt):
    dbt.begin(is_one_transaction=True)
    built = dbt("build")
    assert len(ran(built)) + len(ran(built, "pass")) == 11, built["said"]  # with the two hooks
    assert dbt.lake.history(1)[0].message == "dbt build"
    assert all(dbt.lake[f"shop.{name}"].version == 1 for name in ("countries", "orders", "payments", "totals"))

    dbt.change(CHANGES)
    before = dbt.lake.version
    ran(dbt("build"))
    assert dbt.lake.version == before + 1
    assert dbt.rows("shop.orders", *ORDERS) == [(1, "PL", "paid", 6.0), (2, "DE", "paid", 7.0), (3, "FR", "open", 9.0)]
    assert len(dbt.rows("shop.order_history", "id")) == 4

    dbt.change([{"id": 4, "country": "PL", "status": "lost", "amount": 1.0, "updated_at": datetime(2026, 1, 5)}])
    before = dbt.lake.version
    failed = dbt("build")
    assert not failed["success"]
    assert failed["nodes"]["orders"]["status"] == "success", "the model was built before its test failed"
    assert dbt.lake.version == before
    assert len(dbt.rows("shop.orders", "id")) == 3
    assert len(dbt.rows("shop.order_history", "id")) == 4


def test_a_new_column_is_added_and_a_view_is_refused(dbt: Dbt):
    dbt.begin(is_one_transaction=False)
    ran(dbt("seed"))
    ran(dbt("run", "--select", "orders"))
    model = dbt.project / "models" / "orders.sql"
    model.write_text(model.read_text().replace("amount, updated_at", "amount, updated_at, amount * 2 as doubled"))
    dbt.change(CHANGES)
    ran(dbt("run", "--select", "orders"))
    assert dbt.rows("shop.orders", "id", "doubled") == [(1, 12.0), (2, None), (3, 18.0)]
    ran(dbt("run", "--select", "orders", "--full-refresh"))
    assert dbt.rows("shop.orders", "id", "doubled") == [(1, 12.0), (2, 14.0), (3, 18.0)]

    (dbt.project / "models" / "seen.sql").write_text("{{ config(materialized='view') }} select 1 as one")
    refused = dbt("run", "--select", "seen")
    assert refused["nodes"]["seen"]["status"] == "error"
    assert "views" in refused["nodes"]["seen"]["message"].lower()
