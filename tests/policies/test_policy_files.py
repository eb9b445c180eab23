"""Policy files: what is wrong with one is reported at its place; a URL needs the digest of what it gives."""

import functools
import hashlib
import re
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from servers.objects import ObjectServer

from wdspec.cli.main import cli
from wdspec.policies.files import read_policy

SPEC = "dataset:\n  - {name: a, shards: http://b/x.tar}\n"
GOOD = "rules:\n  r: {forbid: {scheme: http}}\n"

BAD = {
    # text: (code, line, column, part of the message or the hint)
    "": ("E393", 1, 1, "empty"),
    "{}": ("E393", 1, 1, "empty"),
    "# nothing\n": ("E393", 1, 1, "empty"),
    "rules: {}": ("E393", 1, 1, "no rules"),
    "waivers: []": ("E393", 1, 1, "no rules"),
    "- a": ("E015", 1, 1, "map"),
    "rules: [a]": ("E202", 1, 8, "a map"),
    "rules: {a: {forbid: {scheme: http}}": ("E005", 1, 1, ""),
    "rule: {a: {forbid: {scheme: http}}}": ("E201", 1, 1, "did you mean `rules`"),
    "rules: {a: {forbids: {scheme: http}}}": ("E201", 1, 13, "did you mean `forbid`"),
    "rules: {a: forbid}": ("E202", 1, 12, "a map of keys"),
    "rules: {a: {message: x}}": ("E206", 1, 9, "`forbid`, `require`, `max_share`"),
    "rules: {a: {forbid: cache, require: license}}": ("E207", 1, 28, "write one of"),
    "rules: {a: {forbid: {}}}": ("E214", 1, 21, "empty"),
    "rules: {a: {forbid: []}}": ("E202", 1, 21, "keys"),
    "rules: {a: {forbid: {scheme: []}}}": ("E214", 1, 22, "no pattern"),
    "rules: {a: {forbid: {scheme: [{}]}}}": ("E202", 1, 22, "pattern"),
    "rules: {a: {forbid: {scheme: htps}}}": ("E393", 1, 22, "did you mean"),
    "rules: {a: {forbid: {scheme: 'http://'}}}": ("E393", 1, 22, "without `://`"),
    "rules: {a: {forbid: {shards: 'data/*'}}}": ("E393", 1, 22, "paths are absolute"),
    "rules: {a: {forbid: {shards: 's3:/b/*'}}}": ("E393", 1, 22, "s3://b/"),
    "rules: {a: {forbid: {bucket: 's3://b'}}}": ("E393", 1, 22, "write `b`"),
    "rules: {a: {forbid: shards}}": ("E203", 1, 21, "with patterns"),
    "rules: {a: {require: functions}}": ("E203", 1, 13, "forbid: functions"),
    "rules: {a: {require: licence}}": ("E203", 1, 22, "did you mean `license`"),
    "rules: {a: {require: {license: CC-BY-NX-4.0}}}": ("E393", 1, 32, "no SPDX license"),
    "rules: {a: {require: batch.sise}}": ("E203", 1, 22, "not a key"),
    "rules: {a: {require: {env: prod}}}": ("E203", 1, 23, "`for: {env: …}`"),
    "rules: {a: {require: {requires: '0.2'}}}": ("E203", 1, 23, "wdspec >= 0.2"),
    "rules: {a: {forbid: {requires: wdspec >= 0.2}}}": ("E203", 1, 13, "cannot be forbidden"),
    "rules: {a: {forbid: cache, for: prod}}": ("E202", 1, 33, "a map of subjects"),
    "rules: {a: {forbid: cache, for: {enf: prod}}}": ("E203", 1, 34, "did you mean `env`"),
    "rules: {a: {max_share: 40}}": ("E204", 1, 24, "write `40%`"),
    "rules: {a: {max_share: 140%}}": ("E204", 1, 24, "at most 100%"),
    "rules: {a: {max_share: much}}": ("E202", 1, 24, "`40%`"),
    "rules: {a: {max_share: {scheme: 40%}}}": ("E203", 1, 25, "not supported"),
    "rules: {a: {forbid: cache, severity: warn}}": ("E203", 1, 38, "warning"),
    "rules: {a: {require: {license: [MIT, CC-BZ-4.0]}}}": ("E393", 1, 38, "SPDX license such as"),
    "rules: {a: {require: {bucket: ['']}}}": ("E202", 1, 23, "a path has no bucket"),
    "rules: {a: {forbid: cache, may_ignore: true}}": ("E207", 1, 28, "severity: warning"),
    "rules: {retired: {forbid: cache}}": ("E393", 1, 9, "another name"),
    "retired: [{shards: 's3://b/*', untl: 2026-01-01}]": ("E201", 1, 32, "did you mean `until`"),
    "retired: [{since: 2026-01-01}]": ("E206", 1, 11, "`shards` is missing"),
    "retired: [{shards: 's3://b/*', since: soon}]": ("E202", 1, 39, "2026-03-01"),
    "retired: [{shards: 's3://b/*', until: 2026-02-30}]": ("E202", 1, 39, "2026-03-01"),
    "retired: [{shards: 's3://b/*', until: 2026-02-28}]": ("E216", 1, 32, "`since`"),
    "retired: [{shards: 'b/*'}]": ("E393", 1, 20, "absolute"),
    "retired: ['s3://b/*']": ("E202", 1, 11, "a map of keys"),
    "rules: {a: {forbid: cache}}\nwaivers: [{rule: b, source: x, reason: y}]": ("E393", 2, 18, "no rule `b`"),
    "rules: {a: {forbid: cache}}\nwaivers: [{rule: a, reason: y}]": ("E206", 2, 11, "neither"),
    "rules: {a: {forbid: cache}}\nwaivers: [{rule: a, source: '*', reason: y}]": (
        "E393",
        2,
        11,
        "for all specs",
    ),
    "rules: {a: {forbid: cache}}\nwaivers: [{rule: a, source: x}]": ("E206", 2, 11, "`reason` is missing"),
    "requires: wdspec >= 99\nrulez: 1": ("E392", 1, 11, "99.0"),
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_a_policy_is_reported_at_its_place(text, here, validate):
    (here / "policy.yaml").write_text(text)
    (here / "spec.yaml").write_text(SPEC)
    exit_code, problems = validate("--policy", "policy.yaml", "spec.yaml")
    code, line, column, says = BAD[text]
    assert exit_code == 1
    first = problems[0]
    assert (first["file"], first["code"], first["line"], first["column"]) == (
        "policy.yaml",
        code,
        line,
        column,
    ) or (code == "E005" and first["code"] == "E005"), first
    assert says in f"{first['message']} {first['hint']}", first
    assert [problem["code"] for problem in problems if problem["file"] == "policy.yaml"] == [first["code"]]


def test_a_missing_file_is_an_error(here, validate):
    (here / "spec.yaml").write_text(SPEC)
    exit_code, [problem] = validate("--policy", "nowhere.yaml", "spec.yaml")
    assert (exit_code, problem["code"], problem["file"]) == (1, "E001", "nowhere.yaml")
    exit_code, [problem] = validate("--policy", str(here), "spec.yaml")
    assert (exit_code, problem["code"]) == (1, "E001")


def test_a_wrong_policy_does_not_switch_off_the_others(here, validate):
    (here / "spec.yaml").write_text(SPEC)
    (here / "bad.yaml").write_text("rules: 3\n")
    (here / "good.yaml").write_text(GOOD)
    exit_code, problems = validate("--policy", "bad.yaml", "--policy", "good.yaml", "spec.yaml")
    assert (exit_code, [each["code"] for each in problems]) == (1, ["E202", "P101"])


def test_rules_about_licenses_name_the_library_that_they_need(here, validate, monkeypatch):
    monkeypatch.setitem(sys.modules, "license_expression", None)
    monkeypatch.delitem(sys.modules, "wdspec.policies.licenses", raising=False)
    (here / "spec.yaml").write_text(SPEC)
    (here / "policy.yaml").write_text("rules: {a: {forbid: {license: '*-NC-*'}}}")
    exit_code, [problem] = validate("--policy", "policy.yaml", "spec.yaml")
    assert (exit_code, problem["code"], problem["line"], problem["column"]) == (1, "E394", 1, 9)
    assert "[policies]" in problem["hint"]
    (here / "policy.yaml").write_text("rules: {a: {max_share: {license: 40%}}}")
    assert [each["code"] for each in validate("--policy", "policy.yaml", "spec.yaml")[1]] == ["E394"]
    (here / "policy.yaml").write_text("rules: {a: {require: license}}")
    assert [each["code"] for each in validate("--policy", "policy.yaml", "spec.yaml")[1]] == ["P101"]


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "central"
    folder.mkdir()
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            requests.append(self.path)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{httpd.server_port}", requests
    httpd.shutdown()
    httpd.server_close()


def test_a_central_policy_is_pinned_by_its_digest(server, here, validate):
    folder, url, requests = server
    (here / "spec.yaml").write_text(SPEC)
    (folder / "p.yaml").write_text(GOOD)
    digest = hashlib.sha256(GOOD.encode()).hexdigest()
    exit_code, [problem] = validate("--policy", f"{url}/p.yaml#sha256={digest}", "spec.yaml")
    assert (exit_code, problem["code"]) == (1, "P101")
    assert requests

    (folder / "p.yaml").write_text("rules:\n  r: {forbid: cache}\n")  # someone has changed it
    exit_code, [problem] = validate("--policy", f"{url}/p.yaml#sha256={digest}", "spec.yaml")
    assert (exit_code, problem["code"], problem["file"]) == (1, "E393", f"{url}/p.yaml")
    assert "another digest" in problem["message"]

    for fragment in ("", f"#sha256={digest[:40]}", f"#sha1={digest[:40]}", "#sha256="):
        requests.clear()
        exit_code, [problem] = validate("--policy", f"{url}/p.yaml{fragment}", "spec.yaml")
        assert (exit_code, problem["code"], requests) == (1, "E393", [])


def test_a_missing_central_policy_fails_without_its_password(server, here, validate):
    _, url, _ = server
    (here / "spec.yaml").write_text(SPEC)
    place = f"{url.replace('//', '//ann:hunter22@')}/q.yaml#sha256={'0' * 64}"
    exit_code, [problem] = validate("--policy", place, "spec.yaml")
    assert (exit_code, problem["code"]) == (1, "E001")
    assert "hunter22" not in str(problem)


def test_a_file_may_be_pinned_too(here, validate):
    (here / "spec.yaml").write_text(SPEC)
    (here / "p.yaml").write_text(GOOD)
    digest = hashlib.sha256(GOOD.encode()).hexdigest()
    assert [
        each["code"] for each in validate("--policy", f"p.yaml#sha256={digest.upper()}", "spec.yaml")[1]
    ] == ["P101"]
    assert [each["code"] for each in validate("--policy", f"p.yaml#sha256={'0' * 64}", "spec.yaml")[1]] == [
        "E393"
    ]


def test_the_settings_name_a_path_and_never_a_url(server, here, validate):
    _, url, requests = server
    (here / "spec.yaml").write_text(SPEC)
    (here / "pyproject.toml").write_text(f'[tool.wdspec]\npolicy = "{url}/p.yaml#sha256={"0" * 64}"\n')
    exit_code, [problem] = validate("spec.yaml")
    assert (exit_code, problem["code"], requests) == (1, "E393", [])
    assert "on the command line" in problem["hint"]


def test_the_policy_of_the_settings_is_relative_to_their_folder(here, validate, monkeypatch):
    (here / "spec.yaml").write_text(SPEC)
    (here / "rules").mkdir()
    (here / "rules" / "p.yaml").write_text(GOOD)
    (here / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "rules/p.yaml"\n')
    assert [each["code"] for each in validate("spec.yaml")[1]] == ["P101"]
    monkeypatch.chdir(here / "rules")
    assert [each["code"] for each in validate("../spec.yaml")[1]] == ["P101"]
    (here / "pyproject.toml").write_text('[tool.wdspec]\npolicy = ["rules/p.yaml"]\n')
    with pytest.raises(click.UsageError, match="policy takes a text"):
        validate("../spec.yaml")


def test_reading_a_policy_again_gives_equal_problems(here):
    (here / "p.yaml").write_text("rulez: {}\n")
    assert read_policy("p.yaml", True)[1] == read_policy("p.yaml", True)[1]


@pytest.mark.parametrize("text", ["root:x:0:0:hunter22\n", "hunter22: secret\n", "a: [hunter22\n"])
def test_the_lines_of_another_file_are_not_shown(text, here):
    (here / "spec.yaml").write_text(SPEC)
    (here / "passwd").write_text(text)
    (here / "pyproject.toml").write_text('[tool.wdspec]\npolicy = "passwd"\n')
    done = CliRunner().invoke(cli, ["validate", "spec.yaml"], standalone_mode=False)
    assert done.return_value == 1
    assert "secret" not in done.output
    assert "0:hunter22" not in done.output


PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
POLICIES = [text for text in BLOCKS if re.match(r"(# policy|rules:|retired:|waivers:)", text)]


def test_the_page_has_policies():
    assert len(POLICIES) == 4


@pytest.mark.parametrize("text", POLICIES)
def test_the_policies_on_the_page_are_right(text, here):
    is_waiver = text.startswith("waivers:")
    (here / "policy.yaml").write_text(POLICIES[0] + text if is_waiver else text)
    policy, problems = read_policy("policy.yaml", True)
    assert problems == []
    assert policy is not None
    assert len(policy.waivers) == is_waiver


def test_the_first_example_says_what_the_page_shows(here):
    (here / "policy.yaml").write_text(POLICIES[0])
    (here / "configs").mkdir()
    text = 'dataset:\n  - shards: "s3://b/web-{000..099}.tar"\n    license: CC-BY-NC-4.0\n'
    (here / "configs" / "web.yaml").write_text(text)
    done = CliRunner().invoke(cli, ["validate", "--policy", "policy.yaml", "configs"], standalone_mode=False)
    assert done.output in PAGE.read_text(encoding="utf-8")


def test_the_hint_for_a_url_that_cannot_be_read_is_that_of_its_store(here, validate):
    (here / "spec.yaml").write_text(SPEC)
    for status, hint in (
        ("401", "an entry for this host in ~/.netrc"),
        ("404", "rewrite it with WDS_REWRITE"),
    ):
        with ObjectServer() as server:
            place = f"{server.url}/status-{status}/p.yaml#sha256={'0' * 64}"
            _, [problem] = validate("--policy", place, "spec.yaml")
        assert problem["code"] == "E001"
        assert status in problem["message"]
        assert hint in problem["hint"]
