"""How the bytes of a source are fetched, as its spec and the environment say; or of URLs that stand in no spec."""

from __future__ import annotations

from wdspec.cache.cache import cache_of
from wdspec.cache.cache_names import CacheSettings
from wdspec.spec.language.models import Errors, Source, Spec
from wdspec.storage.access import Access
from wdspec.storage.ais_cluster import AisCluster
from wdspec.storage.environment import UrlEnvironment
from wdspec.stores.http.http_settings import HttpSettings
from wdspec.stores.user_stores import user_openers
from wdspec.streams.retrying import RetryPolicy
from wdspec.streams.watchdog import NO_PROGRESS


def access_of(spec: Spec | None, source: Source | None, environment: UrlEnvironment) -> Access:
    """How the bytes of a source are fetched; without one, those of a URL that stands in no spec.

    Raises:
        UsageError: an AIStore cluster whose address is not known.
    """
    return Access(
        retry_policy=_retry_policy(source.errors if source else None),
        openers=user_openers(environment.secure),
        http=HttpSettings.read(),
        ais=AisCluster.of(environment.ais, environment.home, spec, source),
        cache=cache_of(CacheSettings.of(environment, spec, source), source),
    )


def _retry_policy(errors: Errors | None) -> RetryPolicy:
    """How long failures of a store are borne. No single wait is longer than what the watchdog bears."""
    usual = RetryPolicy()
    if errors is None:
        return usual
    budget = usual.budget if errors.retry is None else errors.retry
    longest = NO_PROGRESS if errors.timeout is None else errors.timeout
    return RetryPolicy(budget=budget, read_timeout=min(usual.read_timeout, longest))
