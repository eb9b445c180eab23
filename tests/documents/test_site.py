"""The site builds strictly, every link in it has a target, and every command has a page."""

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from wdspec.cli.main import GROUPS

ROOT = Path(__file__).parents[2]
_found = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
site = importlib.util.module_from_spec(_found)
_found.loader.exec_module(site)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        self.links += [values[key] for key in ("href", "src") if values.get(key)]


def test_it_builds_strictly_and_completely(tmp_path):
    """One test, for the site takes some seconds to build."""
    site.build(tmp_path)
    every_link_leads_somewhere(tmp_path / "site")
    every_command_has_a_page_of_its_help(tmp_path / "site")
    it_can_be_searched(tmp_path / "site")


def every_link_leads_somewhere(built):
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")}
    assert len(pages) > 50
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link.startswith(site.REPOSITORY):
                    assert (ROOT / unquote(link.removeprefix(site.REPOSITORY)).partition("#")[0]).exists(), (
                        path,
                        link,
                    )
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), (path.name, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path.name, link)


def every_command_has_a_page_of_its_help(built):
    for commands in GROUPS.values():
        for name in commands:
            assert f"Usage: wdspec {name}" in (built / "commands" / f"{name}.html").read_text(
                encoding="utf-8"
            )


def it_can_be_searched(built):
    found = json.loads((built / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any("temperature" in each["text"] and each["location"].startswith("spec.html") for each in found)
    assert any(each["location"].startswith("codes.html") and "E302" in each["title"] for each in found)


def in_navigation():
    return re.findall(r"[\w/-]+\.md", json.dumps(site.configuration()["nav"]))


def test_every_page_is_in_the_navigation():
    assert sorted(in_navigation()) == sorted(site.pages())


def test_a_page_whose_name_ends_another_name_is_in_the_navigation(monkeypatch):
    pages = {**site.pages(), "dataset.md": "", "datasets.md": "", "net.md": ""}
    monkeypatch.setattr(site, "pages", lambda: pages)
    assert sorted(in_navigation()) == sorted(pages)  # as cookbook/imagenet.md is, too


def test_a_dead_link_is_an_error():
    with pytest.raises(SystemExit, match=r"docs/ci\.md: a link to nowhere\.md, which is not there"):
        site._relinked("see [there](nowhere.md)", "docs/ci.md", "ci.md", {}, {})
    led = site._relinked(
        "`[no](x)`, [`code`](docs/ci.md)", "README.md", "index.md", {"docs/ci.md": "ci.md"}, {}
    )
    assert led == "`[no](x)`, [`code`](ci.md)"
    kept = "```\n[no link](nowhere.md)\n```\n"
    assert site._relinked(kept, "docs/ci.md", "ci.md", {}, {}) == kept
