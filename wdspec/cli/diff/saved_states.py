"""What becomes of a run that was begun with the older spec: whether its state goes on, and each source with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wdspec.cli.diff.spec_diff import SpecDiff
from wdspec.cli.support.state_files import described, the_state_in
from wdspec.planning.digest import describe_samples, differences, reads_alike


@dataclass(frozen=True)
class StateFate:
    """Whether a state goes on with the new spec, and how."""

    goes_on: str
    """`exactly`; `other samples`: in the same order; `if allowed`: with `allow_changed=True`; `no`."""
    why: str
    sources: Mapping[str, str]
    """What becomes of each source; empty where all go on exactly, or none does."""
    state: Mapping[str, Any] | None = None
    """What the saved state says of itself, if one was given."""


def fate_of_state(diff: SpecDiff, file: str | None = None) -> StateFate:
    """What becomes of a saved state, or of any that the older spec gave.

    Raises:
        UsageError: the file holds no state, or more than one, or a damaged one.
    """
    saved = None if file is None else the_state_in(file)
    before = json.loads(json.dumps(diff.old.order)) if saved is None else json.loads(saved["order"])
    now = json.loads(json.dumps(diff.new.order))
    samples = describe_samples(diff.old.explanation.spec) if saved is None else saved["samples"]
    says = None if saved is None else described(saved)
    if before["elastic"] != now["elastic"]:
        was = "`elastic: {{ranks: {ranks}, workers: {workers}}}`".format(**before["elastic"])
        return StateFate(
            "no", f"the canonical topology differs: write {was} in the new spec, or --ranks", {}, says
        )
    if not any(differences(before, now)):
        if samples == describe_samples(diff.new.explanation.spec):
            return StateFate("exactly", "same order, same samples", {}, says)
        return StateFate("other samples", "same order, but decoding or a step makes other samples", {}, says)
    names = [*now["sources"], *(name for name in before["sources"] if name not in now["sources"])]
    fates = {name: _fate(name, before, now) for name in names}
    return StateFate("if allowed", "the order differs", fates, says)


def _fate(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What `allow_changed` does to one source; see `running.states.run_state.read_state`."""
    if name not in before["sources"]:
        return "begins at its first sample"
    if name not in now["sources"]:
        return "is dropped where it stands"
    if not reads_alike(name, before, now):
        return "goes on at the start of the shards it was reading: some samples come again"
    return "goes on where it stands, nothing lost or repeated"
