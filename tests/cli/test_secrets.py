"""No command prints the passwords and signatures of URLs: what it prints ends up in logs."""

import pytest
from commandline import within as wdspec
from servers.counting import CountingServer
from shardmaking import write_source

from wdspec import load, plan

SECRETS = ("PASS-1", "SIGN-2", "TOKEN-3", "SIG-4", "GOOG-5")
QUERY = "?X-Amz-Signature=SIGN-2&token=TOKEN-3&sig=SIG-4&X-Goog-Signature=GOOG-5&size=7"


@pytest.fixture
def folder(tmp_path):
    """A folder with specs of a server's shards: `there`, `gone`, and `wrong` with a mistake next to the URL."""
    write_source(tmp_path / "served", "x", shards=2, samples=3)
    with CountingServer(tmp_path / "served") as server:
        address = server.url.replace("http://", "http://me:PASS-1@")
        url = f"{address}/x-000.tar{QUERY}"
        (tmp_path / "url").write_text(url)
        for name, shards in (("there", url), ("gone", f"{address}/no.tar{QUERY}")):
            (tmp_path / f"{name}.yaml").write_text(
                f"dataset:\n  - name: a\n    shards: {shards}\ncache: copies\noutput: out/\n"
            )
        (tmp_path / "wrong.yaml").write_text(f"dataset:\n  - shards: '{address}/{{0..3.tar{QUERY}'\n")
        yield tmp_path


COMMANDS = [
    ("validate", "wrong.yaml"),
    ("validate", "wrong.yaml", "--format", "json"),
    ("validate", "wrong.yaml", "--format", "github"),
    *[
        (*command, f"{name}.yaml", *form)
        for command in (
            ("resolve",),
            ("explain",),
            ("head",),
            ("cache", "prefetch"),
            ("cache", "ls"),
            ("process",),
        )
        for name in ("there", "gone")
        for form in ((), ("--format", "json"))
    ],
    ("process", "there.yaml", "--dry-run"),
    ("ls", "URL"),
    ("ls", "URL", "--summary", "--format", "json"),
    ("cat", "URL", "-o", "copy.tar", "--format", "json"),
    ("resolve", "URL"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_secrets(folder, command):
    url = (folder / "url").read_text()
    words = [url if word == "URL" else word for word in command]
    if command[0] == "process":
        words += ["--jobs", "0"]
    expected = {"validate": 1, "explain": 0, "resolve": 0, "cat": 0, "ls": 0}.get(command[0])
    if expected is None:
        expected = 1 if "gone.yaml" in command and command[1] != "ls" else 0
    if command[1] == "ls":
        wdspec("cache", "prefetch", "there.yaml", folder=folder)
    shown, said = wdspec(*words, folder=folder, code=expected)
    assert [secret for secret in SECRETS if secret in shown + said] == []


def test_secrets_in_rewrite_rules_are_hidden(folder):
    shown, said = wdspec(
        "resolve", "foo", folder=folder, WDS_REWRITE="foo=https://me:PASS-1@host/a?sig=SIG-4"
    )
    assert "https://***@host/a?sig=***" in shown
    assert [secret for secret in SECRETS if secret in shown + said] == []


def test_the_caret_stays_in_place_when_a_password_is_hidden(folder):
    shown, _ = wdspec("validate", "--ignore", "W323", "wrong.yaml", folder=folder, code=1)
    line, caret = next(
        (a, b) for a, b in zip(shown.splitlines(), shown.splitlines()[1:], strict=False) if "^" in b
    )
    assert "*********" in line
    assert line[caret.index("^")] == "{"


def test_the_word_basic_in_data_is_not_hidden(tmp_path):
    from shardmaking import write_shard

    write_shard(tmp_path / "a.tar", [("k", {"txt": b"basic understanding of bearer bonds-and-more"})])
    (tmp_path / "a.yaml").write_text("dataset:\n  - shards: a.tar\n")
    shown, _ = wdspec("head", "a.yaml", "-n", "1", folder=tmp_path)
    assert "basic understanding of bearer bonds" in shown


def test_specs_and_plans_print_without_secrets(folder):
    spec = load(folder / "there.yaml")
    for shown in (repr(spec), str(spec), repr(spec.sources[0]), repr(plan(spec))):
        assert "x-000.tar" in shown
        assert [secret for secret in SECRETS if secret in shown] == []
    assert (folder / "url").read_text() in spec.sources[0].shards
