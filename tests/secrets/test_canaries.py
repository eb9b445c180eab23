"""A canary in every place a secret can stand, every error provoked, and nothing of it left anywhere."""

import contextlib
import gc
import io
import json
import os
import random
import stat
import tarfile
import traceback
import warnings

import pytest
from commandline import within as wdspec_command
from servers.echo import FORMS, EchoServer

import wdspec

PLACES = {
    "login": "http://user:{0}@{1}/",
    "user": "http://{0}@{1}/",
    "quote": "http://user:it's{0}@{1}/",
    "query": "http://{1}/?subscription-key={0}",
    "encoded": "http://{1}/?code%3D{0}",
    "bare": "http://{1}/?{0}",
    "netrc": "http://{1}/",
    "proxy": "http://{1}/",
    "curl": "pipe:curl -sS --fail-with-body -u user:{0} http://{1}/",
    "header": "pipe:curl -sSv --fail-with-body -H 'X-Key: {0}' http://{1}/",
    "variable": "pipe:KEY={0} sh -c 'env >&2; curl -sS --fail-with-body http://{1}/'",
    "rewrite": "gs://bucket/",
}
ENDS = [
    *(f"{status}/{form}" for status in (400, 401, 403, 404, 500) for form in FORMS),
    "shard",
    "cut",
    "to",
    "html",
]


def tar(samples):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for number in range(samples):
            info = tarfile.TarInfo(f"{number:04d}.txt")
            info.size = 5
            made.addfile(info, io.BytesIO(b"hello"))
    return buffer.getvalue()


def located(place, canary, host, end):
    """A URL with the canary at a place, which ends in what the server is to do."""
    url = PLACES[place].format(canary, host)
    head, mark, query = url.partition("/?")
    path = {"to": "to/localhost:1", "html": "200/plain"}.get(end, end)
    return f"{head.rstrip('/')}/{path}/a.tar{mark[1:]}{query}"


class Collected:
    """All that can be seen of a run."""

    def __init__(self, folder, caplog):
        self.folder, self.caplog, self.texts = folder, caplog, []

    def run(self, spec):
        """Reads a spec to its end or its error, and notes what is said meanwhile."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                loader = wdspec.loader(spec, num_workers=0)
                self.texts += [repr(loader), repr(wdspec.load(spec))]
                with contextlib.suppress(StopIteration):
                    stream = iter(loader)
                    for _ in range(25):
                        next(stream)
                        self.texts.append(json.dumps(loader.state_dict()))
            except Exception as error:
                self.texts += [str(error), repr(error), "".join(traceback.format_exception(error))]
                reported = error
            else:
                reported = None
        self.texts += [str(each.message) for each in warned]
        gc.collect()
        return reported

    def command(self, *words, **variables):
        try:
            self.texts += wdspec_command(*words, folder=self.folder, code=1, **variables)
        except AssertionError as other_code:  # with all that was printed
            self.texts.append(str(other_code))
        assert "Traceback (" not in self.texts[-1]

    def leaks(self, canary):
        """Where the canary is found."""
        found = [text for text in [*self.texts, self.caplog.text] if canary in text]
        for place, folders, files in os.walk(self.folder):
            if "own" in folders:
                folders.remove("own")  # what the user wrote
            for name in [*folders, *files]:
                path = os.path.join(place, name)
                if canary in name:
                    found.append(f"the name {path}")
                if name in files:
                    # Copies that are being given up go away meanwhile.
                    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                        if canary.encode() in file.read():
                            found.append(f"in {path}")
        return found


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
        spec = {
            "cache": {"dir": str(folder / "copies"), "size": "10MB"},
            "errors": {"retry": 0.2, "skip": end == "404/plain", "log": str(folder / "skips.jsonl")},
            "dataset": [{"name": "a", "shards": url, "decode": "raw", "shuffle": 0}],
            "epoch": 20,
        }
        if place == "rewrite":
            spec["rewrite"] = [{"from": "gs://bucket/", "to": f"http://user:{canary}@{server.host}/"}]
        error = seen.run(spec)
        if place != "bare":
            (own / "spec.json").write_text(json.dumps(spec))
            for words in (("resolve",), ("explain",), ("cache", "ls"), ("head", "-n", "1")):
                seen.command(*words, "own/spec.json", "--format", "json")
        assert (error is None) == (end == "shard"), error
    return seen


CASES = [(place, end) for place in PLACES for end in ENDS]


@pytest.mark.parametrize(("place", "end"), CASES[::5], ids=str)
def test_no_canary_is_left(place, end, tmp_path, caplog, monkeypatch):
    check(place, end, random.Random(f"{place} {end}"), tmp_path, caplog, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize(("place", "end"), CASES, ids=str)
def test_no_canary_is_left_of_many(place, end, turn, tmp_path, caplog, monkeypatch):
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
