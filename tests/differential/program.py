"""Run wdspec for the observers: the command line in this process, and errors and warnings as plain values.

Nothing here names a module inside the package. The command is the one that `[project.scripts]` in the checkout's
`pyproject.toml` names, or else the entry point of the installed distribution.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import io
import logging
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from unittest import mock

import wdspec

SECONDS = 600
"""A case that takes longer is recorded as one that hangs."""
TIME = 1_700_000_000
"""The modification time of all files that cases read."""
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH")
"""Variables that reach a case. Others could change what is shown or read."""
HERE = Path(__file__).parent


class HangError(Exception):
    """A case took longer than `SECONDS`."""


@functools.cache
def entry_point() -> Callable[[list[str]], None]:
    """Return the function of the program `wdspec`."""
    project = Path(wdspec.__file__).resolve().parents[1] / "pyproject.toml"
    if project.is_file():
        value = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]["wdspec"]
    else:
        (found,) = importlib.metadata.entry_points(group="console_scripts", name="wdspec")
        value = found.value
    module, _, name = value.partition(":")
    return getattr(importlib.import_module(module), name)


def command(arguments: list[str], stdin: bytes = b"") -> tuple[Any, str, str]:
    """Run `wdspec` with these arguments: (exit code, standard output, standard error)."""
    code: Any = None
    with (
        _file() as (out, out_text),
        _file() as (err, err_text),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
        mock.patch.object(sys, "argv", ["wdspec", *arguments]),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # the command decides how warnings are shown
        warnings.showwarning = lambda text, kind, *_, **__: print(f"{kind.__name__}: {text}", file=sys.stderr)
        try:
            entry_point()(arguments)
        except SystemExit as done:
            code = done.code
        except HangError:
            code = "hangs"
        except BaseException as error:
            code = f"raises {', '.join(_types(error))}"
            err.write(f"{error}\n")
        return code, out_text(), err_text()


@contextlib.contextmanager
def _file() -> Iterator[tuple[IO[str], Callable[[], str]]]:
    """Yield a file to write to, and a function that returns what has been written."""
    with tempfile.TemporaryFile() as file, os.fdopen(os.dup(file.fileno()), "rb") as same:
        writer = io.TextIOWrapper(file, encoding="utf-8", write_through=True)

        def text() -> str:
            writer.flush()
            same.seek(0)
            return same.read().decode(errors="backslashreplace")

        yield writer, text
        writer.detach()


@contextlib.contextmanager
def situation(folder: Path, environ: dict[str, str] | None = None) -> Iterator[list[Any]]:
    """Work in a folder with few environment variables; yields the list of warnings.

    Raises:
        HangError: the body takes longer than `SECONDS`.
    """
    environ = {"HOME": str(folder), "COLUMNS": "100", **(environ or {})}
    environ = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | environ
    before, path = os.getcwd(), list(sys.path)
    handler = signal.signal(signal.SIGALRM, _hang)
    signal.alarm(SECONDS)
    try:
        with (
            warnings.catch_warnings(record=True) as seen,
            mock.patch.dict(os.environ, environ, clear=True),
        ):
            warnings.simplefilter("always")
            os.chdir(folder)
            yield seen
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        os.chdir(before)
        sys.path[:] = path


def _hang(*_: Any) -> None:
    raise HangError(f"took more than {SECONDS} seconds")


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the list of lines that wdspec logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(f"{record.levelname}: {record.getMessage()}")  # type: ignore[method-assign]
    log = logging.getLogger("wdspec")
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextlib.contextmanager
def new_folder(files: dict[str, str], archives: list[str] | tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield a temporary folder with the files of archives and others; surrogates in texts are single bytes.

    Its path has the same length each time, because long texts are cut.
    """
    folder = Path(tempfile.mkdtemp(prefix="o-"))
    try:
        for archive in archives:
            with tarfile.open(HERE / archive) as tar:
                tar.extractall(folder, filter="data")
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        if archives:
            # A process imports one module of a name, so specs must not find the original.
            shutil.copyfile(HERE / "functions_in_specs.py", folder / "sample_functions.py")
        for path in folder.rglob("*"):
            os.utime(path, (TIME, TIME))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def masked(text: str, folder: Path) -> str:
    """Return the text without the temporary folder, ports and addresses in memory."""
    for path in {str(folder), os.path.realpath(folder)}:
        text = text.replace(path, "<folder>")
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}[^\s\"`…]*…", "<folder>…", text)
    text = re.sub(r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:PORT", text)
    return re.sub(r"0x[0-9a-f]{8,}", "0x…", text)


def masked_values(value: Any, folder: Path) -> Any:
    """Return a JSON value with `masked` texts."""
    if isinstance(value, dict):
        return {masked(name, folder): masked_values(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [masked_values(each, folder) for each in value]
    return masked(value, folder) if isinstance(value, str) else value


def values_of(model: Any, folder: Path) -> Any:
    """Return all values of a model as JSON values with `masked` texts, also those that dumps leave out."""
    return masked_values(_all_values(model), folder)


def _all_values(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.model_dump(mode="json")
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if field.exclude:
            found[name] = list(value) if isinstance(value, tuple) else value
        elif hasattr(value, "model_dump"):
            found[name] = _all_values(value)
        elif isinstance(value, tuple) and value and all(hasattr(each, "model_dump") for each in value):
            found[name] = [_all_values(each) for each in value]
    return found


def describe_error(error: BaseException, folder: Path) -> dict[str, Any]:
    """Return the types, text, notes, code, place and problems of an error."""
    if isinstance(error, HangError):
        return {"types": ["hangs"], "text": ""}
    text = masked(str(error), folder)
    if "Original Traceback" in text:  # from a worker process; lines of code are not behaviour
        text = f"{text.splitlines()[0]} … {text.rstrip().splitlines()[-1]}"
    found: dict[str, Any] = {"types": _types(error), "text": text}
    if notes := getattr(error, "__notes__", None):
        found["notes"] = [masked(note, folder) for note in notes]
    if code := getattr(error, "code", None):
        found["code"] = str(code)
    if place := getattr(error, "place", None):
        found["place"] = {name: masked(str(value), folder) for name, value in place.items()}
    names = ("severity", "code", "message", "hint", "file", "line", "column", "length")
    if problems := getattr(error, "problems", None):
        found["problems"] = [
            masked_values({name: getattr(each, name) for name in names}, folder) for each in problems
        ]
    return found


def _types(error: BaseException) -> list[str]:
    return [each.__name__ for each in type(error).__mro__ if each not in (object, BaseException, Exception)]


def list_warnings(seen: list[Any], folder: Path) -> list[str]:
    """Return wdspec's warnings among those seen."""
    ignored = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)
    found = {
        f"{each.category.__name__}: {masked(str(each.message), folder)}"
        for each in seen
        if not issubclass(each.category, ignored)
    }
    return sorted(text for text in found if "DataLoader will create" not in text)
