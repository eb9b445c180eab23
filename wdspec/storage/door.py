"""How the bytes of a source are fetched, as its spec and the environment say; or of URLs that stand in no spec."""

from __future__ import annotations

from wdspec.spec.models import Source, Spec
from wdspec.storage.access import Access
from wdspec.storage.cache.cache import cache_of
from wdspec.storage.http_settings import HttpSettings
from wdspec.storage.registry import user_openers
from wdspec.urls.caching import CacheSettings
from wdspec.urls.cluster import AisCluster
from wdspec.urls.environment import UrlEnvironment


def access_of(spec: Spec | None, source: Source | None, environment: UrlEnvironment) -> Access:
    """How the bytes of a source are fetched; without one, those of a URL that stands in no spec.

    Raises:
        UsageError: an AIStore cluster whose address is not known.
    """
    return Access(
        openers=user_openers(environment.secure),
        http=HttpSettings.read(),
        ais=AisCluster.of(environment.ais, environment.home, spec, source),
        cache=cache_of(CacheSettings.of(environment, spec, source), source),
    )
