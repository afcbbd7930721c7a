"""Supported releases of pylance: a newer one warns once; a feature that it does not know is refused by its name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi.data import pylance
from conroi.data.pylance import TESTED, knows_reader_flag, require_known_flags, warn_if_untested
from conroi.format import lance_pb2 as pb
from conroi.format.flags import Flag
from tests.support.pylance import RELEASE

pytestmark = pytest.mark.contract("V1", "V2")


@pytest.fixture(autouse=True)
def nothing_was_said() -> Iterator[None]:
    warn_if_untested.cache_clear()
    yield
    warn_if_untested.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(pylance, "installed", lambda: release)


def test_a_newer_pylance_works_and_warns_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, f"{TESTED[-1] + 1}.0.0")
    with pytest.warns(conroi.UntestedPylanceWarning, match=f"pylance {TESTED[-1] + 1}.0.0 is newer") as caught:
        table = conroi.create_table(tmp_path / "t", [{"n": 1}]).append([{"n": 2}])
    assert table.count_rows() == 2
    assert len([one for one in caught if one.category is conroi.UntestedPylanceWarning]) == 1


@pytest.mark.parametrize("release", [f"{release}.0.0" for release in TESTED])
def test_a_tested_pylance_does_not_warn(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    pretend(monkeypatch, release)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested()


def test_pylance_itself_is_asked_which_features_it_knows() -> None:
    known = {flag.name for flag in Flag if knows_reader_flag(flag)}
    in_all = {"DELETION_FILES", "STABLE_ROW_IDS", "OLD_V2_FORMAT", "TABLE_CONFIG", "BASE_PATHS", "NO_TRANSACTION_FILE"}
    assert in_all <= known
    assert "FRAGMENT_TREE" not in known
    assert ("TAGGED_FRAGMENT_REUSE" in known) == (RELEASE >= 13)
    assert ("SPILLED_ROW_LINEAGE" in known) == ("MANAGED_BLOBS" in known) == (RELEASE >= 14)


def test_a_feature_that_only_the_installed_pylance_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "12.0.0")
    monkeypatch.setattr(pylance, "knows_reader_flag", lambda bit: bit != Flag.MANAGED_BLOBS)
    head = pb.ManifestHead(reader_feature_flags=Flag.MANAGED_BLOBS | Flag.DELETION_FILES | Flag.TAGGED_FRAGMENT_REUSE)
    with pytest.raises(conroi.UnsupportedError, match=r"pylance 12\.0\.0 .*16384 \(MANAGED_BLOBS\)\.") as caught:
        require_known_flags(head, "t")
    assert "Install pylance" in str(caught.value.hint)


def test_an_ordinary_table_costs_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pylance, "knows_reader_flag", lambda bit: pytest.fail(f"asked for {bit}"))
    require_known_flags(pb.ManifestHead(reader_feature_flags=Flag.DELETION_FILES | Flag.STABLE_ROW_IDS), "t")
