"""Typos in schemes are distinguished from schemes that a user could have."""

from __future__ import annotations

import pytest

from wdspec.urls.urls import slip_in


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("htps://host/a.tar", "https://"),
        ("HTPS://host/a.tar", "https://"),
        ("gss://bucket/a.tar", "gs://"),
        ("sftpp://host/a.tar", "sftp://"),
        ("s3:/bucket/a.tar", "s3://"),
        ("https:/host/a.tar", "https://"),
    ],
)
def test_a_misspelt_scheme_is_reported(url, meant):
    assert meant in slip_in(url).hint


@pytest.mark.parametrize(
    "url",
    [
        "vault://x/a.tar",
        "oc://bucket/a.tar",
        "a:/b.tar",
        "gs://b/c.tar",
        "pipe:cat x",
        "file:/x.tar",
        "a.tar",
        "-",
        "{gs,s3}://b/a.tar",
    ],
)
def test_other_schemes_are_not_reported(url):
    assert slip_in(url) is None
