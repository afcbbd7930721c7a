"""Symbolic links, FIFOs and other irregular files below the root: never followed, read, written or deleted."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.storage.local_folders import settable_times
from tests.hostile.scene import LEFT, Scene, bounded, photograph, run_all
from tests.support.arrow import column_values
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("I1")

Damage = Callable[[Scene], object]
IDS = [row["id"] for row in LEFT]


def link(place: Path, target: Path) -> None:
    """Put a link in place of a file or folder, which is kept beside the scene."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def moved(place: Path, scene: Scene) -> None:
    """Put the file or folder into the canary, and a link to it in its place: all its bytes are right."""
    target = scene.canary / "moved" / place.name
    target.parent.mkdir(exist_ok=True)
    shutil.move(place, target)
    place.symlink_to(target)


def fifo(place: Path) -> None:
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)


def unix_socket(place: Path) -> None:
    place.unlink(missing_ok=True)
    short = Path(tempfile.gettempdir()) / f"conroi-{os.getpid()}.sock"  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(short))
    shutil.move(short, place)


HOSTILE: dict[str, Damage] = {
    # folders that lead out of the lake
    "indices of a table": lambda s: link(s.table / "_indices", s.canary),
    "data of a table": lambda s: link(s.table / "data", s.canary),
    "versions of a table": lambda s: link(s.table / "_versions", s.canary / "_versions"),
    "deletions of a table": lambda s: link(s.table / "_deletions", s.canary),
    "transactions of a table": lambda s: link(s.table / "_transactions", s.canary / "_transactions"),
    "notes of a table": lambda s: link(s.table / "_conroi", s.canary),
    "refs of a table": lambda s: link(s.table / "_refs", s.canary),
    "branches of a table": lambda s: link(s.table / "tree", s.root),
    "one branch of a table": lambda s: link(next((s.lake / "other.lance" / "tree").iterdir()), s.canary),
    "folder of a table": lambda s: link(s.table, s.canary),
    "folder of a table, moved": lambda s: moved(s.table, s),
    "the list of the lake": lambda s: link(s.lake / "__manifest", s.canary),
    "versions of the list": lambda s: link(s.lake / "__manifest" / "_versions", s.canary / "_versions"),
    "notes of the lake": lambda s: link(s.lake / "_conroi", s.canary),
    "notes of the list": lambda s: link(s.lake / "__manifest" / "_conroi", s.canary),
    "folder of a dropped table": lambda s: link(s.lake / "dropped.lance", s.canary),
    "folder of an unknown table": lambda s: link(s.lake / "stranger.lance", s.canary),
    "folder of a deleted branch": lambda s: link(s.table / "tree" / "gone-01234567", s.canary),
    "indices of a lone table": lambda s: link(s.lone / "_indices", s.canary),
    "data of a lone table, moved": lambda s: moved(s.lone / "data", s),
    "versions of a lone table, moved": lambda s: moved(s.lone / "_versions", s),
    "deletions of a lone table, moved": lambda s: moved(s.lone / "_deletions", s),
    # files
    "hint": lambda s: link(s.table / "_versions" / "latest_version_hint.json", s.canary / "authorized_keys"),
    "hint of a lone table": lambda s: link(s.lone / "_versions/latest_version_hint.json", s.canary / "authorized_keys"),
    "manifest": lambda s: moved(s.one("lake/t.lance/_versions/*.manifest"), s),
    "manifest of a lone table": lambda s: moved(s.one("lone/_versions/*.manifest"), s),
    "data file": lambda s: moved(s.one("lake/t.lance/data/*.lance"), s),
    "data file of a lone table": lambda s: moved(s.one("lone/data/*.lance"), s),
    "deletion file": lambda s: moved(s.one("lake/t.lance/_deletions/*"), s),
    "deletion file of a lone table": lambda s: moved(s.one("lone/_deletions/*"), s),
    "index file": lambda s: moved(s.one("lake/t.lance/_indices/*/*"), s),
    "folder of an index": lambda s: moved(s.one("lone/_indices/*"), s),
    "tag": lambda s: moved(s.table / "_refs" / "tags" / "first.json", s),
    "tag that leads nowhere": lambda s: link(s.lone / "_refs" / "tags" / "first.json", s.canary / "not-there"),
    "cell of a branch": lambda s: moved(s.one("lake/__manifest/_conroi/branches/dev/*"), s),
    "lock": lambda s: [link(path, s.canary / "1.lock") for path in (s.lake / "_conroi/locks").iterdir()],
    "folder of locks": lambda s: link(s.lake / "_conroi" / "locks", s.canary),
    "marker of the lake": lambda s: link(s.lake / "__conroi.json", s.canary / "x.json"),
    "a temporary file": lambda s: link(s.table / "data" / ".tmp_conroi_1", s.canary / "authorized_keys"),
    "an orphan": lambda s: link(s.table / "data" / "0123.lance", s.canary / "authorized_keys"),
    "a loop": lambda s: link(s.table / "data" / "loop", s.table),
    # what never ends when it is opened
    "FIFO as manifest": lambda s: fifo(s.one("lake/t.lance/_versions/*.manifest")),
    "FIFO as manifest of a lone table": lambda s: fifo(s.one("lone/_versions/*.manifest")),
    "FIFO as hint": lambda s: fifo(s.lone / "_versions" / "latest_version_hint.json"),
    "FIFO as data file": lambda s: fifo(s.one("lone/data/*.lance")),
    "FIFO as deletion file": lambda s: fifo(s.one("lone/_deletions/*")),
    "FIFO as tag": lambda s: fifo(s.lone / "_refs" / "tags" / "first.json"),
    "FIFO as lock": lambda s: [fifo(path) for path in list((s.lake / "_conroi/locks").iterdir())],
    "FIFO as marker": lambda s: fifo(s.lake / "__conroi.json"),
    "FIFO as collector's note": lambda s: fifo(s.lone / "_conroi" / "forgotten" / f"{2:020d}.x"),
    "FIFO as the list's manifest": lambda s: fifo(s.one("lake/__manifest/_versions/*.manifest")),
    "socket as manifest": lambda s: unix_socket(s.one("lone/_versions/*.manifest")),
}


@pytest.mark.parametrize("name", sampled("hostile links", [(name,) for name in HOSTILE], least=8, covers=False))
def test_nothing_outside_is_touched_and_every_answer_is_right_or_typed(name: str, scene: Scene) -> None:
    HOSTILE[name](scene)
    irregular = {path for path in scene.root.rglob("*") if _is_irregular(path) and scene.canary not in path.parents}
    before = photograph(scene.canary)
    with bounded(60, megabytes=600):
        outcomes = run_all(scene)
    assert photograph(scene.canary) == before
    assert {path for path in irregular if not os.path.lexists(path)} == set(), "a link was deleted or replaced"
    for verb, right in (("read", IDS), ("lone read", IDS), ("read other", [1]), ("filter", [7]), ("lone filter", [7])):
        outcome = outcomes[verb]
        assert outcome.error is not None or outcome.value == right, verb
    named = [
        finding.path
        for verb in ("doctor", "lone doctor")
        if outcomes[verb].error is None
        for finding in outcomes[verb].value.of_kind("irregular-file")
    ]
    expected = {os.path.relpath(path, scene.lake if scene.lake in path.parents else scene.lone) for path in irregular}
    can_be_named = [outcomes[verb] for verb in ("doctor", "lone doctor")]
    assert expected <= set(named) or any(outcome.error is not None for outcome in can_be_named)


def _is_irregular(path: Path) -> bool:
    return path.is_symlink() or path.is_fifo() or path.is_socket()


def test_without_damage_every_verb_succeeds(scene: Scene) -> None:
    """The negative control: what the verbs are refused above is refused because of the damage."""
    before = photograph(scene.canary)
    outcomes = run_all(scene)
    assert {name: str(outcome.error) for name, outcome in outcomes.items() if outcome.error is not None} == {}
    assert outcomes["read"].value == outcomes["lone read"].value == IDS
    assert outcomes["doctor"].value.is_healthy
    assert photograph(scene.canary) == before


def test_the_root_itself_may_be_a_link(scene: Scene) -> None:
    for name in ("lake", "lone"):
        (scene.root / f"{name}-link").symlink_to(scene.root / name)
    lake = conroi.connect(scene.root / "lake-link")
    lake["t"].append([{"id": 50, "v": "x"}])
    assert sorted(column_values(lake["t"].to_arrow()["id"])) == [*IDS, 50]
    lake.branch("dev")["t"].delete("id = 50")
    assert lake.doctor(deep=True).is_healthy
    table = conroi.open_table(scene.root / "lone-link").append([{"id": 50, "v": "x"}])
    assert sorted(column_values(table.to_arrow()["id"])) == [*IDS, 50]


def test_a_hint_with_a_second_name_is_replaced_and_not_overwritten(scene: Scene) -> None:
    """A backup made of hard links keeps its own content."""
    hint, backup = scene.lone / "_versions" / "latest_version_hint.json", scene.canary / "backup"
    os.link(hint, backup)
    before = backup.read_bytes()
    conroi.open_table(scene.lone).append([{"id": 50, "v": "x"}])
    assert backup.read_bytes() == before != hint.read_bytes()


def test_a_copy_in_progress_is_left_alone(scene: Scene) -> None:
    """`rsync -a` brings files with old times, and the manifests last."""
    arriving = scene.lake / "arriving.lance"
    shutil.copytree(scene.canary / "data", arriving / "data")
    before = photograph(arriving)
    with settable_times():
        lake = conroi.connect(scene.lake)
        lake.expire("7d", keep=1, dry_run=False)
        lake.gc(dry_run=False)
    assert photograph(arriving) == before


def test_a_dry_run_lists_the_paths(scene: Scene) -> None:
    with settable_times():
        conroi.open_table(scene.lone).expire("7d", keep=1, dry_run=False)
        (scene.lone / "data" / "0123.lance").write_bytes(b"x")
        os.utime(scene.lone / "data" / "0123.lance", (0, 0))
        found = conroi.open_table(scene.lone).gc()
    assert f"{scene.lone}: data/0123.lance" in found.paths
    assert "data/0123.lance" in str(found)
    assert (scene.lone / "data" / "0123.lance").exists()


@pytest.mark.contract("I2")
@pytest.mark.parametrize("hostile", ["FIFO", "link", "folder is a link"])
def test_what_another_user_leaves_beside_tables_in_memory_blocks_nothing(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: everyone may write into the folder for shared memory."""
    from conroi.storage import memory

    home, canary = tmp_path / "shm" / "conroi-memory-left", tmp_path / "canary"
    canary.mkdir()
    (canary / ".alive").write_text("x")
    (tmp_path / "shm").mkdir()
    if hostile == "folder is a link":
        home.symlink_to(canary)
    else:
        home.mkdir()
        fifo(home / ".alive") if hostile == "FIFO" else (home / ".alive").symlink_to(canary / ".alive")
    monkeypatch.setattr(memory, "_RAM_DISK", str(tmp_path / "shm"))
    monkeypatch.setattr(memory, "_home", None)
    before = photograph(canary)
    with bounded(20, megabytes=100):
        assert memory.memory_folder("t").startswith(str(tmp_path / "shm"))
    assert photograph(canary) == before
    assert os.path.lexists(home)
