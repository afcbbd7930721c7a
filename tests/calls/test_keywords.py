"""Every public call refuses keywords that it does not know, and says which one was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi import front
from tests.support.public_calls import World, make

UNKNOWN = "no_such_keyword_"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make(tmp_path_factory.mktemp("world"))


def test_every_public_class_is_looked_at(world: World):
    """What the sweep does not reach, it cannot judge."""
    seen = {type(each) for each in world.objects.values()}
    named = {name: getattr(front, name) for name in front.__all__}
    public = {name: value for name, value in named.items() if inspect.isclass(value)}
    without_calls = {name for name, value in public.items() if not _methods(value)}
    errors = {name for name, value in public.items() if issubclass(value, BaseException)}
    missing = set(public) - {kind.__name__ for kind in seen} - without_calls - errors
    assert missing == {"Environment"}  # a protocol, which users implement


def _methods(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.contract("U1")
def test_no_public_call_takes_an_unknown_keyword(world: World, capsys: pytest.CaptureFixture[str]):
    accepted: list[str] = []
    unhelpful: list[str] = []
    calls = dict(world.calls())
    before = world.state()
    for name, call in calls.items():
        try:
            call(**{UNKNOWN: 1})
        except TypeError as error:
            if UNKNOWN not in str(error):
                accepted.append(f"{name}: {error}")
            if _is_ours(call) and not isinstance(error, conroi.UnknownArgumentError):
                unhelpful.append(name)
        except Exception as error:  # noqa: BLE001 (it went past the keyword)
            accepted.append(f"{name}: {error!r}")
        else:
            accepted.append(name)
    with capsys.disabled():
        print(f"\nunknown keywords: {len(calls)} public calls, accepted: {len(accepted)}")
    assert accepted == []
    assert unhelpful == []
    assert world.state() == before
    assert len(calls) > 250


def _is_ours(call: Callable[..., Any]) -> bool:
    """Whether it takes arguments at all, and is not the method of a plain value."""
    owner = getattr(call, "__self__", None)
    is_value = owner is None or hasattr(type(owner), "__dataclass_fields__") or isinstance(owner, conroi.ManifestNaming)
    return bool(inspect.signature(call).parameters) and not is_value and call.__name__ != "retry"


@pytest.mark.contract("U1")
def test_the_nearest_keyword_is_named(world: World):
    for name, call in world.calls():
        if not _is_ours(call):
            continue
        for parameter in inspect.signature(call).parameters.values():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or len(parameter.name) < 5:
                continue
            misspelt = parameter.name[:2] + parameter.name[3:]
            with pytest.raises(conroi.UnknownArgumentError, match="Did you mean") as caught:
                call(**{misspelt: None})
            assert isinstance(caught.value, conroi.InvalidInputError), name
            assert parameter.name in (caught.value.hint or ""), name


@pytest.mark.contract("U1")
@pytest.mark.parametrize("lake", [True, False], ids=["lake", "alone"])
def test_what_an_unknown_keyword_asked_for_is_not_done_without_it(tmp_path: Path, lake: bool):
    """C1: each of these acted for real, on all rows, or again."""
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    if lake:
        table = conroi.connect(tmp_path).create_table("t", rows)
    else:
        table = conroi.create_table(tmp_path / "t.lance", rows)
    t: Any = table.append(pa.table({"id": [3], "v": ["c"]}))
    for call in (
        lambda: t.update({"v": "0"}, were="id = 1"),
        lambda: t.delete("id = 1", dry_run=True),
        lambda: t.restore(1, dry_run=True),
        lambda: t.overwrite(rows, mode="append"),
        lambda: t.append(rows, idempotency_key="k"),
        lambda: t.merge(rows, on="id").when_matched_update_all().execute(dry_run=True),
        lambda: t.compact(dryrun=True),
    ):
        with pytest.raises(conroi.UnknownArgumentError) as caught:
            call()
        assert caught.value.table == ("t" if lake else table.uri)
    with pytest.raises(conroi.UnknownArgumentError, match="Did you mean where"):
        t.update({"v": "0"}, were="id = 1")
    with pytest.raises(TypeError):  # as Python's own
        t.update({"v": "0"}, were="id = 1")
    assert t.latest().version == 2
    assert t.latest().to_arrow().to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]


def test_values_of_a_class_that_was_accepted_are_still_checked_by_their_content(tmp_path: Path) -> None:
    table: Any = conroi.create_table(tmp_path / "t", [{"id": 1, "v": "a"}])
    for _ in range(2):
        assert table.to_arrow(columns=["id"], with_row_id=False, filter="id = 1").num_rows == 1
        for call in (
            lambda: table.to_arrow(columns=["id", 7]),
            lambda: table.to_arrow(filter="v = '\ud800'"),
            lambda: table.to_arrow(with_row_id=1),
            lambda: table.append(pa.Table),
            lambda: table.set_config({"a": 1}),
        ):
            with pytest.raises(conroi.InvalidInputError, match="cannot take"):
                call()
    assert table.append(pa.table({"id": [2], "v": ["b"]})).append(pa.table({"id": [3], "v": ["c"]})).version == 3
