"""The outcome of a publication: its result, and what the error says when it lost too many races."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.testing import call_before
from tests.support.lakes import faulty, lake_with, rows

PUT = ("put_if_absent", "_versions/*.manifest")


def test_of_two_concurrent_transactions_with_one_key_the_second_is_the_first(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    one, other = (conroi.connect(lake.uri).begin(idempotency_key="k") for _ in range(2))
    for tx in (one, other):
        tx["t"].append([{"n": 1}])
        tx["u"].append([{"n": 1}])
    first = one.commit()
    lake["t"].append([{"n": 2}])
    second = other.commit()
    assert (first.version, first.was_done_before, first.attempts) == (lake.version - 1, False, 1)
    assert (second.version, second.was_done_before) == (first.version, True)
    assert second.tables == first.tables == {"t": 2, "u": 2}
    assert (rows(lake["t"]), rows(lake["u"])) == ([0, 1, 2], [0, 1])


@pytest.mark.parametrize(
    ("limits", "hint"),
    [({"retries": 2}, "Allow more retries,"), ({"timeout": 0.0}, "Allow more time, begin(timeout=…),")],
)
def test_a_transaction_that_loses_every_race_says_what_would_help(
    limits: dict[str, float], hint: str, tmp_path: Path
) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    other = conroi.connect(lake.uri)
    writer = faulty(
        lake.uri, [call_before(lambda _: other["t"].append([{"n": 9}]), *PUT, times=None)], only="__manifest"
    )
    tx = writer.begin(**limits)  # pyright: ignore[reportArgumentType]
    tx["t"].append([{"n": 1}])
    tx["u"].append([{"n": 1}])
    with pytest.raises(conroi.TooMuchContention) as caught:
        tx.commit()
    error = caught.value
    assert error.table == "t, u"
    assert error.attempts == (3 if "retries" in limits else 1)
    assert str(error.hint).startswith(hint)
    assert "to publish t, u lost to other writers" in error.message
    assert rows(lake["u"]) == [0]
