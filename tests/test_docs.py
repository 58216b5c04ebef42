"""The documentation site, without building it: nothing is missing, twice, or linked in vain."""

import glob
import re
from pathlib import Path

import pytest

import jax_transformer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MARKDOWN = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
TEXTS = {page: page.read_text(encoding="utf-8") for page in [*MARKDOWN, *DOCS.rglob("*.rst")]}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_one_table_of_contents():
    found = []
    for index in DOCS.rglob("index.md"):
        for contents in re.findall(r"^```\{toctree\}(.*?)^```$", TEXTS[index], re.M | re.DOTALL):
            for entry in re.findall(r"^[^:\s].*$", contents, re.MULTILINE):
                pages = glob.glob(f"{index.parent / entry}.*")
                assert pages, entry
                found += [Path(page).resolve() for page in pages]
    pages = {*TEXTS, *(ROOT / "notebooks").glob("*.ipynb")} - {ROOT / "README.md"}
    assert sorted(found) == sorted(pages - {DOCS / "index.md"})


def test_every_public_name_has_one_entry_in_the_reference():
    entries = re.findall(r"^\.\. auto\w+:: (\S+)$", "\n".join(TEXTS.values()), re.MULTILINE)
    assert len(entries) == len(set(entries))
    public = [name for name in dir(jax_transformer) if name[0] != "_"]
    assert sorted(name for name in entries if name in public or "." not in name) == sorted(
        [*public, jax_transformer.__name__]
    )


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page):
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", TEXTS[page]):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_the_parts_of_the_readme_that_pages_include_are_there():
    cuts = re.findall(r'^:(?:start-after|end-before): "(.*)"$', "\n".join(TEXTS.values()), re.M)
    assert cuts
    assert all(TEXTS[ROOT / "README.md"].count(cut) == 1 for cut in cuts)


def test_the_model_that_the_first_page_runs_is_small_and_described():
    files = [file for file in (DOCS / "live").iterdir() if file.stat().st_size < 2**20]
    assert [file.name for file in files] == ["demo.json.xz"]
    assert "(../live/demo.json.xz)" in TEXTS[DOCS / "measurements" / "2026-11-28-live-page.md"]
    assert "tools.live_demo" in TEXTS[ROOT / "CONTRIBUTING.md"]
    assert '<iframe src="live.html"' in TEXTS[DOCS / "index.md"]


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.stem)
def test_zsh_does_not_read_the_extras_of_a_path_as_an_index(page):
    assert not re.findall(r"\$\w+\[", TEXTS[page])
