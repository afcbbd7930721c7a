from __future__ import annotations

from pathlib import Path

from tools.docs import DOCS, PAGES, stale_pages


def test_generated_pages_are_up_to_date():
    assert not stale_pages(DOCS), "run make docs"


def test_an_edited_or_missing_page_is_noticed(tmp_path: Path):
    for name, render in PAGES.items():
        (tmp_path / name).write_text(render(), "utf-8")
    assert stale_pages(tmp_path) == []
    (tmp_path / "api.md").write_text("edited")
    (tmp_path / "conflicts.md").unlink()
    assert stale_pages(tmp_path) == [tmp_path / "api.md", tmp_path / "conflicts.md"]
