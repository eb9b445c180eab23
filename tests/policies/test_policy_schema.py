"""The published JSON Schema of policy files: it accepts what `validate` accepts, and editors use it."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from servers.language_server import LanguageServer, need_server

from wdspec.cli.main import cli
from wdspec.policies.files import read_policy
from wdspec.policies.schema import policy_schema, policy_schema_text

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema.Draft202012Validator(policy_schema())
POLICIES = sorted((ROOT / "examples" / "policies").glob("*.yaml"))
RULE = "rules:\n  r: "


def as_json(text):
    return json.loads(json.dumps(yaml.safe_load(text), default=str))  # days are text


def is_accepted(path):
    """Whether `validate` can use a policy."""
    return read_policy(str(path), may_fetch=False)[0] is not None


def test_the_published_schema_is_current():
    published = (ROOT / "schemas" / "policy.schema.json").read_text(encoding="utf-8")
    assert published == policy_schema_text(), "run `wdspec schema --policies > schemas/policy.schema.json`"
    assert CliRunner().invoke(cli, ["schema", "--policies"]).output == published
    refused = CliRunner().invoke(cli, ["schema", "--policies", "--format", "markdown"])
    assert (refused.exit_code, "docs/policies.md" in refused.output) == (2, True)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_the_example_policies_fit(path):
    SCHEMA.validate(as_json(path.read_text()))


GOOD = [
    RULE + "{require: homepage}",
    RULE + "{require: [homepage, meta.owner], message: null}",
    RULE + '{for: {env: "prod*", source: a}, forbid: {license: ["*-NC-*", MIT], scheme: http}}',
    RULE + "{forbid: {expect.samples: 3, mix.by: equal}, severity: warning, may_ignore: true}",
    RULE + "{max_share: 40%}",
    RULE + "{max_share: 0.4, page: https://a.org}",
    RULE + "{max_share: {tags.language: 60.5%, license: 0.1}}",
    RULE + "{require: {requires: wdspec >= 0.1}}\nrequires: wdspec >= 0.0\ndescription: about it",
    'retired: [{shards: "s3://b/a-*", since: 2026-03-01, replaced_by: b, reason: x, page: y}]\ndeprecated:',
    'deprecated: [{shards: ["s3://b/a-*", "hf://*"], until: 2026-03-01}]',
    RULE + "{require: homepage}\nwaivers: [{rule: r, source: a, spec: b, reason: why, until: 2026-01-01}]",
]
BAD = [
    RULE + "{requires: homepage}",
    RULE + "{require: homepge}",
    RULE + "{require: []}",
    RULE + "{forbid: {}}",
    RULE + "{forbid: {licence: MIT}}",
    RULE + "{forbid: {license: []}}",
    RULE + "{forbid: {license: {a: b}}}",
    RULE + "{for: prod, require: homepage}",
    RULE + "{max_share: 40}",
    RULE + "{max_share: many}",
    RULE + "{require: homepage, severity: fatal}",
    RULE + "{require: homepage, may_ignore: maybe, severity: warning}",
    RULE + "{require: shards}",
    RULE + "[]",
    "rules: []",
    "rule: {}",
    "{}",
    "retired: [{since: 2026-03-01}]",
    "retired: [{shards: []}]",
    'retired: [{shards: "s3://b/*", since: yesterday}]',
    RULE + "{require: homepage}\nwaivers: [{rule: r, source: a}]",
    "requires: wdspec < 2\n" + RULE + "{require: homepage}",
]


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_accepts_what_validate_accepts(text, here):
    (here / "policy.yaml").write_text(text)
    assert is_accepted("policy.yaml")
    SCHEMA.validate(as_json(text))


@pytest.mark.parametrize("text", BAD)
def test_the_schema_rejects_what_validate_rejects(text, here):
    (here / "policy.yaml").write_text(text)
    assert not is_accepted("policy.yaml")
    assert not SCHEMA.is_valid(as_json(text))


def test_editors_mark_mistakes_and_complete_keys(tmp_path):
    need_server()
    path = tmp_path / "policy.schema.json"
    path.write_text(policy_schema_text())
    with LanguageServer(path) as server:
        for policy in POLICIES:
            server.open(policy.name, policy.read_text())
        server.open("bad.yaml", "rules:\n  r:\n    require: homepage\n    severity: fatal\n")
        server.open("keys.yaml", "rules:\n  r:\n    \n")
        server.open("subjects.yaml", "rules:\n  r:\n    forbid:\n      \n")
        assert [server.problems(policy.name) for policy in POLICIES] == [[] for _ in POLICIES]
        (problem,) = server.problems("bad.yaml")
        assert problem["range"]["start"]["line"] == 4
        assert "`severity`: `error` or `warning`" in problem["message"]
        offered = {each["label"] for each in server.at("completion", "keys.yaml", 3, 4)["items"]}
        assert {"for", "forbid", "require", "max_share", "severity"} <= offered
        offered = {each["label"] for each in server.at("completion", "subjects.yaml", 4, 6)["items"]}
        assert {"license", "scheme", "homepage", "meta"} <= offered
