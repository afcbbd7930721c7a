"""One table in a publication: what an attempt built is used again only while its files cannot have been collected."""

from __future__ import annotations

from pathlib import Path

import pytest

from conroi.catalog.participant import Participant
from conroi.commit.pending import Pending
from conroi.errors import VersionExpired
from conroi.testing import SeededEnvironment, connect_through
from conroi.versions.retention import ages
from tests.support.lakes import lake_with


def test_a_manifest_that_may_have_been_collected_is_not_used_after_a_failed_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = SeededEnvironment(1)
    lake = connect_through(lake_with(tmp_path / "lake", "t").uri, lambda objects: objects, environment=environment)
    tx = lake.begin()
    tx["t"].append([{"n": 1}])
    request = tx._request()
    part = Participant(lake.catalog, request.tables[0])
    part.catch_up(request.base)
    part.build()
    staged = part._pin
    part.build()
    assert part._pin is staged, "the control: nothing has changed, and no time has passed"
    environment.sleep(2 * ages().file_s)

    def expired(_: Pending) -> None:
        raise VersionExpired("A version was collected.", hint="Begin again.")

    with monkeypatch.context() as patched:
        patched.setattr(Pending, "build_next", expired)
        with pytest.raises(VersionExpired):
            part.build()
    part.build()
    assert part._pin != staged
