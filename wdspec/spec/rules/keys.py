"""Rules for keys next to others that are no rows of `presence`, and for the text of values."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.language.expressions import EACH, describe_path
from wdspec.spec.language.fetching import parse_url
from wdspec.spec.language.values import MASK
from wdspec.spec.problems import advise_stats, list_names
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shares import positive_names, steps_with_shares
from wdspec.spec.sources import FILTERS
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import MapNode, Scalar, plain, scalars


@rule(
    "E218",
    "an unknown version",
    "This release supports version 1 of the spec language.",
    keys="wdspec",
    bad="wdspec: 2\ndataset:\n  - shards: a.tar\n",
    good="wdspec: 1\ndataset:\n  - shards: a.tar\n",
)
def format_version(composition: Composition) -> Findings:
    """Any version except 1."""
    version = composition.spec.wdspec
    if version != 1:
        at = composition.top.entries["wdspec"].value
        yield Finding(
            at, f"version {version} of the spec language is unknown", "this release supports `wdspec: 1`"
        )


@rule("E206", keys="by")
def shares_without_sizes(composition: Composition) -> Findings:
    """Sources without the number of samples or bytes that sets their shares."""
    if composition.top.get("stats") is not None:
        return  # W108 reports what the file lacks; it may not exist where a spec is checked
    for sources in composition.lists:
        by = sources.mix.get("by") if sources.mix is not None and not sources.scheduled else None
        if not isinstance(by, Scalar) or by.value not in ("samples", "bytes"):
            continue
        for leaf in sources.leaves if sources.share_kinds[:1] == [None] else ():
            if leaf.node.get(by.value) is None:
                message = f"`mix.by: {by.value}` needs the number of {by.value} of each source"
                hint = f"{advise_stats(composition.spec.split)}, or add `{by.value}: n`"
                yield Finding(leaf.node, message, hint)


@rule(
    "E312",
    "a key that a pass cannot have",
    "A pass returns every sample once, so it cannot have shares, `mix`, `skip`, or shards drawn with replacement. "
    "Padding in the last batch is marked in `__mask__`, which tuples must include.",
    keys="pass",
    bad="epoch: pass\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="epoch: pass\ndataset:\n  - {shards: a.tar}\n",
)
def against_a_pass(composition: Composition) -> Findings:
    """Tuples that do not show padding; the keys that a pass cannot have are rows."""
    spec, top = composition.spec, composition.top
    if not spec.is_pass or spec.epoch is None:
        return
    # Padding fills the last batch, and takes the place of dropped samples.
    may_pad = spec.epoch.remainder == "pad" or any(source.drops_samples for _, source in composition.mixed)
    if spec.to_tuple is not None and MASK not in spec.to_tuple and may_pad:
        message = "with `epoch: pass`, some tuples are padding, and only `__mask__` shows which ones"
        yield Finding(top.entries["to_tuple"].value, message, "add `__mask__` to `to_tuple`")


@rule(
    "W102",
    "a key without effect",
    "This key has no effect because of another key.",
    keys="by cap temperature",
    bad="mix: {by: equal}\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    good="mix: {by: equal}\ndataset:\n  - {shards: a.tar}\n",
)
def unused_sizes(composition: Composition) -> Findings:
    """Keys of `mix` about sizes, if sources state their shares."""
    for sources in composition.lists:
        kind = sources.share_kinds[0] if sources.drafts and not sources.scheduled else None
        for key in ("by", "cap", "temperature") if kind and sources.mix is not None else ():
            if sources.mix is not None and sources.mix.get(key) is not None:
                message = f"`mix.{key}` has no effect if sources state their `{kind}`"
                yield Finding(sources.mix.key(key), message, f"remove it, or remove `{kind}`")


@rule("E207", keys="schedule")
def shares_next_to_a_schedule(composition: Composition) -> Findings:
    """Shares of sources together with a schedule."""
    for sources in composition.lists:
        for draft in sources.drafts if sources.scheduled else ():
            for key in draft.stated_shares:
                message = f"`mix.schedule` sets the share of each source, but this one also has a `{key}`"
                yield Finding(draft.node.key(key), message, "remove one of the two")


@rule("W102", keys="schedule")
def unscheduled_sources(composition: Composition) -> Findings:
    """Sources that no step of a schedule reads."""
    read = set().union(*map(positive_names, steps_with_shares(composition)))
    for draft in composition.drafts if read else ():
        if draft.name not in read:
            message = f"no step of the schedule has a share for `{draft.name[:60]}`, so it is never read"
            yield Finding(draft.own, message, "name it in a step, or remove it")


@rule("W102", keys="interleave")
def interleaved_passes(composition: Composition) -> Findings:
    """`interleave` in a pass."""
    spec = composition.spec
    for leaf, source in composition.mixed if spec.is_pass and not spec.reshuffles else ():
        if source.interleave > 1:
            message = "`interleave` has no effect with `epoch: pass`, which reads shard by shard"
            yield Finding(leaf.node.key("interleave"), message, "remove it")


@rule(
    "E380",
    "a pass for training whose selection is not counted",
    "An epoch with `reshuffle: true` gives every sample once, and all ranks must know their number of steps before it "
    "starts. How many samples `where`, `keys_of` and `subset: {of: …}` keep is only known if `wdspec stats` has "
    "counted them; otherwise, the samples that they leave out would be padding in the middle of batches. `wdspec stats "
    "SPEC` writes the file that `stats:` names.",
    keys="reshuffle",
    bad="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar, where: cls > 3}\n",
    good="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar, subset: 0.5}\n",
)
def uncounted_selections(composition: Composition) -> Findings:
    """Selections by values, without `stats`."""
    spec, top = composition.spec, composition.top
    if not _leaves_places(spec) or spec.stats is not None or top.get("stats") is not None:
        return
    for leaf, source in composition.mixed:
        key = next((key for key in ("where", "keys_of", "subset") if _reads_values(source, key)), None)
        if key is not None:
            message = f"how many samples `{key}` keeps must be known before an epoch with `reshuffle` starts"
            yield Finding(leaf.node.key_or_self(key), message, advise_stats(spec.split))


def _leaves_places(spec: Spec) -> bool:
    """Whether it is a pass that reshuffles, and dropped samples leave places in its batches: not in those by cost."""
    return spec.reshuffles and not (spec.batch is not None and spec.batch.has_windows)


def _reads_values(source: Source, key: str) -> bool:
    if key == "subset":
        return source.subset is not None and source.subset.of is not None
    return getattr(source, key) is not None


@rule(
    "W410",
    "samples of a training epoch that are dropped late",
    "`select`, `missing: skip` and partners and objects (`fetch`) with `missing: skip` drop samples after they have "
    "been given a place in a batch. In a pass, this place is then filled with a copy of another sample whose "
    "`__mask__` is false, so batches have fewer real samples than their size, and a loss that ignores `__mask__` "
    "counts copies. Drop these samples by `where`, which `wdspec stats` counts, or when the shards are written. "
    "Whether an object exists is only known when it is read: `wdspec check` lists the samples whose objects are lost, "
    "and `exclude` leaves out their keys. It does not list those that name no object, which `where` leaves out.",
    keys="reshuffle",
    bad="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar, select: 'lib:is_good'}\n",
    good="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar}\n",
)
def late_drops(composition: Composition) -> Findings:
    """Keys that drop samples after they are read, in a pass that reshuffles."""
    for leaf, source in composition.mixed if _leaves_places(composition.spec) else ():
        found = [key.name for key in source.dropping_keys if not (key.drops and key.drops.when_read)]
        if found:
            shown = list_names(found, 3)
            message = f"the samples that {shown} drops leave padding in batches of an epoch with `reshuffle`"
            if "make" in found:
                message += "; these are texts without tokens, unless the tokenizer adds some, such as `[CLS]`"
            earlier = _leave_out_objects(source) if found == ["fetch"] else "use `where` with `stats`"
            hint = f"{earlier}, or leave out `__mask__` samples in the loss, as `SpecTrainer` does"
            yield Finding(leaf.node.key_or_self(found[0].split(".")[0]), message, hint)


def _leave_out_objects(source: Source) -> str:
    """How to leave out samples without a reference, and those whose object is lost, before they have a place."""
    urls = [each.url for each in source.fetch.values() if (each.missing or source.missing) == "skip"]
    paths = [path for url in urls for path in parse_url(url).paths]
    roots = dict.fromkeys(path[: path.index(EACH)] if EACH in path else path for path in paths)
    tests = " and ".join(f"default({describe_path(root)}, none) != none" for root in roots)
    return (
        f"write `missing: none`; or leave out samples that name no object by `where: {tests}` with `stats`, and the "
        "keys of lost objects, which `check` lists, by `exclude`"
    )


@rule(
    "W411",
    "a pass that reshuffles nothing",
    "`order: sequential` and `shuffle: 0` keep the order of the shards and samples of a source, so that an epoch with "
    "`reshuffle: true` gives them in almost the same order as the others. Remove these keys for training, or remove "
    "`reshuffle` for evaluation.",
    keys="reshuffle",
    bad="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar, order: sequential, shuffle: 0}\n",
    good="epoch: {pass: drop, reshuffle: true}\ndataset:\n  - {shards: a.tar}\n",
)
def idle_reshuffles(composition: Composition) -> Findings:
    """Sources whose order does not change between epochs."""
    for leaf, source in composition.mixed if composition.spec.reshuffles else ():
        if source.order == "sequential" and source.shuffle <= 1:
            message = (
                "`reshuffle` does not change the order of a source with `order: sequential` and no `shuffle`"
            )
            yield Finding(leaf.node.key_or_self("order"), message, "remove `order`, or set `shuffle`")


@rule("W102", keys="extends", warns_at_load=True)
def idle_bases(composition: Composition) -> Findings:
    """Files that are extended in vain."""
    yield from (Finding(*each) for each in composition.variant.layers.bases)


@rule("W344", keys="extends", warns_at_load=True)
def replaced_lists(composition: Composition) -> Findings:
    """A list with one source that has a weight, and replaces the list of a file that it extends."""
    for sources in composition.lists:
        file, names = composition.variant.layers.lists.get(sources.node.position, ("", []))
        stated = [key for draft in sources.drafts for key in draft.stated_shares[:1]]
        if file and len(sources.drafts) == 1 and stated not in ([], ["probability"]):
            replaced = f", which are {list_names(names, 4)}" if names else ""
            message = (
                f"`dataset` replaces the sources of {file}{replaced}, so this `{stated[0]}` has no effect"
            )
            hint = (
                f"list the sources of {file} here as well, or remove `{stated[0]}` if this one is to be alone"
            )
            yield Finding(sources.drafts[0].node.key_or_self(stated[0]), message, hint)


@rule("W102", keys="environment", warns_at_load=True)
def hidden_defaults(composition: Composition) -> Findings:
    """Defaults of an environment that no source takes, as each has the key itself."""
    defaults = composition.variant.defaults
    if defaults is None or not isinstance(defaults.value, MapNode):
        return
    for name, entry in defaults.value.entries.items():
        if entry.key.position not in composition.variant.overlaid or name in FILTERS:
            continue
        new, leaves = plain(entry.value), composition.leaves
        own = [plain(each) for leaf in leaves if (each := leaf.own.get(name)) is not None]
        if not own or len(own) < len(leaves) or any(isinstance(each, dict) or each == new for each in own):
            continue
        message = (
            f"`defaults: {{{name}: {new!s:.40}}}` of `{composition.variant.environment}` has no effect: "
            f"every source has its own `{name}`, such as {own[0]!s:.40} in `{leaves[0].name}`"
        )
        hint = f"write `sources: {{{leaves[0].name}: {{{name}: {new!s:.40}}}}}` in the environment"
        yield Finding(entry.key, message, hint)


_LED_BY_ZEROS = re.compile(r"[-+]?0[0-9_]+")


@rule(
    "W106",
    "a number with a leading zero",
    "In YAML 1.2, `017` is 17. In YAML 1.1, which many other programs use, it is the octal number 15.",
    bad="batch: 017\ndataset:\n  - shards: a.tar\n",
    good="batch: 17\ndataset:\n  - shards: a.tar\n",
)
def leading_zeros(composition: Composition) -> Findings:
    """Whole numbers that start with a zero."""
    for node in scalars(composition.top):
        if type(node.value) is int and node.text and _LED_BY_ZEROS.fullmatch(node.text):
            yield Finding(node, f"`{node.text}` is the number {node.value}", f"write `{node.value}`")
