"""What all tests share."""

import sys
from collections.abc import Iterator

import pytest
from servers.fixtures import azure, gcs, nginx, proxy, s3, sshd

__all__ = ["azure", "gcs", "nginx", "proxy", "s3", "sshd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the examples first, which take longest: at the end one runner would work on them, and others wait."""
    items.sort(key=lambda item: "examples" not in item.path.parts)


@pytest.fixture(autouse=True)
def numpys_generator() -> Iterator[None]:
    """Finds the test behind which numpy's global generator is another one: what wdspec lends it must come back."""
    generators = sys.modules.get("numpy.random")
    before = generators and generators.get_bit_generator()
    yield
    assert generators is None or generators.get_bit_generator() is before, (
        "numpy's generator was not put back"
    )
