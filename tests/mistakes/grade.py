"""Grade what wdspec says about the mistakes in `specs.yaml`; README.md describes the entries and the grades.

    PYTHONPATH=tests/support python tests/mistakes/grade.py [NAME]… [--show] [--json FILE] [--jobs 2]

Whether a remedy is wrong, which also is an F, only a reader can decide: `--show` prints what was said.
"""

import argparse
import hashlib
import json
import os
import pickle
import re
import select
import shlex
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path

import yaml
from commandline import environment
from sampledata import write_files

from wdspec.cli.main import cli, main

SPECS = Path(__file__).with_name("specs.yaml")
TIMEOUT = 60
"""Seconds for a command."""
MOST_ITEMS = 2000
"""Samples or batches that are compared of two specs."""

_MESSAGE = r"(?:(?:.*: )?[DEW]\d{3} |(?i:warning|error): |[\w.]*(?:Error|Warning|StopIteration)\b)"
"""How the first line of a warning or an error starts."""


def in_folder(entry, spec, command):
    """Runs `command` in a new folder with the files of an entry; returns (output, exit code).

    Args:
        entry: an entry whose `files` are complete.
        spec: the text of the main spec.
        command: as in a shell, or `load SPEC`.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, entry["files"])
        for name, text in {**entry["specs"], next(iter(entry["specs"])): spec}.items():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return run(command, folder)


def run(command, folder):
    """Runs a command in a forked child; returns (stdout and stderr, exit code). A timeout is exit code 124."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _child(shlex.split(command), folder)
        child = os.pidfd_open(pid)
        ended = select.select([child], [], [], TIMEOUT)[0]
        os.close(child)
        if not ended:
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
    return "".join(texts), code if ended else 124


def _child(words, folder):
    """Runs the words of a command as the program does, and ends this process."""
    code = 1
    try:
        variables = {}
        while "=" in words[0]:
            name, _, variables[name] = words.pop(0).partition("=")
        wanted = environment(**variables)
        os.environ.clear()
        os.environ.update(wanted)
        os.chdir(folder)
        socket.socket.connect = _no_network
        if words[0] in ("load", "stream"):
            (_load if words[0] == "load" else _stream)(words[1])
            code = 0
        else:
            sys.argv = words
            main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _no_network(*_):
    raise OSError("there is no network")


def _load(spec):
    """Takes the first batch in Python; prints warnings and the last lines of a traceback without our code."""
    import wdspec

    warnings.simplefilter("default")
    warnings.showwarning = lambda message, kind, *_, **__: print(
        f"{kind.__name__}: {message}", file=sys.stderr
    )
    try:
        next(iter(wdspec.loader(spec)))
    except Exception as error:
        sys.exit("".join(traceback.format_exception_only(error)))


def _stream(spec):
    """Prints digests of what a spec gives, up to `MOST_ITEMS` items."""
    import wdspec

    for item in islice(wdspec.compile(spec), MOST_ITEMS):
        print(hashlib.blake2b(pickle.dumps(item), digest_size=16).hexdigest())


def is_right(entry, spec, row):
    """Whether a mistake is none: without a change, the command says, and the spec gives, what it does after it."""
    if (row["output"], row["code"]) != (row["fixed_output"], row["fixed_code"]) or messages(row["output"]):
        return False
    name = next(iter(entry["specs"]))
    (given, code), (wanted, _) = (in_folder(entry, text, f"stream {name}") for text in (spec, entry["fixed"]))
    return code == 0 and bool(wanted) and given == wanted


def messages(output):
    """The warnings and errors in an output, each with the lines that follow it."""
    parts = re.split(rf"\n\s*\n|\n(?={_MESSAGE})", output)
    return [part for part in parts if re.match(_MESSAGE, part)]


def _plain(text):
    """Text without separators in numbers."""
    return re.sub(r"(?<=\d)[,_](?=\d)", "", text)


def _holds(output, wanted):
    """Whether an output contains a text as words of their own; a number may have a unit."""
    wanted = _plain(str(wanted))
    start = r"(?<![\w.])" if wanted[:1].isdigit() else r"(?<!\w)" if wanted[:1].isalnum() else ""
    is_number = re.fullmatch(r"[\d.]+", wanted)
    end = r"(?!\d|\.\d*[1-9])" if is_number else r"(?!\w)" if wanted[-1:].isalnum() else ""
    pattern = start + re.escape(wanted) + end
    return any(re.search(pattern, _plain(text)) for text in _forms(output))


def _forms(output):
    """An output as it is, and without line breaks."""
    return output, " ".join(output.split())


def grade(says, output, code):
    """Returns the grade, and which of place, value and change an output has."""
    has = {
        "place": _holds(output, says["place"]),
        "value": _holds(output, says["value"]),
        "change": any(
            re.search(says["change"], text, re.MULTILINE)
            for form in _forms(output)
            for text in (form, _plain(form))
        ),
    }
    if all(has.values()):
        return "A", has
    if code == 0 and not (any(has.values()) and messages(output)):
        return "F", has
    return "C", has


def graded(entry):
    """The row of a mistake: what its command says, and what is said after the change."""
    spec = next(iter(entry["specs"].values()))
    output, code = in_folder(entry, spec, entry["command"])
    found, has = grade(entry["says"], output, code)
    after, after_code = in_folder(entry, entry["fixed"], entry.get("fixed_command", entry["command"]))
    is_warned = after_code or any(_holds(text, entry["says"]["place"]) for text in messages(after))
    row = {
        "name": entry["name"],
        "about": entry["about"],
        "grade": found,
        **has,
        "code": code,
        "output": output,
        "fixed_code": after_code,
        "fixed_is_warned": bool(is_warned),
        "fixed_output": after,
    }
    return {**row, "grade": "="} if found == "F" and is_right(entry, spec, row) else row


def not_warned(entry):
    """The row of a correct spec: the warnings and errors of `wdspec validate`, and of its own command."""
    name, spec = next(iter(entry["specs"].items()))
    command = entry.get("command", f"wdspec explain {name}")
    validated, validated_code = in_folder(entry, spec, _validation(command, name))
    output, code = in_folder(entry, spec, command)
    return {
        "name": entry["name"],
        "near": entry["near"],
        "validate": messages(validated),
        "validate_code": validated_code,
        "messages": messages(output),
        "code": code,
        "output": output,
    }


def _validation(command, name):
    """The command that validates a spec, with the variables of another command."""
    before, _, after = command.partition(" wdspec ")
    variables = f"{before} " if after else ""
    return " ".join([f"{variables}wdspec validate {name}", *re.findall(r"--var \S+", command)])


def entries(names=()):
    """The entries of the file, with their files and what grades them: (function, entry)."""
    document = yaml.safe_load(SPECS.read_text(encoding="utf-8"))
    files = {entry["name"]: entry["files"] for entry in document["mistakes"]}
    for function, key in ((graded, "mistakes"), (not_warned, "near")):
        for entry in document[key]:
            if not names or entry["name"] in names:
                own = dict(entry["files"])
                entry["files"] = {**files.get(own.pop("files_of", None), {}), **own}
                yield function, entry


def rows(work, jobs):
    """The rows of entries, in their order, from as many processes as `jobs`."""
    import torch  # noqa: F401 - each command is a fork, and need not import it

    for command in {entry.get("command", "wdspec explain") for _, entry in work}:
        for word in set(shlex.split(command)) & set(cli.list_commands(None)):
            cli.get_command(None, word)
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for job in range(jobs):
            pids.append(os.fork())
            if pids[-1] == 0:
                _work(work[job::jobs], Path(folder, str(job)))
        if any(os.waitpid(pid, 0)[1] for pid in pids):
            sys.exit("an entry could not be graded")
        parts = [json.loads(Path(folder, str(job)).read_text(encoding="utf-8")) for job in range(jobs)]
    return [parts[number % jobs][number // jobs] for number in range(len(work))]


def _work(work, place):
    """Writes the rows of a process, and ends it."""
    code = 1
    try:
        done = []
        for function, entry in work:
            try:
                done.append(function(entry))
            except Exception:
                print(f"in the entry {entry['name']}:", file=sys.stderr)
                raise
        place.write_text(json.dumps(done), encoding="utf-8")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def report(mistakes, near, show):
    """Prints the tables and totals."""
    width = max((len(row["name"]) for row in mistakes), default=0)
    for row in mistakes:
        has = " ".join(each if row[each] else "-" * len(each) for each in ("place", "value", "change"))
        print(f"{row['name']:{width}} {row['about']:8} {row['grade']} {has} exit {row['code']}")
        if show and row["grade"] not in "A=":
            print(_indented(row["output"]))
    for row in mistakes:
        if row["fixed_is_warned"]:
            print(f"after the change of {row['name']}, exit {row['fixed_code']}:")
            print(_indented("\n".join(messages(row["fixed_output"])) or row["fixed_output"]))
    for row in near:
        if row["validate"] or row["validate_code"]:
            print(f"validate warns of {row['name']}, exit {row['validate_code']}:")
            print(_indented("\n".join(row["validate"])))
    for row in near:
        if row["messages"] or row["code"]:
            print(f"its command warns of {row['name']}, exit {row['code']}:")
            print(_indented("\n".join(row["messages"]) or row["output"]))
    for about, counts in totals(mistakes, near).items():
        print(f"{about:8} {counts}")


def totals(mistakes, near):
    """How many entries have which grade, by what they are about, and how many correct specs got a warning."""
    counts = {
        about: dict.fromkeys("ACF=", 0) | Counter(row["grade"] for row in mistakes if row["about"] == about)
        for about in dict.fromkeys(row["about"] for row in mistakes)
    }
    counts["all"] = dict.fromkeys("ACF=", 0) | Counter(row["grade"] for row in mistakes)
    counts["fixed"] = {"warned": sum(row["fixed_is_warned"] for row in mistakes)}
    counts["near"] = {
        "validate": sum(bool(row["validate"] or row["validate_code"]) for row in near),
        "command": sum(bool(row["messages"] or row["code"]) for row in near),
    }
    return counts


def _indented(text):
    return "\n".join(f"    {line}" for line in text.rstrip().split("\n"))


def run_program():
    """Grades the entries that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; by default all")
    parser.add_argument("--show", action="store_true", help="print the output of all entries without an A")
    parser.add_argument("--json", metavar="FILE", help="also write all rows and totals to a file")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    work = list(entries(options.names))
    found = rows(work, options.jobs)
    mistakes, near = ([row for row in found if key in row] for key in ("grade", "near"))
    report(mistakes, near, options.show)
    if options.json:
        document = {"mistakes": mistakes, "near": near, "totals": totals(mistakes, near)}
        Path(options.json).write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    run_program()
