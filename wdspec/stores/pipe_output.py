"""The input of a program, for what is written to a `pipe:` URL."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import IO

from wdspec.redaction import redacted


class PipeOutput:
    """The standard input of a shell command; `abort` kills it.

    Raises:
        OSError: on `write` or `commit`, when the command does not take the bytes, or ends with a non-zero code.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)
        assert process.stdin is not None
        self._process: subprocess.Popen[bytes] | None = process
        self._stdin: IO[bytes] = process.stdin

    def write(self, data: bytes, /) -> int:
        return self._stdin.write(data)

    def commit(self) -> None:
        process = self._process
        assert process is not None
        broken: OSError | None = None
        try:
            self._stdin.close()
        except OSError as error:
            broken = error
        self._process = None
        code = process.wait()
        if code or broken:
            command = redacted(f"pipe:{self._command}")
            raise OSError(f"`{command}` ended with code {code}: what it was to write is not whole")

    def abort(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, 9)
        process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()
