"""Features that cannot be combined, each with its reason: the table in docs/batches.md.

The rules in `rules/` find them in specs, and `planning/shares.py` in calls of `set_shares`. A test checks that
each example has the problem and nothing else, and that no key that excludes another one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Exclusion(NamedTuple):
    """Two features that cannot be combined."""

    feature: str
    other: str
    """In Markdown."""
    why: str
    code: str
    """The code of the problem; `set_shares` if only this call raises an error."""
    bad: str
    """The keys of a spec with both, without `dataset`, which is `{shards: a.tar}` unless it is given."""


_COST, _PASS = "batch: {cost: txt.length, max_cost: 9}", "epoch: pass"
_IN_A_PASS = {
    "mix": ("mix: {draw: even}", "a pass reads every sample once, whatever the shares"),
    "stage": (
        "stage: 'lib:stage'",
        "the length of a pass is known before it starts, but how many samples a stage yields only afterwards",
    ),
    "skip": ("skip: 3", "a pass yields every sample once"),
}
"""Keys of the top level that a pass cannot have -> an example and the reason."""
_OF_BATCHES = "batches by cost, `group_by` or `pack`"
_UNKNOWN = "how many samples such a batch has is only known when they have been measured"


def _source(keys: str) -> str:
    return f"dataset: [{{shards: a.tar, {keys}}}]"


def _others() -> Iterator[Exclusion]:
    counted = "samples: 90, max_passes: 2"
    yield Exclusion(
        "shares (`weight`, `probability`, `upsample`)",
        "`epoch: pass`",
        "a pass reads every sample once; use `repeat`",
        "E312",
        f"{_PASS}\n{_source('weight: 1')}",
    )
    yield Exclusion(
        "`order: resampled`",
        "`epoch: pass`",
        "it draws shards with replacement, so it never reads all samples once",
        "E312",
        f"{_PASS}\n{_source('order: resampled')}",
    )
    yield Exclusion(
        "`max_passes`",
        "`epoch: pass`",
        "a pass reads every sample once; use `repeat`",
        "E207",
        f"{_PASS}\n{_source(counted)}",
    )
    yield Exclusion(
        "`repeat`",
        "epochs other than `pass`",
        "in an endless stream, the shares decide how often a source is read",
        "E345",
        _source("repeat: 2"),
    )
    yield Exclusion(
        "`max_passes`, `schedule`",
        "`draw: round_robin`",
        "sources take turns, so they have no shares to count or change",
        "E207",
        f"mix: {{draw: round_robin}}\n{_source(counted)}",
    )
    for what, keys in (("batches by cost", _COST), ("a `stage`", "batch: 4\nstage: 'lib:stage'")):
        yield Exclusion(
            "`on_exhausted: stop`",
            what,
            "slots use different numbers of samples, so ranks would not end at the same step; use `drop`",
            "E207",
            f"{keys}\n{_source(counted + ', on_exhausted: stop')}",
        )
    for feature, keys in (
        ("`epoch` in samples", "epoch: 90"),
        ("`limit`, except in a pass", "limit: 90\nepoch: {batches: 9}"),
    ):
        yield Exclusion(
            feature, _OF_BATCHES, f"{_UNKNOWN}; use `epoch: {{batches: n}}`", "E331", f"{_COST}\n{keys}"
        )
    yield Exclusion(
        "`schedule` in `{batches: n}`",
        _OF_BATCHES,
        "a schedule is followed window by window, and how many batches a window has is only known when it has been "
        "measured; use `at: {tokens: n}`, or a number of samples",
        "E331",
        f"{_COST}\nmix: {{schedule: [{{at: 0, shares: {{a: 1}}}}, {{at: {{batches: 9}}, shares: {{a: 2}}}}]}}\n"
        f"{_source('name: a')}",
    )
    yield Exclusion(
        "`mix: {unit: batch}`",
        _OF_BATCHES,
        "a window is drawn before its batches are known; `group_by: __source__` keeps sources apart",
        "E331",
        f"{_COST}\nmix: {{unit: batch}}",
    )
    yield Exclusion(
        "`global_size`, `accumulate`",
        _OF_BATCHES,
        "each canonical rank yields one batch of its own at each step",
        "E207",
        "batch: {global_size: 8, group_by: txt.length, size: 4}",
    )
    yield Exclusion(
        "`group_by`",
        "`pack`, `balance`",
        "the group of a step is drawn by frequency, so batches cannot also be ordered or filled by their cost",
        "E207",
        "batch: {group_by: txt.length, cost: txt.length, max_cost: 9, balance: txt.length}",
    )
    yield Exclusion(
        "`collate`, `ragged`, `padded`",
        "`pack`",
        "packed fields are concatenated, and all others become lists",
        "E207",
        "batch: {pack: {fields: ids, length: 8}, ragged: list}",
    )
    yield Exclusion(
        "`overlong: truncate` or `split`, `concatenate`",
        "`limits`, `pad_to_multiple_of`, a function as `cost`",
        "the parts of a sample that is cut have no cost other than their length",
        "E207",
        "batch: {pack: {fields: ids, length: 8, method: concatenate, pad_to_multiple_of: 4}}",
    )
    yield Exclusion(
        "a size or duration from a header, such as `image.width`, in `cost` or `group_by`",
        "a `stage`",
        "a stage yields decoded samples, which have no header",
        "E331",
        "batch: {cost: jpg.width, max_cost: 900}\nstage: 'lib:stage'",
    )
    yield Exclusion(
        "`loader: {kind: threads}`",
        "user functions",
        "functions that use global random numbers are only reproducible in a process of their own",
        "E318",
        "loader: {kind: threads, workers: 2}\nbatch: 4\nmap: 'lib:function'",
    )
    for other, keys, why in (
        ("`epoch: pass`", _PASS, "a pass has no shares"),
        ("`draw: round_robin`", "mix: {draw: round_robin}", "sources take turns, whatever their shares are"),
        (
            "`max_passes`",
            _source(counted),
            "the passes are counted by the shares of the spec; use a `schedule`",
        ),
    ):
        yield Exclusion("`loader.set_shares`", other, why, "set_shares", keys)


def list_exclusions() -> list[Exclusion]:
    """Return all features that cannot be combined, as far as they are not obvious from their names."""
    of_passes = [
        Exclusion(f"`{name}`", "`epoch: pass`", why, "E312", f"{_PASS}\n{example}")
        for name, (example, why) in _IN_A_PASS.items()
    ]
    return [*of_passes, *_others()]
