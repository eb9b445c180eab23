"""Fixtures and options of all tests."""

import sys
from collections.abc import Iterator

import pytest
from servers.fixtures import azure, gcs, nginx, proxy, s3, sshd

__all__ = ["azure", "gcs", "nginx", "proxy", "s3", "sshd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples first: they take longest, and at the end all runners but one would wait for them."""
    items.sort(key=lambda item: "examples" not in item.path.parts)


@pytest.fixture(autouse=True)
def numpys_generator() -> Iterator[None]:
    """Find the test that leaves another global numpy generator: wdspec must restore it."""
    generators = sys.modules.get("numpy.random")
    before = generators and generators.get_bit_generator()
    yield
    assert generators is None or generators.get_bit_generator() is before, (
        "numpy's generator was not put back"
    )
