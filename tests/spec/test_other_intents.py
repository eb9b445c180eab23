"""Specs that are legal, or nearly so, and mean something else than people expect: the message has the change to make,
and specs next to them have no such message."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from commandline import within

import wdspec
from wdspec.spec.load import check

TWO = [
    {"name": name, "shards": f"s3://b/{name}-{{0..99}}.tar", "extensions": "txt"} for name in ("web", "books")
]


def sources(*changes: dict[str, Any]) -> dict[str, Any]:
    """A spec of as many sources as there are changes."""
    return {"dataset": [{**source, **change} for source, change in zip(TWO, changes, strict=False)]}


def found(spec: dict[str, Any], code: str, **options: Any) -> list[str]:
    """The problems with a code, as messages and hints."""
    return [f"{each.message} = {each.hint}" for each in check(spec, **options)[1] if each.code == code]


IMAGES = {"extensions": "jpg cls", "decode": "rgb8+random_resized_crop=32+hflip=0.5"}
CROPPED = {
    "extensions": "jpg",
    "decode": "rgb8",
    "make": {"image": {"crop": "jpg", "size": [32, 64], "hflip": 0.5}},
}
MASKED = {"mask_tokens": "npy", "file": "t.json", "labels": "labels"}
CENTRAL = {"scale": [1, 1], "ratio": [2, 2], "hflip": 0}
STEPS = [{"at": 0, "shares": {"web": 1}}]
FORGOTTEN = [{"at": 0, "shares": {"web": 6, "books": 3, "code": 1}}]
THREE = {"dataset": [*TWO, {**TWO[0], "name": "code", "shards": "s3://b/code.tar"}]}
MEAN_COST = sources({"weight": 3, "mean_cost": 12}, {"weight": 1, "mean_cost": 143})
BY_COST = {"cost": "txt.length", "max_cost": 1000}
LOCAL = {"from": "s3://b/", "to": "mirror"}
SMALL_CACHE = {"dir": "/scratch", "size": "500GB"}


def splits(*, val: dict[str, Any] | None = None, name: str = "val", **top: Any) -> dict[str, Any]:
    """A spec with a split for training and another one."""
    one, other = sources({})["dataset"], [{**TWO[1], "extensions": None}]
    return {
        "splits": {"train": {"dataset": one}, name: {"dataset": other, "epoch": "pass", **(val or {})}},
        **top,
    }


EPOCH_OF_ALL = splits(name="test", batch=8, epoch={"batches": 9})
del EPOCH_OF_ALL["splits"]["test"]["epoch"]
WRONG = [
    (
        "E306",
        sources({}) | {"batch": 96, "elastic": {"ranks": 8}, "epoch": 480},
        "`batch: {global_size: 96}`",
    ),
    ("W374", sources({}) | {"errors": {"skip": True, "max_rate": 1}}, "write `max_rate: 0.01`"),
    (
        "E202",
        sources({"samples": 900}, {"samples": 200}) | {"mix": {"by": "samples", "cap": 0.5}},
        "for a share of 0.5 of `web`, write `cap: 200`",
    ),
    ("E345", sources({}, {"samples": 40, "repeat": 3}), "write `upsample: 3`"),
    ("W361", sources({}) | {"elastic": {"ranks": 8, "workers": 64}}, "write `workers: 8`"),
    (
        "W102",
        MEAN_COST | {"batch": BY_COST},
        "`weight` counts samples, not what they cost = write `mix: {shares_in: ",
    ),
    ("E312", splits(mix={"by": "samples"}), "`mix: null` in the split `val`"),
    (
        "W342",
        sources({"samples": 50_000}) | {"batch": 250, "epoch": {"batches": 50_000}},
        "`epoch: {batches: 200}`",
    ),
    ("W342", sources({"samples": 500}) | {"batch": 250, "epoch": 50_000}, "for one pass, write `epoch: 500`"),
    ("W354", sources({"shuffle": 1}) | {"batch": 8}, "write `shuffle: 1000`"),
    (
        "W356",
        sources({"shuffle": 300_000, "samples": 200_000, "bytes": "60GB"}),
        "each worker holds about 60.0 GB = write `shuffle: 7000` and `interleave: 16`",
    ),
    (
        "W399",
        sources({}, {})
        | {"batch": {"global_size": 512}, "elastic": {"ranks": 8}, "epoch": {"batches": 20_000}}
        | {"mix": {"schedule": [*STEPS, {"at": 10_000, "shares": {"web": 3, "books": 1}}]}},
        "this is batch 19 of 20,000 = for batch 10,000, write `at: 5120000`",
    ),
    ("W401", sources({}) | {"rewrite": [LOCAL]}, 'becomes "mirrorweb-0.tar" = write `to: mirror/`'),
    (
        "W403",
        splits(defaults=IMAGES),
        "write `defaults: {decode: rgb8+resize=37+center_crop=32}` in the split `val`",
    ),
    (
        "W403",
        splits(
            defaults={**IMAGES, "decode": {"jpg": "rgb8+hflip=0.5+random_resized_crop=32x64+scale=0.5..1"}}
        ),
        "write `defaults: {decode: {jpg: rgb8+resize=73+center_crop=32x64}}`",
    ),
    ("W403", splits(defaults=IMAGES, name="test_2", val={"epoch": None}), "in the split `test_2`"),
    (
        "W403",
        splits(defaults=IMAGES, val={"defaults": {"decode": "rgb8+random_resized_crop=32"}}),
        "whose random numbers its results depend on = write `rgb8+resize=37+center_crop=32`, or `repeat` to read",
    ),
    (
        "W403",
        splits(defaults=CROPPED),
        "makes `image` by `crop` as in training = in `defaults` of the split `val`, write `make: {image: {scale: "
        "[1, 1], ratio: [2, 2], hflip: 0}}`",
    ),
    (
        "W403",
        splits(val={"defaults": CROPPED}),
        "makes `image` by `crop`, whose random numbers its results depend on = write `make: {image: {scale: [1, 1],",
    ),
    (
        "W403",
        splits(defaults={"make": {"caption": {"choose": "json.captions"}}}),
        "makes `caption` by `choose` as in training = in `defaults` of the split `val`, write `make: {caption: null}`",
    ),
    (
        "W405",
        sources({"bytes": "1.2TB"}) | {"cache": SMALL_CACHE},
        "of `web`, so later passes fetch shards again = ",
    ),
    ("W405", sources({"bytes": "1.2TB"}) | {"cache": SMALL_CACHE}, "write `size: 1.3TB`"),
    ("W405", sources({"bytes": "1.2TB", "cache": SMALL_CACHE}), "write `size: 1.3TB`"),
    (
        "W470",
        splits(val={"epoch": None}),
        "the split `val` is endless and shuffled, as it has no `epoch` = write",
    ),
    (
        "W470",
        splits(val={"epoch": {"pass": "drop"}}),
        "leaves out the samples of the split `val` that fill no",
    ),
    ("W470", EPOCH_OF_ALL, "with the `epoch` of training = write `epoch: pass` in the split `test`"),
    ("W406", sources({}) | {"batch": 32, "limit": 10}, "for 10 batches, write `limit: 320`"),
    (
        "W407",
        THREE | {"mix": {"schedule": [*FORGOTTEN, {"at": 4_000, "shares": {"web": 6, "code": 4}}]}},
        "leaves out `books`, which is not read from here on = add `books: 3` to keep the share, or `books: 0`",
    ),
    (
        "W408",
        sources({**IMAGES, "scale": [0.35, 1.0]}),
        "write `decode: rgb8+random_resized_crop=32+scale=0.35..1+hflip=0.5` in place of `scale`",
    ),
]


@pytest.mark.parametrize(
    ("sizes", "cap"),
    [
        ({"samples": 150}, 0.3),  # the others would be cut, too
        ({"samples": 900}, 0.999),
        ({}, 0.5),
    ],
)
def test_a_cap_that_is_no_size_has_no_number_where_none_fits(sizes: dict[str, Any], cap: float) -> None:
    spec = sources(sizes, {"samples": 200}) | {"mix": {"by": "samples", "cap": cap}}
    assert "sizes above this number count as this number" in found(spec, "E202")[0]


@pytest.mark.parametrize(("code", "spec", "text"), WRONG)
def test_the_message_has_the_change(code: str, spec: dict[str, Any], text: str) -> None:
    assert text in " ".join(found(spec, code))


@pytest.mark.parametrize(
    ("code", "spec"),
    [
        ("E306", sources({}) | {"batch": 4, "elastic": {"ranks": 8}, "epoch": 480}),
        ("W374", sources({}) | {"errors": {"skip": True, "max_count": 1, "max_rate": 0.05}}),
        ("W361", sources({}) | {"elastic": {"ranks": 2, "workers": 32}}),
        ("W102", MEAN_COST | {"batch": BY_COST, "mix": {"shares_in": "cost"}}),
        ("W342", sources({"samples": 50_000}) | {"batch": 250, "epoch": {"batches": 400}}),
        ("W354", sources({"shuffle": 0}) | {"batch": 8}),
        ("W356", sources({"shuffle": 50_000, "samples": 200_000, "bytes": "40MB"})),
        (
            "W399",
            sources({}, {})
            | {"batch": {"global_size": 512}, "elastic": {"ranks": 8}, "epoch": {"batches": 20_000}}
            | {"mix": {"schedule": [*STEPS, {"at": 5_120, "shares": {"web": 3, "books": 1}}]}},
        ),
        ("W401", sources({}) | {"rewrite": [{**LOCAL, "to": "mirror/"}]}),
        ("W401", sources({}) | {"rewrite": [{**LOCAL, "to": "copy-"}]}),
        ("W401", sources({}) | {"rewrite": [{"from": "s3://(b)/", "to": r"mirror/\1/"}]}),
        ("W401", sources({}) | {"rewrite": [{"from": "s3://b", "to": "mirror"}]}),
        ("W403", splits(defaults=IMAGES, name="finetune")),
        ("W403", splits(defaults=IMAGES, name="valley")),
        ("W403", splits(defaults=IMAGES, val={"defaults": {"repeat": 10}})),
        ("W403", splits(defaults=IMAGES, val={"defaults": {"decode": "rgb8+resize=37+center_crop=32"}})),
        ("W403", splits(defaults=CROPPED, val={"defaults": {"make": {"image": CENTRAL}}})),
        ("W403", splits(defaults=CROPPED, val={"defaults": {"make": {"image": None}}})),
        ("W403", splits(val={"defaults": {"make": {"ids": MASKED}}})),
        ("W470", splits()),
        ("W470", splits(val={"epoch": {"batches": 5}}, batch=8)),
        ("W470", splits(val={"epoch": None}, name="finetune")),
        ("W405", sources({"bytes": "1.2TB", "cache": False}, {"bytes": "200GB"}) | {"cache": SMALL_CACHE}),
        ("W405", sources({"bytes": "1.2TB"}) | {"cache": SMALL_CACHE, "elastic": {"ranks": 64}}),
        ("W405", sources({"bytes": "1.2TB"}) | {"cache": "/scratch"}),
        ("W406", sources({}) | {"batch": 8, "epoch": "pass", "limit": 50}),
        ("W406", sources({}) | {"batch": 8, "limit": 48}),
        ("W406", sources({}) | {"limit": 10}),
        (
            "W407",
            THREE
            | {"mix": {"schedule": [*FORGOTTEN, {"at": 4, "shares": {"web": 6, "books": 0, "code": 4}}]}},
        ),
        ("W407", THREE | {"mix": {"schedule": [*FORGOTTEN, {"at": 4, "shares": {"books": 1}}]}}),
        ("W407", THREE | {"mix": {"schedule": [*FORGOTTEN, {"at": 4, "shares": {"web": 2, "code": 2}}]}}),
        ("W407", THREE | {"mix": {"schedule": [*STEPS, {"at": 4, "shares": {"web": 1, "code": 1}}]}}),
        ("W408", sources({**IMAGES, "decode": "rgb8+center_crop=32", "scale": [0.7, 1.0]})),
        ("W408", sources({**IMAGES, "scale": [0.7, 1.4]})),
        ("W408", sources({**IMAGES, "decode": "rgb8+random_resized_crop=32+scale=0.5..1", "scale": 0.5})),
    ],
)
def test_specs_next_to_them_have_no_such_message(code: str, spec: dict[str, Any]) -> None:
    assert found(spec, code) == []


SHARES = sources({"probability": 0.7}, {"probability": 0.3})


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        (["sources.web.probability=0.9"], "also set the others: `--set sources.books.probability=0.1`"),
        ({"sources.web.probability": 0.9}, "also set the others: `sources.books.probability=0.1`"),
        (["sources.web.probability=0.9", "sources.books.probability=0.3"], "normalized, they are"),
    ],
)
def test_a_probability_that_is_overridden_names_the_others(overrides: Any, hint: str) -> None:
    assert hint in found(SHARES, "E302", overrides=overrides)[0]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("dataset.1.weight=2", "write `sources.books.weight=2`"),
        ("dataset[0].shuffle=9", "write `sources.web.shuffle=9`"),
        ("dataset.7.weight=2", "use its name: `sources.NAME.weight`"),
    ],
)
def test_an_override_by_place_names_the_source(override: str, hint: str) -> None:
    assert hint in found(sources({}, {}), "E113", overrides=[override])[0]
    name = override.partition("=")[0]
    assert hint.partition("=")[0] in found(sources({}, {}), "E113", overrides={name: 2})[0]


def test_an_override_by_place_names_the_source_of_the_split() -> None:
    assert (
        "`sources.web.weight=2`"
        in found(splits(), "E113", split="train", overrides=["dataset.0.weight=2"])[0]
    )


PASS = {**sources({}), "batch": 8, "epoch": "pass"}


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (PASS | {"environments": {"laptop": {"epoch": 80}}}, "`limit: 80`"),
        (
            PASS | {"epoch": {"pass": "drop"}, "environments": {"laptop": {"epoch": {"samples": 80}}}},
            "`limit: 80`",
        ),
        (PASS | {"epoch": 8_000, "environments": {"laptop": {"epoch": 80}}}, None),
        (PASS | {"environments": {"laptop": {"epoch": None}}}, None),
        (PASS | {"environments": {"laptop": {"epoch": {"pass": "drop"}}}}, None),
        (PASS | {"environments": {"laptop": {"limit": 80}}}, None),
    ],
)
def test_an_environment_that_ends_a_pass_is_a_warning(spec: dict[str, Any], hint: str | None) -> None:
    texts = found(spec, "W400")
    assert len(texts) == bool(hint)
    if hint:
        assert "the environment `laptop` replaces `epoch: pass`" in texts[0]
        assert hint in texts[0]


def loading(spec: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wdspec.load(spec, **options)
    return [str(each.message) for each in caught]


def test_an_environment_called_default_is_a_warning_when_a_spec_is_loaded_without_one(tmp_path: Path) -> None:
    spec = sources({}) | {"environments": {"default": {"batch": 8}, "cluster": {"batch": 64}}}
    assert "W402" in loading(spec)[0]
    assert "move its keys to the top level" in loading(spec)[0]
    assert found(spec, "W402") != []
    assert loading(spec, env="default") == loading(spec, env="cluster") == []
    assert loading(sources({}) | {"environments": {"debug": {"batch": 8}}}) == []
    text = "dataset: [{shards: a.tar}]\nenvironments:\n  default: {batch: 8}  # wdspec: ignore=W402\n"
    (tmp_path / "s.yaml").write_text(text)
    assert loading(str(tmp_path / "s.yaml")) == []


def test_a_variable_with_the_prefix_of_its_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"dataset": [{"shards": "${WDS_ROOT:-data}/a.tar"}]}
    (text,) = loading(spec)
    assert "W404 `${WDS_ROOT}` is read from the environment variable `WDS_WDS_ROOT`" in text
    assert "write `${ROOT:-data}`" in text
    assert loading(spec | {"vars": {"WDS_ROOT": "x"}}) == loading(spec, vars={"WDS_ROOT": "x"}) == []
    without = {"dataset": [{"shards": "${WDS_ROOT}/a.tar"}]}
    assert (
        "write `${ROOT}`, which is read from the environment variable `WDS_ROOT`" in found(without, "E107")[0]
    )
    monkeypatch.setenv("WDS_WDS_ROOT", "x")
    assert loading(spec) == loading(without) == []


@pytest.mark.parametrize(
    ("top", "entry", "hint"),
    [
        ("", "", "write `defaults: {errors: {skip: true, max_rate: 0.01}}` in this source"),
        ("errors: skip\n", "", None),
        ("", ", defaults: {errors: skip}", None),
    ],
)
def test_errors_of_a_nested_spec_that_do_not_apply(
    tmp_path: Path, top: str, entry: str, hint: str | None
) -> None:
    inner = "errors: {skip: true, max_rate: 0.01}\nseed: 3\nbatch: 4\ndataset: [{shards: a.tar}]\n"
    (tmp_path / "library.yaml").write_text(inner)
    (tmp_path / "s.yaml").write_text(f"{top}dataset: [{{name: library, spec: library.yaml{entry}}}]\n")
    texts = found(str(tmp_path / "s.yaml"), "W409")  # type: ignore[arg-type]
    assert len(texts) == bool(hint)
    if hint:
        assert "`errors` of this spec does not apply here, in the source `library`" in texts[0]
        assert hint in texts[0]


TWO_ENVIRONMENTS = (
    "dataset: [{shards: a.tar}]\nenvironments: {laptop: {seed: 1}, debug: {batch: {size: 2}}}\n"
)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["explain", "s.yaml", "--env", "laptop", "--env", "debug"], "write --env laptop --set batch.size=2"),
        (
            ["explain", "s.yaml", "--split", "a", "--split", "b"],
            "--split takes one name, but was given `a`, `b`",
        ),
        (["validate", "s.yaml", "--env", "laptop", "--env", "debug"], "write --env laptop --set KEY=VALUE"),
    ],
)
def test_an_option_with_one_name_that_is_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TWO_ENVIRONMENTS)
    assert text in within(*arguments, code=2)[1]


def test_a_renamed_source_has_the_name_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        (tmp_path / f"{name}.yaml").write_text(
            f"dataset: [{{name: {name}, shards: 's3://b/a-{{0..3}}.tar'}}]\n"
        )
    assert "write `name: old` to keep that of `old`" in within("diff", "old.yaml", "new.yaml")[0]


def test_an_epoch_of_samples_with_windows_is_one_problem():
    pair = [{"name": name, "shards": f"{name}.tar", "weight": 1, "samples": 500} for name in "ab"]
    batch = {"window": 8, "pack": {"fields": ["ids"], "length": 64}}
    found = wdspec.validate({"dataset": pair, "batch": batch, "epoch": 40e3})
    assert [each.code for each in found] == ["E331"]
