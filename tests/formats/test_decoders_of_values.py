"""`decode` decodes bytes: a decoder for a value that needs none is an error, not ignored."""

import io
import json

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.fields.samples import SampleFields


def picture(number):
    file = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), 20 * number, np.uint8)).save(file, "PNG")
    return file.getvalue()


FORMATS = ("tar", "cbors", "msgpack", "jsonl", "parquet", "arrow")
OF_BYTES = ("tar", "cbors", "msgpack", "parquet", "arrow")


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"__key__": f"k{n}", "caption": f"cat {n}", "late": None if n < 2 else "dog", "facts": '{"a": 1}'}
        for n in range(4)
    ]
    for name in "cbors", "msgpack", "jsonl":
        with wdspec.ShardWriter(tmp_path / f"a-%d.{name}", verbose=0) as writer:
            for row in rows:
                writer.write(row)
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "a-0.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "a-0.arrow", compression="uncompressed")
    texts = [(row["__key__"], {"caption": row["caption"].encode(), "facts": b'{"a": 1}'}) for row in rows]
    write_shard(tmp_path / "a-0.tar", texts)
    return tmp_path


def spec_of(folder, name, **source):
    spec = {"dataset": [{"name": "a", "shards": f"a-0.{name}", **source}], "epoch": "pass"}
    (folder / "s.yaml").write_text(json.dumps(spec))
    return folder / "s.yaml"


def read(folder, name, **source):
    with wdspec.loader(spec_of(folder, name, **source), num_workers=0) as loader:
        return [sample for sample in loader if sample["__mask__"]]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("decode", [{"caption": "builtins:len"}, {"facts": "json"}, {"said": "builtins:len"}])
def test_a_decoder_has_an_effect_or_is_an_error_whose_remedy_has_it(folder, name, decode):
    ((field, decoder),) = decode.items()
    rename = {"rename": {"said": "caption"}, "extensions": "caption"} if field == "said" else {}
    if name == "tar":
        found = read(folder, name, decode=decode, **rename)
    else:
        with pytest.raises(wdspec.SpecError, match="decodes bytes, but") as raised:
            read(folder, name, decode=decode, errors="skip", **rename)
        remedy = {field: "json:loads" if decoder == "json" else decoder}
        assert f"write `map: {{{field}: {remedy[field]}}}`" in str(raised.value)
        assert str(raised.value).endswith(f"[source a, url a-0.{name}, key k0, field {field}]")
        found = read(folder, name, map=remedy, **rename)
    assert [each[field] for each in found] == ([{"a": 1}] * 4 if field == "facts" else [5] * 4)


def test_the_first_value_decides_not_a_null_before_it(folder):
    with pytest.raises(wdspec.SpecError, match=r"`late` is 'dog', .* key k2"):
        read(folder, "jsonl", decode={"late": "builtins:len"})


def test_a_function_for_all_fields_needs_one_of_bytes(folder):
    with pytest.raises(
        wdspec.SpecError, match="`decode: builtins:len` decodes bytes, but `caption` is 'cat 0'"
    ):
        read(folder, "jsonl", decode="builtins:len")
    with wdspec.ShardWriter(folder / "a-%d.cbors", verbose=0, overwrite=True) as writer:
        writer.write({"__key__": "a", "caption": "cat", "thing": b"bytes"})
    (sample,) = read(folder, "cbors", decode="builtins:len")
    assert (sample["caption"], sample["thing"]) == ("cat", 5)


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
@pytest.mark.parametrize("decode", [{"caption": "txt"}, {"caption": "raw"}, {"facts": "txt"}])
def test_a_decoder_that_leaves_text_as_it_is_may_be_written(folder, name, decode):
    assert [each["caption"] for each in read(folder, name, decode=decode)] == [f"cat {n}" for n in range(4)]


def test_check_head_and_preview_say_it(folder):
    spec_of(folder, "jsonl", decode={"caption": "builtins:len"})
    for command, code in (["check", "--jobs", "0"], 1), (["head"], 1):
        said = "".join(within(*command, "s.yaml", folder=folder, code=code))
        assert "write `map: {caption: builtins:len}`" in said
    within("preview", "s.yaml", "-o", "p.html", folder=folder)
    assert "map: {caption: builtins:len}" in (folder / "p.html").read_text()


def test_pipelines_in_python_may_decode_what_is_decoded():
    fields = SampleFields(names=("builtins:len",), fields={"facts": "json"})
    for _ in range(2):
        assert fields({"__key__": "a", "facts": "{}", "caption": "cat"}) == {
            "__key__": "a",
            "facts": "{}",
            "caption": "cat",
        }


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    rows = [{"__key__": f"k{n}", "png": picture(n), "cls": n} for n in range(4)]
    for name in "tar", "cbors", "msgpack":
        with wdspec.ShardWriter(folder / f"a-%d.{name}", verbose=0) as writer:
            for row in rows:
                writer.write(row)
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, folder / "a-0.parquet")
    pyarrow.feather.write_feather(table, folder / "a-0.arrow", compression="uncompressed")
    return folder


@pytest.mark.parametrize("name", OF_BYTES)
@pytest.mark.parametrize(
    ("source", "shape"),
    [
        ({"decode": "rgb8"}, (4, 6, 3)),
        ({"decode": {"png": "l8"}}, (4, 6)),
        ({"decode": "rgb8+resize=2x3"}, None),
        ({"decode": "rgb8", "scale": 2}, (8, 12, 3)),
        ({"decode": "rgb8", "scale": [0.5, 2.0]}, None),
        ({"decode": "rgb8", "scale": 2, "scaleprob": 0.5}, None),
        ({"decode": {"image": "rgb8"}, "rename": {"image": "png", "cls": "cls"}}, (4, 6, 3)),
        ({"decode": {"png": "raw"}}, None),
        ({"decode": {"png": "builtins:len"}}, None),
    ],
)
def test_images_are_decoded_and_scaled_alike_in_every_format_of_bytes(pictures, name, source, shape):
    def values(format):
        found = read(pictures, format, **source)
        return [(each["__key__"], each["cls"], each.get("png", each.get("image"))) for each in found]

    expected, found = values("tar"), values(name)
    assert list(map(repr, found)) == list(map(repr, expected))
    if shape is not None:
        assert {value.shape for _, _, value in found} == {shape}


def test_an_item_of_a_list_is_named_with_its_place(folder):
    (folder / "a-0.jsonl").write_text('{"views": [null, "b.jpg"], "n": 1}\n')
    with pytest.raises(
        wdspec.SpecError, match=r"decodes bytes, but item 1 of `images` is 'b.jpg', so it would"
    ):
        read(folder, "jsonl", decode={"images": "rgb8"}, rename={"images": "views"})


def test_a_decoder_of_references_leads_to_the_field_that_has_the_bytes(folder):
    (folder / "b.png").write_bytes(b"no image, as nothing decodes it")
    (folder / "a-0.jsonl").write_text('{"views": ["b.png"], "n": 1}\n')
    fetch = {"images": {"url": "views", "root": str(folder)}}
    with pytest.raises(
        wdspec.SpecError, match=r"item 0 of `views` is 'b.png', so it would have no effect; `images` has"
    ):
        read(folder, "jsonl", decode={"views": "rgb8"}, fetch=fetch)
