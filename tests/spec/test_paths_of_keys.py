"""Paths in specs: which keys have some follows from the types of their fields, and each is relative to its file."""

from typing import Any

import pytest
import yaml
from pydantic import Field

import wdspec
from wdspec.spec.language.effects import AffectsNeither, paths_in
from wdspec.spec.language.values import FilePath, LocalPath, Model

LOCAL = {
    "errors.log": lambda path: {"errors": {"log": path}},
    "storage.files": lambda path: {"storage": {"files": {"secret": path}}},
    "cache": lambda path: {"cache": path},
    "cache.dir": lambda path: {"cache": {"dir": path}},
    "aistore.token_file": lambda path: {"aistore": {"endpoint": "h", "token_file": path}},
    "aistore.client_ca": lambda path: {"aistore": {"endpoint": "h", "client_ca": path}},
    "aistore.client_crt": lambda path: {"aistore": {"endpoint": "h", "client_crt": path, "client_key": "/k"}},
    "aistore.client_key": lambda path: {"aistore": {"endpoint": "h", "client_crt": "/c", "client_key": path}},
}


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts(each)]
    return [value] if isinstance(value, str) else []


def written(keys, of_source):
    source = {"name": "a", "shards": "/data/a.tar"}
    return {"wdspec": 1, "dataset": [source | keys]} if of_source else {**keys, "dataset": [source]}


@pytest.mark.parametrize("url", ["gs://bucket/x", "https://host/x"])
@pytest.mark.parametrize("of_source", [False, True])
@pytest.mark.parametrize("name", LOCAL)
def test_a_local_file_cannot_be_a_url(name, of_source, url):
    with pytest.raises(wdspec.SpecError, match=r"E202 .* local") as caught:
        wdspec.load(written(LOCAL[name](url), of_source))
    assert "write a path" in str(caught.value)


@pytest.mark.parametrize("of_source", [False, True])
@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize(
    ("path", "expected"),
    [("x/y", "{here}/sub/x/y"), ("../y", "{here}/y"), ("/x", "/x"), ("~/x", "~/x"), ("-", "{here}/sub/-")],
)
def test_a_path_is_relative_to_the_file_that_has_it(name, of_source, path, expected, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(yaml.safe_dump(written(LOCAL[name](path), of_source)))
    (tmp_path / "s.yaml").write_text("extends: sub/base.yaml\n")
    spec = wdspec.load(tmp_path / "s.yaml")
    holder = spec.sources[0] if of_source else spec
    found = texts(holder.model_dump(mode="json", include={name.partition(".")[0]}))
    assert expected.format(here=tmp_path) in found


def test_a_new_path_is_one_type():
    class Options(Model):
        log: AffectsNeither[LocalPath | None] = Field(None, description="A new path.")
        logs: AffectsNeither[dict[str, LocalPath]] = Field({}, description="A map of paths.")

    class Whole(Model):
        options: Options | None = Field(None, description="A map with paths.")
        many: tuple[Options, ...] = Field((), description="Maps with paths.")
        name: AffectsNeither[str] = Field("", description="No path.")

    assert paths_in(Options) == {"log": FilePath(), "logs": FilePath()}
    assert paths_in(Whole) == {"options": Options, "many": Options}
