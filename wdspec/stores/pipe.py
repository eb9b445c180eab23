"""`pipe:` URLs: a shell command that prints a shard, or reads one that is written.

The command runs in its own session, so that it is ended together with all its children. Its standard error is read
along with its output, without a thread; the last part of it goes into the error if the command fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import time
from typing import IO, BinaryIO, cast

from wdspec.base.errors import ShardError
from wdspec.base.files import RawStream
from wdspec.base.process import Owner
from wdspec.base.redaction import redact, redact_answer
from wdspec.stores.outputs import Output
from wdspec.stores.retry import Retries, RetryPolicy, TransientError
from wdspec.stores.store import Store, StoreSettings


class PipeOutput:
    """The standard input of a shell command; `abort` kills it.

    `write` and `commit` raise OSError if the command does not take the bytes, or ends with a non-zero code.
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
            command = redact(f"pipe:{self._command}")
            raise OSError(f"`{command}` ended with code {code}: its output is incomplete")

    def abort(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, 9)
        process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()


log = logging.getLogger("wdspec")

ATTEMPTS = 3
"""How often to start a command that fails before its first byte; the command decides how long each attempt takes."""
CAPACITY = 1024 * 1024
"""Bytes that the pipe holds if the system allows it: fewer, larger reads, and the command runs ahead."""
GRACE = 2.0
"""Seconds between the request to end and the kill."""
TAIL = 2000
"""Bytes of the command's standard error to keep."""

_NOT_RUN = {126: "the shell may not run it", 127: "the shell does not find this program"}


class PipeStore(Store):
    """Reads the output of the command of a `pipe:` URL, or writes to its input."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """Start the command. Raises ShardError if there is none."""
        return cast(BinaryIO, PipeStream(_command(location), location, settings.retry_policy))

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        return PipeOutput(_command(location))

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "the output of this command"


def _command(location: str) -> str:
    command = location[len("pipe:") :].strip()
    if not command:
        raise ShardError(
            "`pipe:` without a command; write one whose output, or input, is the shard", location=location
        )
    return command


class PipeStream(RawStream):
    """The output of a shell command, forward only.

    `read` returns b"" only after the command has closed its output and ended with status 0. `close` ends it with all
    its children; the status of a command that is stopped early does not matter.

    A command that fails before its first byte is started again, `ATTEMPTS` times in all; later, nothing would show
    that it prints the same bytes. It may be silent for `read_timeout` + `budget`, as long as other stores may fail.

    Raises:
        ShardError: on `read`, a command that cannot start, fails, or is silent for too long.
    """

    def __init__(self, command: str, location: str, retry_policy: RetryPolicy) -> None:
        self._command, self._location = command, location
        self._retries = Retries(retry_policy, location)
        self._silence = retry_policy.read_timeout + retry_policy.budget
        self._owner = Owner()
        self._attempts = 0
        self._given = 0
        self._ended = False
        self._refusal: ShardError | None = None
        self._run: _Run | None = None
        self._start()

    def tell(self) -> int:
        return self._given

    def _read(self, size: int) -> bytes:
        if self._ended or size == 0:
            return b""
        if self._owner.is_other:
            raise ShardError(
                "this pipe was opened by another process, before a fork", location=self._location
            )
        while True:
            run = self._run or self._start()
            try:
                data = run.read(size, self._silence)
                if not data:
                    run.finish(self._silence)
                    self._ended = True
                self._given += len(data)
                return data
            except TransientError as error:
                self._run = None
                run.close()
                if self._refusal is not None:
                    raise self._refusal from None
                if self._given:
                    raise ShardError(
                        f"{error}; {self._given} bytes were read before that", location=self._location
                    ) from None
                if self._attempts >= ATTEMPTS or run.never_ran:
                    tried = f", {self._attempts} times in a row" if self._attempts > 1 else ""
                    raise ShardError(f"{error}{tried}", location=self._location) from None
                self._retries.wait_after(error)

    def abort(self, error: ShardError) -> None:
        """From another thread: kill the command; the current or next `read` raises the error."""
        self._refusal = error
        self._retries.stop()
        run = self._run
        if run is not None and not self._owner.is_other:
            run.kill()

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            if self._owner.is_other:
                run.forget()
            else:
                run.close()
        super().close()

    def _start(self) -> _Run:
        self._attempts += 1
        try:
            self._run = _Run(self._command)
        except (OSError, ValueError) as error:
            raise ShardError(
                f"the command cannot be started: {getattr(error, 'strerror', None) or error}",
                location=self._location,
            ) from error
        return self._run


class _Run:
    """One run of a command."""

    def __init__(self, command: str) -> None:
        self._command = command
        self.never_ran = False
        self._popen = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._popen.stdout
        assert self._popen.stderr
        self._out, self._err = self._popen.stdout.fileno(), self._popen.stderr.fileno()
        os.set_blocking(self._out, False)
        os.set_blocking(self._err, False)
        with contextlib.suppress(OSError, AttributeError, ImportError):  # over the user's limit; not Linux
            import fcntl

            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, CAPACITY)  # type: ignore[attr-defined,unused-ignore]  # Linux
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)
        self._speaks = True
        self._tail = b""

    def read(self, size: int, silence: float) -> bytes:
        """At most `size` bytes; b"" when the output is closed. Raises TransientError after a silence."""
        deadline = None
        while True:
            try:
                return os.read(self._out, size)
            except BlockingIOError:
                pass
            now = time.monotonic()
            deadline = deadline or now + silence
            ready = self._poll.poll(max(deadline - now, 0) * 1000)
            if not ready:
                raise TransientError(f"the command printed nothing for {silence:.0f} s{self._words()}")
            if any(fd == self._err for fd, _ in ready):
                self._listen()

    def finish(self, silence: float) -> None:
        """Wait for the end of the command. Raises TransientError unless its status is 0."""
        deadline, pause = time.monotonic() + silence, 0.0005
        while not self._has_ended():
            if time.monotonic() > deadline:
                raise TransientError(
                    f"the command closed its output, but kept running for {silence:.0f} s{self._words()}"
                )
            if self._speaks:  # or it may block on a full pipe; its standard error usually ends with it
                errors = select.poll()
                errors.register(self._err, select.POLLIN)
                errors.poll(pause * 1000)
                self._listen()
            else:
                time.sleep(pause)
            pause = min(pause * 2, 0.05)
        self._listen()
        self._end()
        status = self._popen.returncode
        if status:
            self.never_ran = status in _NOT_RUN
            raise TransientError(f"{_ending(status)}{self._words()}")
        if self._tail:
            log.info("a command of `pipe:` succeeded and wrote%s", self._words())

    def close(self) -> None:
        """End the command and all its children, and wait for them."""
        self.forget()
        if self._popen.returncode is None:
            self._signal(signal.SIGTERM)
            deadline, pause = time.monotonic() + GRACE, 0.0005
            while not self._has_ended() and time.monotonic() < deadline:
                time.sleep(pause)
                pause = min(pause * 2, 0.05)
            self._end()

    def kill(self) -> None:
        """Kill the command and all its children."""
        if self._popen.returncode is None:
            self._signal(signal.SIGKILL)

    def forget(self) -> None:
        """Close our ends of the pipes."""
        for file in (self._popen.stdout, self._popen.stderr):
            if file is not None:
                file.close()

    def _has_ended(self) -> bool:
        """Whether the shell has ended. It stays a zombie, so that no other group gets its number meanwhile."""
        if not hasattr(os, "waitid"):
            return self._popen.poll() is not None
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._popen.pid, options) is not None
        except ChildProcessError:
            return True

    def _end(self) -> None:
        """Kill the rest of the group, and read the status."""
        self.kill()
        self._popen.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _listen(self) -> None:
        """Read the command's standard error, and keep the last part of it."""
        try:
            while self._speaks:
                piece = os.read(self._err, 65536)
                if not piece:
                    self._poll.unregister(self._err)
                    self._speaks = False
                self._tail = (self._tail + piece)[-TAIL:]
        except BlockingIOError:
            pass

    def _words(self) -> str:
        """The end of the standard error, as the end of a message."""
        self._listen()
        text = redact_answer(self._tail.decode("utf-8", "replace").strip(), f"pipe:{self._command}")
        if not text:
            return "; it wrote nothing to its standard error"
        cut = "… " if len(self._tail) == TAIL else ""
        return f"; its standard error: {cut}{' | '.join(text.splitlines())}"


def _ending(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the command was killed by {signal.Signals(-status).name}"
    reason = f" ({_NOT_RUN[status]})" if status in _NOT_RUN else ""
    return f"the command failed with exit status {status}{reason}"
