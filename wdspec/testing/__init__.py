"""Helpers for the tests of programs that train from wdspec, or from any loader that keeps its state.

from wdspec.testing import assert_resumable

def test_my_spec_resumes():
    assert_resumable(lambda: wdspec.loader("train.yaml", num_workers=2))
"""

from wdspec.testing.comparing import difference
from wdspec.testing.resuming import assert_resumable

__all__ = ["assert_resumable", "difference"]
