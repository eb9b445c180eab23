"""Our globs beside the standard library's, on trees that hypothesis grows."""

import glob
import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.stores.local import files_matching

NAMES = st.sampled_from(["a", "b", "ab", ".a", "a.tar", "B"])
TREES = st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8)
SEGMENTS = st.sampled_from(["*", "a*", "?", "**", "[ab]", "[!a]", "a", ".*", "*.tar", "ab"])


@given(TREES, st.lists(SEGMENTS, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_globs_match_as_in_the_standard_library(tree, segments):
    pattern = "/".join(segments)
    with tempfile.TemporaryDirectory() as root:
        for *folders, name in tree:
            folder = os.path.join(root, *(f"{each}" for each in folders))
            try:
                os.makedirs(folder, exist_ok=True)
                open(os.path.join(folder, name), "w").close()
            except OSError:
                continue  # a file stands where a directory was wanted, or the other way round
        found = glob.glob(pattern, root_dir=root, recursive=True)
        files = {each for each in found if os.path.isfile(os.path.join(root, each))}
        assert files_matching(root + "/", pattern) == sorted(files)
