"""What rules forbid and require, of every source of every split and environment, and where it is reported."""

import os

import pytest


def rule(text):
    return f"rules:\n  r: {text}\n"


def codes(found):
    return [code for code, *_ in found]


def source(**keys):
    return "dataset:\n  - {name: a, " + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}\n"


URLS = [
    # pattern, shards, is it forbidden?
    ("s3://b/*", "s3://b/x.tar", True),
    ("s3://b/*", "s3://c/x.tar", False),
    ("s3://b/*", "s3a://b/x.tar", True),
    ("s3a://b/*", "s3://b/x.tar", True),
    ("gs://b/*", "gcs://b/x.tar", True),
    ("az://box/*", "abfss://box@account.dfs.core.windows.net/x.tar", True),
    ("https://host/*", "https://ann@HOST:443/x.tar", True),
    ("https://host/secret/*", "https://host/open/../secret/x.tar", True),
    ("https://host/secret/*", "https://host/%73ecret/x.tar", True),
    ("https://host/secret/*", "https://host/open/..%2fsecret/x.tar", True),
    ("https://host/secret/*", "https://host//secret//x.tar", True),
    ("https://host/*", "https://host./x.tar", True),
    ("https://host/*", "https://h%6fst/x.tar", True),
    ("https://HOST:443/*", "https://host/x.tar", True),
    ("http://127.0.0.1/*", "http://127.1/x.tar", True),
    ("s3://b/*", "https://b.s3.amazonaws.com/x.tar", True),
    ("s3://b/*", "https://b.s3.eu-central-1.amazonaws.com/x.tar", True),
    ("s3://b/*", "https://s3-us-west-2.amazonaws.com/b/x.tar", True),
    ("s3://b/*", '"https://{a,b}.s3.amazonaws.com/x.tar"', True),
    ("s3://b/*", '"https://{b.s3.amazonaws.com,h}/x.tar"', True),
    ("s3://b/*", "https://c.s3.amazonaws.com/b/x.tar", False),
    ("s3://b/*", "https://b.s3.example.org/x.tar", False),
    ("gs://b/*", "https://storage.googleapis.com/b/x.tar", True),
    ("gs://b/*", "https://b.storage.googleapis.com/x.tar", True),
    ("gs://b/x*", "'https://storage.googleapis.com/storage/v1/b/b/o/x.tar?alt=media'", True),
    ("az://box/*", "https://account.blob.core.windows.net/box/x.tar", True),
    ("hf://datasets/o/n/*", "https://huggingface.co/datasets/o/n/resolve/main/x.tar", True),
    ("hf://datasets/o/n/*", '"https://huggingface.co/datasets/o/n/{resolve,raw}/main/x.tar"', True),
    ("hf://datasets/o/n/x*", "https://hf.co/datasets/o/n/resolve/refs%2Fconvert%2Fparquet/x.tar", True),
    ("hf://o/n/*", "https://huggingface.co/datasets/o/n/resolve/main/x.tar", False),
    ("/data/*", "/data/x.tar", True),
    ("/data/*", "file:///data/x.tar", True),
    ("/data/*", "/other/../data/x.tar", True),
    ("*/here/x.tar", "here/x.tar", True),
    ("hf://datasets/o/n/*", "hf://datasets/o/n@main/x.tar", True),
    ("s3://b/a-7*", '"s3://b/a-{0..9}.tar"', True),
    ("s3://b/a-7*", '"s3://b/a-{0..6}.tar"', False),
    ("s3://b/a-7*", '"s3://b/{a,c}-{0..6}.tar"', False),
    ("s3://c/*", '"s3://b/x.tar::s3://c/x.tar"', True),
    ("s3://c/*", '"{s3,gs}://c/{0..3}.tar"', True),
    ("s3://c/*", '"{s3,gs}://b/{0..3}.tar"', False),
    ("s3://c/*", '"s3://{b,c}/x.tar"', True),
    ("https://h/secret*", '"https://h/{a,..}/secret"', True),
    ("https://h/secret*", '"https://h/{,x}../secret"', True),
    ("https://h/secret*", '"https://h/{,x}./secret"', True),
    ("https://h/secret*", '"https://h/%7{2,3}ecret"', True),
    ("https://h/*", '"https://{ann@,}h/x.tar"', True),
    ("/data/secret/*", '"/data/{a,..}/data/secret/{0..3}.tar"', True),
    ("s3://c/*", '"*.tar"', False),
    ("s3://b/*", '"s3://b/*.tar"', True),
    ("s3://c/*", '"s3://b/*.tar"', False),
    ("s3://b/web*", "s3://b/laion/", False),
    ("s3://b/*", "pipe:aws s3 cp s3://b/x.tar -", True),
    ("s3://c/*", "pipe:aws s3 cp s3://b/x.tar -", False),
    ("pipe:*", "pipe:aws s3 cp s3://b/x.tar -", True),
]


@pytest.mark.parametrize(("pattern", "shards", "is_forbidden"), URLS)
def test_urls_are_compared_in_one_form(pattern, shards, is_forbidden, findings):
    found = findings(rule(f'{{forbid: {{shards: "{pattern}"}}}}'), source(shards=shards))
    found = [each for each in found if each[0][0] != "W"]  # such as a program in a spec
    assert codes(found) == (["P101"] if is_forbidden else [])
    assert all(
        "cannot be known" not in message and (line, column) == (2, 23) for _, line, column, message in found
    )


@pytest.mark.parametrize(
    ("pattern", "shards"),
    [
        ("s3://b/laion*", '"s3://b/*.tar"'),
        ("s3://b/laion/*", '"s3://b/*/000.tar"'),
        ("s3://b/laion/*", "s3://b/"),
        ("s3://b/laion/*", "'@s3://b/list.txt'"),
        ("s3://b/laion/*", "'@missing.txt'"),
        ("s3://b/laion/*", "pipe:cat $LIST"),
    ],
)
def test_what_cannot_be_known_without_reading_data_is_a_finding(pattern, shards, findings):
    [*_, (code, line, _, message)] = findings(
        rule(f'{{forbid: {{shards: "{pattern}"}}}}'), source(shards=shards)
    )
    assert (code, line) == ("P101", 2)
    assert "cannot be known" in message


def test_what_is_required_must_be_known(findings):
    policy = rule('{require: {shards: ["s3://b/web/*", "s3://c/*"]}}')
    messages = {
        '"s3://b/web/*.tar"': None,
        '"s3://c/{0..9}/*.tar"': None,
        '"s3://b/*/x.tar"': "cannot be known",
        "'@s3://b/list.txt'": "cannot be known",
        '"s3://d/*.tar"': "reads `s3://d/*.tar`",
        '"s3://b/{web,laion}/x.tar"': "reads `s3://b/laion/x.tar`",
        "pipe:aws s3 cp s3://c/x.tar -": "reads `pipe:aws",
    }
    for shards, expected in messages.items():
        found = [message for code, *_, message in findings(policy, source(shards=shards)) if code == "P101"]
        assert (expected is None and not found) or (len(found) == 1 and expected in found[0]), (shards, found)


@pytest.mark.parametrize(
    ("subject", "pattern", "shards", "is_allowed"),
    [
        ("shards", "az://box/*", "az://box/x.tar", True),
        ("shards", "az://box/*", "abfss://box@other.dfs.core.windows.net/x.tar", False),
        ("shards", "az://box@ours.*", "abfss://box@ours.dfs.core.windows.net/x.tar", True),
        ("bucket", "box", "abfss://box@other.dfs.core.windows.net/x.tar", False),
        ("shards", "s3://b/*", "https://b.s3.amazonaws.com/x.tar", False),
        ("bucket", "host", "https://other\\\\@host/x.tar", False),
        ("bucket", "o/*", "hf://o/n@main/x.tar", True),
        ("bucket", "datasets/o/*", "hf://datasets/o/n@main/x.tar", True),
        ("bucket", "datasets/o/*", "hf://datasets/p/n/x.tar", False),
    ],
)
def test_what_is_required_is_compared_as_it_is_written(subject, pattern, shards, is_allowed, findings):
    """Another name of the same place, or another account, is no place that was allowed."""
    found = findings(rule(f'{{require: {{{subject}: "{pattern}"}}}}'), source(shards=f"'{shards}'"))
    assert [code for code in codes(found) if code[0] == "P"] == ([] if is_allowed else ["P101"])


def test_a_certain_violation_is_named_before_what_is_unknown(findings):
    spec = source(shards='"s3://b/*/x.tar::s3://b/laion/x.tar"')
    [(_, _, _, message)] = findings(rule('{forbid: {shards: "s3://b/laion/*"}}'), spec)
    assert message == "`r`: `a` reads `s3://b/laion/x.tar`"


def test_a_local_list_is_read_and_a_shard_of_it_is_named(here, findings):
    (here / "lists").mkdir()
    (here / "lists" / "a.txt").write_text(
        "# shards\ns3://b/0.tar\nlocal/1.tar\ns3://b/laion/2.tar\ns3://b/*/x.tar\n"
    )
    spec = source(shards="'@lists/a.txt'")
    [(code, line, column, message)] = findings(rule('{forbid: {shards: "s3://b/laion/2*"}}'), spec)
    assert (code, line, column) == ("P101", 2, 23)
    assert message == "`r`: `a` reads `s3://b/laion/2.tar` in lists/a.txt"
    assert "line 5 of lists/a.txt" in findings(rule('{forbid: {shards: "s3://b/q/*"}}'), spec)[0][3]
    [(_, _, _, message)] = findings(rule(f'{{forbid: {{shards: "{here}/lists/local/*"}}}}'), spec)
    assert "local/1.tar" in message
    assert findings(rule("{require: {scheme: [s3, file]}}"), spec) == []
    assert codes(findings(rule("{require: {scheme: s3}}"), spec)) == ["P101"]


OTHER_PARTS = {
    "join": "{shards: x.tar, join: 's3://c/y.tar'}",
    "lookup": "{shards: x.tar, lookup: {table: 's3://c/t.parquet', fields: q}}",
    "fetch": "{shards: x.jsonl, fetch: {image: {url: json.path, root: 's3://c/images/'}}}",
    "hosts": "{shards: x.jsonl, fetch: {image: {url: json.path, hosts: ['s3://c']}}}",
    "companions": "{shards: x.tar, companions: {noise: {shards: 's3://c/n.tar', chance: 0.5}}}",
    "keys": "{shards: x.tar, keys: '@s3://c/keys.txt'}",
    "exclude": "{shards: x.tar, exclude: '@s3://c/keys.txt'}",
}


@pytest.mark.parametrize("part", OTHER_PARTS)
def test_all_that_a_source_reads_counts(part, findings):
    spec = f"dataset:\n  - {OTHER_PARTS[part]}\n"
    for bucket, expected in (("c", ["P101"]), ("b", [])):
        found = findings(rule(f'{{forbid: {{shards: "s3://{bucket}/*"}}}}'), spec)
        assert [code for code in codes(found) if code[0] == "P"] == expected


def test_urls_are_seen_as_written_and_after_the_rewrite_rules_of_each_environment(findings):
    spec = (
        "dataset:\n  - {name: a, shards: 's3://b/{0..3}.tar'}\n"
        "environments:\n  lab:\n    rewrite: [{from: 's3://b/2', to: 'http://lab/2'}]\n"
    )
    [(code, line, _, message)] = findings(rule("{forbid: {scheme: http}}"), spec)
    assert (code, line) == ("P101", 2)
    assert message == (
        "`r`: `a` reads `http://lab/2.tar` after the rewrite rule of environment lab (spec.yaml:5) "
        "(in the environment `lab`)"
    )
    assert len(findings(rule("{forbid: {scheme: s3}}"), spec)) == 1  # once, not in each environment
    assert findings(rule("{forbid: {scheme: http}}"), spec, "--env", "all") != []


def test_each_split_is_checked(findings):
    spec = (
        "splits:\n  train: {dataset: [{name: a, shards: s3://b/x.tar}]}\n"
        "  val: {epoch: pass, dataset: [{name: b, shards: http://b/x.tar}]}\n"
    )
    assert [(code, line) for code, line, *_ in findings(rule("{forbid: {scheme: http}}"), spec)] == [
        ("P101", 3)
    ]
    assert findings(rule("{for: {split: train}, forbid: {scheme: http}}"), spec) == []


@pytest.mark.parametrize(
    ("text", "spec", "columns"),
    [
        ("{require: homepage}", source(shards="x.tar"), [6]),
        ("{require: [homepage, revision]}", source(shards="x.tar", homepage="https://x.org"), [6]),
        ("{require: expect}", source(shards="x.tar", expect="{samples: [1, 9]}"), []),
        ("{require: meta.owner}", source(shards="x.tar", meta="{owner: vision}"), []),
        ("{require: meta.owner}", source(shards="x.tar", meta="{ticket: 1}"), [6]),
        ("{require: meta.owner}", "meta: {owner: x}\n" + source(shards="x.tar"), []),
        ("{require: {meta.owner: [vision, web*]}}", source(shards="x.tar", meta="{owner: webb}"), []),
        ("{require: {meta.owner: [vision, web*]}}", source(shards="x.tar", meta="{owner: audio}"), [44]),
        ("{require: {missing: error}}", source(shards="x.tar"), []),
        ("{require: {missing: error}}", source(shards="x.tar", missing="skip"), [39]),
        ("{forbid: allow}", "allow: []\n" + source(shards="x.tar"), []),
        ("{forbid: cache}", source(shards="x.tar", cache="/c"), [37]),
        ("{forbid: {tags.kind: 7}}", source(shards="x.tar", tags="{kind: 7}"), [43]),
        ("{require: {format: [tar, auto]}}", source(shards="x.tar"), []),
        ("{require: revision}", source(shards="hf://datasets/o/n@v1/x.tar"), []),
        ("{require: revision}", source(shards="hf://datasets/o/n/x.tar"), [6]),
    ],
)
def test_keys_are_required_and_forbidden_by_name_and_by_value(text, spec, columns, findings):
    found = [each for each in findings(rule(text), spec) if each[0][0] == "P"]
    assert [column for _, _, column, _ in found] == columns


def test_a_value_of_a_base_is_reported_in_the_base(here, findings):
    (here / "base.yaml").write_text("defaults:\n  license: CC-BY-NC-4.0\n")
    (here / "policy.yaml").write_text(rule('{forbid: {license: "*-NC-*"}}'))
    found = findings(rule('{forbid: {license: "*-NC-*"}}'), "extends: base.yaml\n" + source(shards="x.tar"))
    assert [each[:3] for each in found] == [("P101", 2, 12)]


@pytest.mark.parametrize(
    ("key", "value", "count"),
    [
        ("map", "'a.b:c'", 1),
        ("map", "{txt: ['a.b:c', 'd.e:f']}", 2),
        ("select", "'a.b:c'", 1),
        ("decode", "{txt: 'a.b:c'}", 1),
        ("decode", "rgb8", 0),
    ],
)
def test_user_functions_of_sources_are_seen(key, value, count, findings):
    spec = source(shards="x.tar", **{key: value})
    assert codes(findings(rule("{forbid: functions}"), spec)) == ["P101"] * count
    assert codes(findings(rule('{require: {functions: "x.*"}}'), spec)) == ["P101"] * count
    assert codes(findings(rule('{require: {functions: ["a.*", "d.*"]}}'), spec)) == []


@pytest.mark.parametrize(
    "top", ["map: 'a.b:c'", "stage: 'a.b:c'", "map_batches: 'a.b:c'", "batch: {size: 4, collate: 'a.b:c'}"]
)
def test_user_functions_of_the_spec_are_seen(top, findings):
    found = findings(rule("{forbid: functions}"), f"{top}\n{source(shards='x.tar')}")
    assert [(code, line) for code, line, *_ in found if code[0] == "P"] == [("P101", 1)]


def test_the_spec_must_need_the_version(findings):
    policy = rule("{require: {requires: wdspec >= 0.1}}")
    assert codes(findings(policy, source(shards="x.tar"))) == ["P101"]
    assert codes(findings(policy, "requires: wdspec >= 0.0.9\n" + source(shards="x.tar"))) == ["P101"]
    assert codes(findings(policy, "requires: wdspec >= 0.1\n" + source(shards="x.tar"))) == []


def test_for_limits_a_rule_to_sources_splits_environments_and_files(here, findings):
    spec = (
        "dataset:\n  - {name: web-1, shards: http://b/0.tar, tags: {lang: en}}\n"
        "  - {name: img, shards: ftp://b/1.tar}\n"
        "environments: {prod-eu: {}}\n"
    )
    lines = {
        "{source: 'web-*'}": [2],
        "{source: [img, x]}": [3],
        "{shards: 'ftp://*'}": [3],
        "{tags.lang: en}": [2],
        "{env: 'prod*'}": [2, 3],
        "{env: lab}": [],
        "{spec: 'team/*'}": [],
        "{spec: '*spec.yaml', source: img}": [3],
    }
    for scope, expected in lines.items():
        found = findings(rule(f"{{for: {scope}, forbid: {{scheme: [http, ftp]}}}}"), spec)
        assert [line for code, line, *_ in found if code == "P101"] == expected, scope


SHARES = "dataset:\n  - {name: a, shards: 'x-{0..9}.tar', %s}\n  - {name: b, shards: 'y-{0..9}.tar', %s}\n"


@pytest.mark.parametrize(
    ("most", "spec", "expected"),
    [
        ("40%", SHARES % ("probability: 0.4", "probability: 0.6"), ["`r`: the share of `b` is 60%"]),
        ("0.6", SHARES % ("probability: 0.4", "probability: 0.6"), []),
        ("50%", SHARES % ("weight: 3", "weight: 1"), ["`r`: the share of `a` is 75%"]),
        ("50%", SHARES % ("samples: 30", "samples: 10"), ["`r`: the share of `a` is 75%"]),
        ("50%", SHARES % ("tags: {}", "tags: {}"), []),
        (
            "{tags.l: 50%}",
            SHARES % ("tags: {l: en}", "tags: {l: en}"),
            ["`r`: the share of `tags.l: en` is 100%"],
        ),
        ("{tags.l: 50%}", SHARES % ("tags: {l: en}", "tags: {l: de}"), []),
        (
            "40%",
            SHARES % ("tags: {}", "tags: {}")
            + "mix: {schedule: [{at: 0, shares: {a: 1, b: 2}}, {at: 99, shares: {a: 9, b: 1}}]}\n",
            [
                "`r`: the share of `a` is 90% in a step of `mix.schedule`",
                "`r`: the share of `b` is 66.6667% in a step of `mix.schedule`",
            ],
        ),
        (
            "50%",
            "epoch: pass\n" + SHARES % ("samples: 10, repeat: 3", "samples: 10"),
            ["`r`: the share of `a` is 75%"],
        ),
    ],
)
def test_shares_are_those_of_the_mixture(most, spec, expected, findings):
    found = findings(rule(f"{{max_share: {most}}}"), spec)
    assert [message for code, *_, message in found if code == "P101"] == expected


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("CC BY 4.0", "https://creativecommons.org/licenses/by/4.0/", True),
        ("MIT OR Apache-2.0", "apache-2.0 OR (mit OR MIT)", True),
        ("LicenseRef-Acme", "licenseref-acme", True),
        ("MIT OR Apache-2.0", "MIT AND Apache-2.0", False),
        ("'((ask us'", "'((ask us'", True),  # no expression
        ("'((ask us'", "'((ask Us'", False),
    ],
)
def test_spellings_of_a_license_have_their_shares_together(findings, one, other, is_same):
    spec = (
        f"dataset:\n  - {{name: a, shards: x.tar, weight: 1, license: {one}}}\n"
        f"  - {{name: b, shards: y.tar, weight: 1, license: {other}}}\n"
        "  - {name: c, shards: z.tar, weight: 1, license: CC0-1.0}\n"
    )
    found = [
        message for code, *_, message in findings(rule("{max_share: {license: 50%}}"), spec) if code == "P101"
    ]
    name = one.strip("'")
    assert found == ([f"`r`: the share of `license: {name}` is 66.6667%"] if is_same else [])


def test_shares_of_nested_mixes_are_multiplied(findings):
    spec = (
        "dataset:\n  - {name: a, shards: x.tar, weight: 1}\n"
        "  - name: n\n    weight: 3\n    dataset:\n"
        "      - {name: b, shards: y.tar, weight: 1}\n      - {name: c, shards: z.tar, weight: 2}\n"
    )
    [(_, line, _, message)] = findings(rule("{max_share: 40%}"), spec)
    assert (line, message) == (7, "`r`: the share of `c` is 50%")


def test_sources_that_take_turns_have_equal_shares(findings):
    spec = (
        "mix: {draw: round_robin}\ndataset:\n"
        "  - {name: a, shards: x.tar, weight: 1}\n  - {name: off, shards: w.tar, weight: 0}\n"
        "  - name: n\n    weight: 8\n    dataset:\n"
        "      - {name: b, shards: y.tar, weight: 3}\n      - {name: c, shards: z.tar, weight: 1}\n"
    )
    assert findings(rule("{max_share: 34%}"), spec) == []
    messages = [message for *_, message in findings(rule("{max_share: 30%}"), spec)]
    assert messages == [f"`r`: the share of `{name}` is 33.3333%" for name in "abc"]
    [(_, _, _, message)] = findings(
        rule("{max_share: 60%}"),
        spec.replace("weight: 1}\n  -", "weight: 0}\n  -").replace("weight: 3", "weight: 0"),
    )
    assert message == "`r`: the share of `c` is 100%"
    unknown = (
        "mix: {draw: round_robin}\ndataset: [{name: a, shards: 's3://b/*.tar'}, {name: b, shards: y.tar}]\n"
    )
    assert findings(rule("{max_share: 50%}"), unknown) == []
    [first, _] = findings(rule("{max_share: 40%}"), unknown)
    assert first[-1] == "`r`: the share of `a` is 50%"


def test_shares_after_another_source_has_run_out_count_too(findings):
    spec = (
        "dataset:\n"
        "  - {name: a, shards: x.tar, samples: 100, probability: 0.5, max_passes: 2%s}\n"
        "  - {name: b, shards: y.tar, samples: 100, probability: 0.3}\n"
        "  - {name: c, shards: z.tar, samples: 100, probability: 0.2}\n"
    )
    dropping = spec % ", on_exhausted: drop"
    [(_, line, _, message)] = findings(rule("{max_share: 55%}"), dropping)
    assert (line, message) == (3, "`r`: the share of `b` is 60% after `a` has reached `max_passes`")
    assert findings(rule("{max_share: 60%}"), dropping) == []
    assert findings(rule("{max_share: 55%}"), spec % "") == []  # an error ends the run
    assert findings(rule("{max_share: 55%}"), spec % ", on_exhausted: stop") == []


def test_a_source_that_runs_out_before_a_step_in_batches_has_run_out(findings):
    spec = (
        "batch: {global_size: 8}\n"
        "mix:\n"
        "  schedule:\n"
        "    - {at: 0, shares: {a: 0.5, b: 0.5}}\n"
        "    - {at: {batches: 50}, shares: {b: 0.5, c: 0.5}}\n"
        "dataset:\n"
        "  - {name: a, shards: x.tar, samples: 100, max_passes: 1, on_exhausted: drop}\n"
        "  - {name: b, shards: y.tar, samples: 100}\n"
        "  - {name: c, shards: z.tar, samples: 100}\n"
    )
    messages = [found[-1] for found in findings(rule("{max_share: 60%}"), spec)]
    assert "`r`: the share of `b` is 100% after `a` has reached `max_passes`" in messages  # in batch 25


@pytest.mark.parametrize("ramp", ["", ", ramp: linear"])
def test_shares_of_steps_after_a_source_has_run_out_count_too(findings, ramp):
    spec = (
        "mix:\n"
        "  schedule:\n"
        "    - {at: 0, shares: {a: 0.3, b: 0.3, d: 0.4}}\n"
        f"    - {{at: 100000, shares: {{a: 0.5, b: 0.1, d: 0.4}}{ramp}}}\n"
        "dataset:\n"
        "  - {name: a, shards: x.tar, samples: 100}\n"
        "  - {name: b, shards: y.tar, samples: 100}\n"
        "  - {name: d, shards: z.tar, samples: 1000, max_passes: 1, on_exhausted: drop}\n"
    )
    [(_, line, _, message)] = findings(rule("{max_share: 60%}"), spec)
    text = "the share of `a` is 83.3333% in a step of `mix.schedule` after `d` has reached `max_passes`"
    assert (line, text in message) == (6, True), message
    assert findings(rule("{max_share: 84%}"), spec) == []


def test_a_share_that_depends_on_a_glob_is_a_finding(findings):
    spec = "dataset:\n  - {name: a, shards: 's3://b/*.tar'}\n  - {name: b, shards: y.tar}\n"
    [(code, line, _, message)] = findings(rule("{max_share: 90%}"), spec)
    assert (code, line) == ("P101", 1)
    assert "cannot be known" in message
    assert "`a`" in message


TWICE = """\
rewrite: [{{from: "s3://mirror/", to: "s3://b/"}}, {{from: "s3a://b/new-", to: "s3://b/"}}]
dataset:
  - {{name: a, shards: {}, weight: 2, samples: 10}}
  - {{name: b, shards: {}, weight: 2, samples: 10}}
  - {{name: c, shards: s3://other/z.tar, weight: 2, samples: 10}}
"""


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("s3://b/x.tar", "s3://b/x.tar", "both read `s3://b/x.tar`"),
        ("s3://b/x.tar", "s3a://b/x.tar", "both read `s3://b/x.tar`"),
        ("s3://mirror/x.tar", "s3://b/x.tar", "both read `s3://b/x.tar`"),
        ("s3://mirror/x.tar", "s3://mirror/x.tar", "both read `s3://b/x.tar`"),
        ("'s3://b/x-{0..9}.tar'", "[s3://b/y.tar, s3://b/x-7.tar]", "both read `s3://b/x-7.tar`"),
        ("'s3a://b/new-{1..9}.tar'", "'s3://b/{9..12}.tar'", "both read `s3://b/9.tar`"),
        ("'s3://b/{x,y}/{0..9}.tar'", "'@list.txt'", "both read `s3://b/y/7.tar` in line 1 of list.txt"),
        ("HTTP://Me:secret@Host:80/a//b/../x.tar", "http://host/a/x.tar", "both read `http://host/a/x.tar`"),
        ("https://b.s3.amazonaws.com/x.tar", "s3://b/x.tar", "both read `s3://b/x.tar`"),
        ("'pipe:curl https://h/x.tar'", "https://h/x.tar", "both read `https://h/x.tar`"),
        ("hf://datasets/o/n@v1/x.tar", "hf://datasets/o/n/x.tar", "both read `hf://datasets/o/n/x.tar`"),
        ("'s3://b/x/*.tar'", "'s3://b/x/*.tar'", "both read `s3://b/x/*.tar`"),
        ("'s3://b/*.tar'", "s3://b/x.tar", "may both read a shard of `s3://b/*.tar`"),
        ("'s3://b/x-*.tar'", "'s3://b/x-?.tar'", "may both read a shard of `s3://b/x-"),
        ("d/x.tar", "./d/../d/x.tar", "/d/x.tar`"),
        # Nothing in common.
        ("s3://b/x.tar", "s3://b/y.tar", ""),
        ("s3://b/x.tar", "s3://mirror-2/x.tar", ""),
        ("'s3://b/x-{0..9}.tar'", "'s3://b/x-{10..19}.tar'", ""),
        ("'s3://b/x-*.tar'", "'s3://b/y-*.tar'", ""),
        ("'s3://b/*.tar'", "'s3://b/*.jsonl'", ""),
        ("s3://b/new.tar", "{}", ""),
    ],
)
def test_sources_that_read_one_shard_have_their_shares_together(here, findings, one, other, shown):
    (here / "list.txt").write_text("s3://b/y/{7,17}.tar\n")
    other = "s3://b/x.tar, rewrite: [{from: 's3://b/', to: 's3://mirror-2/'}]" if other == "{}" else other
    spec = TWICE.format(one, other)
    found = [message for code, *_, message in findings(rule("{max_share: 40%}"), spec) if code == "P101"]
    assert len(found) == bool(shown), found
    if shown:
        assert found[0].startswith("`r`: the share of `a` and `b`, which ")
        assert shown in found[0]
        assert found[0].endswith(", is 66.6667%")
    for lenient in ("{max_share: {source: 40%}}", "{max_share: 67%}", "{max_share: {shards: 67%}}"):
        assert [code for code, *_ in findings(rule(lenient), spec) if code == "P101"] == []
    strict = rule("{max_share: {source: 30%, shards: 40%}}")
    assert len([code for code, *_ in findings(strict, spec) if code == "P101"]) == 3 + bool(shown)


def test_the_share_of_a_shard_is_that_of_all_its_sources_and_of_no_others(findings):
    spec = (
        "dataset:\n"
        "  - {name: a, shards: [w.tar, x.tar], probability: 0.2}\n"
        "  - {name: b, shards: [x.tar, y.tar], probability: 0.2}\n"
        "  - {name: c, shards: [y.tar, z.tar], probability: 0.25}\n"
        "  - {name: d, shards: [z.tar, x.tar], probability: 0.35}\n"
    )
    found = [each[1::2] for each in findings(rule("{max_share: 50%}"), spec) if each[0] == "P101"]
    parts = [
        (line, message.partition(", which ")[0], message.rpartition(" is ")[2]) for line, message in found
    ]
    assert parts == [
        (5, "`r`: the share of `c` and `d`", "60%"),
        (5, "`r`: the share of `a`, `b` and `d`", "75%"),
    ]
    found = [each[1::2] for each in findings(rule("{max_share: 30%}"), spec) if each[0] == "P101"]
    parts = [(line, message.partition(", which ")[0]) for line, message in found]
    assert parts == [  # what is too large by itself is named once
        (4, "`r`: the share of `b` and `c`"),
        (5, "`r`: the share of `d` is 35%"),
    ]


def test_sources_that_may_read_one_shard_have_their_shares_together_if_all_may_read_it(findings):
    spec = (
        "dataset:\n"
        "  - {name: all, shards: 's3://b/*', weight: 1, samples: 1}\n"
        "  - {name: en, shards: 's3://b/en-*', weight: 1, samples: 1}\n"
        "  - {name: de, shards: 's3://b/de-*', weight: 1, samples: 1}\n"
        "  - {name: one, shards: s3://b/de-1, weight: 1, samples: 1}\n"
    )
    found = [message for code, *_, message in findings(rule("{max_share: 45%}"), spec) if code == "P101"]
    assert found == [
        "`r`: the share of `all` and `en`, which may both read a shard of `s3://b/*`, is 50%",
        "`r`: the share of `all`, `de` and `one`, which may all read a shard of `s3://b/*`, is 75%",
    ]
    remote = spec.replace("'s3://b/*'", "'@s3://b/list.txt'")
    found = [message for code, *_, message in findings(rule("{max_share: 45%}"), remote) if code == "P101"]
    why = "as the list `s3://b/list.txt` is not a local file"
    assert found == [
        f"`r`: the share of `all` and `en`, which may both read the same shards, {why}, is 50%",
        f"`r`: the share of `all`, `de` and `one`, which may all read the same shards, {why}, is 75%",
    ]


def test_a_waiver_of_a_share_names_all_sources_that_read_the_shard(findings):
    spec = TWICE.format("s3://b/x.tar", "s3://b/x.tar")
    waived = rule("{max_share: 40%}") + "waivers: [{rule: r, reason: x, source: "
    assert "P101" in codes(findings(waived + "a}]", spec))
    assert "P101" not in codes(findings(waived + "'*'}]", spec))


def test_the_share_of_a_bucket_is_that_of_all_that_read_it(findings):
    spec = TWICE.format("'s3://b/{a,b}/x-*.tar'", "s3://mirror/y.tar")
    found = findings(rule("{max_share: {bucket: 40%}}"), spec)
    assert [each[3] for each in found if each[0] == "P101"] == ["`r`: the share of `bucket: b` is 66.6667%"]
    assert "P101" not in codes(findings(rule("{max_share: {bucket: 67%}}"), spec))
    local = TWICE.format("x.tar", "x.tar")
    assert "P101" not in codes(findings(rule("{max_share: {bucket: 40%}}"), local))  # a path has none
    (unknown, *_) = findings(
        rule("{max_share: {bucket: 40%}}"), TWICE.format("'@s3://b/list.txt'", "s3://b/x.tar")
    )
    assert unknown[:2] == ("P101", 3)
    assert "which bucket `a` reads cannot be known: the list `s3://b/list.txt`" in unknown[-1]


def test_a_source_is_compared_with_those_that_may_read_its_shards_alone(findings):
    shards = "'s3://b/s%d/x-{000..999}.tar'"
    sources = [f"{{name: s{number}, shards: {shards % number}, weight: 1}}" for number in range(300)]
    sources.append("{name: again, shards: s3://b/s7/x-123.tar, weight: 99}")
    spec = "dataset:\n  - " + "\n  - ".join(sources) + "\n"
    [(line, _, message)] = [
        each[1:] for each in findings(rule("{max_share: 24.9%}"), spec) if each[0] == "P101"
    ]
    what = "`r`: the share of `s7` and `again`, which both read `s3://b/s7/x-123.tar`, is 25.0627%"
    assert (line, message) == (302, what)


def test_the_severity_decides_the_code_and_whether_it_may_be_ignored(here, findings, validate):
    spec = "dataset:\n  - {name: a, shards: http://b/x.tar}  # wdspec: ignore=W452\n"
    policy = rule("{forbid: {scheme: http}, severity: warning%s}")
    assert codes(findings(policy % "", spec)) == ["P201"]
    assert codes(findings(policy % ", may_ignore: true", spec)) == []
    bare = spec.partition("  #")[0] + "\n"
    assert codes(findings(policy % ", may_ignore: true", bare)) == ["W452"]
    assert codes(findings(policy % ", may_ignore: true", bare, "--ignore", "W452")) == []
    assert validate("spec.yaml") == (0, [])


def test_no_comment_silences_a_policy(findings):
    for code in ("P101", "p101", "E101", "W452"):
        spec = f"dataset:\n  - {{name: a, shards: http://b/x.tar}}  # wdspec: ignore={code}\n"
        assert "P101" in codes(findings(rule("{forbid: {scheme: http}}"), spec))


def test_message_and_page_are_in_the_hint(here, validate, findings):
    findings(
        rule("{forbid: {scheme: http}, message: use https, page: 'https://wiki/x'}"),
        source(shards="http://b/x.tar"),
    )
    _, [problem] = validate("--policy", "policy.yaml", "spec.yaml")
    assert problem["hint"] == "scheme: it must not be `http`; use https; see https://wiki/x"


def test_secrets_in_urls_are_not_shown(findings):
    found = findings(rule("{forbid: {scheme: https}}"), source(shards="https://ann:hunter22@host/x.tar"))
    assert "P101" in codes(found)
    assert "hunter22" not in str(found)


REWRITTEN = {
    # shards, the rule, and a URL that is read in the end
    "a glob": ('"gs://b/*.tar"', r"gs://b/\*", "s3://c/x", "s3://c/x.tar"),
    "a directory": ("gs://b/d/", "gs://b/", "s3://c/", "s3://c/d/*"),
    "a list": ("'@lists/a.txt'", "lists/a", "lists/b", "s3://c/b.tar"),
    "a line of a list": ("'@lists/a.txt'", "lists/local/", "s3://c/", "s3://c/1.tar"),
    "a line with braces": ("'@lists/a.txt'", "lists/many-", "s3://c/", "s3://c/2.tar"),
    "one of many": ('"gs://b/{0..9}.tar"', "gs://b/7", "s3://c/7", "s3://c/7.tar"),
    "an alternative": ('"gs://{b,c}/{0..9}.tar"', "gs://c/(.*)", r"s3://c/\\1", "s3://c/9.tar"),
}


@pytest.mark.parametrize("case", REWRITTEN)
def test_rules_apply_to_what_is_written(case, here, findings):
    shards, regex, replacement, url = REWRITTEN[case]
    (here / "lists").mkdir()
    (here / "lists" / "a.txt").write_text("local/1.tar\nmany-{1..3}.tar\n")
    (here / "lists" / "b.txt").write_text("s3://c/b.tar\n")
    spec = source(shards=shards) + f"rewrite: [{{from: '{regex}', to: \"{replacement}\"}}]\n"
    found = [
        message
        for code, *_, message in findings(rule(f'{{forbid: {{shards: "{url}"}}}}'), spec)
        if code == "P101"
    ]
    assert len(found) == 1, found
    assert f"reads `{url}`" in found[0]
    other = findings(rule('{forbid: {shards: "s3://d/*"}}'), spec)
    assert "P101" not in codes(other)


@pytest.mark.parametrize(
    ("shards", "regex", "to", "says"),
    [
        ("gs://b/*.tar", "gs://b/a", "s3://c/", "reads `s3://c/*` after the rewrite rule"),
        ("gs://b/?.tar", "gs://b/a", "s3://c/", "reads `s3://c/*` after the rewrite rule"),
        ("gs://b/d/", "gs://b/d/1", "s3://c/", "reads `s3://c/*` after the rewrite rule"),
        ("gs://b/*.tar", r"gs://b/(\d+)\.tar", r"s3://c/\1", "cannot be known"),
        ("gs://b/*.tar", "gs://b2/", "s3://c/", None),
        ("gs://b/*.tar", "gs://b/a", "gs://d/", None),
    ],
)
def test_rewrite_rules_also_change_the_names_that_a_glob_finds(shards, regex, to, says, findings):
    """The rule does not match the glob itself, but may match what it finds, when the run lists it."""
    spec = f"dataset:\n  - {{name: a, shards: '{shards}'}}\nrewrite: [{{from: '{regex}', to: '{to}'}}]\n"
    found = [each[3] for each in findings(rule('{forbid: {shards: "s3://c/*"}}'), spec) if each[0][0] == "P"]
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


def test_a_rewrite_rule_that_depends_on_what_samples_choose_is_a_finding(findings):
    fetching = (
        "dataset:\n  - {name: a, shards: x.jsonl, fetch: {image: {url: json.path, root: 'gs://b/images/'}}}\n"
    )
    for regex, to, says in [
        ("gs://b/", "s3://c/", "reads `s3://c/images/*`"),
        ("gs://b/images/1", "s3://c/", "cannot be known"),
        ("gs://c/", "s3://c/", None),
    ]:
        spec = f"{fetching}rewrite: [{{from: '{regex}', to: '{to}'}}]\n"
        found = [
            message
            for code, *_, message in findings(rule('{forbid: {shards: "s3://c/*"}}'), spec)
            if code == "P101"
        ]
        assert (says is None and not found) or (len(found) == 1 and says in found[0])


@pytest.mark.parametrize("name", ["secret.txt", "pipe", "folder", "zeros", "page.html"])
def test_a_list_that_is_another_file_is_unknown_and_never_shown(name, here, findings):
    (here / "secret.txt").write_text("root:x:0:0:hunter22\n")
    (here / "zeros").write_bytes(bytes(100))
    (here / "page.html").write_text("<html>hunter22</html>")
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    [*_, (code, _, _, message)] = findings(
        rule('{forbid: {shards: "s3://b/*"}}'), source(shards=f"'@{name}'")
    )
    assert code == "P101"
    assert "cannot be known" in message
    assert "hunter22" not in message


@pytest.mark.parametrize("key", ["storage", "aistore"])
@pytest.mark.parametrize("is_of_source", [True, False])
def test_servers_are_keys(key, is_of_source, findings):
    value = "{endpoint: 'http://evil:9000'}"
    spec = source(shards="s3://b/x.tar", **({key: value} if is_of_source else {}))
    spec = spec if is_of_source else f"{key}: {value}\n{spec}"
    policy = rule(f'{{forbid: {{{key}.endpoint: "http://*"}}}}')
    assert [code for code in codes(findings(policy, spec)) if code[0] == "P"] == ["P101"]
    assert "P101" not in codes(findings(policy, spec.replace("http:", "https:")))


@pytest.mark.parametrize(
    "storage",
    [
        "{options: {endpoint_url: 'http://evil:9000'}}",
        "{options: {client_kwargs: {endpoint_url: 'http://evil:9000'}}}",
        "{env: {endpoint_url: EVIL, key: KEY}}",
        "{files: {endpoint_url: /run/evil}}",
    ],
)
def test_a_server_among_other_arguments_of_a_store_counts(storage, findings):
    spec = source(shards="s3://b/x.tar", storage=storage)
    for policy in (
        '{forbid: {storage.endpoint: "http://*"}}',
        '{require: {storage.endpoint: "https://ours"}}',
    ):
        assert codes(findings(rule(policy), spec)) == ["P101"]
    assert (
        codes(findings(rule('{forbid: {storage.endpoint: "http://*"}}'), source(shards="s3://b/x.tar"))) == []
    )
    secret = source(shards="s3://b/x.tar", storage="{env: {key: KEY}, options: {use_ssl: true}}")
    assert codes(findings(rule('{forbid: {storage.endpoint: "http://*"}}'), secret)) == []


@pytest.mark.parametrize("owner", ["''", "'  '", "'${none:-}'", "null", "[]", "['']"])
@pytest.mark.parametrize("policy", ["{require: meta.owner}", '{require: {meta.owner: "*"}}'])
def test_blank_text_is_no_value(owner, policy, findings):
    found = findings(rule(policy), source(shards="s3://b/x.tar", meta=f"{{owner: {owner}}}"))
    assert [code for code in codes(found) if code[0] == "P"] == ["P101"]
    assert codes(findings(rule(policy), source(shards="s3://b/x.tar", meta="{owner: vision}"))) == []
