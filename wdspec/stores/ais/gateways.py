"""The gateways of an AIStore cluster: those that are named, and those that the cluster's map adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import urlsplit

import urllib3

import logging
from wdspec.stores.http.exchange import drain

log = logging.getLogger("wdspec")


MAP = "/v1/daemon?what=smap"
_LARGEST = 16 * 1024 * 1024
_LEAVING = 1 << 2 | 1 << 3
"""Flags of a node that is in maintenance, or being taken out."""


class Gateways:
    """Whom to ask next. One that does not answer is passed over; the cluster is asked for its map once it answers, so
    that it outlives the one that was named.

    Args:
        named: their URLs, all alike.
    """

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = named
        self._known = list(named)
        self._turn = 0
        self._has_map = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def current(self) -> str:
        """The URL of the one to ask."""
        return self._known[self._turn % len(self._known)]

    def pass_over(self) -> None:
        """The current one does not answer; when the next one does, it is asked who is there now."""
        self._turn += 1
        self._has_map = False

    def learn(self, ask: Callable[[str], urllib3.BaseHTTPResponse]) -> None:
        """Asks the current one for the map, if that was not done since the last one went.

        Args:
            ask: makes a request to a gateway, with the token; what it raises is only logged: the map is a help.
        """
        if self._has_map:
            return
        self._has_map = True
        asked = self.current
        try:
            response = ask(asked + MAP)
            found = (
                _gateways_in(response.read(_LARGEST), urlsplit(asked).scheme)
                if response.status == 200
                else []
            )
            drain(response)
        except Exception as error:
            log.debug("the map of the AIStore cluster at %s cannot be had: %s", urlsplit(asked).netloc, error)
            return
        self._known = list(dict.fromkeys([*self._named, *found]))
        self._turn = self._known.index(asked) if asked in self._known else 0


def _gateways_in(text: bytes, scheme: str) -> list[str]:
    """The public URLs of the gateways in a map, by their names; only those of the scheme that was trusted."""
    nodes = json.loads(text)["pmap"]
    there = (nodes[name] for name in sorted(nodes))
    urls = (
        str(node["public_net"]["direct_url"]) for node in there if not int(node.get("flags") or 0) & _LEAVING
    )
    return [url.rstrip("/") for url in urls if urlsplit(url).scheme == scheme and urlsplit(url).hostname]
