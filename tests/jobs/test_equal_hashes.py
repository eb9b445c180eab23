"""Equal hashes are found in blocks as well as all at once."""

import numpy as np
import pytest

from wdspec.jobs.check.hashes import HashFile


@pytest.mark.parametrize("most", [1 << 24, 1000, 64])
def test_equal_hashes_are_found_with_any_sort_block(most):
    rng = np.random.default_rng(3)
    hashes = rng.integers(0, 1 << 63, 5000, dtype=np.uint64) * np.uint64(2)
    hashes[100:120] = hashes[900:920]
    hashes[4999] = hashes[100]
    hashes[7:9] = 0
    with HashFile() as file:
        for piece in np.array_split(hashes, 7):
            file.add(piece)
        pairs = sorted(
            (int(a), int(b))
            for found in file.equal_pairs(most)
            for a, b in zip(found.first, found.second, strict=True)
        )
    assert pairs == sorted([(n, n + 800) for n in range(100, 120)] + [(900, 4999)])
