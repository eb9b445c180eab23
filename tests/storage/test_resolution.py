"""Where the bytes of a shard come from: rules in their order, paths and their bases, what is forbidden."""

import os
import pickle
from pathlib import Path

import pytest

from wdspec.base.errors import UrlError, UsageError
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl


def location(url, base="/spec/dir", environ=None, **rules):
    return storage(environ, **rules).resolve(ShardUrl(url, base)).location


def storage(environ=None, **rules):
    return Storage.of(Environment.read(environ or {}), *spec_with(**rules))


def spec_with(overlay=(), source=(), top=(), **options):
    def made(pairs, origin, overlay=False):
        rules = ({"from": a, "to": b, "origin": origin, "overlay": overlay} for a, b in pairs)
        return tuple(map(RewriteRule.model_validate, rules))

    leaf = Source.model_validate(
        {"name": "a", "shards": ["x"], "rewrite": made(source, "s.yaml:3"), **options}
    )
    rewrite = made(overlay, "environment laptop", overlay=True) + made(top, "s.yaml:9")
    return Spec.model_validate({"dataset": (leaf,), "rewrite": rewrite}), leaf


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("x.tar", "/spec/dir/x.tar"),
        ("./sub/../x.tar", "/spec/dir/sub/../x.tar"),
        ("/abs//x.tar", "/abs/x.tar"),
        ("~/x.tar", str(Path.home() / "x.tar")),
        ("./~/x.tar", "/spec/dir/~/x.tar"),
        ("a b#?%20\n.tar", "/spec/dir/a b#?%20\n.tar"),
        ("caf\udce9.tar", "/spec/dir/caf\udce9.tar"),
        ("a:b.tar", "/spec/dir/a:b.tar"),
        ("file:///a%20b%E9%23.tar", "/a b\udce9#.tar"),
        ("file://localhost/a.tar", "/a.tar"),
        ("file:/a#1?.tar", "/a#1?.tar"),
        ("FILE:///a.tar", "/a.tar"),
        ("file:x.tar", "/spec/dir/x.tar"),
        ("gs://b/o.tar", "gs://b/o.tar"),
        ("pipe:cat x", "pipe:cat x"),
        ("-", "-"),
    ],
)
def test_a_url_is_located(url, expected):
    assert location(url) == expected


def test_rules_apply_in_the_order_variable_overlay_source_top():
    pairs = {name: [("gs://", f"/{name}/")] for name in ("overlay", "source", "top")}
    assert location("gs://b", environ={"WDS_REWRITE": "gs://=/variable/"}, **pairs) == "/variable/b"
    assert location("gs://b", **pairs) == "/overlay/b"
    del pairs["overlay"]
    assert location("gs://b", **pairs) == "/source/b"
    del pairs["source"]
    assert location("gs://b", **pairs) == "/top/b"


def test_gopen_rewrite_applies_only_if_wds_rewrite_is_unset():
    assert location("gs://b", environ={"GOPEN_REWRITE": "gs://=/g/"}) == "/g/b"
    assert location("gs://b", environ={"GOPEN_REWRITE": "gs://=/g/", "WDS_REWRITE": "gs://=/w/"}) == "/w/b"
    assert location("gs://b", environ={"GOPEN_REWRITE": "gs://=/g/", "WDS_REWRITE": ""}) == "gs://b"
    with pytest.raises(UrlError, match="GOPEN_REWRITE rule 1"):
        Environment.read({"GOPEN_REWRITE": "x"})


def test_relative_results_of_the_variable_start_at_the_cwd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert location("gs://b/x", environ={"WDS_REWRITE": "gs://=data/"}) == f"{os.getcwd()}/data/b/x"
    assert location("gs://b/x", environ={"WDS_REWRITE": "gs://=~/"}) == str(Path.home() / "b/x")
    assert location("gs://b/x", top=[("gs://", "")]) == "/spec/dir/b/x"


def test_rules_match_the_url_as_written_and_results_are_not_expanded():
    assert location("data/x.tar", top=[("data/", "/fast/")]) == "/fast/x.tar"
    assert location("data/x.tar", top=[("/spec/dir/", "/fast/")]) == "/spec/dir/data/x.tar"
    assert location("gs://x", top=[("gs://", "/d/{0..3}::*")]) == "/d/{0..3}::*x"


def test_every_step_names_its_origin():
    result = storage(top=[("gs://", "file:///a%20b/")]).resolve(ShardUrl("gs://o.tar", "/"))
    assert [tuple(step) for step in result.steps] == [
        ("rewrite", "file:///a%20b/o.tar", "s.yaml:9: gs:// -> file:///a%20b/"),
        ("path", "/a b/o.tar", "the path of the `file:` URL"),
    ]
    assert storage().resolve(ShardUrl("/a.tar", "/")).steps == ()
    assert storage().resolve(ShardUrl("a.tar", "/b")).steps == (("path", "/b/a.tar", "relative to /b"),)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "an empty URL"),
        ("a\0b", "a NUL character"),
        ("file:///a%00b", "a NUL character"),
        ("file://host/a.tar", "names the host `host`.* write `file:///host/a.tar`"),
        ("gone://", "an empty URL after s.yaml:9: gone:// -> "),
    ],
)
def test_a_url_that_cannot_be_located_is_an_error(url, message):
    with pytest.raises(UrlError, match=message):
        location(url, top=[("gone://", "")])


def test_secure_mode_forbids_pipes():
    for environ in ({}, {"WDS_SECURE": "0"}):
        assert location("pipe:cat x", environ=environ) == "pipe:cat x"
    with pytest.raises(UrlError, match="runs a program, and WDS_SECURE forbids"):
        location("pipe:cat x", environ={"WDS_SECURE": "1"})
    with pytest.raises(UrlError, match="runs a program, and WDS_SECURE forbids"):
        location("gs://x", environ={"WDS_SECURE": "1", "WDS_REWRITE": "gs://=PIPE:cat "})


def test_schemes_are_routed_to_aistore_only_on_request():
    environ = {"USE_AIS_FOR": "gs:az, s3", "AIS_ENDPOINT": "http://nix:51080/"}
    result = storage(environ).resolve(ShardUrl("gs://b/o.tar", "/"))
    assert result.location == "ais+gs://b/o.tar"
    assert result.steps[-1].why == "AIStore at http://nix:51080 serves gs://"
    assert location("s3://b/o", environ=environ) == "ais+s3://b/o"
    assert location("ais://b/o", environ=environ) == "ais+ais://b/o"
    assert location("hf://b/o", environ=environ) == "hf://b/o"
    assert location("gs://b/o", environ=environ, aistore=False) == "gs://b/o"
    assert location("gs://b/o", environ={"AIS_ENDPOINT": "http://nix:51080"}) == "gs://b/o"


def test_aistore_without_an_endpoint_is_an_error():
    with pytest.raises(UsageError, match="USE_AIS_FOR=gs is set, but AIS_ENDPOINT is not"):
        storage({"USE_AIS_FOR": "gs"})


def test_a_pickled_storage_keeps_the_environment_of_the_parent(monkeypatch, tmp_path):
    before = storage({"WDS_REWRITE": "gs://=data/"})
    after = pickle.loads(pickle.dumps(before))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/elsewhere")
    assert after == before
    for url in ("gs://b", "~/x"):
        assert after.resolve(ShardUrl(url, "/")).location == before.resolve(ShardUrl(url, "/")).location
    assert str(tmp_path) not in after.resolve(ShardUrl("gs://b", "/")).location
    assert "/elsewhere" not in after.resolve(ShardUrl("~/x", "/")).location


def test_variables_without_effect_cause_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="WDS_REWRTEE is not a setting of wdspec; did you mean WDS_REWRITE"):
        Environment.read({"WDS_REWRTEE": "a=b"})
    with pytest.warns(UserWarning, match="WDS_CACHE_SIZE has no effect, as nothing is cached; set WDS_CACHE"):
        storage({"WDS_CACHE_SIZE": "3GB"})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["WDS_bucket", "WDS_cache", "WDS_VERBOSE_CACHE", "AIS_PROJECT", "WDSX"])
def test_variables_of_specs_and_other_programs_cause_no_warning(name, tmp_path):
    Environment.read({name: "x"})
    storage({"WDS_CACHE_SIZE": "3GB", "WDS_CACHE": str(tmp_path)})
