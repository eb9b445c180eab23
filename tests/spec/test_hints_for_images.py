"""Mistakes of specs for images: each has one message, whose hint says what was probably meant."""

from typing import Any

import pytest

from wdspec.spec.load import check


def hints_of(spec: dict[str, Any], code: str) -> list[str]:
    return [problem.hint for problem in check(spec)[1] if problem.code == code]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (
            "resize=224+center_crop=256",
            "write `resize=293+center_crop=256` for images of 256 pixels, or `resize=256+center_crop=224` for 224",
        ),
        ("resize=240x320+center_crop=256", "make `resize` at least `256x256`, or crop less"),
        ("resize=64+center_crop=96x128", "make `resize` at least `96x128`, or crop less"),
        ("resize=240+center_crop=240x320", None),  # wide images have no border
        ("resize=256+center_crop=256", None),
        ("center_crop=256", None),
    ],
)
def test_a_crop_with_a_border_in_every_image_is_found_in_all_decoders(options: str, hint: str | None) -> None:
    for decode in (
        f"rgb8+{options}",
        {"photo": f"rgb8+{options}"},
        {"mp4": f"video+frames=2+{options}+silent"},
    ):
        found = hints_of({"dataset": [{"shards": "a.tar", "decode": decode}]}, "W447")
        assert found == ([] if hint is None else [hint])


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ({"size": 8, "collate": {"ids": "pad", "labels": {"pad": {"value": 0}}}}, 1),
        ({"size": 8, "collate": {"ids": "pad", "labels": {"pad": {"value": -1}}}}, 0),
        ({"pack": {"fields": ["ids", "labels"], "length": 512, "pad": {"labels": 50256}}}, 1),
        ({"pack": {"fields": ["ids", "labels"], "length": 512, "pad": {"labels": -100}}}, 0),
    ],
)
def test_labels_that_are_padded_with_a_token_on_purpose_are_a_warning(
    batch: dict[str, Any], count: int
) -> None:
    make = {"ids": {"chat": "messages", "file": "model", "labels": "labels"}}
    spec = {"dataset": [{"shards": "a.jsonl", "make": make}], "batch": batch}
    assert hints_of(spec, "W446") == ["write -100, which losses leave out"] * count


@pytest.mark.parametrize("step", ["tokenize", "chat"])
@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ({"size": 8, "collate": {"ids": {"pad": {"value": -100, "mask": "mask"}}}}, 1),
        ({"size": 8, "collate": {"ids": {"pad": {"value": 0, "mask": "mask"}}}}, 0),
        ({"size": 8, "collate": {"ids": "pad"}}, 0),
        ({"pack": {"fields": "ids", "length": 512, "pad": {"ids": -100}}}, 1),
        ({"pack": {"fields": "ids", "length": 512, "pad": {"ids": 50256}}}, 0),
        ({"size": 8, "collate": {"ids": {"pad": {"value": -100}}}}, 0),
        ({"pack": {"fields": ["others", "ids"], "length": 512, "pad": {"ids": -100}}}, 0),
    ],
)
def test_token_ids_that_are_padded_with_no_token_are_a_warning(
    step: str, batch: dict[str, Any], count: int
) -> None:
    make = {"ids": {step: "text", "file": "model"}}
    spec = {"dataset": [{"shards": "a.jsonl", "make": make}], "batch": batch}
    assert len(hints_of(spec, "W449")) == count
    make["ids"]["labels"] = "labels"  # so they are no labels themselves
    assert len(hints_of(spec, "W449")) == ("-100" in str(batch))


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        ({"crop": "jpg", "size": "96x128"}, "write height and width as a list: `[96, 128]`"),
        ({"crop": "jpg", "size": "96, 128"}, "write height and width as a list: `[96, 128]`"),
        ({"crop": "jpg", "size": "large"}, "`size`: the side of the result in pixels, or height and width"),
        (
            {"chat": "messages", "file": [3]},
            "`file`: A `tokenizer.json` of the library `tokenizers`, or a folder of ",
        ),
    ],
)
def test_a_wrong_value_in_a_step_gets_the_description_of_its_own_option(
    step: dict[str, Any], hint: str
) -> None:
    """And not that of `make`, whose example is another step."""
    [found] = hints_of({"dataset": [{"shards": "a.tar", "make": {"x": step}}]}, "E202")
    assert found.startswith(hint)


def test_a_decoder_that_is_written_as_a_step_leads_to_decode() -> None:
    spec = {"dataset": [{"shards": "a.tar", "make": {"x": {"resize": "jpg", "size": 224}}}]}
    [found] = hints_of(spec, "E206")
    assert "`decode: {jpg: rgb8+resize=224x224}`" in found


def test_alternatives_that_are_separated_by_spaces_are_joined() -> None:
    spec = {"dataset": [{"shards": "a.tar", "rename": {"image": "jpg jpeg png"}}]}
    assert hints_of(spec, "E215") == [
        "write `jpg;jpeg;png` for a field that is one of these, whichever a sample has"
    ]


def test_a_misspelled_made_field_in_a_selection_leads_to_the_made_field() -> None:
    source = {
        "shards": "a.tar",
        "extensions": "jpg label.txt",
        "rename": {"name": "label.txt"},
        "make": {"label": {"label": "name", "names": ["cat", "dog"]}},
        "where": "labels >= 0",
    }
    assert hints_of({"dataset": [source]}, "W392") == ["did you mean `label`?"]


@pytest.mark.parametrize(
    ("decode", "hints"),
    [
        ({"picture": "rgb8"}, ["did you mean `pictures`?"]),
        ({"pictures": "rgb8"}, []),
        ({"pictures": "rgb8", "picture": "rgb8"}, []),  # perhaps a column
        ({"mask": "l8"}, []),
    ],
)
def test_a_misspelled_object_in_decode_leaves_it_as_bytes(decode: dict[str, str], hints: list[str]) -> None:
    fetch = {"pictures": {"url": "images", "root": "s3://bucket/"}}
    spec = {"dataset": [{"shards": "a.jsonl", "fetch": fetch, "decode": decode}]}
    assert hints_of(spec, "W448") == hints


@pytest.mark.parametrize(
    ("decode", "hints"),
    [
        ({"images": "rgb8"}, ["did you mean `pictures`?"]),
        ({"images": "json"}, []),  # the references
        ({"images": "rgb8", "pictures": "rgb8"}, []),
    ],
)
def test_images_are_decoded_in_the_field_that_fetch_makes_not_in_that_of_the_references(
    decode: dict[str, str], hints: list[str]
) -> None:
    fetch = {"pictures": {"url": "images", "root": "s3://bucket/"}}
    spec = {"dataset": [{"shards": "a.jsonl", "fetch": fetch, "decode": decode}]}
    assert hints_of(spec, "W448") == hints


PICTURES = {"pictures": {"url": "images", "root": "s3://bucket/"}}
CHAT = {"chat": "messages", "file": "model"}


def chat_of(
    *, fetch: dict[str, Any] = PICTURES, decode: str | None = "rgb8", **options: object
) -> dict[str, Any]:
    """A spec of conversations with images."""
    images = {"image_token": "<image>", "image_length": 4} if "images" in options else {}
    decoded = {} if decode is None else {"decode": {"pictures": decode}}
    make = {"ids": {**CHAT, **images, **options}}
    return {"dataset": [{"name": "web", "shards": "a.jsonl", "fetch": fetch, **decoded, "make": make}]}


@pytest.mark.parametrize(
    ("spec", "hints"),
    [
        (chat_of(images="picture"), ["did you mean `pictures`?"]),
        (chat_of(images=["pictures", "pictuers"]), ["did you mean `pictures`?"]),
        (chat_of(images="pictures", tools="tools"), []),
        (chat_of(images="photo"), []),  # perhaps a column
        (chat_of(images="picture", fetch={"pictures": {"url": "picture", "root": "s3://bucket/"}}), []),
    ],
)
def test_a_misspelled_object_in_a_step_that_may_lack_it_is_a_warning(
    spec: dict[str, Any], hints: list[str]
) -> None:
    assert hints_of(spec, "W448") == hints


@pytest.mark.parametrize(
    ("spec", "hints"),
    [
        (
            chat_of(),
            ['write `images: pictures`, `image_token: "<image>"` and `image_length` in `make: ids`'],
        ),
        (chat_of(images="pictures"), []),
        (chat_of(decode=None), []),
        (chat_of(decode="raw"), []),
        (chat_of(fetch={"other": "url"}), []),
    ],
)
def test_a_chat_names_the_images_that_its_source_fetches(spec: dict[str, Any], hints: list[str]) -> None:
    assert hints_of(spec, "W495") == hints


@pytest.mark.parametrize(
    ("length", "hint"),
    [
        ("2x2", "write the product: `image_length: 4`"),
        ("256 tokens", "write a number: `256`"),
        ("json.n", None),
    ],
)
def test_a_number_of_tokens_in_another_form_is_no_name_that_lacks_quotes(
    length: str, hint: str | None
) -> None:
    spec = chat_of(images="pictures")
    spec["dataset"][0]["make"]["ids"]["image_length"] = length
    assert hints_of(spec, "E203") == ([] if hint is None else [hint])


@pytest.mark.parametrize("fields", [None, "pictures ids"])
def test_the_mask_of_a_padded_field_is_an_option_of_it_and_no_field_to_pad(fields: str | None) -> None:
    collate: dict[str, Any] = {"pictures": "list", "ids": "pad", "attention_mask": "pad"}
    spec = {**chat_of(images="pictures"), "batch": {"size": 4, "collate": collate}}
    spec["dataset"][0]["extensions"] = "messages images"
    spec |= {} if fields is None else {"fields": fields}
    [hint] = hints_of(spec, "E316")
    assert hint.startswith("write `ids: {pad: {mask: attention_mask}}`")
    spec["batch"] = {"size": 4, "collate": {"pictures": "list", "ids": {"pad": {"mask": "attention_mask"}}}}
    assert hints_of(spec, "E316") == []


@pytest.mark.parametrize(
    ("keys", "count"), [({"images": "pictures"}, 1), ({"images": "pictures", "decode": "raw"}, 0), ({}, 0)]
)
def test_images_of_a_chat_are_decoded_also_where_collate_lists_them(keys: dict[str, Any], count: int) -> None:
    batch = {"size": 4, "collate": {"pictures": "list", "ids": "pad"}}
    assert len(hints_of(chat_of(**{"decode": None, **keys}) | {"batch": batch}, "W371")) == count


@pytest.mark.parametrize(
    ("decode", "way", "keys", "count"),
    [
        ("rgb8+resize=224", {"pad": {"mask": "image_mask"}}, {}, 1),
        ("rgb8+resize=224", "pad", {}, 1),
        ("rgb8+resize=224x224", "pad", {}, 0),
        ("rgb8+resize=224+center_crop=224", "pad", {}, 0),
        ("rgb8+resize=224", {"pad": {"axis": [0, 1, 2]}}, {}, 0),
        ("rgb8+resize=224", "list", {}, 0),
        ("rgb8+resize=224", "pad", {"map": {"images": "mylib:function"}}, 0),
        ("rgb8+resize=224", "pad", {"map": "mylib:function"}, 0),
    ],
)
def test_lists_of_images_that_are_padded_by_their_items_alone_need_one_size(
    decode: str, way: object, keys: dict[str, Any], count: int
) -> None:
    source = {"shards": "a.jsonl", "fetch": {"images": "urls[:].url"}, "decode": {"images": decode}}
    spec = {"dataset": [source], "batch": {"size": 8, "collate": {"images": way}}, **keys}
    assert hints_of(spec, "W371") == ["write `resize=224x224`, or add `+center_crop=224`"] * count


TRAIN = "torchrgb+random_resized_crop=48+hflip=0.5+normalize=imagenet"
RIGHT = "torchrgb+resize=56+center_crop=48+normalize=imagenet"


def decoded_apart(val: str, train: str = TRAIN, name: str = "val", **of_train: Any) -> list[tuple[str, str]]:
    source = {"shards": "a.tar", "extensions": "jpg cls", "rename": {"image": "jpg"}}
    splits = {
        "train": {"dataset": [{**source, "decode": train, **of_train}]},
        name: {"dataset": [{**source, "shards": "b.tar", "decode": val}]},
    }
    found = check({"splits": splits, "batch": 8, "fields": "image cls"})[1]
    return [(each.message, each.hint) for each in found if each.code == "W480"]


@pytest.mark.parametrize(
    ("val", "says"),
    [
        (
            "torchrgb+resize=56+center_crop=48",
            "`image` has no `normalize` in the split `val`, and `normalize=imagenet`",
        ),
        (
            "torchrgb+resize=56+center_crop=48+normalize=clip",
            "`image` has `normalize=clip` in the split `val`, and",
        ),
        (
            "rgb+resize=56+center_crop=48+normalize=imagenet",
            "is numpy float32 in 0..1 of shape (48, 48, 3) in",
        ),
        (
            "torchrgb+resize=64x64+normalize=imagenet",
            "of shape (3, 64, 64) in the split `val`, and torch float32",
        ),
        ("pil", "`image` is `PIL.Image`, mode RGB in the split `val`, and"),
    ],
)
def test_an_evaluation_that_decodes_otherwise_than_the_training_is_a_warning_whose_remedy_works(
    val: str, says: str
) -> None:
    found = decoded_apart(val)
    assert says in found[0][0]
    [remedy] = {hint for _, hint in found}
    assert not decoded_apart(remedy.removeprefix("write `").removesuffix("`"))


def test_evaluations_that_decode_as_the_training_have_no_warning() -> None:
    assert not decoded_apart(RIGHT)
    assert not decoded_apart(RIGHT.replace("imagenet", "0.485/0.456/0.406..0.229/0.224/0.225"))
    assert not decoded_apart("torchrgb+normalize=imagenet")  # of the size of the files
    assert not decoded_apart("rgb8", name="finetune")
    assert not decoded_apart("rgb8", map={"image": "lib:function"})


def test_the_size_of_a_crop_is_compared_with_that_of_a_decoder() -> None:
    def made(size: Any) -> list[tuple[str, str]]:
        image = {"image": {"crop": "file", "size": size}}
        return decoded_apart("rgb8+resize=56+center_crop=48", "rgb8", make=image, rename={"file": "jpg"})

    assert not made(48)
    assert "numpy uint8 of shape (64, 64, 3) in the split `train`" in made([64, 64])[0][0]


def test_sources_of_a_mix_that_normalize_a_field_in_two_ways_are_a_warning() -> None:
    one = {"name": "a", "shards": "a.tar", "extensions": "jpg", "decode": "rgb+resize=8x8+normalize=imagenet"}
    two = {"name": "b", "shards": "b.tar", "extensions": "jpg", "decode": "rgb+resize=8x8"}
    spec: dict[str, Any] = {"dataset": [one, two], "batch": 8}
    [found] = hints_of(spec, "W480")
    assert found == "write `rgb+resize=8x8+normalize=imagenet`"
    two["decode"] = one["decode"]
    assert not hints_of(spec, "W480")
