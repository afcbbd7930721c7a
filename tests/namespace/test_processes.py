"""pylance, lancedb and conroi in processes of their own write one lake at the same time: nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lance
import lance_namespace as ln
import lancedb
import pytest

import conroi
from conroi.namespace import ConroiNamespace
from tests.namespace.clients import NAME, append, ids, ids_of, new_lake, opened, rows
from tests.support.together import Meet, together

ROUNDS = 6


@dataclass(frozen=True)
class Job:
    uri: str
    software: str
    first: int


def work(job: Job, meet: Meet) -> list[int]:
    """Append one row after the other; what was answered as done."""
    lake = conroi.connect(job.uri)
    namespace = ln.connect(NAME, {"root": job.uri})
    connection = lancedb.connect(namespace_client_impl=NAME, namespace_client_properties={"root": job.uri})
    done: list[int] = []
    meet()
    for number in range(job.first, job.first + ROUNDS):
        if job.software == "conroi":
            lake["t"].append(rows(number), retries=50)
        elif job.software == "conroi, two tables":
            with lake.begin(retries=50) as tx:
                tx["t"].append(rows(number))
                tx["u"].append(rows(number))
        elif job.software == "pylance":
            append(namespace, rows(number), "t")
        else:
            connection.open_table("t").add(rows(number))
        done.append(number)
    return done


@pytest.mark.contract("P5", "P8")
def test_all_three_append_to_one_table_and_nothing_is_lost(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", "u")
    before = lake.version
    kinds = ("conroi", "pylance", "lancedb", "conroi, two tables", "pylance")
    jobs = [Job(lake.uri, kind, 1000 * (number + 1)) for number, kind in enumerate(kinds)]
    done = together(work, jobs)
    expected = sorted([1, *(number for numbers in done for number in numbers)])
    assert len(expected) == 1 + ROUNDS * len(kinds)
    assert ids(lake, "t") == ids_of(opened(ConroiNamespace(lake), "t")) == expected
    assert ids(lake, "u") == sorted([1, *done[3]])
    made = [commit.tables["t"] for commit in reversed(lake.history(lake.version - before))]
    assert made == list(range(2, len(expected) + 1)), "each commit is one version of the lake"
    by_path = lance.dataset(lake["t"].uri)
    assert [each["version"] for each in by_path.versions()] == list(range(1, len(expected) + 1))
    assert ids_of(by_path) == expected
