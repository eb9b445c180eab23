"""Where the bytes of one shard go: compressed on the way, counted, and visible once the shard is complete."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from wdspec.errors import UsageError
from wdspec.formats.compression.kinds import compression_of
from wdspec.outputs.output import Output, StreamOutput
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage

Target = str | os.PathLike[str] | BinaryIO | Output
"""A path or URL, an open file, or an output."""


class Sink:
    """The bytes of one shard on their way.

    Args:
        target: a path or URL, see `Storage.output`; or an open binary file, which is left open.
        compress: see `compression_of`.
        overwrite, since: see `Storage.output`.
    """

    def __init__(
        self,
        target: Target,
        compress: bool | str | None = None,
        *,
        name: str = "",
        overwrite: bool = True,
        since: int | None = None,
    ) -> None:
        self.name = name or (os.fspath(target) if isinstance(target, (str, os.PathLike)) else "")
        """The path or URL as it was given; empty for a file that was opened elsewhere."""
        compression = compression_of(self.name, compress)
        self._compressor = compression.compressor() if compression else None
        self._output = _output(target, overwrite, since)
        self.taken = 0
        """Bytes taken so far, before compression."""
        self.open = True
        self.failed = False
        """Whether a write has failed, and the shard is lost."""

    @property
    def born(self) -> int | None:
        """When writing a local file began; see `LocalOutput`."""
        return getattr(self._output, "born", None)

    def check_kept(self) -> None:
        """Raises UsageError for a local file that somebody has replaced since `commit`."""
        check = getattr(self._output, "check_kept", None)
        if check is not None:
            check()

    def write(self, data: bytes) -> None:
        """Takes bytes. When that fails all that was written is forgotten, as its end is not known any more."""
        if not self.open:
            raise UsageError("the writer is closed; open another one")
        try:
            packed = self._compressor.compress(data) if self._compressor else data
            if packed:
                self._output.write(packed)
        except BaseException:
            self.failed = True
            self.abort()
            raise
        self.taken += len(data)

    def commit(self) -> None:
        """Makes the complete shard appear under its name."""
        if self.open:
            try:
                if self._compressor:
                    self._output.write(self._compressor.flush())
                self._output.commit()
            except BaseException:
                self.abort()
                raise
            self.open = False

    def abort(self) -> None:
        """Forgets the shard: nothing appears under its name."""
        if self.open:
            self.open = False
            self._output.abort()


def _output(target: Any, overwrite: bool, since: int | None) -> Output:
    if isinstance(target, (str, os.PathLike)):
        return Storage.of(Environment.read()).output(os.fspath(target), overwrite=overwrite, since=since)
    if hasattr(target, "commit") and hasattr(target, "abort"):
        return target  # type: ignore[no-any-return]  # an Output by its methods
    if hasattr(target, "write"):
        return StreamOutput(target)
    raise UsageError(f"a writer needs a path, a URL or a binary file, not {type(target).__name__}")
