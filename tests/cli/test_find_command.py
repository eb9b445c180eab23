"""`wdspec find`: which specs use a bucket, a path, a license, a base file or a function."""

import json

import pytest
from commandline import within


def find(folder, *arguments, code=0, **variables):
    shown, said = within("find", *arguments, "--format", "json", folder=folder, code=code, **variables)
    return json.loads(shown)["uses"], said


def names(uses):
    """What is found, in short."""
    return {(use["spec"].split("/")[-1], use["source"], use["key"], use["value"]) for use in uses}


@pytest.fixture
def folder(tmp_path):
    files = {
        "team/base.yaml": "defaults: {license: CC-BY-NC-4.0}\nrewrite: [{from: 'gs://', to: 's3://mirror/'}]\n",
        "team/child.yaml": "dataset: [{name: c, shards: 's3://child/{a,b}-{000..010}.tar'}]\n",
        "train.yaml": """
extends: team/base.yaml
splits:
  train:
    dataset:
      - {name: web, shards: "s3://laion/web-{00000..99999}.tar", map: "steps.text:clean"}
      - {name: kids, spec: team/child.yaml, weight: 1}
      - {name: far, shards: "gs://far/x-*.tar", license: MIT, select: "lib:keep"}
  val: {dataset: [{name: v, shards: "s3://laion2/val.tar", license: (MIT OR Apache-2.0)}], epoch: pass}
environments:
  local: {rewrite: [{from: "s3://laion/", to: "/mnt/laion/"}]}
""",
        "other.yaml": """
wdspec: 1
vars: {root: data}
dataset:
  - {name: local, shards: ["${root}/a-{0..3}.tar::${root}/b/", "@lists/all.txt"], exclude: "@lists/bad.txt"}
  - name: files
    shards: data/c.tar
    join: [{shards: "captions/c-0.tar"}]
    lookup: {table: scores.parquet, fields: [score]}
    companions: {noise: {shards: "s3://noise/*.tar"}}
    fetch: {image: {url: txt, hosts: ["s3://photos", cdn.example.net]}}
    meta: {owner: files@example.org, contact: {chat: "#files", people: [ann@example.org]}}
meta: {owner: all@example.org, ticket: 17}
cache: /local/cache
""",
    }
    for name, text in files.items():
        (tmp_path / "specs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "specs" / name).write_text(text)
    (tmp_path / "specs/lists").mkdir()
    (tmp_path / "specs/lists/all.txt").write_text("# all\ns3://listed/x-{0..9}.tar\n../more/y.tar\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("s3://laion", {("train.yaml", "web", "shards", "s3://laion/web-{00000..99999}.tar")}),
        (
            "laion",
            {
                ("train.yaml", "web", "shards", "s3://laion/web-{00000..99999}.tar"),
                ("train.yaml", None, "to", "/mnt/laion/"),
            },
        ),
        ("s3://laion/web-01234.tar", {("train.yaml", "web", "shards", "s3://laion/web-{00000..99999}.tar")}),
        ("s3://laion/web-123456.tar", set()),
        (
            "s3://laion*",
            {
                ("train.yaml", "web", "shards", "s3://laion/web-{00000..99999}.tar"),
                ("train.yaml", "v", "shards", "s3://laion2/val.tar"),
            },
        ),
        (
            "s3://child/b-00?.tar",
            {
                ("train.yaml", "kids/c", "shards", "s3://child/{a,b}-{000..010}.tar"),
                ("child.yaml", "c", "shards", "s3://child/{a,b}-{000..010}.tar"),
            },
        ),
        ("gs://far/x-1.tar", {("train.yaml", "far", "shards", "gs://far/x-*.tar")}),
        ("s3://mirror/far", {("train.yaml", "far", "shards", "gs://far/x-*.tar")}),
        ("CC-BY-NC-4.0", {("train.yaml", "web", "license", "CC-BY-NC-4.0")}),
        (
            "mit",
            {("train.yaml", "far", "license", "MIT"), ("train.yaml", "v", "license", "(MIT OR Apache-2.0)")},
        ),
        ("steps.text:clean", {("train.yaml", "web", "map", "steps.text:clean")}),
        ("lib", {("train.yaml", "far", "select", "lib:keep")}),
        ("team/base.yaml", {("train.yaml", None, "extends", "specs/team/base.yaml")}),
        ("child.yaml", {("train.yaml", None, "spec", "specs/team/child.yaml")}),
        ("specs/data/b", {("other.yaml", "local", "shards", "data/b/")}),
        ("specs/data/b/any/x.tar", {("other.yaml", "local", "shards", "data/b/")}),
        ("s3://listed/x-7.tar", {("other.yaml", "local", "shards", "s3://listed/x-{0..9}.tar")}),
        ("lists/bad.txt", {("other.yaml", "local", "exclude", "lists/bad.txt")}),
        ("captions", {("other.yaml", "files", "shards", "captions/c-0.tar")}),
        ("scores.parquet", {("other.yaml", "files", "table", "scores.parquet")}),
        ("s3://noise", {("other.yaml", "files/noise", "shards", "s3://noise/*.tar")}),
        ("s3://photos", {("other.yaml", "files", "fetch.image.hosts", "s3://photos")}),
        ("https://cdn.example.net", {("other.yaml", "files", "fetch.image.hosts", "cdn.example.net")}),
        ("/local/cache", {("other.yaml", None, "dir", "/local/cache")}),
        ("files@example.org", {("other.yaml", "files", "meta.owner", "files@example.org")}),
        ("ann@example.org", {("other.yaml", "files", "meta.contact", "ann@example.org")}),
        (
            "example.org",
            {
                ("other.yaml", None, "meta.owner", "all@example.org"),
                ("other.yaml", "files", "meta.owner", "files@example.org"),
                ("other.yaml", "files", "meta.contact", "ann@example.org"),
            },
        ),
        ("17", {("other.yaml", None, "meta.ticket", "17")}),
        ("nowhere", set()),
    ],
)
def test_values_are_found(folder, pattern, expected):
    (folder / "specs/data/b").mkdir(parents=True)
    uses, said = find(folder, pattern, "specs")
    assert names(uses) == expected | (
        {("train.yaml", "kids/c", "license", "CC-BY-NC-4.0")} if pattern == "CC-BY-NC-4.0" else set()
    )
    assert said == ""


def test_a_local_path_is_found_however_it_is_written(folder):
    (folder / "specs/data").mkdir()
    expected = {("other.yaml", "local", "shards", value) for value in ("data/a-{0..3}.tar", "data/b/")}
    expected |= {("other.yaml", "files", "shards", "data/c.tar")}
    for pattern in ("specs/data", str(folder / "specs/data"), "./specs/data"):
        assert names(find(folder, pattern, "specs")[0]) == expected
    assert names(find(folder / "specs", "../specs/data", ".")[0]) == expected


def test_each_use_names_its_variants_and_its_line(folder):
    rule, use = find(folder, "/mnt/laion", "specs")[0]
    assert (rule["key"], rule["value"], rule["line"]) == ("to", "/mnt/laion/", 11)
    assert (use["spec"], use["file"], use["line"]) == ("specs/train.yaml", "specs/train.yaml", 6)
    assert use["location"] == "/mnt/laion/web-{00000..99999}.tar"
    assert use["variants"] == [{"split": "train", "environment": "local"}]
    assert not use["everywhere"]
    (use,) = find(folder, "base.yaml", "specs")[0]
    assert use["everywhere"]
    shown = within("find", "s3://laion*", "specs", folder=folder)[0]
    assert shown.splitlines()[0].split("  ")[0] == "spec"
    assert shown.splitlines()[-1] == "1 of 3 specs"
    assert "train, train (local)" in shown


def test_a_spec_with_errors_is_named_as_it_may_be_missing(folder):
    (folder / "specs/broken.yaml").write_text(
        "wdspec: 1\nextends: gone.yaml\ndataset: [{shards: 's3://laion/x.tar'}]\n"
    )
    uses, said = find(folder, "s3://laion", "specs", code=1)
    assert ("broken.yaml", "x", "shards", "s3://laion/x.tar") in names(uses)
    assert "specs/broken.yaml:2:10: E001 cannot read specs/gone.yaml" in said


def test_variables_and_excluded_files(folder):
    (folder / "specs/open.yaml").write_text("wdspec: 1\ndataset: [{shards: '${bucket}/x.tar'}]\n")
    assert "E107" in find(folder, "s3://mine", "specs", code=1)[1]
    uses, _ = find(folder, "s3://mine", "specs", "--var", "bucket=s3://mine")
    assert [use["value"] for use in uses] == ["s3://mine/x.tar"]
    assert find(folder, "s3://mine", "specs", "--exclude", "open.yaml") == ([], "")


def test_secrets_are_hidden(folder):
    (folder / "specs/open.yaml").write_text(
        "wdspec: 1\ndataset: [{shards: 'https://me:PASS-1@host/x.tar?sig=SIG-2'}]\n"
    )
    for form in ("text", "json"):
        shown, said = within("find", "host", "specs", "--format", form, folder=folder)
        assert "@host/x.tar" in shown
        assert not [each for each in ("PASS", "SIG-2") if each in shown + said]


def test_wrong_usage(folder):
    assert "no such file or directory: nothing" in find_usage(folder, "x", "nothing")
    assert "name the files or folders to search" in find_usage(folder, "x")
    assert "Examples:" in within("find", "--help", folder=folder)[0]


def find_usage(folder, *arguments):
    return within("find", *arguments, folder=folder, code=2)[1]
