"""Rules for shares: of the sources in a list, and in the steps of a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition, SourceList
from wdspec.spec.problems import list_names
from wdspec.spec.rules.batches import epoch_samples, known_shares, least_global_batch
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.spec import Spec
from wdspec.spec.tree import ListNode, MapNode, Scalar, locate, plain

TOLERANCE = 1e-6
MOST_PASSES = 20
MOST_RATIO = 2
"""Of a share of tokens to a share of samples, or the other way around."""


@rule(
    "E301",
    "shares of different kinds",
    "Either all sources in a list specify their shares in the same way, or none do. Otherwise, the shares cannot be "
    "compared.",
    keys="probability weight",
    bad="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, probability: 0.5}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 1}\n",
)
def share_kinds(composition: Composition) -> Findings:
    """The first source of each list that differs from the first one. E312 reports shares in a pass."""
    epoch = composition.spec.epoch
    for sources in composition.lists if epoch is None or epoch.remainder is None else ():
        kinds = [] if sources.scheduled else sources.share_kinds
        for draft, kind in zip(sources.drafts, kinds, strict=False):
            if kind != kinds[0]:
                first, other = (f"a `{each}`" if each else "no share" for each in (kinds[0], kind))
                hint = (
                    "use the same key in the whole list: `probability` or `weight` for all sources, or none; to read "
                    "one of them more often than by its size, `upsample: 3`"
                )
                message = f"the first source states {first}, this one {other}"
                yield Finding(draft.node.key_or_self(kind or "shards"), message, hint)
                break


@rule(
    "E302",
    "probabilities that do not sum to 1",
    "`probability` is absolute within its list. `weight` is relative and may have any sum.",
    keys="probability",
    bad="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.3}\n",
    good="dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.4}\n",
)
def probability_sums(composition: Composition) -> Findings:
    """Lists with another sum. Sums of 0 are reported as E303, and lists with several kinds of shares as E301."""
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
        hint = f"normalized, they are {shares}{more}; or write `weight` instead of `probability`"
        at = sources.drafts[0].node.entries["probability"].value
        hint = _describe_overridden(sources, numbers) or hint
        yield Finding(at, f"the probabilities of this list sum to {total:.9g}, not to 1", hint)


def _describe_overridden(sources: SourceList, numbers: list[float]) -> str:
    """How to set the other probabilities if overrides (`--set`) have set some, but not all; else empty."""
    nodes = [draft.node.entries["probability"].value for draft in sources.drafts]
    places = [each.origin.name.partition(" sources.") for each in nodes]
    is_set = [head in ("--set", "override") for head, *_ in places]
    left = 1 - sum(number for number, is_new in zip(numbers, is_set, strict=True) if is_new)
    drafts = [draft for draft, is_new in zip(sources.drafts, is_set, strict=True) if not is_new]
    old = [number for number, is_new in zip(numbers, is_set, strict=True) if not is_new]
    whole = sum(old)
    if len(old) == len(nodes) or left < 0 or not whole or len(old) > 20:
        return ""
    option = "--set " if ("--set", " sources.") in [place[:2] for place in places] else ""
    texts = [
        f"`{option}sources.{draft.name}.probability={number / whole * left:.9g}`"
        for draft, number in zip(drafts, old, strict=True)
    ]
    return f"also set the others: {' '.join(texts)}"


@rule(
    "E303",
    "shares that are all zero",
    "A share of 0 disables a source. If all sources are disabled, there is nothing to read.",
    keys="probability weight upsample",
    bad="dataset:\n  - {shards: a.tar, weight: 0}\n",
    good="dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, weight: 0}\n",
)
def zero_shares(composition: Composition) -> Findings:
    """Lists without a share above 0."""
    for sources in composition.lists:
        kinds = set() if sources.scheduled else set(sources.share_kinds)
        for key in kinds if len(kinds) == 1 else ():
            numbers = sources.numbers(key or "upsample")
            if not numbers or any(numbers):
                continue
            if key is None:
                message = "every source of this list has `upsample: 0`"
                yield Finding(sources.node, message, "set one of them above 0")
            else:
                hint = "set at least one share above 0"
                at = sources.drafts[0].node.entries[key].value
                yield Finding(at, f"every `{key}` of this list is 0", hint)


@rule("E303", keys="schedule")
def zero_steps(composition: Composition) -> Findings:
    """Steps of a schedule without a share above 0."""
    for shares in steps_with_shares(composition):
        if not positive_names(shares):
            yield Finding(shares, "every share of this step is 0", "set at least one share above 0")


@rule("E214", keys="schedule")
def empty_schedule(composition: Composition) -> Findings:
    """A schedule without steps, which would leave all sources without a share."""
    if composition.mix is not None and composition.schedule is not None and not composition.schedule.items:
        hint = "fill it in, or leave the key out"
        yield Finding(composition.mix.key("schedule"), "the schedule is empty", hint)


@rule(
    "E313",
    "a schedule out of order",
    "The steps of `mix.schedule` must be in order. The first one starts at sample 0 and has no shares to ramp from.",
    keys="schedule",
    bad="mix: {schedule: [{at: 500, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
    good="mix: {schedule: [{at: 0, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
)
def step_order(composition: Composition) -> Findings:
    """Steps that are not after the previous one, and a first step that is not at 0 or has a ramp."""
    before: float | None = None
    unit = ""
    for item in composition.schedule.items if composition.schedule else ():
        if not isinstance(item, MapNode):
            return
        node, was = item.get("at"), unit
        unit = next(iter(node.entries), "samples") if isinstance(node, MapNode) else "samples"
        node = node.get(unit) if isinstance(node, MapNode) else node
        if not isinstance(node, Scalar) or not isinstance(node.value, (int, float)):
            return  # already a problem
        if unit != was and before:
            before = -1  # only planning can compare them
        ramp = item.get("ramp")
        if before is None and isinstance(ramp, Scalar) and ramp.value == "linear":
            hint = "remove `ramp`, or move it to the step whose shares are to be reached"
            yield Finding(ramp, "the first step has no shares to ramp from", hint)
        if before is None and node.value != 0:
            shares = ", ".join(f"{draft.name}: …" for draft in composition.drafts[:4])
            shares += ", …" * (len(composition.drafts) > 4)
            hint = f"add a step at 0 with the shares of the start: `{{at: 0, shares: {{{shares}}}}}`"
            yield Finding(node, f"a schedule starts at 0, but this one starts at {node.value:,}", hint)
        elif before is not None and node.value <= before:
            message = (
                f"the steps of a schedule must be in order, but {node.value:,.15g} comes after {before:,.15g}"
            )
            yield Finding(node, message, "put the steps in order")
        before = node.value


@rule("E105", keys="schedule")
def step_names(composition: Composition) -> Findings:
    """Names in a schedule that are not of the top level."""
    names = [draft.name for draft in composition.drafts]
    mixes = [draft for draft in composition.drafts if draft.children is not None]
    inner = {leaf.name: draft.name for draft in mixes for leaf in draft.leaves}
    for shares in steps_with_shares(composition):
        for name, (key, _) in shares.entries.items():
            if name in inner and name not in names:
                message = f"`{name[:60]}` is inside the mix `{inner[name][:60]}`"
                hint = f"a schedule sets shares of the top level: name `{inner[name][:60]}`"
                yield Finding(key, message, hint)
            elif name not in names:
                hint = did_you_mean(name, names) or f"the sources are {list_names(names)}"
                yield Finding(key, f"there is no source `{name[:60]}`", hint)


def steps_with_shares(composition: Composition) -> Iterator[MapNode]:
    """The `shares` of all steps of a schedule that have some."""
    for item in composition.schedule.items if composition.schedule else ():
        shares = item.map_at("shares") if isinstance(item, MapNode) else None
        if shares is not None:
            yield shares


def positive_names(shares: MapNode) -> set[str]:
    """The sources that a step reads."""
    return {
        name
        for name, (_, value) in shares.entries.items()
        if not (isinstance(value, Scalar) and (value.value is None or value.value == 0))
    }


@rule(
    "W407",
    "a source that a step leaves out",
    "A source that a step of a schedule does not name is not read from this step on. Where a step changes the share of "
    "one source, and repeats that of another, the rest was probably meant to stay. Name every source; `0` ends one. "
    "Loading a spec gives this warning, too.",
    keys="schedule",
    bad="mix: {schedule: [{at: 0, shares: {a: 6, b: 3, c: 1}}, {at: 500, shares: {a: 6, c: 4}}]}\ndataset:\n"
    "  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n  - {name: c, shards: c.tar}\n",
    good="mix: {schedule: [{at: 0, shares: {a: 6, b: 3, c: 1}}, {at: 500, shares: {a: 6, b: 3, c: 4}}]}\ndataset:\n"
    "  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n  - {name: c, shards: c.tar}\n",
    warns_at_load=True,
)
def sources_left_out(composition: Composition) -> Findings:
    """Steps that repeat the share of one source, change that of another, and do not name a third."""
    before: dict[str, object] = {}
    for shares in steps_with_shares(composition):
        now = {name: plain(value) for name, (_, value) in shares.entries.items()}
        kept = [name for name, share in now.items() if share and before.get(name)]
        gone = [name for name, share in before.items() if share and name not in now]
        if gone and len({now[name] == before[name] for name in kept}) == 2:
            names = ", ".join(f"{name}: {before[name]}" for name in gone[:10])
            zeros = ", ".join(f"{name}: 0" for name in gone[:10])
            message = (
                f"this step of the schedule leaves out {list_names(gone)}, which is not read from here on"
            )
            yield Finding(shares, message, f"add `{names}` to keep the share, or `{zeros}` if this is meant")
        before = now


@rule(
    "W532",
    "a fraction among percentages",
    "Weights, and the shares of a step of a schedule, are relative to each other, so `weight: 0.6` next to 30 and 10 "
    "is 1.5% of the samples. It is reported if they add up to 100 when those of at most 1 are read as fractions.",
    keys="weight schedule",
    bad="dataset:\n  - {name: a, shards: a.tar, weight: 0.6}\n  - {name: b, shards: b.tar, weight: 40}\n",
    good="dataset:\n  - {name: a, shards: a.tar, weight: 60}\n  - {name: b, shards: b.tar, weight: 40}\n",
)
def fractions_among_percentages(composition: Composition) -> Findings:
    """Shares of at most 1 next to others, with which they would add up to 100 if they were percentages."""
    drafts = {draft.name: draft for sources in composition.lists for draft in sources.drafts}
    for name, step, message, hint in describe_fractions(composition.spec):
        node = (
            drafts[name].node
            if step is None
            else locate(composition.top, ("mix", "schedule", step, "shares"))
        )
        yield Finding(node.value_or_self("weight" if step is None else name), message, hint)


def describe_fractions(spec: Spec) -> Iterator[tuple[str, int | None, str, str]]:
    """Yield each share that is a fraction among percentages: its source, step of the schedule, message and hint."""
    lists = [sources for sources in (spec.dataset, *(each.dataset for each in spec.dataset)) if sources]
    shares: list[tuple[int | None, dict[str, float]]] = [
        (None, {each.name: float(each.weight or 0) for each in sources}) for sources in lists
    ]
    shares += [(at, dict(step.shares)) for at, step in enumerate(spec.mix.schedule or ())]
    for at, numbers in shares:
        meant = {name: 100 * each if each <= 1 else each for name, each in numbers.items()}
        whole = sum(numbers.values()) if abs(sum(meant.values()) - 100) < TOLERANCE else 0
        for name, number in numbers.items() if max(numbers.values(), default=0) > 1 else ():
            if whole and number != meant[name]:
                message = f"the share {number:g} of `{name}` is {number / whole:.2%} here, where others are percentages"
                yield name, at, message, f"write `{meant[name]:g}`"


@rule(
    "W490",
    "shares of samples in a spec of tokens",
    "Shares are fractions of the samples, also where batches and epochs count tokens. A source with long documents "
    "then has more of the tokens than its share says. `mix: {shares_in: tokens}` makes them shares of the tokens. "
    "There is no warning if the mean lengths are unknown (`stats` measures them), if no share differs from that of "
    "tokens more than twofold, or if the spec says `shares_in: samples`. Loading a spec gives this warning, too.",
    keys="pack max_tokens tokens schedule",
    bad="batch: {pack: {fields: ids, length: 512}}\nepoch: {tokens: 1e6}\ndataset:\n"
    "  - {name: a, shards: a.tar, weight: 9, mean_cost: 100}\n"
    "  - {name: b, shards: b.tar, weight: 1, mean_cost: 900}\n",
    good="batch: {pack: {fields: ids, length: 512}}\nepoch: {tokens: 1e6}\nmix: {shares_in: tokens}\ndataset:\n"
    "  - {name: a, shards: a.tar, weight: 9, mean_cost: 100}\n"
    "  - {name: b, shards: b.tar, weight: 1, mean_cost: 900}\n",
    warns_at_load=True,
)
def shares_of_samples(composition: Composition) -> Findings:
    """The source whose share of the tokens differs most from its share, in the first shares where one does."""
    spec = composition.spec
    is_stated = any("shares_in" in mix.model_fields_set for mix in spec.mixes)
    is_drawn = not spec.is_pass and spec.mix.draw != "round_robin" and not composition.bad & {"mix", "batch"}
    if is_stated or not is_drawn or not spec.counts_tokens or not (spec.batch and spec.batch.has_windows):
        return
    costs = {leaf.name: source.mean_cost or 0 for leaf, source in composition.mixed}
    by_weight = {draft.name: share for draft, share in known_shares(composition)}
    nodes = {draft.name: draft.node for draft in composition.leaves}
    for at, shares in ((None, by_weight), *((at, plain(at)) for at in steps_with_shares(composition))):
        read = {name: share / sum(shares.values()) for name, share in shares.items() if share}
        tokens = {name: share * costs.get(name, 0) for name, share in read.items()}
        if len(read) < 2 or not all(tokens.values()):
            continue
        ratios = {name: tokens[name] / sum(tokens.values()) / share for name, share in read.items()}
        name = max(ratios, key=lambda each: max(ratios[each], 1 / ratios[each]))
        if max(ratios[name], 1 / ratios[name]) > MOST_RATIO:
            message = f"the share of `{name}`, {read[name]:.1%}, is one of samples: it has about "
            message += f"{read[name] * ratios[name]:.1%} of the tokens"
            hint = "write `mix: {shares_in: tokens}` for shares of tokens, or `shares_in: samples` if this is meant"
            key = "weight" if nodes[name].get("weight") is not None else "probability"
            yield Finding(at.key(name) if at else nodes[name].key_or_self(key), message, hint)
            return


@rule(
    "W344",
    "a share of the only source",
    "A list with one source always reads that source, whatever its share is. Perhaps other sources are missing.",
    keys="weight upsample",
    bad="dataset:\n  - {shards: a.tar, weight: 0.3}\n",
    good="dataset:\n  - {name: a, shards: a.tar, weight: 0.3}\n  - {name: b, shards: b.tar, weight: 0.7}\n",
)
def lone_shares(composition: Composition) -> Findings:
    """The `weight` or `upsample` of an only source, other than 1."""
    for sources in composition.lists:
        if sources.node.position in composition.variant.layers.lists:
            continue  # `replaced_lists` reports it
        was_one = isinstance(sources.node, ListNode) and len(sources.node.items) == 1  # others may be removed
        if len(sources.drafts) == 1 and was_one and not sources.scheduled:
            (draft,) = sources.drafts
            for key in draft.stated_shares[:1]:
                numbers = sources.numbers(key)
                if key != "probability" and numbers and numbers[0] not in (0, 1):
                    message = f"`{key}` has no effect: this is the only source"
                    yield Finding(draft.node.key_or_self(key), message, "remove it, or add the other sources")


@rule(
    "W341",
    "a source that most epochs do not read",
    "Its share of an epoch is less than one sample, so most epochs have none of its samples.",
    keys="epoch",
    bad="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 10000}\n  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 99}\n  - {name: b, shards: b.tar, weight: 1}\n",
)
def unreached_sources(composition: Composition) -> Findings:
    """Sources with a share above 0 but below one sample."""
    samples = epoch_samples(composition)
    for draft, share in known_shares(composition) if samples else ():
        if 0 < share * (samples or 0) < 1:
            key = (draft.stated_shares or ["name"])[0]
            message = f"`{draft.name}` gets {share * (samples or 0):.2g} samples of an epoch of {samples:,}"
            hint = "give it a larger share, make the epoch longer, or turn the source off with 0"
            yield Finding(draft.node.key_or_self(key), message, hint)


@rule(
    "W342",
    "very many passes over a source",
    "An epoch reads the source again and again, judging by the samples that it declares. Models memorize small sources "
    "with large shares.",
    keys="samples stats",
    bad="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
    good="epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50_000}\n"
    "  - {name: b, shards: b.tar, weight: 1}\n",
)
def many_passes(composition: Composition) -> Findings:
    """Sources that an epoch reads more than twenty times."""
    length, size = composition.spec.epoch, least_global_batch(composition)
    batches = length.batches if length is not None and not composition.spec.is_pass else None
    epoch = epoch_samples(composition) or (batches or 0) * (size or 0)
    for draft, share in known_shares(composition) if epoch else ():
        held = draft.model.samples if draft.model is not None else None
        if held and share * epoch > MOST_PASSES * held:
            passes = share * epoch / held
            message = f"an epoch takes {passes:,.0f} passes over the {held:,} samples of `{draft.name}`"
            hint = "give it a smaller share, or correct `samples`" if share < 1 else "correct `samples`"
            one = (
                f"{{batches: {max(1, round(held / share / size))}}}"
                if batches and size
                else round(held / share)
            )
            yield Finding(
                draft.node.value_or_self("samples"), message, f"{hint}; for one pass, write `epoch: {one}`"
            )


@rule(
    "E322",
    "max_passes of an unknown number of samples",
    "`max_passes` counts samples, so it needs the number of samples in the source: declare `samples`, or name a file "
    "of `wdspec stats` as `stats`, which also counts what `where`, `subset`, `keys` and `exclude` keep. If `select` or "
    "`missing: skip` leave samples out, declare how many are left.",
    keys="max_passes on_exhausted",
    bad="dataset:\n  - {shards: a.tar, max_passes: 4}\n",
    good="dataset:\n  - {shards: a.tar, max_passes: 4, samples: 10_000}\n",
)
def uncounted_passes(composition: Composition) -> Findings:
    """Sources with `max_passes` whose number of samples is not known."""
    for leaf, source in composition.mixed:
        if source.max_passes is None or leaf.bad.intersection(("max_passes", "samples")):
            continue
        at = leaf.node.key_or_self("max_passes")
        found = [key.name for key in source.dropping_keys]
        if (
            source.samples is not None
            and found
            and not source.counts_kept
            and leaf.node.get("samples") is None
        ):
            wanted = f"the number of samples that remain after {list_names(found)}"
            message = f"`max_passes` needs {wanted}, but `stats` counts all"
            hint = "write `eos` in `tokenize`, which keeps texts without tokens, or " * ("make" in found)
            yield Finding(at, message, f"{hint}declare how many remain in `samples`")
