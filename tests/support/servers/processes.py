"""Start server programs on their own ports, and end them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def free_port() -> int:
    """A free port; another process may take it before it is used, so starting is retried."""
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def started(
    command: Callable[[int], list[str]],
    log: Path,
    environ: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server in a new process group, and wait until its port answers.

    Args:
        command: port -> program and arguments.
        log: file for what it prints.
        environ: its environment; by default ours.
        seconds: in which it must answer.
    """
    for _ in range(3):
        port = free_port()
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command(port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                start_new_session=True,
            )
        if _answers(process, port, seconds):
            return process, port
        stop(process)
    raise RuntimeError(f"{command(0)[0]} does not start: {log.read_text(errors='replace')[-2000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
            return
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _answers(process: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False
