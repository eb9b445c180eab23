"""`fetch` in specs: what it means, and what is wrong with it."""

import json
import re

import pytest
import yaml

import wdspec
from wdspec.advice.words import steps_in_words


def problems(fetch, **more):
    """The codes and texts of the problems of a source with this `fetch`."""
    source = {"shards": "a.tar", "fetch": fetch, **more.pop("source", {})}
    found = wdspec.validate({"dataset": [source], **more})
    return [(each.code, f"{each.message}; {each.hint}") for each in found if not each.code.startswith("W")]


def load(spec):
    [source] = wdspec.load(spec).sources
    return source.fetch


ROOT = {"url": "json.path", "root": "s3://bucket/images/"}


def test_a_root_ends_with_a_slash_and_starts_at_the_spec(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text("defaults: {fetch: {image: {root: ../images}}}\n")
    path = tmp_path / "train.yaml"
    path.write_text("extends: sub/base.yaml\ndataset: [{shards: a.tar, fetch: {image: json.url}}]\n")
    [entry] = load(path).values()
    assert (entry.url, entry.root) == ("json.url", f"{tmp_path}/images/")
    assert (
        load({"dataset": [{"shards": "a.tar", "fetch": {"a": {**ROOT, "root": "s3://b/c"}}}]})["a"].root
        == "s3://b/c/"
    )


def test_entries_are_merged_key_by_key_with_those_of_defaults():
    spec = {
        "defaults": {"fetch": {"image": {"root": "s3://b/", "missing": "skip"}, "other": ROOT}},
        "dataset": [{"shards": "a.tar", "fetch": {"image": "path", "other": None}}],
    }
    assert {name: entry.model_dump(by_alias=True) for name, entry in load(spec).items()} == {
        "image": {"url": "path", "root": "s3://b/", "missing": "skip"}
    }


MISTAKES = [
    ({"image": "json.url"}, "E365", "root: s3://bucket/images/"),
    ({"image": {"url": "a", "hosts": "10.0.0.0/8"}}, "E365", "hosts: [cdn.example.org]"),
    ({"image": {"root": "s3://b/"}}, "E206", "`url`"),
    ({"image": {**ROOT, "prefix": "x"}}, "E201", "`root`"),
    ({"image": {"urls": "json.urls", "root": "s3://b/"}}, "E201", "list of references as `url`"),
    ({"image": {**ROOT, "offset": "a"}}, "E201", "seconds: [offset, offset + duration]"),
    ({"image": {**ROOT, "seconds": "a"}}, "E202", "list of two times"),
    ({"image": {**ROOT, "seconds": ["a"]}}, "E210", "two ends"),
    ({"image": {**ROOT, "seconds": ["a", "b +"]}}, "E203", "b +"),
    ({"image": {**ROOT, "seconds": ["a", None]}}, "E202", "text"),
    ({"image": {**ROOT, "seconds": [2, 1]}}, "E203", "from 2 to 1"),
    ({"image": {**ROOT, "seconds": [0, 1], "bytes": ["a", "b"]}}, "E387", "remove `bytes`"),
    ({"image": {**ROOT, "seconds": ["a", "b"], "sha256": "hash"}}, "E387", "remove `sha256`"),
    ({"image": {**ROOT, "mising": "skip"}}, "E201", "`missing`"),
    ({"image": {**ROOT, "missing": "drop"}}, "E203", "`skip`"),
    ({"image": {**ROOT, "bytes": ["a"]}}, "E210", "bytes: [start, stop]"),
    ({"image": {**ROOT, "bytes": "a"}}, "E202", "bytes: [start, stop]"),
    ({"image": {**ROOT, "url": "a + b"}}, "E203", "not a field"),
    ({"image": {**ROOT, "url": "a/{b}}/c"}}, "E203", "brace"),
    ({"image": {**ROOT, "url": "a/{}/c"}}, "E214", "fill it in"),
    ({"image": {**ROOT, "url": "a/{b + 1}/c"}}, "E203", "not a field"),
    ({"image": {**ROOT, "url": "a/{b:x}"}}, "E203", "number of digits"),
    ({"image": {**ROOT, "url": "a/{b!r:0999d}"}}, "E203", "b!r"),
    ({"image": {**ROOT, "url": 3}}, "E202", "text"),
    ({"image": ["json.url"]}, "E202", "url"),
    ({"image": {"url": "a", "root": "pipe:cat "}}, "E203", "not a directory"),
    ({"image": {"url": "a", "root": "@list.txt"}}, "E203", "not a directory"),
    ({"image": {"url": "a", "root": "s3://b/{0..9}/"}}, "E203", "one directory"),
    ({"image": {"url": "a", "root": "s3://b/*/"}}, "E203", "one directory"),
    ({"image": {"url": "a", "root": "s3://b/../c"}}, "E203", "one directory"),
    ({"image": {"url": "a", "root": "s3://"}}, "E203", "no bucket or host"),
    ({"image": {"url": "a", "root": "https://a b/"}}, "E203", "host"),
    (
        {"image": {"url": "a", "root": "https://a.org:99999/"}},
        "E203",
        '"https://a.org:99999/" has a host or port',
    ),
    ({"image": {"url": "a", "hosts": ["a.org:99999"]}}, "E203", '"a.org:99999" has a host or port'),
    ({"image": {"url": "a", "hosts": ["*"]}}, "E203", "too many hosts"),
    ({"image": {"url": "a", "hosts": ["*.org"]}}, "E203", "too many hosts"),
    ({"image": {"url": "a", "hosts": ["0.0.0.0/0"]}}, "E203", "every address"),
    ({"image": {"url": "a", "hosts": ["a.org/b"]}}, "E203", "not a host"),
    ({"image": {"url": "a", "hosts": ["file:///a"]}}, "E203", "host"),
    ({"image": {"url": "a", "hosts": ["u:p@a.org"]}}, "E203", "password"),
    ({"a;b": ROOT}, "E215", "another name"),
    ({"__key__": ROOT}, "E215", "another name"),
    ("json.url", "E202", "map of new fields"),
    ({"url": "json.url", "root": "s3://b/"}, "E202", "name of a new field"),
]


@pytest.mark.parametrize(("fetch", "code", "text"), MISTAKES)
def test_a_mistake_has_a_place_and_a_remedy(fetch, code, text):
    [(seen, message)] = problems(fetch)
    assert seen == code
    assert text in message


def test_an_unknown_key_hides_no_other_mistake_of_its_map():
    entry = {"urll": "a", "mising": "skip", "hosts": ["*"], "bytes": ["a"]}
    found = problems({"image": entry, "other": {**ROOT, "missing": "drop", "prefix": 1}})
    assert sorted(code for code, _ in found) == ["E201", "E201", "E201", "E203", "E203", "E210"]
    text = " ".join(message for _, message in found)
    assert "unknown key `urll` in `fetch: image`" in text
    assert "unknown key `prefix` in `fetch: other`" in text


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"extensions": "image json"}, "extensions"),
        ({"rename": {"image": "jpg"}}, "rename"),
        ({"tags": {"image": 1}}, "tags"),
        ({"make": {"image": {"label": "cls", "names": ["a"]}}}, "make"),
        ({"lookup": {"table": "t.csv", "fields": "image"}}, "lookup"),
    ],
)
def test_a_new_field_has_a_name_of_its_own(more, key):
    [(code, message)] = problems({"image": ROOT}, source=more)
    assert code == "E366"
    assert key in message


@pytest.mark.parametrize(
    ("source", "top"),
    [
        ({"where": "image.width > 5"}, {}),
        ({"subset": {"of": "object.name", "part": "10%"}}, {}),
        ({"keys": ["a"], "keys_of": "object.id"}, {}),
        ({"rename": {"picture": "image"}, "where": "picture.width > 5"}, {}),
        ({"make": {"label": {"label": "image.cls", "names": ["a"]}}, "where": "label > 0"}, {}),
        ({"fetch": {"image": ROOT, "other": {**ROOT, "url": "image.url"}}}, {}),
        ({"fetch": {"image": ROOT, "other": {**ROOT, "seconds": [0, "image.end + 1"]}}}, {}),
        ({}, {"batch": {"cost": "image.length", "max_cost": 9999}}),
        ({}, {"batch": {"cost": "object.width", "max_cost": 9999}}),
        (
            {"fetch": {"image": {**ROOT, "bytes": ["a", "b"]}}},
            {"batch": {"cost": "image.pixels", "max_cost": 9}},
        ),
        (
            {"fetch": {"image": {**ROOT, "seconds": [0, 1]}}},
            {"batch": {"cost": "image.pixels", "max_cost": 9}},
        ),
        (
            {"make": {"part": {"crop": "image", "size": 64}}},
            {"batch": {"cost": "part.width", "max_cost": 9999}},
        ),
        ({}, {"batch": {"pack": {"fields": ["image"], "length": 64}}}),
    ],
)
def test_expressions_cannot_read_what_is_fetched_after_them(source, top):
    found = problems({"image": ROOT, "object": ROOT}, source=source, **top)
    assert [code for code, _ in found] == ["E367"]
    assert "a value that the samples have" in found[0][1]


@pytest.mark.parametrize(
    ("source", "batch"),
    [
        ({}, {"cost": "image.pixels", "max_cost": 9999}),
        ({}, {"cost": "json.n", "max_cost": 9, "limits": {"image.width": 5}, "balance": "image.height"}),
        ({}, {"group_by": "image.aspect > 1", "size": 4}),
        ({"decode": {"image": "rgb8+bucket=64+step=8"}}, {"group_by": "image.bucket", "size": 4}),
        ({"rename": {"jpg": "image"}}, {"cost": "jpg.width", "max_cost": 99}),
    ],
)
def test_batches_can_be_planned_by_the_sizes_of_images(source, batch):
    assert problems({"image": ROOT}, source=source, batch=batch) == []


@pytest.mark.parametrize(
    ("url", "column"),
    [
        ("json.path", "json.width"),
        ("path", "width"),
        ("videos/{x}/f.jpg", "width"),
        ("videos/{x}/{json.at:03d}.jpg", "json.width"),
        ('json["a b"]', "json.width"),
    ],
)
def test_hints_name_a_value_beside_the_reference(url, column):
    [(code, message)] = problems({"image": {**ROOT, "url": url}}, source={"where": "image.width > 5"})
    assert code == "E367"
    assert f"such as `{column}`" in message


def test_a_chat_with_images_is_measured_by_its_text_and_the_number_of_images():
    chat = {"chat": "messages", "file": "t", "labels": "labels", "images": "pictures", "image_token": "<i>"}
    source = {"make": {"ids": {**chat, "image_length": 4}}, "decode": {"pictures": "rgb8"}}
    pack = {"fields": ["ids", "labels"], "length": 64, "pad": {"labels": -100}}
    fetch = {"pictures": {**ROOT, "url": "json.images"}}
    [(code, message)] = problems(fetch, source=source, batch={"pack": pack})
    assert code == "E367"
    cost = message.partition("write `cost: ")[2].partition("`")[0]
    assert cost == "text_ids.length + 3 * json.images.length"
    assert "but `image_length`, `image_token`, `images`, `labels`, and" in message
    source["make"]["text_ids"] = {"chat": "messages", "file": "t"}
    assert problems(fetch, source=source, batch={"pack": pack, "cost": cost}) == []


@pytest.mark.parametrize(
    ("missing", "where", "meant"),
    [
        ("error", "ids.length <= 64", "text_ids.length + 3 * json.images.length <= 64"),
        ("none", "ids.length <= 64", "text_ids.length + 3 * default(json.images.length, 0) <= 64"),
        ("skip", "json.n > 0 and ids.length < 9", "json.n > 0 and (text_ids.length + 3 * default("),
    ],
)
def test_chats_with_images_are_selected_by_their_text_and_the_number_of_images(missing, where, meant):
    chat = {"chat": "messages", "file": "t", "labels": "labels", "images": "pictures", "image_token": "<i>"}
    source = {"make": {"ids": {**chat, "image_length": 4}}, "decode": {"pictures": "rgb8"}, "where": where}
    fetch = {"pictures": {**ROOT, "url": "json.images", "missing": missing}}
    [(code, message)] = problems(fetch, source=source)
    assert code == "E367"
    assert f"write `where: {meant}" in message
    source["where"] = message.partition("write `where: ")[2].partition("`")[0]
    source["make"]["text_ids"] = {"chat": "messages", "file": "t"}
    assert problems(fetch, source=source) == []


def test_a_chat_with_images_that_pad_cuts_is_warned_about_unless_it_is_selected_by_its_length():
    chat = {"chat": "messages", "file": "t", "labels": "labels", "images": "jpg", "image_token": "<i>"}
    source = {"shards": "a.tar", "decode": "rgb8", "make": {"ids": {**chat, "image_length": 4}}}

    def found(pad, **keys):
        collate = {"ids": {"pad": pad}, "labels": {"pad": {"value": -100, **pad}}}
        spec = {"dataset": [{**source, **keys}], "batch": {"size": 4, "collate": collate}}
        return [each.hint for each in wdspec.validate(spec) if each.code == "W496"]

    assert found({"limit": 16}) == found({"length": 16}) == ["write `where: ids.length <= 16`"]
    assert found({"limit": 16}, where="ids.length <= 16") == []
    assert found({"multiple": 16}) == []
    source["make"] = {"ids": {"chat": "messages", "file": "t", "labels": "labels"}}
    assert found({"limit": 16}) == []
    source["make"] = {"ids": {**chat, "images": "pictures", "image_length": 4}}
    [hint] = found({"limit": 16}, fetch={"pictures": {**ROOT, "url": "json.images"}})
    assert "write `where: text_ids.length + 3 * json.images.length <= 16`" in hint


def test_hints_name_the_length_of_a_list_of_references():
    fetch = {"images": {**ROOT, "url": "json.urls"}}
    [(_, message)] = problems(fetch, source={"where": "images.length < 9"})
    assert "such as `json.urls.length`" in message
    [(_, message)] = problems(fetch, source={"where": "images[0].width > 9"})
    assert "such as" not in message


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("json.url", ["root", "hosts"]),
        ('json["a b"]', ["root", "hosts"]),
        ("videos/{x}/f.jpg", ["root"]),
        ("{x}", ["root"]),
        ("https://cdn.example.org/{x}: 1.jpg", ["root", "hosts"]),
    ],
)
def test_hints_for_places_can_be_pasted(url, places):
    [(code, message)] = problems({"image": {"url": url}})
    assert code == "E365"
    entries = [yaml.safe_load(f"{{{text}}}")["image"] for text in re.findall(r"`(image: .*?)`", message)]
    assert [[*entry] for entry in entries] == [["url", place] for place in places]
    assert all(entry["url"] == url for entry in entries)


def test_expressions_can_read_what_map_makes_of_it():
    top = {"batch": {"cost": "image.length", "max_cost": 99}, "map": {"image": "builtins:len"}}
    assert not problems({"image": ROOT}, **top)


def test_fields_of_fetch_are_known():
    assert not problems({"image": ROOT}, source={"extensions": "json"}, fields="image json")
    [(code, message)] = problems({"image": ROOT}, source={"extensions": "json"}, fields="picture")
    assert code == "E308"
    assert "image" in message


def test_a_root_is_required_in_secure_mode(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    [(code, message)] = problems({"image": {"url": "url", "hosts": "cdn.example.org"}})
    assert code == "E310"
    assert "`root`" in message
    assert not problems({"image": ROOT})


def test_places_do_not_count_in_states_and_references_do(tmp_path):
    from servers.objects import data_of
    from shardmaking import write_shard

    write_shard(
        tmp_path / "a.tar",
        [(f"{at:02d}", {"json": json.dumps({"a": str(at), "b": "0"}).encode()}) for at in range(8)],
    )
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for at in range(8):
            (tmp_path / folder / str(at)).write_bytes(data_of(str(at)))

    def loader(root, url="json.a", missing="skip"):
        entry = {"url": url, "root": str(tmp_path / root), "missing": missing}
        source = {"name": "a", "shards": str(tmp_path / "a.tar"), "fetch": {"image": entry}}
        return wdspec.loader({"dataset": [source], "epoch": 40, "batch": 2}, num_workers=0)

    with loader("one") as first:
        next(iter(first))
        state = first.state_dict()
    with loader("two") as moved:
        moved.load_state_dict(state)
    with loader("one", "json.b") as other, pytest.raises(wdspec.UsageError, match="fetch"):
        other.load_state_dict(state)


FOLLOWED = [
    {"fetch": {"x": {**ROOT, "url": "a b"}}},
    {"fetch": {"x": {**ROOT, "root": "s3://b/*/"}}},
    {"make": {"x": {"label": "json.c", "names": 3}}},
    {"make": {"x": {"lable": "json.c"}}},
    {"lookup": {"table": 3, "fields": "x"}},
    {"map": [{"call": "a:b", "sets": 3}]},
]


@pytest.mark.parametrize("wrong", FOLLOWED)
@pytest.mark.parametrize(
    "top",
    [
        {"fields": "x json"},
        {"to_tuple": ["x", "json"]},
        {"fields": ["x"]},
        {"batch": {"size": 3, "collate": {"x": "list"}}},
    ],
)
def test_a_wrong_value_is_no_reason_to_miss_the_fields_that_it_would_give(wrong, top):
    source = {"shards": "a.tar", "extensions": "json", **wrong}
    found = wdspec.validate({"dataset": [source], **top})
    assert len(found) == 1, found
    assert found[0].code in ("E202", "E203", "E206")


def test_a_field_of_fetch_can_be_renamed():
    source = {"extensions": "json", "rename": {"picture": "image"}}
    assert not problems({"image": ROOT}, source=source, fields="picture")


def test_objects_of_a_local_folder_are_not_said_to_be_requested():
    for root, is_said in (("images/", False), ("s3://bucket/images/", True)):
        entry = {"image": {"url": "url", "root": root}}
        spec = wdspec.load({"dataset": [{"shards": "a.jsonl", "fetch": entry}]})
        assert ("(one request per object)" in steps_in_words(spec.sources[0], spec)) == is_said


@pytest.mark.parametrize(
    ("keys", "warns"),
    [
        ({}, True),
        ({"decode": "rgb8"}, True),  # which is for names such as `image`
        ({"decode": {"json": "json"}, "rename": {"views": "pics"}}, True),
        ({"decode": {"pics": "rgb8"}}, False),
        ({"decode": {"pics": "raw"}}, False),
        ({"map": {"pics": "mylib:open"}}, False),
        ({"make": {"n": {"take": "json.n"}}, "fields": ["n"]}, False),
        ({"batch": {"size": 4, "collate": {"pics": "list"}}}, False),
        ({"batch": None}, False),
    ],
)
def test_objects_that_nothing_decodes_are_a_warning_if_they_come_into_a_batch(keys, warns):
    source = {"shards": "a.tar", "fetch": {"pics": {"url": "json.pics", "root": "images/"}}}
    source |= {key: value for key, value in keys.items() if key not in ("batch", "fields")}
    top = {key: value for key, value in {"batch": 4, **keys}.items() if key in ("batch", "fields") and value}
    found = [each.message for each in wdspec.validate({"dataset": [source], **top}) if each.code == "W371"]
    assert found == ["the objects of `pics` are not decoded: the batch will have a list of bytes"] * warns
