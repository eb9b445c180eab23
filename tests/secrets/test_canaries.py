"""A canary is in every place where a secret can be, every error is provoked, and the canary appears nowhere."""

import contextlib
import json
import random
import stat

import pytest
from canaries import PLACES, Collected, located, tar, variables
from servers.echo import FORMS, EchoServer

ENDS = [
    *(f"{status}/{form}" for status in (400, 401, 403, 404, 500) for form in FORMS),
    "shard",
    "cut",
    "to",
    "html",
]


def tried(folder, caplog, place, end, canary, monkeypatch):
    """One place and one end; gives what was seen."""
    seen = Collected(folder, caplog)
    with EchoServer(tar(20)) as server:
        url = located(place, canary, server.host, end)
        own = folder / "own"
        own.mkdir()
        if place == "netrc":
            (own / "netrc").write_text(f"default login user password {canary}\n")
            monkeypatch.setenv("NETRC", str(own / "netrc"))
        if place == "proxy":
            monkeypatch.setenv("http_proxy", f"http://user:{canary}@{server.host}")
        keys, environment = variables(place, canary)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        spec = {
            **keys,
            "cache": {"dir": str(folder / "copies"), "size": "10MB"},
            "errors": {"retry": 0.2, "skip": end == "404/plain", "log": str(folder / "skips.jsonl")},
            "dataset": [{"name": "a", "shards": url, "decode": "raw", "shuffle": 0}],
            "epoch": 20,
        }
        if place == "rewrite":
            spec["rewrite"] = [{"from": "gs://bucket/", "to": f"http://user:{canary}@{server.host}/"}]
        error = seen.run(spec)
        (own / "spec.json").write_text(json.dumps(spec))
        for words in (("resolve",), ("explain",), ("cache", "ls"), ("head", "-n", "1")):
            seen.command(*words, "own/spec.json", "--format", "json", **environment)
        assert (error is None) == (end == "shard"), error
    return seen


CASES = [(place, end) for place in PLACES for end in ENDS]
FAST = [(list(PLACES)[number % len(PLACES)], end) for number, end in enumerate(ENDS)]
"""Every place and every end; the others are long."""


@pytest.mark.parametrize(("place", "end"), FAST, ids=str)
def test_no_canary_appears(place, end, tmp_path, caplog, monkeypatch):
    check(place, end, random.Random(f"{place} {end}"), tmp_path, caplog, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize(("place", "end"), CASES, ids=str)
def test_no_canary_of_many_appears(place, end, turn, tmp_path, caplog, monkeypatch):
    check(place, end, random.Random(), tmp_path, caplog, monkeypatch)


def check(place, end, drawn, folder, caplog, monkeypatch):
    canary = "Cn" + "".join(drawn.choices("abcdefgXYZ0123456789", k=drawn.choice([6, 12, 30])))
    with caplog.at_level("DEBUG", logger="wdspec"):
        seen = tried(folder, caplog, place, end, canary, monkeypatch)
    assert seen.leaks(canary) == []
    copies = folder / "copies"
    for path in [copies, *copies.rglob("*")] if copies.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            found = path.stat().st_mode
            assert stat.S_IMODE(found) == (0o700 if stat.S_ISDIR(found) else 0o600), path
