"""The program around the commands: help, usage, exit codes, warnings, pipes and Ctrl-C."""

import importlib
import os
import signal
import subprocess
import sys
import time

import click
import pytest
from commandline import NO_TORCH, PROGRAM, environment, on_terminal, wdspec, within
from shardmaking import write_source

from wdspec import cli
from wdspec.base.errors import install_command
from wdspec.cli.main import GROUPS


@pytest.fixture(autouse=True)
def folder(tmp_path):
    write_source(tmp_path, "a", samples=40)
    (tmp_path / "s.yaml").write_text(
        'dataset: [{name: a, shards: "a-{000..003}.tar"}]\nbatch: 4\nepoch: 40\n'
    )
    return tmp_path


def test_without_arguments_the_help_is_shown():
    shown, _ = wdspec()
    assert shown == within("--help")[0]
    for command in (
        "validate",
        "explain",
        "simulate",
        "head",
        "create",
        "ls",
        "cat",
        "split",
        "sort",
        "resolve",
        "rule",
        "schema",
        "demo",
    ):
        assert f"\n  {command} " in shown


@pytest.mark.parametrize(
    "command",
    [
        "validate",
        "explain",
        "simulate",
        "head",
        "create",
        "ls",
        "cat",
        "split",
        "sort",
        "resolve",
        "rule",
        "schema",
        "demo",
    ],
)
def test_every_command_has_help(command):
    assert within(command, "--help")[0].startswith("Usage: ")


def test_an_unknown_command_suggests_one_and_exits_2():
    assert "unknown command `explian`; did you mean `explain`?" in within("explian", code=2)[1]
    assert "unknown command `frobnicate`; the commands are batch, bench, " in within("frobnicate", code=2)[1]


@pytest.mark.parametrize(
    "arguments", [["explain", ""], ["demo", ""], ["ls", "a.tar", ""], ["check", "s.yaml", ""]]
)
def test_empty_arguments_are_refused(arguments):
    assert "an argument is empty; is a variable not set?" in within(*arguments, code=2)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain"],
        ["explain", "s.yaml", "--nope"],
        ["head", "s.yaml", "-n", "0"],
        ["head", "s.yaml", "--var", "x"],
    ],
)
def test_wrong_usage_exits_2(arguments, folder):
    assert "Usage: " in within(*arguments, folder=folder, code=2)[1]


def test_a_warning_is_one_line_without_a_place_in_our_code(folder):
    (folder / "twice.yaml").write_text('dataset: [{name: a, shards: ["a-*.tar", "a-00*.tar"]}]')
    _, said = wdspec("explain", "twice.yaml", folder=folder)
    assert said.startswith("warning: 4 of the listed shards are found more than once")
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [("rule", "E302"), ("explain", "s.yaml")])
def test_every_command_warns_once_about_a_misspelled_variable(folder, arguments):
    (folder / "s.yaml").write_text("dataset: [{shards: a-000.tar}]")
    _, said = wdspec(*arguments, folder=folder, WDS_REWRTE="a=b")
    assert said.count("WDS_REWRTE is not a setting of wdspec; did you mean WDS_REWRITE?") == 1


def test_names_that_are_not_text_can_be_reported(folder):
    with open(os.path.join(os.fsencode(folder), b"odd-\xe9\x1b[31m.tar"), "wb") as file:
        file.write(b"no tar" * 500)
    (folder / "odd.yaml").write_text('dataset: [{name: odd, shards: "odd-*.tar"}]')
    _, said = wdspec("head", "odd.yaml", folder=folder, code=1)
    assert "odd-\\udce9\\x1b[31m.tar" in said
    shown, _ = wdspec("explain", "odd.yaml", folder=folder)
    assert "odd-\\udce9\\x1b[31m.tar" in shown


def test_an_ascii_locale_works(folder):
    (folder / "s.yaml").write_text('dataset: [{name: "größe", shards: a-000.tar}]', encoding="utf-8")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    wdspec("explain", "s.yaml", folder=folder, **ascii_only)
    on_terminal("explain", "s.yaml", folder=folder, **ascii_only)


def test_a_reader_that_closes_early_ends_it_silently(folder):
    done = subprocess.run(
        [
            "bash",
            "-c",
            '"$0" -c "$1" head s.yaml -n 160 | head -1; echo "${PIPESTATUS[0]}"',
            sys.executable,
            PROGRAM,
        ],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("#")
    assert done.stdout.splitlines()[1] in ("0", "141")


def test_a_closed_pipe_ends_it_silently(folder):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "explain", "s.yaml"],
        cwd=folder,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=200,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


SLOW = """import signal, time
def f(sample):
    open('started', 'w').close()
    for _ in range(20_000): time.sleep(0.01)  # one long sleep would not notice a signal that comes just before it
class Interrupted:
    def __del__(self): signal.raise_signal(signal.SIGINT)
def in_finalizer(sample):
    Interrupted()
    f(sample)
def made_another(sample):
    try: signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt: raise ImportError("a part of a library is missing") from None
"""
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
"""Shells let jobs in the background ignore SIGINT, and these tests may run in one."""


def start_slow(folder, *arguments, before=""):
    (folder / "slow_of_main.py").write_text(SLOW)
    return subprocess.Popen(
        [sys.executable, "-c", CTRL_C + before + PROGRAM, *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.02)


def test_ctrl_c_ends_it_with_one_word(folder):
    process = start_slow(folder, "head", "s.yaml", "--set", "map=slow_of_main:f")
    wait_for(folder / "started", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130
    assert said.strip() == "interrupted"


@pytest.mark.parametrize("where", ["in_finalizer", "made_another"])
def test_ctrl_c_swallowed_by_a_library_still_ends_it(where, folder):
    process = start_slow(folder, "head", "s.yaml", "--set", f"map=slow_of_main:{where}")
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130
    assert said.strip() == "interrupted"


def test_ctrl_c_during_python_exit_prints_no_traceback(folder):
    hook = "import atexit, time; atexit.register(lambda: (open('started', 'w').close(), time.sleep(200))); "
    process = start_slow(folder, "rule", "E302", before=hook)
    wait_for(folder / "started", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert (process.returncode, said) == (-signal.SIGINT, "")


def test_without_torch_commands_that_need_it_name_the_extra(folder):
    uses = {
        "wdspec.loader('s.yaml')": "wdspec.loader",
        "wdspec.compile('s.yaml')": "wdspec.compile",
        "wdspec.Loader": "wdspec.Loader",
        "wdspec.DataPipeline": "wdspec.DataPipeline",
    }
    tries = [f"try: {use}\nexcept wdspec.UsageError as error: print(error)" for use in uses]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([f"{NO_TORCH}import wdspec", *tries])],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    missing = f"needs torch, which is not installed: {install_command('wdspec[torch]')}"
    assert done.stdout.splitlines() == [f"{what} {missing}" for what in uses.values()], done.stderr


def test_without_torch_a_decoder_decodes_samples():
    code = f"{NO_TORCH}import wdspec\nprint(wdspec.Decoder('rgb8')({{'cls': b'3', 'json': b'null'}}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout == "{'cls': 3, 'json': None}\n", done.stderr


def test_without_torch_specs_load_and_plan(folder):
    _ = wdspec("validate", "s.yaml", folder=folder, before=NO_TORCH)
    _ = wdspec("explain", "s.yaml", folder=folder, before=NO_TORCH)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_an_unwritable_output_is_a_one_line_error(folder):
    shell = f"exec {sys.executable} -c '{PROGRAM}' schema > /dev/full"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    assert done.stderr == "No space left on device\n"


@pytest.mark.parametrize("arguments", [["explain", "s.yaml"], ["demo"]])
def test_a_deleted_working_directory_is_named(tmp_path, arguments):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", 'rmdir "$0" && exec "$@"', gone, sys.executable, "-c", PROGRAM, *arguments]
    ended = subprocess.run(command, cwd=gone, env=environment(), capture_output=True, text=True, timeout=200)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "the working directory was deleted; change to another one\n"


def test_a_closed_standard_output_is_ignored(folder):
    shell = f"exec {sys.executable} -c '{PROGRAM}' rule E302 >&-"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_is_one_file_and_one_table_row(tmp_path, monkeypatch):
    (tmp_path / "twice.py").write_text(
        '"""`wdspec twice`: an example."""\n\nimport click\n\n\n'
        "@click.command()\n@click.argument('word')\ndef twice(word):\n    click.echo(word + word)\n"
    )
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    monkeypatch.setitem(GROUPS["About specs"], "twice", "Say a word twice.")
    monkeypatch.delitem(sys.modules, "wdspec.cli.twice", raising=False)
    assert within("twice", "ho")[0] == "hoho\n"
    assert "twice     Say a word twice." in within("--help")[0]
    assert "did you mean `twice`" in within("twise", code=2)[1]


def test_every_command_has_a_help_line():
    for commands in GROUPS.values():
        assert 5 <= len(commands) <= 15
        for name, summary in commands.items():
            module = importlib.import_module(f"wdspec.cli.{name}")
            assert 10 < len(summary) < 80
            assert isinstance(getattr(module, name), click.Command)


@pytest.mark.parametrize(
    ("words", "place", "expected"), [("wdspec exp", 1, "explain"), ("wdspec explain --ra", 2, "--ranks")]
)
def test_the_shell_completes_commands_and_options(words, place, expected):
    shown, _ = wdspec(_WDSPEC_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(place))
    assert f"plain,{expected}" in shown.splitlines()
