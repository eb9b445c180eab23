"""Connections for URLs that data choose: the address that a name leads to is checked, after it is connected to.

Only then is it known: a name may lead elsewhere when it is looked up again. Nothing was sent by then.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from wdspec.urls.references import Allowed

CONNECTIONS = 64
"""Idle connections kept per host: many small objects are requested at a time."""


class RefusedAddressError(Exception):
    """A name that leads to an address which the spec does not allow."""


class _Checked:
    """A connection that is closed if its address is not allowed."""

    host: str
    proxy: Any

    def __init__(self, *arguments: Any, allowed: Allowed, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._allowed = allowed

    def _new_conn(self) -> socket.socket:
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]  # of the other base
        address = connected.getpeername()[0]
        if not self._allowed.may_connect(address, self.host):
            connected.close()
            raise RefusedAddressError(address)
        return connected


class _CheckedHTTP(_Checked, HTTPConnection):
    pass


class _CheckedHTTPS(_Checked, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _CheckedHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _CheckedHTTPS


def checked_manager(allowed: Allowed, **options: Any) -> urllib3.PoolManager:
    """Return connections that check addresses; other arguments are those of urllib3's `PoolManager`."""
    manager = urllib3.PoolManager(**{**options, "maxsize": CONNECTIONS})
    pools = {"http": _HTTPPool, "https": _HTTPSPool}
    found: Any = {scheme: partial(pool, allowed=allowed) for scheme, pool in pools.items()}
    manager.pool_classes_by_scheme = found  # called like classes
    return manager
