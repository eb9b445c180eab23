"""The list of shards in an `index.json` of MosaicML Streaming (MDS). It needs no numpy, so validation can read it."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from wdspec.base.amounts import show_value


def read_index(data: bytes) -> list[tuple[str, str | None]]:
    """Return the names of the shards in an `index.json`, each with its name before compression if it is compressed.

    Raises:
        ValueError: it is not an index of MDS, or a name leads out of its folder.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    shards = found.get("shards") if isinstance(found, dict) else None
    if not isinstance(shards, list) or not shards:
        raise ValueError("it lists no shards")
    names = []
    for number, shard in enumerate(shards):
        if not isinstance(shard, dict) or shard.get("format") != "mds" or shard.get("version") != 2:
            raise ValueError(f"its shard {number} is not of version 2 of the format mds")
        raw, packed = (_name_in(shard.get(key), number) for key in ("raw_data", "zip_data"))
        if raw is None and packed is None:
            raise ValueError(f"its shard {number} has no name")
        names.append((packed or cast(str, raw), raw if packed else None))
    return names


def _name_in(file: Any, number: int) -> str | None:
    if file is None:
        return None
    name = file.get("basename") if isinstance(file, dict) else None
    if not isinstance(name, str) or not re.fullmatch(r"(?![.~-])[^\x00-\x1f/\\?#*{}\[\]%@:]+", name):
        raise ValueError(
            f"its shard {number} has the name {show_value(name)}, which is not that of a file in its folder"
        )
    return name
