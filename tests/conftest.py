"""What all tests share."""

from servers.fixtures import nginx, proxy

__all__ = ["nginx", "proxy"]
