from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs import DOCS, PAGES, stale_pages


def test_generated_pages_are_up_to_date():
    assert not stale_pages(DOCS), "run make docs"


def test_an_edited_or_missing_page_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rendered = {name: render() for name, render in PAGES.items()}
    for name, text in rendered.items():
        (tmp_path / name).write_text(text, "utf-8")
        monkeypatch.setitem(PAGES, name, lambda text=text: text)  # to render all of them takes seconds
    assert stale_pages(tmp_path) == []
    (tmp_path / "api.md").write_text("edited")
    (tmp_path / "conflicts.md").unlink()
    assert stale_pages(tmp_path) == [tmp_path / "api.md", tmp_path / "conflicts.md"]
