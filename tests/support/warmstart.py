"""Programs in Python for which large libraries are imported already: torch takes a second, its optimizers another.

A server imports the libraries once, and forks for each program. A program has a session, variables, folder and output
of its own, imports our modules itself, and ends as if Python had been started.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


class Program:
    """A running program; as `subprocess.Popen`."""

    def __init__(self, arguments, libraries, folder, variables, output):
        """Start Python with these arguments: `-m`, a module and its arguments, or a script and its arguments."""
        self._server = _start_server(libraries)
        self.returncode = None
        self.pid = self._ask([*map(str, arguments)], str(folder), variables, str(output))

    def _ask(self, *request):
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def poll(self):
        if self.returncode is None:
            self.returncode = self._ask(self.pid)
        return self.returncode

    def wait(self, timeout):
        limit = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)

    def terminate(self):
        if self.poll() is None:
            os.kill(self.pid, 15)


@cache
def _start_server(libraries):
    """Start the server of these libraries. It ends with this process, which closes its input."""
    return subprocess.Popen(
        [sys.executable, __file__, *libraries], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def serve(libraries):
    """Import libraries; fork a program for each request, or say how one has ended. Returns in each program alone."""
    for name in libraries:
        if find_spec(name.partition(".")[0]):
            import_module(name)
    gc.freeze()  # else each program collects them as it ends
    while line := sys.stdin.readline():
        request = json.loads(line)
        if len(request) == 1:
            pid, status = os.waitpid(request[0], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            return request
        print(json.dumps(answer), flush=True)
    os._exit(0)


def become(arguments, folder, variables, output):
    """Run a program in this process, as `python` does."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    with open(os.devnull) as nothing, open(output, "wb") as written:
        os.dup2(nothing.fileno(), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, folder)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which has the names of our tests' modules
    become(*serve(sys.argv[1:]))
