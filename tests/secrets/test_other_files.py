"""Values of `vars`, and contents of files that are not what they should be, are in no output."""

import pytest
from commandline import within
from shardmaking import write_shard

CANARY = "hunter2Canary"
SPECS = {
    "fmt --diff": f"dataset:\n- shards: a.tar\nvars: {{  p: {CANARY}, b: {{c: x, d: {CANARY}}}, e: {CANARY}}}\n",
    "fmt --diff environments": f"environments:\n  a:\n    vars:\n        p:   {CANARY}\ndataset:\n- shards:   a.tar\n",
    "an unclosed list": f"vars: {{tok: {CANARY}, b: [1,}}\ndataset: [{{shards: a.tar}}]\n",
    "an unused variable": f"vars:\n  tok: {CANARY}\ndataset: [{{shards: a.tar}}]\n",
    "a list of variables": f"vars:\n  - {CANARY}\ndataset: [{{shards: a.tar}}]\n",
    "compact": f'{{"dataset":[{{"shards":"a.tar","bad":1}}],"vars":{{"t":"x{CANARY}"}}}}\n',
    "brackets in quotes": f'vars: {{a: "x}}y", t: {CANARY}, q: "{{", b: [1,}}\ndataset: [{{shards: a.tar}}]\n',
    "no indent": f"vars: {{a: 1,\nt: {CANARY}, b: [1,}}\ndataset: [{{shards: a.tar}}]\n",
    "no indent in a list": f"vars:\n- {CANARY}\ndataset: [{{shards: a.tar}}]\n",
    "another letter case": f"Vars: {{t: {CANARY}}}\ndataset: [{{shards: a.tar}}]\n",
    "another name": f"variables:\n  t: {CANARY}\ndataset: [{{shards: a.tar, bad: 1}}]\n",
    "an alias": f"vars:\n  t: *{CANARY}\n",
    "a tag": f"vars:\n  t: !{CANARY}\n",
    "no blank": f"vars:\n  t:{CANARY}\n  b: 1\n",
    "no blank after vars": f"vars:{CANARY}\ndataset: [{{shards: a.tar}}]\n",
    "an equals sign": f"vars:\n  t = {CANARY}\n  b: 1\n",
    "a text on several lines": f"vars:\n  tok: >\n    {CANARY}\n   x: [\ndataset: [{{shards: a.tar}}]\n",
}


SHOWN = [*SPECS][:5]


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("format", ["text", "json", "junit", "github", "sarif"])
def test_values_of_variables_are_never_shown(tmp_path, name, format):
    (tmp_path / "s.yaml").write_text(SPECS[name])
    if name.startswith("fmt"):
        shown = "".join(within("fmt", "--diff", "s.yaml", folder=tmp_path))
        assert "+++" in shown
    else:
        bad = name not in ("an unused variable",)
        shown = "".join(within("validate", "--format", format, "s.yaml", folder=tmp_path, code=int(bad)))
    assert CANARY not in shown
    if format == "text" and name in SHOWN:
        assert "*" * len(CANARY) in shown, "its place is shown"


def test_paths_and_numbers_of_variables_are_shown(tmp_path):
    (tmp_path / "s.yaml").write_text("vars: {root: /data/web, n: 12, b: [1,}\ndataset: [{shards: a.tar}]\n")
    assert "vars: {root: /data/web, n: 12, b: [1,}" in "".join(
        within("validate", "s.yaml", folder=tmp_path, code=1)
    )


CONTENTS = {
    "passwd": f"root:x:0:0:{CANARY}:/root:/bin/bash\nother:x:1:1:{CANARY}:/:/bin/sh\n",
    "token": f"{CANARY}\n",
    "commas": f"root:x:0:0:{CANARY},,,:/root\n",
    "json": f'{{"token": "{CANARY}", "{CANARY}": 1\n',
    "bytes": "\x01\x02" + CANARY * 50,
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("format", ["csv", "jsonl", "lookup jsonl", "tar", "parquet"])
def test_the_contents_of_a_file_that_is_not_what_it_should_be_are_never_shown(tmp_path, name, format):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    (tmp_path / "other").write_text(CONTENTS[name] * (1 if name == "token" else 20))
    kind = format.rpartition(" ")[2]
    if format in ("csv", "lookup jsonl"):
        entry = f"{{shards: a.tar, lookup: {{table: other, format: {kind}, on: __key__, fields: [x]}}}}"
    else:
        entry = f"{{shards: other, format: {kind}}}"
    (tmp_path / "s.yaml").write_text(f"wdspec: 1\ndataset: [{entry}]\n")
    shown = "".join(within("check", "s.yaml", folder=tmp_path, code=1, WDS_SECURE=str(len(name) % 2)))
    assert "D" in shown
    assert CANARY not in shown


OTHERS = {
    "shards": "dataset: [{shards: '@other'}]",
    "keys": "dataset: [{shards: a.tar, keys: '@other'}]",
    "exclude": "dataset: [{shards: a.tar, exclude: '@other'}]",
    "extends": "extends: other\ndataset: [{shards: a.tar}]",
    "spec": "dataset: [{spec: other}]",
}
LINES = {
    "passwd": CONTENTS["passwd"],
    "shadow": f"root:$6${CANARY}:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
    "login": f"machine a login b password {CANARY}\n",
    "assignment": f"SOME_NAME={CANARY}\nB=1\n",
    "json": f'{{"own": "{CANARY}"}}\n',
    "yaml": f"own: {CANARY}\nother: c\n",
    "key": f"-----BEGIN KEY-----\n{CANARY}/a\n",
}


@pytest.mark.parametrize("content", LINES)
@pytest.mark.parametrize("name", OTHERS)
def test_the_contents_of_a_file_that_is_no_list_and_no_spec_are_never_shown(tmp_path, name, content):
    write_shard(tmp_path / "a.tar", [("0", {"txt": b"a"})])
    (tmp_path / "other").write_text(LINES[content])
    (tmp_path / "s.yaml").write_text(f"wdspec: 1\n{OTHERS[name]}\n")
    codes = {"exclude": (0, 0, 0)}.get(name, (int(name in ("extends", "spec")), 1, 1))
    for command, code in zip(("validate s.yaml", "head s.yaml", "check s.yaml --jobs 0"), codes, strict=True):
        shown = "".join(within(*command.split(), folder=tmp_path, code=code, WDS_SECURE="1"))
        assert CANARY not in shown
    assert {"shards": "first line", "keys": "`keys`", "exclude": "a text of"}.get(name, "other:1:") in shown


def test_lists_of_shards_without_an_ending_are_read(tmp_path):
    (tmp_path / "in").mkdir()
    for place in ("plain", "in/one"):
        write_shard(tmp_path / place, [("0", {"txt": b"a"})])
        (tmp_path / "list").write_text(f"{place}\n")
        (tmp_path / "s.yaml").write_text("dataset: [{shards: '@list'}]\n")
        within("head", "s.yaml", folder=tmp_path)


@pytest.mark.parametrize(
    "command", ["validate other", "validate s.yaml --policy other", "price s.yaml --prices other"]
)
@pytest.mark.parametrize("format", ["text", "json"])
def test_a_line_that_ends_like_a_key_is_never_shown(tmp_path, command, format):
    (tmp_path / "other").write_text(LINES["shadow"])
    (tmp_path / "s.yaml").write_text("wdspec: 1\ndataset: [{shards: a.tar}]\n")
    shown = "".join(
        within(*command.split(), *(("--format", format) * ("price" not in command)), folder=tmp_path, code=1)
    )
    assert "E201" in shown
    assert CANARY not in shown


@pytest.mark.parametrize(
    "override",
    [
        f"vars.tok={CANARY}",
        f"vars={CANARY}",
        f"environments.x.vars.tok={CANARY}",
        f"vars={{tok: {CANARY}, b: [}}",
    ],
)
@pytest.mark.parametrize("format", ["text", "json", "junit", "github", "sarif"])
def test_a_variable_of_the_command_line_is_never_shown(tmp_path, override, format):
    (tmp_path / "s.yaml").write_text("batch: 3\n")
    shown = "".join(
        within("validate", "s.yaml", "--format", format, "--set", override, folder=tmp_path, code=1)
    )
    assert "E" in shown
    assert CANARY not in shown


def test_the_remedy_for_a_secret_in_storage_is_whole(tmp_path):
    storage = "{options: {account_key: Zm9vYmFyYmF6cXV4, account_name: x}}"
    (tmp_path / "s.yaml").write_text(f"dataset: [{{shards: 'az://c/a.tar', storage: {storage}}}]\n")
    shown = "".join(within("validate", "s.yaml", folder=tmp_path, code=1))
    assert "`account_key` the name of a variable" in shown
    assert "***" not in shown.partition("= remove it")[2]
