"""Names of tables: what can be one, and which table has which name in a transaction."""

from __future__ import annotations

import pytest

from conroi.catalog.names import LONGEST_NAME, LONGEST_PART, Names, folder_name, known_id, no_table, object_id, parents
from conroi.catalog.rows import NAMESPACE, TABLE, Row
from conroi.catalog.state import LakeState
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError


def table(name: str, folder: str | None = None) -> Row:
    return Row(name, TABLE, f"{folder or name}.lance")


def base(*names: str) -> LakeState:
    """Version 7: these tables, and a namespace."""
    rows = {name: table(name) for name in names} | {"space": Row("space", NAMESPACE)}
    return LakeState(7, 1, rows)


# ------------------------------------------------------------------------------------- what can be a name


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("t", "t"),
        ("a.b.c", "a$b$c"),
        ("Größe 1-a_b", "Größe 1-a_b"),
        ("_t", "_t"),
        ("x" * LONGEST_PART, "x" * LONGEST_PART),
        (f"{'x' * 100}.{'y' * (LONGEST_NAME - 101)}", f"{'x' * 100}${'y' * (LONGEST_NAME - 101)}"),
    ],
)
def test_a_name_and_its_key(name: str, key: str) -> None:
    assert object_id(name) == key


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "a$b", "a/b", "__t", "a.__t", "t ", " t", "-t", 7, None, "x" * (LONGEST_PART + 1),
     f"{'x' * 100}.{'y' * (LONGEST_NAME - 100)}"],
)  # fmt: skip
def test_what_cannot_be_a_name(name: str) -> None:
    with pytest.raises(InvalidInputError):
        object_id(name)


def test_a_message_about_a_long_name_is_short() -> None:
    for name in ("x" * 100_000, "x y!" * 50_000, ".".join(["abc"] * 60)):
        with pytest.raises(InvalidInputError) as caught:
            object_id(name)
        assert len(caught.value.message) < 150
    with pytest.raises(InvalidInputError) as caught:
        object_id("a!b")
    assert caught.value.message.startswith("'a!b' cannot be")


def test_a_table_is_found_under_the_name_that_other_software_gave_it() -> None:
    assert known_id("a b!.c", {"a b!$c"}) == "a b!$c"
    assert known_id("a.b", set()) == "a$b"
    for name in ("__manifest", "a!"):
        with pytest.raises(InvalidInputError):
            known_id(name, {"__manifest"})


def test_parents_are_listed_outermost_first() -> None:
    assert (parents("a$b$c"), parents("a")) == (["a", "a$b"], [])
    assert folder_name("a$b-c_d é1") == "a_b-c_d__1"


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ([], "It has no table yet. create_table() makes one."),
        (["a$b", "c"], "It has a.b, c. create_table() makes one."),
        (list("abcdefghij"), "It has a, b, c, d, e, f, g, h, i, j. create_table() makes one."),
        (list("abcdefghijk"), "It has a, b, c, d, e, f, g, h, i, j, …. create_table() makes one."),
    ],
    ids=["none", "two", "ten", "eleven"],
)
def test_the_error_for_a_missing_table_lists_some(names: list[str], hint: str) -> None:
    error = no_table("x$y", base(*names))
    assert (error.message, error.table, error.hint) == ("The lake has no table 'x.y' at version 7.", "x.y", hint)


# ------------------------------------------------------------------------------ the names of one transaction


def test_a_table_of_the_base_is_there_under_its_name() -> None:
    names = Names(base("a", "b"))
    found = names.require("a")
    assert (found.row, found.was) == (table("a"), "a")
    assert names.get("c") is names.get("space") is None
    assert names.all() == ["a", "b"]
    assert names.changes(()) == ({}, frozenset())
    with pytest.raises(NotFoundError, match="no table 'c'"):
        names.require("c")


def test_a_name_is_taken_by_what_has_it_now() -> None:
    names = Names(base("a"))
    names.check_free("b")
    with pytest.raises(AlreadyExistsError, match="a table 'a'"):
        names.check_free("a")
    with pytest.raises(AlreadyExistsError, match="a namespace 'space'"):
        names.check_free("space")
    with pytest.raises(AlreadyExistsError, match="'a' is a table, so nothing can be inside it"):
        names.check_free("a$x")
    names.check_free("space$x")
    names.add(table("space$x"))
    with pytest.raises(AlreadyExistsError, match=r"a table 'space\.x'"):
        names.add(table("space$x"))
    with pytest.raises(AlreadyExistsError, match="inside it"):
        names.add(table("space$x$y"))


def test_a_new_table_and_one_that_is_forgotten() -> None:
    names = Names(base("a", "b"))
    names.add(table("c"))
    added = names.require("c")
    assert (added.row, added.was) == (table("c"), None)
    forgotten = names.forget("a")
    assert (forgotten.row, forgotten.was) == (table("a"), "a")
    assert names.get("a") is None
    names.check_free("a")
    assert names.all() == ["b", "c"]
    assert names.changes({"c"}) == ({"a": None}, frozenset({"a"}))
    assert names.forget("c").was is None
    assert names.changes(()) == ({"a": None}, frozenset({"a"})), "it never was"
    for missing in ("a", "c"):
        with pytest.raises(NotFoundError):
            names.forget(missing)


def test_a_table_with_a_new_name() -> None:
    names = Names(base("a", "b"))
    renamed = names.rename("a", "c")
    assert (renamed.row, renamed.was) == (table("c", "a"), "a")
    assert names.get("c") == renamed
    assert (names.get("a"), names.all()) == (None, ["b", "c"])
    assert names.changes(()) == ({"a": None, "c": table("c", "a")}, frozenset({"a"}))
    assert names.changes({"c"}) == ({"a": None}, frozenset({"a"})), "its new version says so"
    with pytest.raises(AlreadyExistsError):
        names.rename("b", "c")
    assert names.rename("c", "a").was == "a"
    assert names.changes(()) == ({}, frozenset()), "there and back again"


def test_names_that_are_swapped() -> None:
    names = Names(base("a", "b", "c"))
    names.arrange({"a": "b", "b": "a", "c": None})
    assert {key: (named and named.was) for key in "abc" for named in [names.get(key)]} == {
        "a": "b", "b": "a", "c": None,
    }  # fmt: skip
    assert names.all() == ["a", "b"]
    rows, leaving = names.changes(())
    assert (rows, leaving) == ({"a": table("a", "b"), "b": table("b", "a"), "c": None}, frozenset("abc"))
    with pytest.raises(NotFoundError):
        names.arrange({"c": "d"})
    names.put(table("c", "new"))
    put = names.require("c")
    assert (put.row, put.was) == (table("c", "new"), None)
    assert names.changes(())[1] == frozenset("abc"), "it is another table than the one of the base"
