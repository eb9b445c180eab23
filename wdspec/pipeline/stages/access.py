"""How stages fetch bytes, outside of any spec: as the environment of this process says."""

from __future__ import annotations

from wdspec.storage.access import Access
from wdspec.storage.http_settings import HttpSettings
from wdspec.storage.registry import user_openers
from wdspec.urls.cluster import AisCluster
from wdspec.urls.environment import UrlEnvironment


def access_here(environment: UrlEnvironment) -> Access:
    """The door to all stores, with the openers that users have registered."""
    cluster = AisCluster.of(environment.ais, environment.home)
    return Access(openers=user_openers(environment.secure), http=HttpSettings.read(), ais=cluster)
