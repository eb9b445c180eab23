"""`wdspec resolve`: every step of a URL, and of the sources of a spec."""

import json
import os

import pytest
from click.testing import CliRunner

from wdspec.cli.resolve import resolve
from wdspec.stores import table as registry

SPEC = """\
vars: {bucket: gs://pages}
dataset:
  - name: archive
    shards: ${bucket}/a-{000000..000033}.tar
    probability: 0.5
    rewrite: [{from: "gs://pages/", to: "/archive/"}]
  - name: local
    shards: [data/, b.tar]
    probability: 0.5
rewrite: [{from: "gs://", to: "./shared/"}]
environments:
  laptop: {rewrite: [{from: "gs://", to: "./mine/"}]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("WDS_REWRITE", "GOPEN_REWRITE", "WDS_SECURE", "WDS_CACHE", "USE_AIS_FOR", "WDSPEC_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.tar").touch()
    (tmp_path / "train.yaml").write_text(SPEC)
    return tmp_path


def run(*arguments, code=0, **environ):
    result = CliRunner().invoke(resolve, arguments, env=environ)
    assert result.exit_code == code, result.output
    return result.output


def test_a_url_is_shown_with_every_step_and_the_rule_that_fired():
    assert run("gs://b/a-{0..2}.tar", "--limit", "1", WDS_REWRITE="s3://=x;gs://=/shared/") == (
        "3 shards, the first 1\n"
        "  gs://b/a-0.tar\n"
        "    rewrite  /shared/b/a-0.tar  (WDS_REWRITE rule 2: gs:// -> /shared/)\n"
        "    open     /shared/b/a-0.tar  (local file)\n"
    )


def test_the_last_step_shows_how_a_location_is_opened(monkeypatch):
    assert "open     pipe:cat x  (the output of this command)" in run("pipe:cat x")
    assert "open     -  (standard input)" in run("-")
    assert "open     s3://b/a.tar  (S3FileSystem of s3fs)" in run("s3://b/a.tar")
    assert "open     az://b/a.tar  (AzureBlobFileSystem of adlfs)" in run("az://b/a.tar")
    assert "(no opener for vault://; register one with" in run("vault://b/a.tar")
    assert "did you mean `pipe`?" in run("pip://b/a.tar")
    monkeypatch.setitem(registry._registered, "vault", registry.UserStore("vault", run))
    assert "test_resolve_command:run`)" in run("vault://b/a.tar")
    output = run("gs://b/a.tar", USE_AIS_FOR="gs", AIS_ENDPOINT="http://nix:51080")
    request = "http://nix:51080/v1/objects/b/a.tar?provider=gcp"
    assert f"ais      {request}  (AIStore at http://nix:51080 serves gs://)" in output
    assert "open     ais+gs://b/a.tar  (AIStore)" in output
    assert "the address of AIStore is not known; set AIS_ENDPOINT" in run("ais://b/a.tar")


def test_the_cache_step_names_the_copy_and_the_last_whether_it_exists(folder):
    output = run("gs://b/a.tar", WDS_CACHE="copies", WDS_REWRITE="gs://b=s3://c")
    own = folder / "copies" / "s3" / "c" / "a.tar"
    assert f"cache    {own}  (read from this copy, which is made if missing)" in output
    assert "open     s3://c/a.tar" in output
    (folder / "copies" / "b").mkdir(parents=True)
    (folder / "copies" / "b" / "a.tar").touch()
    output = run("gs://b/a.tar", WDS_CACHE="copies", WDS_REWRITE="gs://b=s3://c")
    assert f"open     {folder}/copies/b/a.tar  (a cached copy)" in output
    assert "cache" not in run("/data/a.tar", WDS_CACHE="copies")
    assert "cache" not in run("-", WDS_CACHE="copies")


def test_roots_of_objects_have_no_copy(folder):
    source = "{name: a, shards: gs://b/a.tar, fetch: {image: {url: json.path, root: s3://c/images/}}}"
    (folder / "fetch.yaml").write_text(f"cache: copies\ndataset: [{source}]\n")
    shards, roots = run("fetch.yaml").split("  fetch image: ")
    assert "cache" in shards
    assert roots == "s3://c/images/\n    open     s3://c/images/  (S3FileSystem of s3fs)\n"


def test_a_file_in_the_cache_is_used_by_its_unique_name(folder):
    (folder / "copies").mkdir()
    for name in ("x.tar", "y.tar"):
        (folder / "copies" / name).touch()
    shards = "[gs://a/x.tar, gs://b/x.tar, gs://b/y.tar, gs://b/y.tar]"
    (folder / "flat.yaml").write_text(f"cache: copies\ndataset:\n  - shards: {shards}\n")
    opened = [line for line in run("flat.yaml", "--limit", "4").splitlines() if " open " in line]
    assert ["copies" in line for line in opened] == [False, False, True, True]


def test_json_contains_the_same_steps(folder):
    answer = json.loads(run("a b\udce9.tar", "--format", "json"))
    path = os.path.join(folder, "a b\udce9.tar")
    assert answer == {
        "resolved": [
            {
                "source": None,
                "shards": 1,
                "error": None,
                "urls": [
                    {
                        "url": "a b\udce9.tar",
                        "location": path,
                        "steps": [
                            {"stage": "path", "url": path, "why": f"relative to {folder}"},
                            {"stage": "open", "url": path, "why": "local file"},
                        ],
                    }
                ],
            }
        ]
    }


def test_unprintable_names_are_escaped():
    assert "  new\\nline\\udce9.tar\n" in run("new\nline\udce9.tar")


def test_the_sources_of_a_spec_are_listed_and_resolved(folder):
    assert run("train.yaml", "--limit", "1").splitlines() == [
        "archive: 34 shards, the first 1",
        "  gs://pages/a-000000.tar",
        "    rewrite  /archive/a-000000.tar  (train.yaml:6: gs://pages/ -> /archive/)",
        "    open     /archive/a-000000.tar  (local file)",
        "local: 2 shards, the first 1",
        "  data/x.tar",
        f"    path     {folder}/data/x.tar  (relative to {folder})",
        f"    open     {folder}/data/x.tar  (local file)",
    ]


def test_options_set_environment_variables_and_overrides(folder):
    assert f"    rewrite  {folder}/mine/pages/a-000000.tar  (environment laptop" in run(
        "train.yaml", "--env", "laptop"
    )
    assert "  s3://b/a-000000.tar\n" in run("train.yaml", "--var", "bucket=s3://b")
    assert "  c-3.tar\n" in run("train.yaml", "--set", "dataset=[{name: c, shards: c-3.tar}]")
    assert "  s3://b/a-000000.tar\n" in run("train.yaml", WDS_bucket="s3://b")


def test_a_url_can_be_resolved_with_the_rules_of_a_spec(folder):
    assert f"rewrite  {folder}/shared/pages/a.tar  (train.yaml:10:" in run(
        "gs://pages/a.tar", "--spec", "train.yaml"
    )
    output = run("gs://pages/a.tar", "--spec", "train.yaml", "--source", "archive")
    assert "rewrite  /archive/a.tar  (train.yaml:6:" in output
    assert "data/x.tar" in run("data/", "--spec", "train.yaml", "--source", "local")


def test_an_error_in_one_source_does_not_hide_the_others():
    output = run("train.yaml", "--var", "bucket=vault://b/*", code=1)
    assert "  error: globs and directories cannot be listed there (no opener for vault://" in output
    assert "[source archive, url vault://b/*/a-000000.tar" in output
    assert "local: 2 shards\n" in output
    answer = json.loads(run("gs://b/a-{3..0}", "--format", "json", code=1))
    assert answer["resolved"][0]["error"].startswith("empty brace range: 3 > 0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.tar", "--env", "laptop"], "--source, --env, --split, --var and --set need a spec"),
        (["train.yaml", "--source", "archive"], "--source needs a URL and --spec FILE"),
        (["train.yaml", "--var", "bucket"], "--var takes NAME=VALUE, not `bucket`"),
        (["a.tar", "--limit", "0"], "0 is not in the range"),
        (["a.tar", "--format", "xml"], "'xml' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_exits_2(arguments, message):
    assert message in run(*arguments, code=2)
