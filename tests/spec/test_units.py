"""Warnings about numbers that are probably meant in another unit, and the cases next to them without a warning."""

from __future__ import annotations

from typing import Any

import pytest

import wdspec

CODES = ("W396", "W397", "W399", "W111", "W102")


def problems(spec: dict[str, Any]) -> list[Any]:
    sources = [
        {"name": name, "shards": f"s3://b/{name}-{{0..99}}.tar", "samples": 900} for name in ("a", "b")
    ]
    return [each for each in wdspec.validate({"dataset": sources, **spec}) if each.code in CODES]


def schedule(at: int, **keys: Any) -> dict[str, Any]:
    return {"mix": {"schedule": [{"at": 0, "shares": {"a": 1}}, {"at": at, "shares": {"b": 1}}]}, **keys}


HTTPS = [{"shards": "https://h/a.tar"}]


@pytest.mark.parametrize(
    ("spec", "code", "message", "hint"),
    [
        ({"mix": {"temperature": 0.3}}, "W396", "sizes to the power of 3.33", "write `temperature: 3.33`"),
        ({"errors": {"retry": 5}}, "W397", "5 seconds, not 5 times", "write `retry: 5s`"),
        ({"errors": {"timeout": 30000}}, "W397", "is 8.3 hours", "write `timeout: 30s`"),
        ({"defaults": {"errors": {"retry": 3}}}, "W397", "3 seconds, not 3 times", "write `retry: 3s`"),
        (schedule(2, batch=64), "W399", "within the first batch", "write `at: 128`"),
        (schedule(2, batch={"global_size": 32}), "W399", "a batch has 32", "write `at: 64`"),
        ({"defaults": {"interleave": 1024}}, "W111", "keeps 1,024 shards open", "`interleave: 16`"),
        (
            {"storage": {"profile": "x"}, "dataset": HTTPS},
            "W102",
            "`storage.profile` has no effect",
            "remove",
        ),
    ],
)
def test_a_number_that_was_probably_meant_otherwise(
    spec: dict[str, Any], code: str, message: str, hint: str
) -> None:
    found = problems(spec)
    assert [each.code for each in found] == [code]
    assert message in found[0].message
    assert hint in found[0].hint


@pytest.mark.parametrize(
    "spec",
    [
        {"mix": {"temperature": 0.5}},
        {"mix": {"temperature": 3.33}},
        {"errors": {"retry": "5s"}},
        {"errors": {"retry": 0.3}},
        {"errors": {"retry": 30, "timeout": 3600}},
        {"errors": {"timeout": "30000s"}},
        schedule(64, batch=64),
        schedule(2),
        {"defaults": {"interleave": 256}},
        {"storage": {"profile": "x"}},
        {"storage": {"profile": "x"}, "dataset": [{"shards": "@list.txt"}]},
        {"storage": {"profile": "x"}, "dataset": [{"shards": "https://h/a.tar", "exclude": "@s3://b/x.txt"}]},
        {"storage": {"profile": "x"}, "dataset": HTTPS, "rewrite": [{"from": "https://h/", "to": "s3://b/"}]},
        {"defaults": {"limit": 104}},
    ],
)
def test_numbers_next_to_them_have_no_warning(spec: dict[str, Any]) -> None:
    assert problems(spec) == []


@pytest.mark.parametrize(
    ("parts", "hint"),
    [
        (("90%", "10%"), "all of 10% is in 90%: write `subset: [90%, 100%]` in place of 10%"),
        (("10%", "20%"), "all of 10% is in 20%: write `subset: [20%, 30%]` in place of 10%"),
        (("10%", "95%"), "all of 10% is in 95%: write `subset: [10%, 95%]` in place of 95%"),
        (({"part": "90%", "seed": 1}, ["90%", "100%"]), "parts with another `seed` or `of` overlap"),
        ((["0%", "60%"], ["50%", "100%"]), "choose ranges of `subset` that do not overlap"),
        (("90%", ["90%", "100%"]), ""),
        ((["10%", "90%"], "10%"), ""),
    ],
)
def test_parts_of_the_same_shards_that_overlap_name_the_range(parts: tuple[Any, Any], hint: str) -> None:
    sources = [
        {"name": f"s{n}", "shards": "s3://b/a-{0..9}.tar", "subset": part} for n, part in enumerate(parts)
    ]
    train, val = ({"dataset": [source]} for source in sources)
    for spec, code in (({"dataset": sources}, "W301"), ({"splits": {"train": train, "val": val}}, "W302")):
        found = [each for each in wdspec.validate(spec) if each.code == code]
        assert [each.hint.partition(":")[0] for each in found] == [hint.partition(":")[0]] * bool(hint)
        assert not hint or found[0].hint.startswith(hint)


SECRET = "hunter22hunter22"


@pytest.mark.parametrize(
    ("vars", "url", "warned"),
    [
        ({"pw": SECRET}, "https://ann:${pw}@host/a.tar", ["pw"]),
        ({"tok": SECRET}, "https://host/a.tar?token=${tok}", ["tok"]),
        ({"host": "storage.example.org"}, "https://${host}/a.tar", []),
        ({"host": "storage.example.org"}, "https://ann:${pw:-}@${host}/a.tar", []),
    ],
)
def test_a_secret_in_vars_that_a_url_uses_is_a_warning(
    vars: dict[str, str], url: str, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        each for each in wdspec.validate({"vars": vars, "dataset": [{"shards": url}]}) if each.code == "W323"
    ]
    assert [f"`{name}`" in each.message for name, each in zip(warned, found, strict=True)] == [True] * len(
        warned
    )
    assert SECRET not in "".join(map(str, found))
    if warned:  # as the hint says
        monkeypatch.setenv(f"WDS_{warned[0]}", SECRET)
        assert [each.code for each in wdspec.validate({"dataset": [{"shards": url}]})] == []
