"""What all tests share."""

from servers.fixtures import nginx

__all__ = ["nginx"]
