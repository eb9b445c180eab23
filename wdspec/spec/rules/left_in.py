"""Rules for values that were probably left in, or written with a mistake, and that change nothing else."""

from __future__ import annotations

import re

from wdspec.base.amounts import pluralize
from wdspec.base.errors import UrlError
from wdspec.spec.build import Composition
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.tree import Scalar
from wdspec.urls.braces import Braces
from wdspec.urls.urls import MAGIC

FEWEST_SHARDS = 10
LITTLE = 0.001
"""A limit below this part of the samples is little."""
LICENSES = (
    *(f"CC-BY{kind}-4.0" for kind in ("", "-NC", "-ND", "-SA", "-NC-ND", "-NC-SA")),
    *(
        "CC0-1.0",
        "CC-PDDC",
        "Apache-2.0",
        "MIT",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ODbL-1.0",
        "ODC-By-1.0",
        "PDDL-1.0",
    ),
    *(
        f"{kind}GPL-{version}-{end}"
        for kind in ("", "L", "A")
        for version in ("2.0", "3.0")
        for end in ("only", "or-later")
    ),
    *(
        "MPL-2.0",
        "EUPL-1.2",
        "CDLA-Permissive-1.0",
        "CDLA-Permissive-2.0",
        "CDLA-Sharing-1.0",
        "OGL-UK-3.0",
        "etalab-2.0",
    ),
    *("C-UDA-1.0", "Artistic-2.0", "BSL-1.0", "ISC", "Zlib", "GFDL-1.3-only", "GFDL-1.3-or-later"),
)
"""SPDX names that data often has."""
LEAST_LETTERS = 7
"""Shorter names differ in one letter from too many others, such as `EPL-2.0` from `ECL-2.0`."""


@rule(
    "W418",
    "a limit that was probably left in",
    "`limit` ends every run after so many samples: here there are at least as many shards, or a thousand times as many "
    "samples, which are never read. A limit for a test belongs into an environment, where there is no warning, nor is "
    "there one in a split, or with fewer than 10 shards.",
    keys="limit",
    bad="limit: 100\nbatch: 20\ndataset:\n  - shards: a-{000..999}.tar\n",
    good="batch: 20\ndataset:\n  - shards: a-{000..999}.tar\nenvironments:\n  quick: {limit: 100}\n",
)
def limits_left_in(composition: Composition) -> Findings:
    """A `limit` of the whole spec below the number of its shards, or a small part of its samples."""
    spec, variant = composition.spec, composition.variant
    node = composition.top.entries["limit"].value if "limit" in composition.top.entries else None
    if variant.environment or variant.split or composition.bad & {"limit"} or not isinstance(node, Scalar):
        return
    if not spec.limit or node.origin.name.startswith(("--set ", "override ")):
        return
    shards = sum(_count(text) for _, source in composition.mixed for text in source.shards or ())
    samples = sum(source.samples or 0 for _, source in composition.mixed)
    if shards >= FEWEST_SHARDS and spec.limit <= shards:
        much = pluralize(shards, "shard")
    elif spec.limit < LITTLE * samples:
        much = pluralize(samples, "sample")
    else:
        return
    message = f"`limit: {node.written}` ends the run after {pluralize(spec.limit, 'sample')}, of {much}"
    hint = f"remove it; for a test, write `environments: {{quick: {{limit: {node.written}}}}}`, and pass `--env quick`"
    yield Finding(node, message, hint)


def _count(text: str) -> int:
    """The shards that an entry of `shards` names; 0 if that is not known."""
    if MAGIC.search(text) or text.startswith("@") or "::" in text:
        return 0
    try:
        return len(Braces(text))
    except UrlError:  # its problem is reported
        return 0


@rule(
    "W417",
    "a license that is almost an SPDX name",
    "Programs that check licenses know SPDX names. This one differs from such a name in one letter, or in spaces and "
    "points. Other texts have no warning: any text may name a license.",
    keys="license",
    bad="dataset:\n  - {shards: a.tar, license: CC-BY-NCC-4.0}\n",
    good="dataset:\n  - {shards: a.tar, license: CC-BY-NC-4.0}\n",
)
def licenses_with_mistakes(composition: Composition) -> Findings:
    """Values of `license` that are near misses of SPDX names."""
    for leaf, source in composition.mixed:
        if source.license and "license" not in leaf.bad and (meant := _near_license(source.license)):
            message = f"the license `{source.license:.60}` is no SPDX name, but `{meant}` is"
            yield Finding(leaf.node.value_or_self("license"), message, f"write `license: {meant}`")


def _near_license(text: str) -> str:
    """The SPDX name that a text almost is; empty if it is one, or is near none."""
    known = {_letters(name): name for name in LICENSES}
    letters = _letters(text)
    if letters in known:
        meant = known[letters]
        return "" if meant.lower() == text.lower() else meant
    numbered = {re.sub(r"\d", "0", each) for each in known}
    without = re.sub(r"\d", "0", letters)
    if without in numbered or len(letters) < LEAST_LETTERS or "://" in text:  # another version
        return ""
    near = [name for each, name in known.items() if _is_one_edit(letters, each)]
    return near[0] if len(near) == 1 else ""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _is_one_edit(one: str, other: str) -> bool:
    """Whether one letter more, less or another makes one text of the other."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1
