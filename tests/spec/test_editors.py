"""What an editor shows, through yaml-language-server: one process for all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from servers.language_server import LanguageServer, need_server

from wdspec.spec.schema import json_schema

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "specs").glob("*.yaml"))
SOURCE = "dataset:\n  - shards: a.tar\n"
BROKEN = {
    "misspelt.yaml": (SOURCE + "    wieght: 1\n", 3, "wieght"),
    "weight.yaml": (SOURCE + "    weight: lots\n", 3, "`weight`: write a number such as `0.5`"),
    "order.yaml": (SOURCE + "    order: backwards\n", 3, "`order`: order of the shards"),
    "loader.yaml": (SOURCE + "loader: {workers: many}\n", 3, "`workers`: write a number of processes"),
    "decode.yaml": (SOURCE + "    decode: rbg8\n", 3, "`decode`: how to decode fields"),
    "epoch.yaml": (SOURCE + "epoch: forever\n", 3, "`epoch`: samples per epoch across all ranks"),
    "text.yaml": ("dataset: [\n", 1, ""),
}


@pytest.fixture(scope="module")
def server():
    need_server()
    with LanguageServer(ROOT / "schemas" / "wdspec.schema.json") as server:
        for path in EXAMPLES:
            server.open(path.name, path.read_text(encoding="utf-8"))
        for name, (text, _, _) in BROKEN.items():
            server.open(name, text)
        yield server


@pytest.mark.parametrize("name", [path.name for path in EXAMPLES])
def test_an_example_has_no_diagnostics(server, name):
    assert server.problems(name) == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_marked_on_its_line_with_our_message(server, name):
    _, line, says = BROKEN[name]
    found = server.problems(name)
    assert [
        each["message"]
        for each in found
        if each["range"]["start"]["line"] == line and says in each["message"]
    ], found


def test_hovering_a_key_shows_its_description(server):
    server.open("hover.yaml", SOURCE + "    weight: 1\n")
    shown = server.at("hover", "hover.yaml", 3, 6)["contents"]["value"]
    assert "Share of this source, relative to the other sources in its list." in shown
    assert "||" not in shown


@pytest.mark.parametrize(
    ("text", "place", "offers"),
    [
        ("", (1, 0), {"dataset", "batch", "spec of one source"}),
        (SOURCE + "    \n", (3, 4), {"weight", "scale", "license"}),
        ("dataset:\n  - \n", (2, 4), {"shards", "source"}),
        (SOURCE + "    order: \n", (3, 11), {"shuffled", "resampled", "sequential"}),
    ],
)
def test_valid_keys_and_values_are_completed(server, text, place, offers):
    name = f"complete-{len(text)}.yaml"
    server.open(name, text)
    items = server.at("completion", name, *place)["items"]
    labels = {each["label"] for each in items}
    assert offers <= labels
    assert not any("[object Object]" in f"{each}" for each in items)


def test_every_key_is_described_in_markdown():
    schema = json_schema()
    for holder in (schema, *schema["$defs"].values()):
        for key, value in holder.get("properties", {}).items():
            assert value["markdownDescription"].startswith(f"**{key}**: "), key


def project(folder):
    """A folder with the schema, as the page says."""
    (folder / "wdspec.schema.json").write_text(json.dumps(json_schema()))
    (folder / "configs").mkdir()
    return folder


PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["json", "lua"])
def test_the_settings_on_the_page_find_the_schema(language, tmp_path):
    need_server()
    [block] = re.findall(rf"^ +```{language}\n(.*?)^ +```", PAGE, re.M | re.S)
    if language == "json":
        settings = {"schemas": json.loads(block)["yaml.schemas"]}
    else:  # a Lua table of this form is JSON with other marks
        [schema] = re.findall(r'\["(.*?)"\] = \{(.*?)\}', block)
        settings = {"schemas": {schema[0]: re.findall(r'"(.*?)"', schema[1])}}
    with LanguageServer(settings=settings, folder=project(tmp_path)) as server:
        server.open("configs/a.yaml", SOURCE + "    wieght: 1\n")
        server.open("b.wdspec.yaml", SOURCE + "    wieght: 1\n")
        server.open("compose.yaml", "services: {a: {image: b}}\n")
        for name in ("configs/a.yaml", "b.wdspec.yaml"):
            assert "wieght" in server.problems(name)[0]["message"]
        assert server.problems("compose.yaml") == []


def test_the_line_on_the_page_finds_the_schema(tmp_path):
    need_server()
    [line] = re.findall(r"^# yaml-language-server: .*$", PAGE, re.M)
    with LanguageServer(settings={"validate": True}, folder=project(tmp_path)) as server:
        server.open("a.yaml", f"{line}\n{SOURCE}    wieght: 1\n")
        assert "wieght" in server.problems("a.yaml")[0]["message"]
