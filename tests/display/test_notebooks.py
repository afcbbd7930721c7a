"""What a notebook shows of a lake: the rows of the command line, as HTML in which no name can do harm."""

from __future__ import annotations

import conroi


def test_notebooks_show_what_the_command_line_shows(lake: conroi.Lake) -> None:
    evil = "<img src=x>"
    with lake.begin(evil, author=evil) as tx:
        tx["orders"].delete("id = 2")
    lake.branches.create("dev")
    lake.branch("dev")["orders"].delete("id = 3")
    shown = {
        "lake": (lake._repr_html_(), "2 tables"),
        "table": (lake["orders"]._repr_html_(), "int64"),
        "history of a lake": (lake.history()._repr_html_(), "&lt;img"),  # pyright: ignore
        "history of a table": (lake["orders"].history()._repr_html_(), "Delete"),  # pyright: ignore
        "diff": (lake.diff(2, 5)._repr_html_(), "id=2"),
        "merge": (lake.merge("dev", dry_run=True)._repr_html_(), "Would merge dev@6"),
        "diagnosis": (lake.doctor()._repr_html_(), "Healthy."),
        "expired": (lake.expire()._repr_html_(), "would be expired"),
        "collected": (lake.gc()._repr_html_(), "would be deleted"),
    }
    for name, (text, said) in shown.items():
        assert said in text, name
        assert "<img" not in text, name
        assert "<table>" in text or name in ("expired", "collected"), name


def test_history_is_still_a_list(lake: conroi.Lake) -> None:
    assert isinstance(lake.history(), list)
    assert [commit.version for commit in lake.history()[:2]] == [4, 3]
