"""Rules for shares: of the sources in a list, and in the steps of a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition
from wdspec.spec.problems import listed
from wdspec.spec.rules.batches import epoch_samples, known_shares
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.tree import MapNode, Scalar


@rule(
    "E301",
    "shares of different kinds",
    "In one list every source states its share in the same way, or none does; else they cannot be compared.",
    keys="probability weight",
    bad="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, probability: 0.5}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 1}\n",
)
def share_kinds(composition: Composition) -> Findings:
    """The first source of each list that differs from those before it."""
    for sources in composition.lists:
        kinds = [] if sources.scheduled else sources.share_kinds
        for draft, kind in zip(sources.drafts, kinds, strict=False):
            if kind != kinds[0]:
                message = f"the first source states {_stated_as(kinds[0])}, this one {_stated_as(kind)}"
                hint = "state every share of a list in the same way: all `probability`, all `weight`, or none"
                yield Finding(draft.node.key_or_self(kind or "shards"), message, hint)
                break


def _stated_as(kind: str | None) -> str:
    return f"a `{kind}`" if kind else "no share"


TOLERANCE = 1e-6


@rule(
    "E302",
    "probabilities that do not sum to 1",
    "`probability` is absolute within its list. `weight` is relative and needs no sum.",
    keys="probability",
    bad="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.3}\n",
    good="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.4}\n",
)
def probability_sums(composition: Composition) -> Findings:
    """Each list with another sum; sums of 0 are left to E303, lists that mix kinds of shares to E301."""
    for sources in composition.lists:
        if sources.scheduled or set(sources.share_kinds) != {"probability"}:
            continue
        numbers = sources.numbers("probability") or []
        total = sum(numbers)
        if total == 0 or abs(total - 1) <= TOLERANCE:
            continue
        first = list(zip(sources.drafts[:20], numbers, strict=False))
        shares = ", ".join(f"{draft.name}: {number / total:.9g}" for draft, number in first)
        more = ", …" if len(sources.drafts) > 20 else ""
        hint = f"normalised they are {shares}{more}; or write `weight` instead of `probability`"
        at = sources.drafts[0].node.entries["probability"].value
        yield Finding(at, f"the probabilities of this list sum to {total:.9g}, not to 1", hint)


def steps_with_shares(composition: Composition) -> Iterator[MapNode]:
    """The `shares` of each step that has some."""
    for item in composition.schedule.items if composition.schedule else ():
        shares = item.get("shares") if isinstance(item, MapNode) else None
        if isinstance(shares, MapNode):
            yield shares


def positive_names(shares: MapNode) -> set[str]:
    """The sources that a step reads."""
    return {
        name
        for name, (_, value) in shares.entries.items()
        if not (isinstance(value, Scalar) and (value.value is None or value.value == 0))
    }


@rule(
    "E303",
    "shares that are all zero",
    "A share of 0 switches a source off; with all of them off there is nothing to read.",
    keys="probability weight upsample",
    bad="dataset:\n  - {shards: a.tar, weight: 0}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 0}\n",
)
def zero_shares(composition: Composition) -> Findings:
    """Lists that give nothing to read."""
    for sources in composition.lists:
        kinds = set() if sources.scheduled else set(sources.share_kinds)
        for key in kinds if len(kinds) == 1 else ():
            numbers = sources.numbers(key or "upsample")
            if not numbers or any(numbers):
                continue
            if key is None:
                message = "every source of this list is upsampled 0 times"
                yield Finding(sources.node, message, "give one more than 0")
            else:
                hint = "give at least one source a share above 0"
                at = sources.drafts[0].node.entries[key].value
                yield Finding(at, f"every `{key}` of this list is 0", hint)


@rule("E303", keys="schedule")
def zero_steps(composition: Composition) -> Findings:
    """Steps that give nothing to read."""
    for shares in steps_with_shares(composition):
        if not positive_names(shares):
            hint = "give at least one source a share above 0"
            yield Finding(shares, "every share of this step is 0", hint)


@rule("E214", keys="schedule")
def empty_schedule(composition: Composition) -> Findings:
    """An empty list, which would leave every source without a share."""
    if composition.mix is not None and composition.schedule is not None and not composition.schedule.items:
        hint = "fill it in, or leave the key out"
        yield Finding(composition.mix.key("schedule"), "the schedule is empty", hint)


@rule(
    "E313",
    "a schedule out of order",
    "The steps of `mix.schedule` follow each other, and the first begins at sample 0, with nothing to ramp from.",
    keys="schedule",
    bad="mix: {schedule: [{at: 500, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
    good="mix: {schedule: [{at: 0, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
)
def step_order(composition: Composition) -> Findings:
    """Steps at or before the one above them, and a first one after 0."""
    before: int | None = None
    for item in composition.schedule.items if composition.schedule else ():
        if not isinstance(item, MapNode):
            return
        node = item.get("at")
        if not isinstance(node, Scalar) or not isinstance(node.value, int):
            return  # which is a problem already
        ramp = item.get("ramp")
        if before is None and isinstance(ramp, Scalar) and ramp.value == "linear":
            hint = "leave `ramp` out, or give it to the step whose shares are to be reached"
            yield Finding(ramp, "before the first step there are no shares to ramp from", hint)
        if before is None and node.value != 0:
            hint = "write `at: 0`: the first shares hold from the beginning"
            yield Finding(node, f"a schedule begins at 0, but this one begins at {node.value:,}", hint)
        elif before is not None and node.value <= before:
            message = f"the steps of a schedule ascend, but {node.value:,} comes after {before:,}"
            yield Finding(node, message, "put the steps in order")
        before = node.value


@rule("E105", keys="schedule")
def step_names(composition: Composition) -> Findings:
    """Names of no source, and of sources inside a nested mix."""
    names = [draft.name for draft in composition.drafts]
    inner = {
        leaf.name: draft.name
        for draft in composition.drafts
        if draft.children is not None
        for leaf in draft.leaves
    }
    for shares in steps_with_shares(composition):
        for name, (key, _) in shares.entries.items():
            if name in inner and name not in names:
                message = f"`{name[:60]}` is inside the mix `{inner[name][:60]}`"
                hint = f"a schedule sets the shares of the top list: give `{inner[name][:60]}` one"
                yield Finding(key, message, hint)
            elif name not in names:
                hint = did_you_mean(name, names) or f"there are {listed(names)}"
                yield Finding(key, f"there is no source `{name[:60]}`", hint)


@rule(
    "W344",
    "a share of the only source",
    "A list with one source gives all to it, whatever its share says. Perhaps other sources were meant to "
    "stand beside it.",
    keys="weight upsample",
    bad="dataset:\n  - {shards: a.tar, weight: 0.3}\n",
    good="dataset:\n  - {name: a, shards: a.tar, weight: 0.3}\n  - {name: b, shards: b.tar, weight: 0.7}\n",
)
def lone_shares(composition: Composition) -> Findings:
    """A weight or an upsampling of a source without others beside it, other than 1."""
    for sources in composition.lists:
        if len(sources.drafts) == 1 and not sources.scheduled:
            (draft,) = sources.drafts
            for key in draft.stated_shares[:1]:
                numbers = sources.numbers(key)
                if key != "probability" and numbers and numbers[0] not in (0, 1):
                    message = f"`{key}` has no effect: there is no other source to share with"
                    yield Finding(draft.node.key_or_self(key), message, "remove it, or add the other sources")


@rule(
    "W341",
    "a source that an epoch hardly reaches",
    "Its share of an epoch is less than one sample, so most epochs have none of it.",
    keys="epoch",
    bad="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 10000}\n  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 99}\n  - {name: b, shards: b.tar, weight: 1}\n",
)
def unreached_sources(composition: Composition) -> Findings:
    """Sources with a share above 0 that comes to less than one sample."""
    samples = epoch_samples(composition)
    for draft, share in known_shares(composition) if samples else ():
        if 0 < share * (samples or 0) < 1:
            key = (draft.stated_shares or ["name"])[0]
            message = f"`{draft.name}` gets {share * (samples or 0):.2g} samples of an epoch of {samples:,}"
            yield Finding(
                draft.node.key_or_self(key), message, "give it more, a longer epoch, or 0 to switch it off"
            )


MOST = 20


@rule(
    "W342",
    "very many passes over a source",
    "By the samples that it declares, an epoch reads the source over and over. Small sources with large "
    "shares are learnt by heart.",
    keys="samples stats",
    bad="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50_000}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
)
def many_passes(composition: Composition) -> Findings:
    """Sources of which an epoch takes more than twenty times their samples."""
    epoch = epoch_samples(composition)
    for draft, share in known_shares(composition) if epoch else ():
        held = draft.model.samples if draft.model is not None else None
        if held and share * (epoch or 0) > MOST * held:
            passes = share * (epoch or 0) / held
            message = f"an epoch takes {passes:,.0f} passes over the {held:,} samples of `{draft.name}`"
            yield Finding(
                draft.node.value_or_self("samples"), message, "give it a smaller share, or correct `samples`"
            )
