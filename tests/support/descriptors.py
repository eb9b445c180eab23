"""The descriptors of this process: how many are open, and how many it may have."""

import os
import resource

import pytest

from wdspec.stores.http_requests import close_idle_connections


@pytest.fixture
def few_descriptors():
    """A process may have 256 descriptors."""
    close_idle_connections()  # of other tests
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def count_descriptors():
    return len(os.listdir("/proc/self/fd"))
