"""`-`: a shard from standard input, once, in the process that was started with it; or to standard output."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import BinaryIO, cast

from wdspec.base.errors import ShardError
from wdspec.base.files import RawStream
from wdspec.stores.outputs import Output, StreamOutput
from wdspec.stores.store import Store, StoreSettings

_taken_by = 0


class StandardStreams(Store):
    """Standard input, forward only, and standard output."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """The bytes of standard input.

        Raises:
            ShardError: it was read before, is a terminal or closed, or this is a worker process.
        """
        global _taken_by
        if multiprocessing.parent_process() is not None:
            raise ShardError(
                "standard input belongs to the process that was started with it, not to its workers; set "
                "`loader: {workers: 0}` or num_workers=0",
                location=location,
            )
        if _taken_by == os.getpid():
            raise ShardError(
                "standard input can be read only once, and was: give the number of samples with `samples:` where it "
                "would be counted, and stop after one pass with `epoch: pass` or `limit:`; or save it to a file",
                location=location,
            )
        if os.isatty(0):
            raise ShardError(
                "standard input is a terminal; write `… < shard.tar` or `… | wdspec …`", location=location
            )
        try:
            os.fstat(0)
        except OSError:
            raise ShardError("standard input is closed", location=location) from None
        _taken_by = os.getpid()
        return cast(BinaryIO, _StandardInput())

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        return StreamOutput(sys.stdout.buffer)

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "standard input"


class _StandardInput(RawStream):
    """Never seeks, though a file may stand behind it: part of that may have been read by others."""

    def read(self, size: int = -1) -> bytes:
        return self.readall() if size < 0 else os.read(0, size)
