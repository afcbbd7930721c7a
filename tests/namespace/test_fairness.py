"""A client that builds its manifests itself does not starve beside a busy conroi writer (finding J3)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import conroi
from conroi.commit.fairness import Reservations
from conroi.environment import SYSTEM
from conroi.format.on_disk import RESERVED_DIR
from conroi.namespace import ConroiNamespace
from tests.namespace.clients import Rivalled, append, ids, new_lake, opened, rows


@pytest.mark.contract("N6")
def test_pylance_gets_its_share_beside_a_busy_writer(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    stop, counts = threading.Event(), {"conroi": 0, "pylance": 0}

    def busy() -> None:
        writer = conroi.connect(lake.uri)
        while not stop.is_set():
            writer["t"].append(rows(1000 + counts["conroi"]))
            counts["conroi"] += 1

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        namespace = ConroiNamespace(conroi.connect(lake.uri))
        for number in range(12):
            append(namespace, rows(number), "t")
            counts["pylance"] += 1
    finally:
        stop.set()
        thread.join()
    fair = (counts["conroi"] + counts["pylance"]) / 2
    assert counts["pylance"] >= fair / 4, counts
    assert len(ids(lake, "t")) == 1 + counts["conroi"] + counts["pylance"]


@pytest.mark.contract("N6")
def test_a_refusal_reserves_the_next_version_until_the_client_has_come(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", "u")
    folder = tmp_path / "lake" / RESERVED_DIR
    seen: list[int] = []

    def rival() -> None:
        lake["t"].append(rows(100 + len(seen)))
        seen.append(len(list(folder.glob("*"))) if folder.exists() else 0)

    opened(Rivalled(lake, rival, times=2), "t").insert(rows(2))
    assert seen == [0, 1]  # the first refusal reserved; a rival in the same process does not wait for itself
    assert not list(folder.glob("*"))
    assert ids(lake, "t") == [1, 2, 100, 101]
    assert lake.doctor().findings == ()


def test_a_reservation_holds_up_only_writers_of_its_tables(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t", "u")
    held = Reservations(lake.catalog.root, SYSTEM)
    held.reserve(["t"])
    lake["u"].append(rows(2))
    assert list((tmp_path / "lake" / RESERVED_DIR).glob("*")), "it was not waited for"
    lake["t"].append(rows(2))  # its client never comes: it is waited for once, and taken away
    assert not list((tmp_path / "lake" / RESERVED_DIR).glob("*"))
    assert ids(lake, "t") == [1, 2]
