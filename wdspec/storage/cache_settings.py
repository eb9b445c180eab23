"""Where the cache of a source is, and how large: what the spec and the environment say, put together."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wdspec.spec.language.models import Source, Spec
from wdspec.storage.environment import Environment


@dataclass(frozen=True)
class CacheSettings:
    """The cache of a source, as the spec and the environment say."""

    directory: str
    """Absolute."""
    size: int | None = None
    """The most that wdspec's own files in it may take, in bytes."""

    @classmethod
    def of(
        cls, environment: Environment, spec: Spec | None = None, source: Source | None = None
    ) -> CacheSettings | None:
        """The cache of a source of a spec; without them, that of the environment.

        ``WDS_CACHE`` and ``WDS_CACHE_SIZE`` go before what the spec says, but `cache: false` is always heeded.
        """
        directory, size = None, None
        for holder in (spec, source):
            if holder is not None and "cache" in holder.model_fields_set:
                if holder.cache is None:
                    if holder is source:
                        return None
                    directory, size = "", None
                else:
                    same = holder.cache.dir == directory
                    directory = holder.cache.dir
                    size = holder.cache.size if holder.cache.size is not None or not same else size
        if directory == "":
            return None
        directory = environment.cache_dir or directory
        if directory is None:
            return None
        if directory == "~" or directory.startswith("~/"):
            directory = environment.home + directory[1:]
        directory = os.path.normpath(os.path.join(environment.directory, os.path.expanduser(directory)))
        return cls(directory, size if environment.cache_size is None else environment.cache_size)
