"""Python may end while iterations are open. Cleaning up then uses no global names: Python has removed them."""

import ast
import builtins
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shardmaking import write_source

import wdspec

TORN_DOWN = """
import atexit, gc, json, os, signal, sys, threading

kept = []

def tear_down():
    # As Python does at its end, but before it: here errors reach stderr in every version of Python.
    threading.excepthook = lambda error: None  # at the true end, no daemon thread runs any more
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "wdspec":
            for key in vars(module).keys() - {"__builtins__"}:
                vars(module)[key] = None
    while kept:
        each = kept.pop()
        if hasattr(each, "close") and hasattr(each, "gi_frame"):
            each.close()
    del each
    gc.collect()

atexit.register(tear_down)  # registered first, so called last

import torch.utils.data
import wdspec.run.run
from wdspec.webdataset import *

def keep(*values):
    kept.extend(values)

if __name__ == "__main__":
    gc.freeze()  # modules: each child would collect them several times
    codes = {}
    for name, (statements, spec, folder) in json.loads(sys.argv[1]).items():
        child = os.fork()  # it ends like a program of its own, but has imported everything
        if not child:
            signal.alarm(200)
            os.dup2(os.open(folder + "/stderr", os.O_WRONLY | os.O_CREAT), 2)
            exec(statements)
            break
        codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    else:
        print(json.dumps(codes), flush=True)
        os._exit(0)
"""

ITERATIONS = {
    "this process": "loader = wdspec.loader(spec, num_workers=0); it = iter(loader); next(it); keep(loader, it)",
    "single samples": "it = iter(wdspec.compile({'dataset': spec['dataset']})); next(it); keep(it)",
    "processes": "loader = wdspec.loader(spec, num_workers=2); it = iter(loader); next(it); keep(loader, it)",
    "processes that do not persist": (
        "loader = wdspec.loader(spec, num_workers=2, persistent_workers=False); it = iter(loader); next(it); "
        "keep(loader, it)"
    ),
    "threads": (
        "spec['loader'] = {'kind': 'threads'}; loader = wdspec.loader(spec, num_workers=2); it = iter(loader); "
        "next(it); keep(loader, it)"
    ),
    "a pass": (
        "spec.update(epoch='pass', elastic={'ranks': 1, 'workers': 1}); "
        "it = iter(wdspec.loader(spec, num_workers=0)); next(it); keep(it)"
    ),
    "a cache": (
        "spec['cache'] = {'dir': folder + '/cache'}; "
        "spec['dataset'][0]['shards'] = 'pipe:cat ' + spec['dataset'][0]['shards']; "
        "it = iter(wdspec.loader(spec, num_workers=0)); next(it); keep(it)"
    ),
    "a pipe": (
        "spec['dataset'][0]['shards'] = 'pipe:cat ' + spec['dataset'][0]['shards']; "
        "it = iter(wdspec.loader(spec, num_workers=0)); next(it); keep(it)"
    ),
    "lines of JSON": (
        "open(folder + '/a.jsonl', 'w').write('{\"a\": 1}\\n' * 20); spec['dataset'][0]['shards'] = [folder + "
        "'/a.jsonl']; it = iter(wdspec.loader(spec, num_workers=0)); next(it); keep(it)"
    ),
    "a pipeline": (
        "it = iter(wdspec.WebDataset(spec['dataset'][0]['shards'], shardshuffle=False).shuffle(5).batched(2)); "
        "next(it); keep(it)"
    ),
    "a writer": "writer = wdspec.TarWriter(folder + '/out.tar'); keep(writer)",
    "a writer of shards": (
        "writer = wdspec.ShardWriter(folder + '/out-%d.tar'); writer.write({'__key__': 'a', 'txt': 'b'}); keep(writer)"
    ),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory):
    """The exit code and what is printed to stderr, of programs that end while these iterations are open."""
    programs, folders = {}, {}
    for name, statements in ITERATIONS.items():
        folder = folders[name] = tmp_path_factory.mktemp("program")
        source = {"name": "a", "shards": write_source(folder, "a", 4, 20), "shuffle": 8}
        spec = {"dataset": [source], "batch": 3, "epoch": {"batches": 12}}
        programs[name] = statements, spec, str(folder)
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(TORN_DOWN)
    # In development mode, every version of Python shows errors of `close` in a finalizer; memory is not checked.
    command = [sys.executable, "-X", "dev", "-W", "ignore", script, json.dumps(programs)]
    environ = {**os.environ, "PYTHONMALLOC": "pymalloc"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    codes = json.loads(done.stdout)
    return {name: (codes[name], (folder / "stderr").read_text()) for name, folder in folders.items()}


@pytest.mark.parametrize("name", ITERATIONS)
def test_cleanup_after_globals_are_cleared_prints_nothing(name, endings):
    assert endings[name] == (0, "")


def own_nodes(statements):
    """All nodes of these statements, without those of the functions in them."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def global_names(handlers):
    types = [node for each in handlers if each.type is not None for node in ast.walk(each.type)]
    return [node.id for node in types if isinstance(node, ast.Name) and not hasattr(builtins, node.id)]


@pytest.mark.parametrize(
    "path", sorted(Path(wdspec.__file__).parent.rglob("*.py")), ids=lambda path: path.stem
)
def test_closing_a_generator_looks_up_no_global_exception(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Try) or not global_names(node.handlers):
            continue
        if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in own_nodes(node.body)):
            first = node.handlers[0].type
            assert ast.unparse(first) == "GeneratorExit", f"{path}:{node.lineno}"
