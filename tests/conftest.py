"""What all tests share."""

import pytest
from servers.fixtures import azure, gcs, nginx, proxy, s3, sshd

__all__ = ["azure", "gcs", "nginx", "proxy", "s3", "sshd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the examples first, which take longest: at the end one runner would work on them, and others wait."""
    items.sort(key=lambda item: "examples" not in item.path.parts)
