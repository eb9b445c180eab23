"""Whole jobs with the steps `chat`, `choose` and `crop`: what a training loop gets, and in each pass anew."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversations import TEMPLATES, TOKENS, train, write_tokenizer
from PIL import Image
from shardmaking import write_shard
from tokenizers import Tokenizer

import wdspec
from wdspec.base.errors import FieldError, SpecError
from wdspec.read.randomness import numbers_of
from wdspec.steps import make_chat, make_choose, make_crop
from wdspec.testing import assert_resumable

COUNT = 12


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "a.jsonl"
    path.write_text(
        "\n".join(json.dumps({"__key__": f"{at:03}", **row}) for at, row in enumerate(rows)), "utf-8"
    )
    return str(path)


def load(shards: str, make: dict[str, Any], **keys: Any) -> wdspec.Spec:
    top = {key: keys.pop(key) for key in ("batch", "epoch", "defaults", "seed", "fields") if key in keys}
    return wdspec.load({"dataset": [{"name": "a", "shards": shards, "make": make, **keys}], **top})


def read(spec: wdspec.Spec, count: int, **options: Any) -> list[Any]:
    found: list[Any] = []
    with wdspec.loader(spec, num_workers=0, **options) as loader:
        while len(found) < count:
            for each in loader:
                found.append(each)
                if len(found) == count:
                    break
    return found


def conversations() -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"Count to {at}, please"},
                {"role": "assistant", "content": " ".join(map(str, range(at)))},
            ]
        }
        for at in range(1, COUNT + 1)
    ]


def chat_options(folder: Path, name: str = "qwen2_5") -> dict[str, Any]:
    file = write_tokenizer(folder, "qwen")
    return {"file": str(file), "template": str(TEMPLATES / f"{name}.jinja"), "variables": TOKENS["qwen"]}


def test_ids_and_labels_of_conversations_are_packed_together(tmp_path: Path) -> None:
    rows, options = conversations(), chat_options(tmp_path)
    make = {"ids": {"chat": "messages", **options, "labels": "labels"}}
    pack = {"fields": ["ids", "labels"], "length": 256, "segment_ids": "segments", "pad": {"labels": -100}}
    spec = load(write_rows(tmp_path, rows), make, batch={"window": 6, "pack": pack}, epoch="pass")
    chat, parts = make_chat(**options), Counter[tuple[tuple[int, ...], tuple[int, ...]]]()
    with wdspec.loader(spec, num_workers=0) as loader:
        for batch in loader:
            for ids, labels, segments in zip(batch["ids"], batch["labels"], batch["segments"], strict=True):
                for segment in range(1, int(segments.max()) + 1):
                    parts[
                        tuple(ids[segments == segment].tolist()), tuple(labels[segments == segment].tolist())
                    ] += 1
    wanted = [chat(row["messages"]) for row in rows]
    assert parts == Counter((tuple(each.ids.tolist()), tuple(each.labels.tolist())) for each in wanted)


@pytest.mark.parametrize(
    ("batch", "hint"),
    [
        ({"window": 6, "pack": {"fields": ["ids", "labels"], "length": 99}}, "write `pad: {labels: -100}` in `pack`"),
        ({"size": 2, "collate": {"ids": "pad", "labels": "pad"}}, "write `labels: {pad: {value: -100}}`"),
        ({"size": 2, "collate": {"ids": "pad", "labels": {"pad": {"multiple": 8}}}}, "write `labels: {pad: {value: -1"),
    ],
)  # fmt: skip
def test_labels_that_would_be_filled_with_a_token_are_an_error(batch: Any, hint: str) -> None:
    make = {"ids": {"chat": "messages", "file": "model", "labels": "labels"}}
    with pytest.raises(SpecError, match=f"(?s)E378.*{hint}"):
        load("a.jsonl", make, batch=batch)


@pytest.mark.parametrize(
    ("ids", "labels", "hint"),
    [
        ({"side": "left", "mask": "m"}, {"value": -100}, "another `side`.*{value: -100, side: left}"),
        ({"limit": 9}, {"value": -100, "lengths": "n"}, "another `limit`.*{value: -100, lengths: n, limit: 9}"),
        ({"multiple": 8}, {"value": -100, "limit": 9}, "`limit`, `multiple`.*{value: -100, multiple: 8}"),
        ("pad", {"value": -100, "length": 9}, "another `length`.*write `labels: {pad: {value: -100}}`"),
    ],
)  # fmt: skip
def test_ids_and_labels_that_are_padded_in_two_ways_are_an_error(ids: Any, labels: Any, hint: str) -> None:
    make = {"ids": {"chat": "messages", "file": "model", "labels": "labels"}}
    collate = {"ids": ids if ids == "pad" else {"pad": ids}, "labels": {"pad": labels}}
    with pytest.raises(SpecError, match=f"(?s)E390.*`labels` belongs to `ids`.*{hint}"):
        load("a.jsonl", make, batch={"size": 2, "collate": collate})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            ["ids"],
            r"only `ids` is packed.*write `fields: \[ids, labels\]` and `pad: \{labels: -100\}` in `pack`",
        ),
        (["labels"], r"only `labels` is packed.*write `fields: \[labels, ids\]` in `pack`"),
    ],
)
def test_ids_or_labels_that_alone_are_packed_are_an_error(fields: list[str], says: str) -> None:
    make = {"ids": {"tokenize": "text", "file": "t.json", "labels": "labels"}}
    pad = {"labels": -100} if "labels" in fields else {}
    pack = {"fields": fields, "length": 64, "pad": pad}
    with pytest.raises(SpecError, match=f"(?s)E390.*`labels` belongs to `ids`, but {says}"):
        load("a.jsonl", make, batch={"pack": pack})
    load("a.jsonl", make, batch={"pack": pack}, fields=fields)
    whole = {"fields": ["ids", "labels"], "length": 64, "pad": {"labels": -100}}
    load("a.jsonl", make, batch={"pack": whole})


def test_type_ids_are_padded_like_their_ids() -> None:
    make = {"ids": {"tokenize": "text", "file": "t.json", "type_ids": "types"}}
    collate = {"ids": {"pad": {"multiple": 8}}, "types": "pad"}
    with pytest.raises(SpecError, match=r"(?s)E390.*write `types: \{pad: \{multiple: 8\}\}`"):
        load("a.jsonl", make, batch={"size": 2, "collate": collate})


def test_a_selection_reads_ids_and_labels_of_a_conversation(tmp_path: Path) -> None:
    rows, options = conversations(), chat_options(tmp_path)
    make = {"ids": {"chat": "messages", **options, "labels": "labels"}}
    lengths = [len(make_chat(**options)(row["messages"]).ids) for row in rows]
    most = sorted(lengths)[5]
    spec = load(
        write_rows(tmp_path, rows), make, where=f"ids.length <= {most} and labels.length > 0", epoch="pass"
    )
    samples = read(spec, sum(length <= most for length in lengths))
    assert {sample["__key__"] for sample in samples} == {
        f"{at:03}" for at, length in enumerate(lengths) if length <= most
    }
    assert all(sample["ids"].dtype == sample["labels"].dtype == np.int64 for sample in samples)


def test_a_preference_pair_has_one_prompt_without_loss(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Question {at}"}],
            "chosen": [{"role": "assistant", "content": f"good {at}"}],
            "rejected": [{"role": "assistant", "content": f"bad and longer {at}"}],
        }
        for at in range(COUNT)
    ]
    options = {"prompt": "prompt", **chat_options(tmp_path)}
    make = {
        "chosen_ids": {"chat": "chosen", "labels": "chosen_labels", **options},
        "rejected_ids": {"chat": "rejected", "labels": "rejected_labels", **options},
    }
    tokenizer = Tokenizer.from_str(train("byte-level", "qwen"))
    for sample in read(load(write_rows(tmp_path, rows), make), COUNT):
        at = int(sample["__key__"])
        for side, text in (("chosen", f"good {at}"), ("rejected", f"bad and longer {at}")):
            ids, labels = sample[f"{side}_ids"], sample[f"{side}_labels"]
            assert tokenizer.decode([*ids[labels != -100]], skip_special_tokens=False) == f"{text}<|im_end|>"
            assert f"Question {at}<|im_end|>" in tokenizer.decode([*ids], skip_special_tokens=False)


def picture(at: int, size: tuple[int, int] = (20, 16)) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(at).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_images_of_a_conversation_become_tokens(tmp_path: Path) -> None:
    content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Noise"}]
    fields = {"png": picture(0), "json": json.dumps({"messages": messages, "tokens": 7}).encode()}
    write_shard(tmp_path / "a.tar", [(f"{at}", fields) for at in range(4)])
    image = {"images": "png", "image_token": "<|image_pad|>", "image_length": "json.tokens"}
    make = {
        "ids": {"chat": "json.messages", "labels": "labels", **image, **chat_options(tmp_path, "qwen2_5_vl")}
    }
    sample = read(load(str(tmp_path / "a.tar"), make), 1)[0]
    pad = Tokenizer.from_str(train("byte-level", "qwen")).token_to_id("<|image_pad|>")
    assert (sample["ids"] == pad).sum() == 7
    assert (sample["labels"] != -100).sum() > 0
    make["ids"]["images"] = ["png", "jpg"]
    assert read(load(str(tmp_path / "a.tar"), make), 1)[0]["ids"].tolist() == sample["ids"].tolist()
    make["ids"]["images"] = "jpg"
    with pytest.raises(
        FieldError, match=r"have 1 placeholder `<\|image_pad\|>` for 0 images.*field ids"
    ) as raised:
        read(load(str(tmp_path / "a.tar"), make), 1)
    assert "as `jpg` is null in this sample, or missing" in str(raised.value)


@pytest.mark.parametrize(
    ("field", "path", "said"),
    [
        (
            "pictuers",
            "a.png",
            "as `pictuers` is null.*; the sample has no field `pictuers`; did you mean `pictures`",
        ),
        ("pictures", "b.png", "as `pictures` is null.*; the object that `path` names could not be fetched"),
        ("pictures", None, "as `pictures` is null in this sample, or missing; each image needs one \\["),
        (
            "pictures",
            ["a.png", "b.png"],
            "as 1 of 2 in `pictures` are null.*; the object that `path` names could",
        ),
    ],
)
def test_an_image_that_a_conversation_lacks_is_an_error_that_names_its_field(
    tmp_path: Path, field: str, path: object, said: str
) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    content = [{"type": "image"}] * 2 + [{"type": "text", "text": "What is this?"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Noise"}]
    image = {"images": field, "image_token": "<|image_pad|>", "image_length": 2}
    make = {"ids": {"chat": "messages", **image, **chat_options(tmp_path, "qwen2_5_vl")}}
    fetch = {"pictures": {"url": "path", "root": str(tmp_path), "missing": "none"}}
    shards = write_rows(tmp_path, [{"messages": messages, "path": path}])
    with pytest.raises(FieldError, match=said):
        read(load(shards, make, fetch=fetch), 1)


def test_a_conversation_that_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = conversations()
    rows[3]["messages"] = rows[3]["messages"][:1]
    make = {"ids": {"chat": "messages", **chat_options(tmp_path)}}
    shards = write_rows(tmp_path, rows)
    with pytest.raises(FieldError, match=r"no message has the role `assistant`.*key 003, field ids"):
        read(load(shards, make), COUNT)
    with wdspec.loader(load(shards, make, errors="skip", epoch="pass"), num_workers=0) as loader:
        found = [sample["__key__"] for sample in loader if sample["__mask__"]]
        assert sorted(found) == [f"{at:03}" for at in range(COUNT) if at != 3]
        assert loader.stats().sources["a"].skipped == {"D202": 1}


def test_a_template_or_a_tokenizer_that_changes_is_named(tmp_path: Path) -> None:
    rows, folder = conversations(), tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(train("byte-level", "qwen"), "utf-8")
    (folder / "chat_template.jinja").write_text((TEMPLATES / "qwen2_5.jinja").read_text("utf-8"), "utf-8")
    shards = write_rows(tmp_path, rows)
    spec = load(shards, {"ids": {"chat": "messages", "file": str(folder)}}, where="ids.length > 3")
    with wdspec.loader(spec, num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    moved = tmp_path / "moved"
    folder.rename(moved)
    same = load(shards, {"ids": {"chat": "messages", "file": str(moved)}}, where="ids.length > 3")
    with wdspec.loader(same, num_workers=0) as loader:
        loader.load_state_dict(state)
    (moved / "chat_template.jinja").write_text(
        "{# new #}" + (TEMPLATES / "qwen2_5.jinja").read_text("utf-8"), "utf-8"
    )
    with (
        wdspec.loader(same, num_workers=0) as loader,
        pytest.raises(wdspec.WdspecError, match="of `make: ids` has other contents"),
    ):
        loader.load_state_dict(state)


def test_a_choice_is_another_one_in_each_pass_and_the_same_after_resuming(tmp_path: Path) -> None:
    rows = [{"captions": [f"{at}-{n}" for n in range(4)], "alt": f"alt {at}"} for at in range(COUNT)]
    make = {"caption": {"choose": "captions"}, "text": {"choose": ["alt", "captions[0]"], "weights": [3, 1]}}
    spec = load(write_rows(tmp_path, rows), make, seed=3, epoch=4 * COUNT)
    found = read(spec, 40 * COUNT)
    by_key: dict[str, set[str]] = {}
    for sample in found:
        assert sample["caption"] in sample["captions"]
        assert "__pass__" not in sample
        by_key.setdefault(sample["__key__"], set()).add(sample["caption"])
    assert all(len(captions) == 4 for captions in by_key.values())  # of 40 passes
    share = sum(sample["text"].startswith("alt") for sample in found) / len(found)
    assert abs(share - 0.75) < 4 * (0.75 * 0.25 / len(found)) ** 0.5
    again = [sample["caption"] for sample in read(spec, 4 * COUNT)]
    assert again == [sample["caption"] for sample in found[: 4 * COUNT]]
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), stops=[5, 17])
    other = load(write_rows(tmp_path, rows), make, seed=4, epoch=4 * COUNT)
    pairs = {
        (sample["__key__"], n // COUNT): sample["caption"] for n, sample in enumerate(read(other, 4 * COUNT))
    }
    assert [*pairs.values()] != again


def test_choices_of_a_pass_do_not_depend_on_the_order_or_a_selection(tmp_path: Path) -> None:
    rows = [{"captions": [f"{at}-{n}" for n in range(4)], "keep": at % 2} for at in range(COUNT)]
    make, shards = {"caption": {"choose": "captions"}}, write_rows(tmp_path, rows)
    whole = {s["__key__"]: s["caption"] for s in read(load(shards, make, shuffle=0), COUNT)}
    chosen = {
        s["__key__"]: s["caption"] for s in read(load(shards, make, where="keep == 1", shuffle=3), COUNT // 2)
    }
    assert chosen == {key: whole[key] for key in chosen}
    passed = {s["__key__"]: s["caption"] for s in read(load(shards, make, epoch="pass"), COUNT)}
    assert passed == whole


def test_a_selection_of_a_choice_keeps_other_samples_in_each_pass(tmp_path: Path) -> None:
    rows = [{"captions": [f"{n}-{at}" for n in range(3)]} for at in range(COUNT)]
    make, shards = {"caption": {"choose": "captions"}}, write_rows(tmp_path, rows)
    spec = load(shards, make, where='caption >= "2"', order="sequential", shuffle=0)
    wanted = [
        (f"{at:03}", caption)
        for passes in range(6)
        for at in range(COUNT)
        for numbers in [numbers_of(spec.seed, "caption", {"__key__": f"{at:03}", "__pass__": passes})]
        if (caption := rows[at]["captions"][int(numbers(0) * 3)]) >= "2"
    ]
    found = [(sample["__key__"], sample["caption"]) for sample in read(spec, len(wanted))]
    assert found == wanted
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), batches=12, stops=[5])


def test_a_shard_that_is_drawn_again_has_other_choices(tmp_path: Path) -> None:
    rows = [{"captions": [f"{at}-{n}" for n in range(4)]} for at in range(COUNT)]
    found = read(
        load(write_rows(tmp_path, rows), {"c": {"choose": "captions"}}, order="resampled"), 10 * COUNT
    )
    assert len({sample["c"] for sample in found}) > 3 * COUNT


def test_columns_of_parquet_have_messages_and_captions(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = conversations()
    rows[0]["messages"][1] = {"role": "assistant", "content": "one", "tool_calls": None}
    table = [{**row, "captions": ["a", "b"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "a.parquet")
    options = chat_options(tmp_path)
    make = {"ids": {"chat": "messages", **options}, "caption": {"choose": "captions"}}
    found = read(load(str(tmp_path / "a.parquet"), make), 4 * COUNT)
    chat = make_chat(**options)
    wanted = {tuple(chat(row["messages"]).ids.tolist()) for row in rows}
    assert {tuple(sample["ids"].tolist()) for sample in found} == wanted
    assert len({(tuple(sample["ids"].tolist()), sample["caption"]) for sample in found}) > 1.5 * COUNT


def test_copies_of_a_sample_in_a_pass_have_other_choices(tmp_path: Path) -> None:
    rows = [{"captions": [f"{at}-{n}" for n in range(50)]} for at in range(COUNT)]
    spec = load(write_rows(tmp_path, rows), {"caption": {"choose": "captions"}}, repeat=3, epoch="pass")
    found = Counter(sample["caption"] for sample in read(spec, 3 * COUNT))
    assert len(found) > 2.5 * COUNT


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"where": "ids.length > 3"}, "caption"),
        ({"batch": {"cost": "caption.length", "max_cost": 9, "window": 9}}, "caption"),
        ({"where": "captions.length > 3"}, None),
        ({"where": "ids.length > 3", "repeat": 1}, None),
    ],
)
def test_in_a_pass_with_copies_nothing_is_counted_by_what_each_copy_draws(
    keys: Any, found: str | None
) -> None:
    make = {"caption": {"choose": "captions"}, "ids": {"tokenize": "caption", "file": "t.json"}}
    given = {"repeat": 2, "epoch": "pass", **keys}
    if found is None:
        load("a.jsonl", make, **given)
        return
    with pytest.raises(SpecError, match=f"E377 .* reads `{found}`, which is drawn anew for each copy"):
        load("a.jsonl", make, **given)


def test_a_sample_that_has_none_of_the_fields_is_missing(tmp_path: Path) -> None:
    rows = [{"alt": None if at % 3 == 0 else f"alt {at}", "n": at} for at in range(COUNT)]
    make, shards = {"caption": {"choose": ["alt", "other"]}}, write_rows(tmp_path, rows)
    with pytest.raises(FieldError, match=r"`make: caption` needs `alt`, .* set `missing: skip`"):
        read(load(shards, make), COUNT)
    assert {s["n"] % 3 for s in read(load(shards, make, missing="skip"), COUNT)} == {1, 2}
    assert {s["caption"] for s in read(load(shards, make, missing="none"), COUNT) if s["n"] % 3 == 0} == {
        None
    }


def test_a_crop_of_an_image_a_mask_boxes_and_points_is_one_and_new_in_each_pass(tmp_path: Path) -> None:
    about = {"boxes": [[0, 0, 20, 16], [2, 3, 5, 9]], "points": [[4, 4, 2], [9, 9, 1]]}
    mask = io.BytesIO()
    Image.fromarray(np.arange(320, dtype=np.uint8).reshape(16, 20) % 7).save(mask, "PNG")
    fields = {"jpg": picture(1), "mask.png": mask.getvalue(), "json": json.dumps(about).encode()}
    write_shard(tmp_path / "a.tar", [("0", fields)])
    crop = {
        "crop": "jpg",
        "size": [8, 12],
        "hflip": 0.5,
        "scale": [0.2, 1],
        "masks": {"labels": "mask"},
        "boxes": {"boxes": "json.boxes"},
        "kept": "kept",
        "points": {"points": "json.points"},
        "flip_points": [[0, 1]],
    }
    decode = {"jpg": "rgb8", "mask": "l8"}
    spec = load(str(tmp_path / "a.tar"), {"image": crop}, rename={"mask": "mask.png"}, decode=decode)
    samples = read(spec, 8)
    assert len({sample["image"].tobytes() for sample in samples}) == 8
    step = make_crop(size=(8, 12), hflip=0.5, scale=(0.2, 1), drop=True, flip_points=[(0, 1)])
    for number, sample in enumerate(samples):
        numbers = numbers_of(spec.seed, "image", {"__key__": "0", "__pass__": number})
        wanted = step(
            sample["jpg"], numbers, masks={"labels": sample["mask"]}, boxes={"boxes": about["boxes"]},
            points={"points": about["points"]},
        )  # fmt: skip
        assert sample["image"].tolist() == wanted.image.tolist()
        assert sample["labels"].tolist() == wanted.masks["labels"].tolist()
        assert sample["boxes"].tolist() == wanted.boxes["boxes"].tolist()
        assert sample["points"].tolist() == wanted.points["points"].tolist()
        assert sample["kept"].tolist() == wanted.kept["boxes"].tolist()
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), batches=6)


def test_steps_work_without_user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    make = {"ids": {"chat": "messages", **chat_options(tmp_path)}, "one": {"choose": ["n", "m"]}}
    rows = [{**row, "n": 1, "m": 2} for row in conversations()]
    assert len(read(load(write_rows(tmp_path, rows), make), 3)) == 3


def test_workers_get_what_this_process_gets(tmp_path: Path) -> None:
    rows = [{**row, "captions": [*"abcdefgh"]} for row in conversations()]
    make = {
        "ids": {"chat": "messages", **chat_options(tmp_path), "labels": "labels"},
        "one": {"choose": "captions"},
    }
    batch = {"size": 3, "collate": {"ids": "list", "labels": "list"}}
    elastic = {"ranks": 1, "workers": 2}
    spec = wdspec.load(
        {
            "dataset": [{"name": "a", "shards": write_rows(tmp_path, rows), "make": make}],
            "batch": batch,
            "elastic": elastic,
        }
    )
    found = []
    for workers in (0, 2):
        with wdspec.loader(spec, num_workers=workers) as loader:
            batches = [batch for batch, _ in zip(loader, range(12), strict=False)]
        found.append(
            [(batch["__key__"], batch["one"], [each.tolist() for each in batch["ids"]]) for batch in batches]
        )
    assert found[0] == found[1]


def test_factories_can_be_imported_from_one_place() -> None:
    assert make_choose()(["a"], lambda _: 0.5) == "a"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"chat": "m", "file": "t.json", "labels": "l", "loss": "user"}, '"user" is not a choice for `loss`'),
        ({"chat": "m", "file": "hf://a/b@c"}, 'a chat template cannot be read from "hf://a/b@c"'),
        ({"chat": "m", "file": "t.json", "loss": "last"}, "`loss` needs `labels`"),
        ({"chat": "m", "file": "t.json", "images": "jpg"}, "`images` needs `image_token`"),
        ({"chat": "m", "file": "t.json", "image_length": 3}, "`image_length` needs `images`"),
        ({"chat": "m", "file": "t.json", "images": "jpg", "image_token": "x", "image_length": 0}, "at least 1 token"),
        ({"chat": "m", "file": "t.json", "date": "yesterday"}, '"yesterday" is no date'),
        ({"chat": "m"}, "file"),
        ({"choose": "c", "weights": 0.5}, "expected a list of weights, but this is"),
        ({"choose": "c", "weights": [0, 0]}, "no candidate has a weight above 0"),
        ({"choose": "c", "weights": [1, -1]}, "-1|greater"),
        ({"choose": ["c", "d"], "weights": [1]}, "1 weights for 2 fields"),
        ({"crop": "jpg"}, "size"),
        ({"crop": "jpg", "size": 0}, '"0" is no size'),
        ({"crop": "jpg", "size": [1, 2, 3]}, "is no size"),
        ({"crop": "jpg", "size": 8, "scale": [0.5, 2]}, "`scale` is the share of the image"),
        ({"crop": "jpg", "size": 8, "scale": 0.5}, "expected two numbers"),
        ({"crop": "jpg", "size": 8, "ratio": [2, 1]}, "is no range above 0"),
        ({"crop": "jpg", "size": 8, "hflip": 2}, "hflip"),
        ({"crop": "jpg", "size": 8, "interpolation": "cubic"}, '"cubic" is not a choice for `interpolation`'),
        ({"crop": "jpg", "size": 8, "boxes": {"b": "c"}, "box_format": "coco"}, '"coco" is not a choice'),
        ({"crop": "jpg", "size": 8, "kept": "kept"}, "`kept` needs `boxes`"),
        ({"crop": "jpg", "size": 8, "boxes": {"b": "c", "d": "e"}, "kept": "k"}, "there are 2 fields with boxes"),
        ({"crop": "jpg", "size": 8, "flip_points": [[0, 1]]}, "`flip_points` needs `points`"),
        ({"crop": "jpg", "size": 8, "points": {"p": "q"}, "flip_points": [[0, 0]]}, "these are no pairs of points"),
        ({"crop": "jpg", "size": 8, "masks": {"jpg": "mask"}}, "`jpg` would be made from itself"),
        ({"crop": "jpg", "size": 8, "masks": {"x": "mask"}}, "`x` would be|twice|made"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_used_are_errors(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load("a.tar", {"x": entry})


@pytest.mark.parametrize("nothing", [None, [], "[]"])
def test_a_chat_that_does_not_read_the_tools_of_its_samples_is_a_warning_once(
    nothing: Any, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    options, rows = chat_options(tmp_path), [{**row, "tools": nothing} for row in conversations()]
    make = {"ids": {"chat": "messages", **options, "labels": "labels"}}
    read(load(write_rows(tmp_path, rows), make), COUNT)
    assert [each for each in recwarn if "tools" in str(each.message)] == []
    rows[3]["tools"] = rows[5]["tools"] = [{"type": "function", "function": {"name": "get"}}]
    read(load(write_rows(tmp_path, rows), make), COUNT)
    (found,) = [str(each.message) for each in recwarn if "tools" in str(each.message)]
    assert re.search("`chat` does not read the field `tools` of sample `00[35]`", found)
    assert "write `tools: tools` in `make: ids`" in found


def test_labels_of_masked_ids_are_padded_as_the_ids():
    masked = {"mask_tokens": "ids", "file": "t.json", "labels": "labels"}
    source = {"shards": "a.jsonl", "make": {"ids": {"tokenize": "text", "file": "t.json"}, "masked": masked}}
    collate = {"masked": {"pad": {"side": "left"}}, "labels": {"pad": {"value": -100}}}
    with pytest.raises(SpecError, match=r"(?s)E390.*`labels` belongs to `masked`.*another `side`"):
        wdspec.load({"dataset": [source], "batch": {"size": 2, "collate": collate}})
