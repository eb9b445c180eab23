"""Each test has a background fetcher of its own: a stream that another test left stalled holds its thread up."""

import pytest

from wdspec.stores import read_ahead as background_fetcher


@pytest.fixture(autouse=True)
def own_fetcher(monkeypatch):
    monkeypatch.setattr(background_fetcher._of_process, "value", background_fetcher.BackgroundFetcher())
