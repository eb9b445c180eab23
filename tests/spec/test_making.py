"""`make` in specs that are right, or nearly: what is neither an error nor a warning, and steps without their library.

The mistakes are in mistakes/making.yaml.
"""

from importlib import util

import pytest

from wdspec.spec.load import check, load
from wdspec.spec.rules import making


@pytest.fixture
def problems(tmp_path):
    def find(text):
        (tmp_path / "spec.yaml").write_text(text)
        (tmp_path / "t.json").touch()
        return [problem.code for problem in check(str(tmp_path / "spec.yaml"))[1]]

    return find


MAKE = "make: {ids: {tokenize: txt, file: t.json}}"


@pytest.mark.parametrize(
    "rest",
    [
        f"extensions: txt, {MAKE}",
        f"extensions: txt, {MAKE}, where: ids.length <= 9 and txt.length > 3",
        "extensions: txt, rename: {text: txt}, make: {ids: {tokenize: text, file: t.json}}",
        "make: {a: {label: cls, names: [x]}, b: {label: a, names: {'0': 3}}}",
        "make: {label: {label: cls, names: [x]}, tokenize: {tokenize: txt, file: t.json}}",
        "make: {ids: {tokenize: 'json.pages[0].text', file: t.json}}",
        "make: {ids: {tokenize: 'fields[\"page.txt\"]', file: t.json}}",
        "make: {ids: {tokenize: txt, file: 'hf://owner/name@0123abc'}}",
        "extensions: jpg txt, where: jpg.width >= 256, map: {jpg: 'm:f', txt: 'm:g'}",
        "extensions: txt, where: before_map(txt.length) < 99, map: {txt: 'm:g'}",
        "lookup: {table: t.jsonl, fields: title}, extensions: txt, make: {ids: {tokenize: title, file: t.json}}",
        "scale: [0.5, 1], make: {image: {crop: jpg, size: 8}}",
        "decode: {jpg: rgb8, seg.png: raw}, make: {image: {crop: jpg, size: 8}}",
        "decode: {jpg: 'm:f'}, make: {image: {crop: jpg, size: 8}}",
        "make: {audio: {segment: wav}, far: {convolve: audio, impulse: json.impulse}}",
    ],
)
def test_a_right_spec_has_no_problem(rest, problems):
    assert problems(f"dataset:\n  - {{shards: a.tar, {rest}}}\n") == []


@pytest.mark.parametrize(
    "batch",
    [
        "{window: 9, pack: {fields: ids, length: 8}}",
        "{window: 9, pack: {fields: ids, length: 8}, cost: ids.length}",
        "{cost: before_map(txt.length), max_cost: 9, collate: {txt: list, ids: pad}}",
        "{size: 4, collate: {ids: pad}}",
    ],
)
def test_batches_of_made_fields_have_no_problem(batch, problems):
    assert problems(f"dataset:\n  - {{shards: a.tar, extensions: txt, {MAKE}}}\nbatch: {batch}\n") == []


@pytest.mark.parametrize("wanted", ["fields: ids", "to_tuple: ids", "fields: ids txt"])
def test_what_a_field_is_made_of_is_not_read_for_nothing(wanted, problems):
    assert problems(f"dataset:\n  - {{shards: a.tar, extensions: txt, {MAKE}}}\n{wanted}\n") == []


def test_a_field_that_only_an_unwanted_field_is_made_of_is_read_for_nothing(problems):
    made = MAKE.replace("}}", ", eos: x}}")  # without `eos`, empty documents would be left out
    assert problems(f"dataset:\n  - {{shards: a.tar, extensions: txt cls, {made}}}\nfields: cls\n") == [
        "W376"
    ]


def test_a_step_whose_library_is_not_installed_is_a_warning_that_says_how_to_get_it(
    problems, monkeypatch, tmp_path
):
    monkeypatch.setattr(making, "is_installed", lambda module: module != "tokenizers")
    assert problems(f"dataset:\n  - {{shards: a.tar, {MAKE}}}\n") == ["W366"]
    (problem,) = check(str(tmp_path / "spec.yaml"))[1]
    assert "`tokenize` needs tokenizers, which is not installed" in problem.message
    assert "[text]" in problem.hint
    assert util.find_spec("tokenizers") is not None


CROP = "make: {image: {crop: jpg, size: 8, %s}}"
BOXES, MASKS, POINTS = "boxes: {b: json.boxes}", "masks: {m: png}", "points: {p: json.points}"


@pytest.mark.parametrize("part", [BOXES, MASKS, POINTS])
@pytest.mark.parametrize(
    "option",
    [
        "hflip=1",
        "resize=20",
        "resize=20x30",
        "center_crop=9",
        "random_resized_crop=9",
        "bucket=64",
        "upright",
    ],
)
def test_what_belongs_to_an_image_that_is_changed_before_its_crop_is_an_error(part, option, tmp_path):
    (tmp_path / "s.yaml").write_text(
        f"dataset:\n  - {{shards: a.tar, decode: {{jpg: rgb8+{option}, png: l8}}, {CROP % part}}}\n"
    )
    (problem,) = check(str(tmp_path / "s.yaml"))[1]
    assert problem.code == "E395"
    assert f"`decode: rgb8+{option}` changes `jpg` before `crop`" in problem.message


@pytest.mark.parametrize(
    "rest",
    [
        f"decode: {{img: rgb8+hflip=0.5}}, rename: {{img: jpg}}, {CROP % BOXES}".replace(
            "crop: jpg", "crop: img"
        ),
        f"decode: rgb8+resize=20, {CROP % BOXES}",
        f"decode: {{jpg: rgb8, png: l8+resize=20}}, {CROP % MASKS}",
        f"decode: {{jpg: rgb8+upright, png: l8+upright}}, {CROP % MASKS}",
        f"decode: {{jpg: rgb8+resize=20, png: l8+resize=30}}, {CROP % MASKS}",
        f"decode: {{jpg: rgb8+center_crop=20}}, {CROP % (BOXES + ', relative: true')}",
        f"decode: rgb8, scale: 0.5, {CROP % BOXES}",
        f"decode: rgb8, scale: [0.5, 2], scaleprob: 0.1, {CROP % POINTS}",
        "decode: rgb8, make: {a: {crop: jpg, size: 9}, image: {crop: a, size: 8, boxes: {b: json.boxes}}}",
    ],
)
def test_all_that_moves_an_image_before_its_crop_is_found(rest, problems):
    assert problems(f"dataset:\n  - {{shards: a.tar, {rest}}}\n") == ["E395"]


@pytest.mark.parametrize(
    "rest",
    [
        f"decode: {{jpg: rgb8+hflip=0.5+random_resized_crop=9, png: l8}}, {CROP % 'hflip: 0.5'}",
        f"decode: {{jpg: torchrgb8+brightness=0.4}}, {CROP % BOXES}",
        f"decode: {{jpg: rgb8+resize=20x30, png: l8+resize=20x30}}, {CROP % MASKS}",
        f"decode: {{jpg: rgb8+resize=20}}, {CROP % (BOXES + ', relative: true')}",
        f"decode: rgb8, scale: 0.5, scaleprob: 0, {CROP % BOXES}",
        "decode: rgb8, make: {a: {crop: jpg, size: 9, boxes: {x: json.boxes}}, "
        "image: {crop: a, size: 8, boxes: {b: x}}}",
    ],
)
def test_a_crop_whose_parts_match_has_no_problem(rest, problems):
    found = problems(f"dataset:\n  - {{shards: a.tar, {rest}}}\n")
    assert [code for code in found if code.startswith("E")] == []


@pytest.mark.parametrize(
    ("making", "says"),
    [
        ("{ids: {tokenize: txt, file: no.json}}", "no.json` of `tokenize` does not exist"),
        (
            "{ids: {tokenize: txt, file: t.json}, x: {label: a, file: no.txt}}",
            "no.txt` of `label` does not exist",
        ),
        ("{ids: {chat: talk, file: t.json, template: no.jinja}}", "no.jinja` of `chat` does not exist"),
        ("{ids: {chat: talk, file: folder}}", "folder` of `chat` has no tokenizer.json"),
        ("{ids: {tokenize: txt, file: t.json}, more: {tokenize: txt, file: 'hf://a/b@0123abc'}}", None),
    ],
)
def test_files_of_steps_that_are_not_here_are_a_warning(making, says, tmp_path):
    (tmp_path / "t.json").touch()
    (tmp_path / "folder").mkdir()
    sources = "".join(f"  - {{name: {name}, shards: {name}.jsonl}}\n" for name in "ab")
    (tmp_path / "spec.yaml").write_text(f"dataset:\n{sources}defaults:\n  make: {making}\n")
    found = [each for each in check(str(tmp_path / "spec.yaml"))[1] if each.code == "W440"]
    assert len(found) == (says is not None)  # once, though two sources have it
    assert says is None or says.format(tmp_path) in found[0].message
    assert all(each.line == 5 for each in found)
    load(str(tmp_path / "spec.yaml"))  # no error: the spec may be for another machine


@pytest.mark.parametrize(
    ("batch", "warns"),
    [
        ("cost: a.length + b.length, max_cost: 99, collate: {a: pad, b: pad}", True),
        ("cost: a.length + b.length, max_tokens: 99, collate: {a: pad, b: {pad: {value: 7}}}", True),
        ("cost: '2 * max(a.length, b.length)', max_cost: 99, collate: {a: pad, b: pad}", False),
        ("cost: a.length + b.length, max_cost: 99, collate: {a: pad, b: list}", False),
        ("cost: a.length + b.length, padded: false, max_cost: 99, collate: {a: list, b: list}", False),
    ],
)
def test_costs_that_add_fields_which_are_padded_apart_are_a_warning(batch, warns, problems):
    data = "dataset:\n  - {shards: a.tar, rename: {a: a.npy, b: b.npy}}\n"
    assert problems(f"{data}batch: {{{batch}}}\n") == ["W442"] * warns


def test_a_batch_that_is_full_by_the_sum_of_two_lengths_may_have_more_tokens_than_that():
    lengths = [(3, 90), (90, 3)]
    counted = len(lengths) * max(a + b for a, b in lengths)
    in_fact = len(lengths) * (max(a for a, _ in lengths) + max(b for _, b in lengths))
    advised = len(lengths) * 2 * max(max(pair) for pair in lengths)
    assert counted < in_fact <= advised


BOXES = {"image": {"crop": "picture", "size": 8, "boxes": {"boxes": "bboxes"}, "kept": "kept"}}
CHAT = {"ids": {"chat": "messages", "file": "model", "labels": "labels"}}


@pytest.mark.parametrize(
    ("make", "keys", "unread"),
    [
        (BOXES, {"fields": "image boxes classes"}, ["kept"]),
        (BOXES, {"fields": "image kept"}, ["boxes"]),
        (BOXES, {"to_tuple": "image boxes classes"}, ["kept"]),
        (BOXES, {"fields": "image boxes classes kept"}, []),
        (BOXES, {"fields": "image boxes"}, []),
        (BOXES, {"fields": "classes"}, []),
        (BOXES, {}, []),
        (BOXES, {"fields": "image boxes classes", "map": "mylib:function"}, []),
        (BOXES, {"fields": "image boxes classes", "map": {"kept": "mylib:function"}}, []),
        (BOXES, {"fields": "image boxes classes", "stage": "mylib:function"}, []),
        (BOXES | {"places": {"take": "kept"}}, {"fields": "image boxes classes places"}, []),
        (CHAT, {"fields": "ids"}, ["labels"]),
        (CHAT, {"fields": "ids labels"}, []),
        (
            CHAT,
            {"fields": "ids", "batch": {"cost": "labels.length", "max_cost": 9, "collate": {"ids": "list"}}},
            [],
        ),
        (
            CHAT,
            {"fields": "ids", "batch": {"cost": "mylib:function", "max_cost": 9, "collate": {"ids": "list"}}},
            [],
        ),
    ],
)
def test_a_result_that_nothing_reads_is_a_warning(make, keys, unread):
    source = {"shards": "a.jsonl", "decode": {"picture": "rgb8"}, "make": make}
    messages = [each.message for each in check({"dataset": [source], **keys})[1] if each.code == "W455"]
    assert [message.split("`")[1] for message in messages] == unread


@pytest.mark.parametrize(
    ("make", "delivered", "hint"),
    [
        (BOXES, {"fields": "picture boxes kept"}, "write `image` in place of `picture` in `fields`"),
        (BOXES, {"to_tuple": "picture boxes kept"}, "write `image` in place of `picture` in `to_tuple`"),
        (BOXES, {"fields": "boxes kept"}, "add it to `fields`"),
        ({**BOXES, "first": {"take": "boxes[0]"}}, {"fields": "first kept"}, "add it to `fields`"),
        (CHAT, {"fields": "labels"}, "add it to `fields`"),
        (BOXES, {"fields": "image boxes kept"}, None),
        ({**BOXES, "whole": {"take": "image"}}, {"fields": "whole boxes kept"}, None),
    ],
)
def test_a_result_without_the_field_of_its_step_is_a_warning(make, delivered, hint):
    source = {"shards": "a.jsonl", "decode": {"picture": "rgb8"}, "make": make}
    hints = [each.hint for each in check({"dataset": [source], **delivered})[1] if each.code == "W455"]
    assert hints == ([] if hint is None else [hint])


def test_a_selection_reads_a_result():
    source = {"shards": "a.jsonl", "decode": {"picture": "rgb8"}, "make": BOXES, "where": "kept.length > 0"}
    problems = check({"dataset": [source], "fields": "image boxes classes"})[1]
    assert "W455" not in [each.code for each in problems]


@pytest.mark.parametrize(
    ("source", "keys", "is_said"),
    [
        ({}, {}, True),
        ({}, {"fields": "labels"}, True),
        ({"where": "cls.length > 0"}, {}, True),
        ({}, {"fields": "cls"}, False),
        ({"where": "labels >= 0"}, {}, False),
        ({"where": "topic != 'other'"}, {}, False),
        ({"select": "mylib:keep"}, {}, False),
    ],
)
def test_names_without_a_class_that_nothing_leaves_out_are_a_warning(source, keys, is_said):
    def said(unknown="error", names=("cat", "dog")):
        names = names if isinstance(names, dict) else [*names]
        make = {"labels": {"label": "topic", "names": names, "unknown": unknown}}
        found = check({"dataset": [{"name": "a", "shards": "a.jsonl", "make": make, **source}], **keys})[1]
        return [each.hint for each in found if each.code == "W456"]

    hint = "write `unknown: -100`, which losses leave out, or add `where: labels >= 0` to `a`"
    assert said(-1) == [hint] * is_said
    assert not said(-100)
    assert not said(2)
    hint = "add `where: labels >= 0` to `a`, or give it a class"
    assert said(names={"cat": 0, "car": -100}) == [hint] * is_said
    assert said(names={"cat": 0, "car": -1}, unknown=-100) == [hint] * is_said
    assert not said(names={"cat": 0, "car": -100}, unknown=-100)


def test_objects_that_are_no_class_may_be_delivered_beside_others():
    make = {"labels": {"label": "objects[:].kind", "names": {"cat": 0, "crowd": -100}}}
    assert not check({"dataset": [{"shards": "a.jsonl", "make": make}]})[1]


def test_what_a_wrong_step_makes_is_no_misspelt_field():
    make = {"labels": {"label": "txt", "names": ["cat", "dog"], "aliases": {"Dog": "dgo"}, "unknown": -1}}
    source = {"shards": "a.tar", "extensions": "label.txt txt", "make": make, "where": "labels >= 0"}
    assert [problem.code for problem in check({"dataset": [source]})[1]] == ["E203"]


@pytest.mark.parametrize(
    ("field", "key", "value", "written"),
    [
        ("image", "kept", "kept", "kept: kept"),
        ("image", "boxes", {"boxes": "bboxes"}, "boxes: {boxes: bboxes}"),
        ("image", "hflip", 0.5, "hflip: 0.5"),
        ("image", "size", [8, 8], "size: [8, 8]"),
        ("ids", "image_length", 4, "image_length: 4"),
        ("ids", "labels", "labels", "labels: labels"),
        ("ids", "file", "model", "file: model"),
    ],
)
def test_a_key_of_a_step_that_is_one_level_too_far_left_is_named(field, key, value, written):
    make = {**BOXES, **CHAT, key: value}
    step = "crop" if field == "image" else "chat"
    make[field] = {name: each for name, each in make[field].items() if name != key}
    source = {"shards": "a.jsonl", "decode": {"picture": "rgb8"}, "make": make}
    [problem] = [each for each in check({"dataset": [source]})[1] if each.code == "E202"]
    assert problem.message == f"`{key}` is a key of `{step}`, not a new field"
    assert problem.hint == f"indent it, below `{step}` of `{field}`: `{written}`"


@pytest.mark.parametrize(
    ("make", "wanted", "hint"),
    [
        (BOXES, "kept", "write `kept: kept` in `crop` of `image`, which then makes it"),
        (CHAT, "labels", "write `labels: labels` in `chat` of `ids`, which then makes it"),
        (
            {"image": {**BOXES["image"], "kept": "places"}},
            "kept",
            "`crop` of `image` makes it under the name `places`",
        ),
    ],
)
def test_a_field_that_an_option_of_a_step_would_make_has_the_option_as_a_remedy(make, wanted, hint):
    make = {name: {key: each for key, each in step.items() if each != wanted} for name, step in make.items()}
    source = {
        "shards": "a.tar",
        "extensions": "picture json messages",
        "decode": {"picture": "rgb8"},
        "make": make,
    }
    fields = [*make, wanted]
    [problem] = [each for each in check({"dataset": [source], "fields": fields})[1] if each.code == "E308"]
    assert problem.hint.startswith(hint)


def test_the_options_that_name_a_further_field_are_those_of_results():
    for step in making.Recipe.__subclasses__():
        named = {
            name
            for name, field in step.model_fields.items()
            if "A further field" in (field.description or "")
        }
        assert named == {*step.further}


def test_a_field_that_the_only_other_field_may_be_renamed_to_is_a_line_that_works():
    web, code = (
        {"name": "web", "shards": "w.jsonl", "extensions": "text"},
        {"name": "code", "shards": "c.parquet"},
    )
    spec = {
        "defaults": {"make": {"ids": {"tokenize": "text", "file": "t.json"}}},
        "fields": "ids",
        "batch": 2,
    }
    problem, *_ = check({**spec, "dataset": [web, {**code, "extensions": "content"}]})[1]
    assert (problem.code, problem.hint) == ("E370", "write `rename: {text: content}` in `code`")
    named = {**code, "extensions": "content", "rename": {"text": "content"}}
    assert {each.code for each in check({**spec, "dataset": [web, named]})[1]} == {"W440"}
