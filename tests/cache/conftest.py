"""Stores in memory that count, and caches in temporary directories."""

import pytest
from cachestores import Caching


@pytest.fixture
def caching(tmp_path):
    return Caching(tmp_path / "cache")
