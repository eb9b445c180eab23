"""Globs over the flat keys of a store find what globs on a disk find."""

import os
import tempfile

from hypothesis import example, given, settings
from hypothesis import strategies as st

from wdspec.stores.local import files_matching, shards_in
from wdspec.stores.store import keys_matching, literal_start, shards_among

NAMES = st.sampled_from(["a", "b", ".h", "a.tar", "b.tgz", "a[1].tar", "*.tar", "~x.tar", ".x.tar", "B.TAR"])
KEYS = st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=8)
PATTERNS = st.lists(
    st.sampled_from(["*", "**", "?", "a", "a*", "*.tar", "[ab]*", "a[1].tar", ".*", "*.t*", "b"]),
    min_size=1,
    max_size=4,
).map("/".join)


@settings(max_examples=150, deadline=None)
@given(KEYS, PATTERNS)
@example({"a", "a/b"}, "**")
@example({".h/a"}, "**/.*/*")
@example({".h/a", "b/.h/c/a"}, "**/.*/**")
def test_a_glob_matches_keys_like_files(keys, pattern):
    # On a disk a name is a file or a directory, not both.
    files = {key for key in keys if not any(other.startswith(key + "/") for other in keys)}
    with tempfile.TemporaryDirectory() as root:
        for key in files:
            path = os.path.join(root, key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w"):
                pass
        assert keys_matching(files, pattern) == [
            found
            for found in files_matching(root + "/", pattern)
            if os.path.isfile(os.path.join(root, found))
        ]
        assert shards_among(files) == shards_in(root + "/")
    assert all(key.startswith(literal_start(pattern)) for key in keys_matching(files, pattern))
