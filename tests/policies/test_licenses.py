"""Licenses are SPDX expressions: what patterns forbid and allow, and what is unknown never passes."""

import pytest

from wdspec.policies.licenses import is_allowed, is_free_of, is_known_pattern, unknown_licenses

NC = ("*-NC-*",)


@pytest.mark.parametrize(
    ("text", "is_nc"),
    [
        ("CC-BY-NC-4.0", True),
        ("cc-by-nc-sa-4.0", True),
        ("CC BY-NC", True),
        ("CC BY NC 4.0", True),
        ("cc_by_nc", True),
        ("https://creativecommons.org/licenses/by-nc/4.0/", True),
        ("http://www.creativecommons.org/licenses/by-nc-nd/2.0/legalcode", True),
        ("https://spdx.org/licenses/CC-BY-NC-4.0.html", True),
        ("MIT AND CC-BY-NC-4.0", True),
        ("MIT OR CC-BY-NC-4.0", False),
        ("(MIT OR CC-BY-4.0) AND CC BY-NC", True),
        ("CC-BY-4.0", False),
        ("NCSA", False),
        ("https://creativecommons.org/licenses/by/4.0/", False),
        ("https://creativecommons.org/licenses/by/4.0/deed.de", False),
        ("https://creativecommons.org/licenses/by/3.0/igo/legalcode", False),
        ("https://creativecommons.org/licenses/by/4.0/?ref=chooser-v1", False),
        ("https://creativecommons.org/licenses/by/4.0/../../by-nc/4.0/", True),  # not known to be free
    ],
)
def test_non_commercial_licenses_are_found_however_they_are_written(text, is_nc):
    assert is_free_of(text, NC) is not is_nc


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("MIT", ("MIT",), True),
        ("mit", ("MIT",), True),
        ("Apache 2.0", ("Apache-2.0",), True),
        ("GPL-2.0", ("GPL-2.0-only",), True),
        ("GPL-2.0-only", ("GPL-2.0",), True),
        ("GPL-2.0+", ("GPL-2.0-only",), False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", ("GPL-2.0-only",), True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", ("MIT",), False),
        ("MIT OR CC-BY-NC-4.0", ("MIT",), True),
        ("MIT AND CC-BY-NC-4.0", ("MIT",), False),
        ("MIT AND Apache-2.0", ("MIT", "Apache-2.0"), True),
        ("https://creativecommons.org/publicdomain/zero/1.0/", ("CC0-1.0",), True),
        ("CC-BY-NC", ("*",), False),  # not in the SPDX list
        ("proprietary", ("*",), False),
        ("NOASSERTION", ("*",), False),
        ("LicenseRef-Acme", ("LicenseRef-Acme",), True),
        ("LicenseRef-Other", ("LicenseRef-Acme",), False),
        ("LicenseRef-Acme", ("LicenseRef-*",), False),
        ("(MIT", ("MIT",), False),
        ("MIT AND", ("*",), False),
        ("ask us", ("*",), False),
    ],
)
def test_what_is_allowed(text, allowed, expected):
    assert is_allowed(text, allowed) is expected


def test_what_is_not_in_the_list_is_unknown():
    assert unknown_licenses("MIT OR CC-BY-NC") == ("CC-BY-NC",)
    assert unknown_licenses("MIT OR GPL-2.0+") == ()
    assert unknown_licenses("((MIT") == ("((MIT",)


@pytest.mark.parametrize(
    ("pattern", "is_known"),
    [
        ("*-NC-*", True),
        ("CC BY 4.0", True),
        ("*-NX-*", False),
        ("MITT", False),
        ("LicenseRef-x", True),
        ("*", True),
    ],
)
def test_a_pattern_that_matches_no_license_is_known(pattern, is_known):
    assert is_known_pattern(pattern) is is_known
