"""W316: shards are files of samples."""

from __future__ import annotations

import re

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import written_texts
from wdspec.urls.urls import scheme_of

_UNSUITED = re.compile(
    r"(?i)\.(parquet|arrow|feather|csv|tsv|zip|7z|rar|h5|hdf5|lmdb|tfrecords?|mds|npy|npz|json|txt|"
    r"jpe?g|png|gif|webp|bmp|tiff?|wav|flac|mp3|ogg|mp4|mkv|avi|mov)$"
)


@rule(
    "W316",
    "files that are no shards",
    "Shards are tar files, or sequences of records (`.cbor`, `.msgpack`, `.jsonl`). `wdspec create` makes "
    "them of pictures, tables and folders.",
    bad="dataset:\n  - shards: 'train-{000..009}.parquet'\n",
    good="dataset:\n  - shards: 'train-{000..009}.tar'\n",
)
def unsuited_files(composed: Composed) -> Findings:
    """Suffixes of tables, archives, pictures, sound and video."""
    for text, written in written_texts(composed):
        found = _UNSUITED.search(written)
        if (
            found is not None
            and not written.startswith("@")
            and scheme_of(written) not in ("pipe", "http", "https")
        ):
            message = f"`.{found[1].lower()}` files are no shards"
            hint = "make shards of them with `wdspec create`"
            if found[1].lower() == "txt":
                hint = f"a list of shards, one in a line, is written `'@{written}'`"
            yield Finding(text, message, hint, text.column_at(found.start()))
