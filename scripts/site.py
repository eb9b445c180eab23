"""Build the documentation site in build/site from docs/, the README, and the help of commands.

Pages keep their text. Links to pages lead to their place in the site, other links to the repository. A dead link is an
error.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/wdspec/wdspec/blob/main/"
_LINK = re.compile(r"`[^`\n]+`|\]\(([^)\s]+)\)")
"""A code span, or the target of a link."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPLIT = {
    "docs/convert.md": {
        "webdataset": "from/webdataset.md",
        "Energon": "from/energon.md",
        "Streaming": "from/streaming.md",
        "Hugging Face": "from/hugging-face.md",
        "NeMo and lhotse": "from/nemo-and-lhotse.md",
    },
}
"""Sections that become separate pages."""
_TITLES = {"from/": "Coming from {}"}


def sources() -> dict[str, str]:
    """Each source file, relative to the repository, and its place in the site."""
    places = {
        "README.md": "index.md",
        "docs/README.md": "pages.md",
        "CONTRIBUTING.md": "contributing.md",
        "CHANGELOG.md": "changelog.md",
        "benchmarks/README.md": "benchmarks.md",
        "docs/cookbook/README.md": "cookbook/index.md",
    }
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".md", ".svg", ".png") and name not in places:
            places[name] = name.removeprefix("docs/")
    return places


def pages() -> dict[str, str]:
    """The text of every page of the site."""
    places = sources()
    moved = {
        (name, _anchor(title)): page for name, titles in _SPLIT.items() for title, page in titles.items()
    }
    made: dict[str, str] = {}
    for name, page in places.items():
        if not name.endswith(".md"):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for part, its_page in _parts(text, _SPLIT.get(name, {}), page):
            made[its_page] = _relinked(part, name, its_page, places, moved)
    return made | dict(command_pages())


def command_pages() -> Iterator[tuple[str, str]]:
    """Yield a page with the help of each command."""
    from wdspec.cli.main import GROUPS, cli

    for heading, commands in GROUPS.items():
        for name in commands:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            context = click.Context(command, info_name=f"wdspec {name}", max_content_width=100)
            help_text = command.get_help(context)
            subcommands = getattr(command, "commands", {})
            for inner, each in subcommands.items():
                help_text += "\n\n" + each.get_help(click.Context(each, info_name=f"wdspec {name} {inner}"))
            yield f"commands/{name}.md", f"# wdspec {name}\n\n{heading}.\n\n```text\n{help_text}\n```\n"


def configuration() -> dict[str, object]:
    """mkdocs.yml with the pages of commands, and `More` for pages that it does not list."""
    settings: dict[str, object] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    nav = settings["nav"]
    assert isinstance(nav, list)
    for section in nav:
        if "Commands" in section:
            section["Commands"] = [page for page, _ in command_pages()]
    listed = {page for section in nav for pages_of in section.values() for page in pages_of}
    if others := [page for page in pages() if page not in listed]:
        nav.append({"More": others})
    return settings


def build(target: Path) -> None:
    """Write pages and site below a folder. Raises SystemExit if there is any warning."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    folder = target / "site-pages"
    shutil.rmtree(folder, ignore_errors=True)
    for page, text in pages().items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    for name, place in sources().items():
        if not name.endswith(".md"):
            shutil.copy(ROOT / name, folder / place)
    settings = target / "mkdocs.yml"
    settings.write_text(yaml.safe_dump(configuration(), sort_keys=False), encoding="utf-8")
    os.environ["DISABLE_MKDOCS_2_WARNING"] = "true"
    logging.basicConfig(level=logging.WARNING)  # mkdocs logs problems as warnings
    try:
        config = load_config(str(settings), docs_dir=str(folder), site_dir=str(target / "site"), strict=True)
        build_site(config)
    except Abort as error:
        raise SystemExit(str(error)) from None


def _parts(text: str, titles: dict[str, str], page: str) -> Iterator[tuple[str, str]]:
    """Yield the sections that become pages, and the text without them."""
    kept: list[str] = []
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        title = section.partition("\n")[0].removeprefix("## ")
        if title not in titles:
            kept.append(section)
            continue
        own = titles[title]
        form = next((form for start, form in _TITLES.items() if own.startswith(start)), "{}")
        lifted = re.sub(r"^#(#+ )", r"\1", section, flags=re.MULTILINE)
        yield lifted.replace(f"# {title}\n", f"# {form.format(title)}\n", 1), own
    yield "".join(kept), page


def _relinked(
    text: str, name: str, page: str, places: dict[str, str], moved: dict[tuple[str, str], str]
) -> str:
    """The page, with links to pages of the site, and all other links to the repository."""

    def led(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        target, hash_, anchor = match[1].partition("#")
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        found = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
        if not (ROOT / found).exists():
            raise SystemExit(f"{name}: a link to {match[1]}, which is not there")
        if found not in places:
            return f"]({REPOSITORY}{found}{hash_}{anchor})"
        place = moved.get((found, anchor), places[found])
        if (found, anchor) in moved:
            hash_ = anchor = ""
        return f"]({os.path.relpath(place, os.path.dirname(page) or '.')}{hash_}{anchor})"

    kept: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text):
        kept += [_LINK.sub(led, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*kept, _LINK.sub(led, text[at:])])


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build")
