"""Which rows of `__manifest` a publication writes anew, which it deletes, and the state that follows."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from conroi.catalog.rows import NAMESPACE, TABLE, Row
from conroi.catalog.state import (
    MOST_FRAGMENTS,
    MOST_RECORDS,
    SETTINGS,
    SMALL_ROWS,
    CommitMetadata,
    LakeState,
    decode_records,
    encode_records,
    lay_out_rows,
)
from conroi.errors import CorruptionError


def row(name: str) -> Row:
    return Row(name, TABLE, f"{name}.lance")


def state(*counts: int, dead: dict[int, int] | None = None) -> LakeState:
    """Fragments 1, 2, … with so many rows, of which the first ones of some are dead."""
    rows: dict[str, Row] = {}
    places: dict[str, tuple[int, int]] = {}
    gone = {fragment: BitMap(range(count)) for fragment, count in (dead or {}).items()}
    for fragment, count in enumerate(counts, start=1):
        for offset in range(count):
            if offset not in gone.get(fragment, BitMap()):
                rows[f"t{fragment}_{offset:03}"] = row(f"t{fragment}_{offset:03}")
                places[f"t{fragment}_{offset:03}"] = (fragment, offset)
    physical = dict(enumerate(counts, start=1))
    return LakeState(5, 1_000, rows, places, gone, physical)


def names(count: int) -> dict[str, Row | None]:
    return {f"new{number:03}": row(f"new{number:03}") for number in range(count)}


def test_the_newest_fragment_is_written_anew_as_long_as_it_is_small() -> None:
    full = state(3, SMALL_ROWS - 2)
    layout = lay_out_rows(full, names(2))
    assert (layout.kind, layout.removed, layout.deleted, len(layout.written)) == ("small", (2,), {}, SMALL_ROWS)
    assert layout.written == tuple(sorted(layout.written))
    assert {"t2_000", "new000", "new001"} <= set(layout.written)
    layout = lay_out_rows(full, names(3))
    assert (layout.kind, layout.removed, layout.deleted, layout.written) == (
        "new", (), {}, ("new000", "new001", "new002"),
    )  # fmt: skip


def test_rows_that_are_replaced_or_dead_do_not_make_the_newest_fragment_large() -> None:
    full = state(3, SMALL_ROWS)
    assert lay_out_rows(full, {"t2_000": row("t2_000")}).kind == "small"
    assert lay_out_rows(full, {"t2_000": None}).kind == "small"
    assert lay_out_rows(full, {"t1_000": row("t1_000")}).kind == "new"
    assert lay_out_rows(state(300, SMALL_ROWS + 1, dead={2: 2}), names(1)).kind == "small"
    assert lay_out_rows(state(300, SMALL_ROWS + 1, dead={2: 1}), names(1)).kind == "new"


def test_a_row_of_an_older_fragment_is_deleted_there_and_an_empty_fragment_removed() -> None:
    old = state(3, 1, 100, dead={1: 1})
    layout = lay_out_rows(old, {"t1_001": row("t1_001"), "t2_000": None})
    assert (layout.kind, layout.written, layout.removed) == ("new", ("t1_001",), (2,))
    assert layout.deleted == {1: BitMap([1])}
    layout = lay_out_rows(old, {"t1_001": None, "t1_002": None})
    assert (layout.kind, layout.written, layout.removed, layout.deleted) == ("new", (), (1,), {})


def test_everything_is_written_anew_if_many_rows_are_dead() -> None:
    for physical, dead, kind in [(140, 71, "all"), (142, 71, "small"), (128, SMALL_ROWS, "small"), (100, 60, "small")]:
        scattered = state(physical, 1, dead={1: dead})
        scattered = LakeState(5, 1, scattered.rows, scattered.places, scattered.dead, {1: physical - 1, 2: 1})
        layout = lay_out_rows(scattered, names(1))
        assert layout.kind == kind, (physical, dead)
        if kind == "all":
            assert layout.removed == (1, 2)
            assert set(layout.written) == {*scattered.rows, "new000"}


def test_everything_is_written_anew_if_there_are_many_fragments() -> None:
    assert lay_out_rows(state(*[1] * MOST_FRAGMENTS), names(1)).kind == "small"
    layout = lay_out_rows(state(*[1] * (MOST_FRAGMENTS + 1)), {"t1_000": None})
    assert (layout.kind, len(layout.removed), len(layout.written)) == ("all", MOST_FRAGMENTS + 1, MOST_FRAGMENTS)


def test_a_reader_lays_out_as_the_publisher_recorded() -> None:
    assert lay_out_rows(state(3, 2), names(1), "all").removed == (1, 2)
    assert lay_out_rows(state(3, 2), names(1), "new").removed == ()
    assert lay_out_rows(state(), names(1)).removed == ()
    assert lay_out_rows(state(), names(1), "small").removed == ()


def test_the_state_that_follows_has_the_rows_where_they_were_written() -> None:
    before = state(3, 1, 100, dead={1: 1})
    changes: dict[str, Row | None] = {"t1_001": row("t1_001"), "t2_000": None, "a": row("a")}
    layout = lay_out_rows(before, changes)
    after = before.following(6, 2_000, changes, layout, 9)
    assert (after.version, after.timestamp_ns, after.small) == (6, 2_000, 9)
    assert after.physical == {1: 3, 3: 100, 9: 2}
    assert after.dead == {1: BitMap([0, 1])}
    assert (after.places["a"], after.places["t1_001"], after.places["t1_002"]) == ((9, 0), (9, 1), (1, 2))
    assert "t2_000" not in after.places
    assert after.rows.keys() == before.rows.keys() - {"t2_000"} | {"a"}
    nothing = after.following(7, 3_000, {}, lay_out_rows(after, {}, "new"), 10)
    assert nothing.physical == after.physical


# --------------------------------------------------------------------------------------------- questions of a state


def test_tables_are_listed_by_id_and_namespaces_are_none() -> None:
    lake = LakeState(1, 1, {"b": row("b"), "s": Row("s", NAMESPACE), "a": row("a")})
    assert [each.object_id for each in lake.tables()] == ["a", "b"]
    assert (lake.table("s"), lake.table("x"), lake.table("a")) == (None, None, row("a"))


def test_a_setting_is_in_its_row_or_in_the_config() -> None:
    config = {"k": "config"}
    assert LakeState(1, 1, {}, config=config).setting("k") == "config"
    in_row = LakeState(1, 1, {SETTINGS: Row(SETTINGS, "settings", None, '{"k":"row"}')}, config=config)
    assert (in_row.setting("k"), in_row.setting("x")) == ("row", None)


def test_a_table_without_a_pin_is_seen_as_of_a_time() -> None:
    pinned = '{"conroi.version":"1","conroi.manifest":"m","conroi.transaction":"t"}'
    rows = {"a": row("a"), "b": Row("b", TABLE, "b.lance", pinned), "d": Row("d", TABLE, "d.lance", "{")}
    lake = LakeState(1, 1, rows)
    assert lake.unpinned == {"a"}, "a damaged row is told when that table is opened"
    seen = lake.seen_at(77)
    assert (seen.rows["a"].moment_ns, seen.rows["b"].moment_ns) == (77, None)
    all_pinned = LakeState(1, 1, {"b": rows["b"]})
    assert all_pinned.seen_at(77) is all_pinned
    assert lake.with_rows({}) is lake
    assert lake.with_rows({"a": rows["b"]}).rows["a"] is rows["b"]
    after = lake.following(2, 2, {"a": None, "c": row("c")}, lay_out_rows(lake, {}), 1)
    assert after.unpinned == {"c"}
    assert after.following(3, 3, {"c": rows["b"], "d": None}, lay_out_rows(after, {}), 2).unpinned == frozenset()


# ---------------------------------------------------------------------------------------- what a commit records


def test_metadata_of_a_commit_is_kept_apart_from_the_users_properties() -> None:
    notes = CommitMetadata("why", "who", "key", {"mine": "1"})
    assert CommitMetadata.of({**notes.to_properties(), **encode_records({"a": row("a")}, "small")}) == notes
    assert CommitMetadata().to_properties() == {}
    assert CommitMetadata("", "", "", {}).to_properties().keys() == notes.to_properties().keys() - {"mine"}


def test_changes_are_recorded_unless_they_are_very_many() -> None:
    changes: dict[str, Row | None] = {"a": row("a"), "b": None}
    assert decode_records(encode_records(changes, "new")) == (changes, "new")
    assert decode_records(encode_records(names(MOST_RECORDS), "all")) == (names(MOST_RECORDS), "all")
    assert encode_records(names(MOST_RECORDS + 1), "all") == {}
    recorded = encode_records(changes, "new")
    for missing in recorded:
        assert decode_records({key: value for key, value in recorded.items() if key != missing}) is None
    with pytest.raises(CorruptionError):
        decode_records(dict.fromkeys(recorded, "{"))
