"""A canary in every place where a secret can be, and all visible output of a run, to search for it."""

import contextlib
import gc
import io
import json
import os
import tarfile
import traceback
import warnings

from commandline import within as wdspec_command

import wdspec

PLACES = {
    "login": "http://user:{0}@{1}/",
    "user": "http://{0}@{1}/",
    "quote": "http://user:it's{0}@{1}/",
    "query": "http://{1}/?subscription-key={0}",
    "encoded": "http://{1}/?code%3D{0}",
    "bare": "http://{1}/?{0}",
    "fragment": "http://{1}/#{0}",
    "slash": "http://{1}/?se=1&sig=ab/{0}=",
    "netrc": "http://{1}/",
    "proxy": "http://{1}/",
    "curl": "pipe:curl -sS --fail-with-body -u user:{0} http://{1}/",
    "header": "pipe:curl -sSv --fail-with-body -H 'X-Key: {0}' http://{1}/",
    "quoted": 'pipe:curl -sSv --fail-with-body -H "X-Key: {0}" http://{1}/',
    "made": 'pipe:curl -sSv --fail-with-body -H "$(echo X-Key: {0})" http://{1}/',
    "variable": "pipe:KEY={0} sh -c 'env >&2; curl -sS --fail-with-body http://{1}/'",
    "rewrite": "gs://bucket/",
    "vars": "http://{1}/?code=${{code}}",
    "vars of a login": "http://user:${{code}}@{1}/",
    "vars of a command": "pipe:curl -sSv --fail-with-body -H 'X-Key: ${{code}}' http://{1}/",
    "environment": "http://{1}/?code=${{code}}",
    "environment variable": "http://{1}/?code=${{code}}",
}


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
    head, mark, query = url.partition("/#" if place == "fragment" else "/?")
    path = {"to": "to/localhost:1", "html": "200/plain"}.get(end, end)
    return f"{head.rstrip('/')}/{path}/a.tar{mark[1:]}{query}"


def variables(place, canary):
    """The keys of a spec for the variables of a place, and the environment variables."""
    if place.startswith("vars"):
        return {"vars": {"code": canary}}, {}
    if place == "environment":
        return {"environments": {"lab": {"vars": {"code": canary}}}}, {"WDSPEC_ENV": "lab"}
    return {}, {"WDS_code": canary} if place == "environment variable" else {}


class Collected:
    """All visible output of a run."""

    def __init__(self, folder, caplog):
        self.folder, self.caplog, self.texts = folder, caplog, []

    def run(self, spec):
        """Read a spec to its end or its error, and record the output meanwhile."""
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
