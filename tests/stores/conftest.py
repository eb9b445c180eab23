"""Each test has its own background fetcher: a stalled stream of another test would block a shared one."""

import pytest

from wdspec.stores import read_ahead as background_fetcher


@pytest.fixture(autouse=True)
def own_fetcher(monkeypatch):
    monkeypatch.setattr(background_fetcher._of_process, "value", background_fetcher.BackgroundFetcher())
