"""How many hostile tables, lakes and stores the tests of this folder open."""

from __future__ import annotations

import pytest

from tests.hostile import test_bases, test_contents, test_links, test_stores


@pytest.mark.contract("I3")
def test_there_are_at_least_forty_hostile_scenes(capsys: pytest.CaptureFixture[str]) -> None:
    scenes = {
        "links, FIFOs and devices": len(test_links.HOSTILE),
        "contents of files": len(test_contents.HOSTILE),
        "base paths": 2 * len(test_bases.SPELLINGS),
        "rows of stores": 3 * len(test_stores.DAMAGED),
    }
    with capsys.disabled():
        print(f"\nhostile scenes: {sum(scenes.values())} ({', '.join(f'{n} {what}' for what, n in scenes.items())})")
    assert sum(scenes.values()) >= 40
