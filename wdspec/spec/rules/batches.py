"""Rules for batches, epochs and shuffles whose numbers do not fit together, and for batches by cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wdspec.base.amounts import pluralize
from wdspec.base.amounts import size as show_size
from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition, SourceList
from wdspec.spec.language.batch import MEASURING, Batch
from wdspec.spec.language.decoders import reads_header
from wdspec.spec.language.expressions import (
    ExpressionError,
    Path,
    PathBeforeMap,
    describe_held_media,
    describe_lost_header,
    describe_path,
    find_scaled,
    parse_expression,
)
from wdspec.spec.language.making import Tokenize
from wdspec.spec.language.samples import fields_set_by
from wdspec.spec.problems import advise_stats
from wdspec.spec.rules.fields import (
    MAGIC,
    OF_FIELDS,
    field_names,
    files_of,
    find_unknown,
    find_unmeasurable,
    find_unreadable,
    is_media,
    known_fields,
    right_sources,
    visible_fields,
)
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import parts_of
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Spec
from wdspec.spec.tree import ListNode, Node, Scalar, locate, plain

FEW_SAMPLES = 1_000
FEW_BATCHES = 4
MANY_EPOCHS = 20
"""An epoch of few samples is probably meant as a number of epochs if there are this many times as many samples, or any
more if it has at most `_MOST_EPOCHS`."""


@rule(
    "E306",
    "an epoch shorter than a batch",
    "An epoch has a whole number of global batches, and at least one.",
    keys="epoch",
    bad="batch: 512\nepoch: 100\ndataset:\n  - shards: a.tar\n",
    good="batch: 512\nepoch: 512\ndataset:\n  - shards: a.tar\n",
)
def short_epochs(composition: Composition) -> Findings:
    """Epochs with fewer samples than a batch."""
    spec = composition.spec
    epoch, least = spec.epoch, least_global_batch(composition)
    if epoch is None or spec.is_pass or (epoch.samples and epoch.batches):
        return
    node = composition.top.entries["epoch"].value
    if epoch.samples and least and epoch.samples < least:
        message = f"an epoch of {epoch.samples:,} samples is shorter than one global batch of {least:,}"
        yield Finding(node.value_or_self("samples"), message, _describe_long_epoch(composition.spec, least))


def _describe_long_epoch(spec: Spec, least: int) -> str:
    """How to make an epoch as long as a batch: by its length, or with a `size` that was meant for all ranks."""
    epoch = spec.epoch.samples if spec.epoch is not None else None
    hint = f"use at least {least} samples, or a smaller batch{_ask_for_epochs(epoch or least)}"
    ranks = spec.elastic.ranks if spec.elastic else 1
    size = spec.batch.size if spec.batch is not None else None
    if size and ranks > 1 and size % ranks == 0:
        hint += f"; {size:,} samples are for each of {ranks} ranks: if they are for all ranks, write "
        hint += f"`batch: {{global_size: {size}}}`"
    return hint


@rule(
    "E307",
    "a batch that ranks cannot divide",
    "`global_size` is divided equally, so it must be a multiple of `elastic.ranks`.",
    keys="global_size",
    bad="batch: {global_size: 100}\nelastic: {ranks: 16}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 112}\nelastic: {ranks: 16}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
)
def indivisible_batches(composition: Composition) -> Findings:
    """A `global_size` that is not a multiple of `elastic.ranks`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None or elastic is None or batch.size or not batch.global_size:
        return
    if batch.global_size % elastic.ranks:
        near = -(-batch.global_size // elastic.ranks) * elastic.ranks
        message = f"{elastic.ranks} ranks cannot divide {batch.global_size:,} samples equally"
        at = composition.top.entries["batch"].value.value_or_self("global_size")
        yield Finding(at, message, f"write `global_size: {near}`")


_MOST_EPOCHS = 300
"""Numbers up to this may be meant as epochs."""


@rule(
    "W351",
    "an epoch that is rounded",
    "An epoch has a whole number of global batches. The remaining samples are left to the next epoch, so this one is "
    "shorter than the spec says.",
    keys="epoch",
    bad="batch: 64\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: 64\nepoch: 9_984\ndataset:\n  - shards: a.tar\n",
)
def rounded_epochs(composition: Composition) -> Findings:
    """Epochs of samples that are not a multiple of the batch."""
    epoch, each = composition.spec.epoch, least_global_batch(composition)
    if epoch is None or not epoch.samples or not each or epoch.samples < each or epoch.batches:
        return
    over = epoch.samples % each
    if over and not any(tiny_epochs(composition)) and not any(epochs_of_epochs(composition)):
        kept = epoch.samples - over
        batches = f"{kept // each:,} batches" if kept > each else "one batch"
        message = f"an epoch of {epoch.samples:,} samples is {batches} of {each:,}, and {over:,} left over"
        hint = f"write `{kept}`, or `{{batches: {kept // each}}}`{_ask_for_epochs(epoch.samples)}"
        yield Finding(composition.top.entries["epoch"].value.value_or_self("samples"), message, hint)


def _ask_for_epochs(samples: int) -> str:
    """What to write if a small number of samples is meant as one of epochs."""
    from wdspec.spec.language.advice import EACH_ONCE  # most specs do not need it

    return f"; this is no number of epochs: {EACH_ONCE}" if samples <= _MOST_EPOCHS else ""


@rule(
    "W352",
    "an epoch of a few samples",
    "`epoch` is the length of an epoch in samples. The training loop decides how many epochs there are.",
    keys="epoch",
    bad="batch: 8\nepoch: 16\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
    good="batch: 8\nepoch: 16_000\ndataset:\n  - shards: 'a-{000..099}.tar'\n",
)
def tiny_epochs(composition: Composition) -> Findings:
    """Epochs of less than four batches and a thousand samples, if there are more than four shards."""
    epoch, each = composition.spec.epoch, least_global_batch(composition)
    if epoch is None or not epoch.samples or not each or composition.spec.limit is not None:
        return
    shards = sum(
        1 if part.listed else len(part.braces) for _, _, parts in parts_of(composition) for part in parts
    )
    is_tiny = each <= epoch.samples < min(FEW_SAMPLES, FEW_BATCHES * each) and shards > FEW_BATCHES
    if is_tiny and not any(epochs_of_epochs(composition)):
        length = pluralize(epoch.samples // each, "batch", "batches")
        message = f"an epoch of {epoch.samples:,} samples is only {length} long"
        hint = (
            f"write the samples of one epoch; the training loop counts epochs{_ask_for_epochs(epoch.samples)}"
        )
        yield Finding(composition.top.entries["epoch"].value, message, hint)


@rule("W352", keys="tokens")
def epochs_of_few_tokens(composition: Composition) -> Findings:
    """Epochs of fewer tokens than a batch has at most."""
    epoch, batch = composition.spec.epoch, composition.spec.batch
    most = None if batch is None else batch.max_tokens or batch.max_cost or (batch.pack and batch.pack.length)
    if epoch is not None and epoch.tokens and most and epoch.tokens < most:
        message = (
            f"an epoch of {epoch.tokens:,} tokens is less than one batch of {most:,.15g}, so it is one batch"
        )
        hint = "write the tokens of one epoch across all ranks, such as `10_000_000_000`"
        yield Finding(composition.top.entries["epoch"].value.value_or_self("tokens"), message, hint)


def describe_short_epoch(spec: Spec, samples: float) -> Iterator[tuple[str, str]]:
    """Describe an `epoch` that looks like a number of epochs: message and hint. `samples`: those of all sources."""
    from wdspec.spec.language.advice import EACH_ONCE  # most specs do not need it

    epoch = spec.epoch.samples if spec.epoch is not None else None
    if not epoch or spec.limit is not None or epoch > FEW_SAMPLES:
        return
    if epoch < samples if epoch <= _MOST_EPOCHS else epoch * MANY_EPOCHS <= samples:
        count = pluralize(epoch, "sample")
        message = f"`epoch: {epoch}` means {count}, but the sources have about {samples:,.0f}"
        yield message, f"the number of epochs is set in the training loop; {EACH_ONCE}"


@rule(
    "W507",
    "an epoch that is a small part of the data",
    "`epoch` counts samples, not passes or epochs. The training loop decides how many epochs there are.",
    keys="samples stats",
    bad="batch: 8\nepoch: 80\ndataset:\n  - {shards: a.tar, samples: 50_000}\n",
    good="batch: 8\nepoch: 48_000\ndataset:\n  - {shards: a.tar, samples: 50_000}\n",
)
def epochs_of_epochs(composition: Composition) -> Findings:
    """Epochs that are a small part of the samples that the spec, or its `stats`, states for all sources."""
    epoch, least = composition.spec.epoch, least_global_batch(composition)
    if epoch is not None and epoch.samples and least and epoch.samples < least:
        return  # an error, which asks for the same
    off = {draft.name for draft, share in known_shares(composition) if not share}
    sizes = [source.samples for leaf, source in composition.mixed if leaf.name not in off]
    known = [size for size in sizes if size is not None]
    if len(known) == len(composition.leaves) - len(off):
        for text in describe_short_epoch(composition.spec, sum(known)):
            yield Finding(composition.top.entries["epoch"].value.value_or_self("samples"), *text)


@rule(
    "W353",
    "several ranks without `elastic`",
    "`global_size` is for several ranks. Without `elastic`, the order of samples is that of the ranks and workers of "
    "the first run, and a state can only be resumed with the same numbers.",
    keys="global_size",
    bad="batch: {global_size: 512}\ndataset:\n  - shards: a.tar\n",
    good="batch: {global_size: 512}\nelastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..31}.tar'\n",
)
def missing_elastic(composition: Composition) -> Findings:
    """`batch.global_size` without `elastic`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None or batch.size:  # both sizes are an error
        return
    if batch.global_size and elastic is None and "elastic" not in composition.bad:
        at = composition.top.entries["batch"].value.key_or_self("global_size")
        hint = "write `elastic: {ranks: …, workers: …}` for the largest job"
        yield Finding(at, "the order depends on how many ranks the first run has", hint)


@rule(
    "W354",
    "a shuffle smaller than a batch",
    "Samples that are next to each other in a shard stay within one batch of each other, so batches are hardly mixed.",
    keys="shuffle",
    bad="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 100}\n",
    good="batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 2000}\n",
)
def small_shuffles(composition: Composition) -> Findings:
    """Written values of `shuffle` above 0 and below the batch of a rank."""
    batch = composition.spec.batch
    size = batch.size or 0 if batch is not None else 0
    for leaf, source in composition.mixed:
        if "shuffle" in leaf.node.entries and 1 < source.shuffle < size:
            message = f"a shuffle of {source.shuffle} samples mixes less than one batch of {size}"
            hint = "use several times the batch, or 0 to read in order"
            yield Finding(leaf.node.entries["shuffle"].value, message, hint)


@rule("W354", keys="shuffle", warns_at_load=True)
def switched_shuffles(composition: Composition) -> Findings:
    """`shuffle: 1`, which is probably meant as a switch: a buffer of one sample keeps the order."""
    for leaf, source in composition.mixed:
        if leaf.node.get("shuffle") is not None and source.shuffle == 1:
            message = "`shuffle: 1` shuffles in a buffer of one sample, which keeps the order of a shard"
            hint = "write `shuffle: 1000`, which is the default, or `shuffle: 0` to read in order"
            yield Finding(leaf.node.entries["shuffle"].value, message, hint)


MOST_SHUFFLED = 10_000_000
MOST_HELD = 8_000_000_000
"""Bytes of the samples that one slot shuffles, from which there is a warning."""


@rule(
    "W356",
    "a shuffle of very many samples",
    "A slot holds that many samples in memory, and needs as many numbers to order them, before the first batch. Each "
    "pass reads the shards in a different order, so a few thousand samples are enough to mix those that are near each "
    "other; `interleave` mixes the samples of more shards. There is no warning up to ten million samples, and 8 GB if "
    "the spec states `samples` and `bytes`.",
    keys="shuffle",
    bad="dataset:\n  - {shards: 'a-{000..999}.tar', shuffle: 1_000_000_000}\n",
    good="dataset:\n  - {shards: 'a-{000..999}.tar', shuffle: 10_000, interleave: 16}\n",
)
def large_shuffles(composition: Composition) -> Findings:
    """Values of `shuffle` above ten million, or whose samples have more than 8 GB."""
    for leaf, source in composition.mixed:
        size = source.bytes / source.samples if source.bytes and source.samples else 0
        held = size * min(source.shuffle, source.samples or 0)
        if source.shuffle > MOST_SHUFFLED or held > MOST_HELD:
            message = f"a shuffle of {source.shuffle:,} samples fills the memory, and delays the first batch"
            if held > MOST_HELD:
                message += f": each worker holds about {show_size(held)}"
            few = min(10_000, max(100, 2_000_000_000 / max(1, size)))
            hint = (
                f"write `shuffle: {float(f'{few:.0e}'):.0f}` and `interleave: 16`, which mixes more shards; "
            )
            yield Finding(
                leaf.node.value_or_self("shuffle"), message, f"{hint}`wdspec explain` shows the memory"
            )


@rule(
    "E317",
    "ranges that overlap",
    "Two ranges of `skip` have steps in common. One of them may be a mistake.",
    keys="skip",
    bad="skip: [1200..1260, 1250..1300]\ndataset:\n  - shards: a.tar\n",
    good="skip: 1200..1300\ndataset:\n  - shards: a.tar\n",
)
def repeated_skips(composition: Composition) -> Findings:
    """Ranges with a step that is also in another range."""
    if "skip" in composition.bad or len(composition.spec.skip) < 2:
        return
    node = composition.top.entries["skip"].value
    items = node.items if isinstance(node, ListNode) else (node,) * len(composition.spec.skip)
    ranges = sorted((steps.first, steps.last, number) for number, steps in enumerate(composition.spec.skip))
    end, before = -1, 0
    for first, last, number in ranges:
        if first <= end:
            message = f"step {first:,} is also in another range"
            yield Finding(items[max(number, before)], message, "join the two ranges, or remove one")
        if last > end:
            end, before = last, number


@rule(
    "W444",
    "a single step to skip",
    "`skip` leaves out training steps, by their numbers: `skip: 100` is step 100 alone, and neither the first 100 "
    "steps nor 100 samples. As a list, `[100]`, it is clear.",
    keys="skip",
    bad="skip: 100\nbatch: 4\ndataset:\n  - shards: a.tar\n",
    good="skip: [100]\nbatch: 4\ndataset:\n  - shards: a.tar\n",
)
def single_steps(composition: Composition) -> Findings:
    """A number in place of steps."""
    node = composition.top.get("skip")
    if "skip" in composition.bad or composition.spec.is_pass:
        return
    if isinstance(node, Scalar) and isinstance(node.value, int) and node.value > 0:
        step = node.value
        hint = f"write `0..{step - 1:_}` for the first {step:,} steps, or `[{step}]` for this one"
        yield Finding(node, f"`skip: {step}` leaves out step {step:,} alone", hint)


@rule(
    "W355",
    "an epoch that is skipped",
    "Epochs keep their numbers when steps are skipped. An epoch without remaining steps is an iteration without a "
    "batch, "
    "which a training loop may not expect. Steps are global batches, not samples, and are numbered across epochs.",
    keys="skip",
    bad="skip: 100..299\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
    good="skip: 101..298\nepoch: {batches: 100}\nbatch: {global_size: 8}\nelastic: {ranks: 1}\n"
    "dataset:\n  - shards: a.tar\n",
)
def skipped_epochs(composition: Composition) -> Findings:
    """Ranges that contain a whole epoch, if the spec shows how many steps it has."""
    length = epoch_steps(composition)
    skipped = composition.spec.skipped_steps
    emptied = None if "skip" in composition.bad or not length else skipped.emptied(length)
    if length and emptied is not None:
        steps = f"{emptied * length:,} to {(emptied + 1) * length - 1:,}"
        message = f"all steps of epoch {emptied:,} are skipped ({steps})"
        hint = "keep some of them, or make sure that the training loop accepts an epoch without a batch"
        yield Finding(composition.top.entries["skip"].value, message, hint)


def least_global_batch(composition: Composition) -> int | None:
    """The least number of samples in a global batch (of one rank, if their number is unknown); None without `batch`."""
    batch, elastic = composition.spec.batch, composition.spec.elastic
    if batch is None:
        return None
    return batch.global_size or (batch.size or 0) * (elastic.ranks if elastic else 1) or None


def epoch_samples(composition: Composition) -> int | None:
    """The samples of an epoch over all ranks; None if it is endless, a pass, or depends on the number of ranks."""
    epoch, spec = composition.spec.epoch, composition.spec
    if epoch is None or spec.is_pass:
        return None
    each, batch = least_global_batch(composition), spec.batch
    if epoch.samples:  # E331 if batches come from windows
        return epoch.samples if batch is None or (each and batch.group_by is None) else None
    return epoch.batches * each if each and epoch.batches and _has_known_ranks(composition) else None


def epoch_steps(composition: Composition) -> int | None:
    """The global batches of an epoch; None if it is endless, a pass, or depends on the number of ranks."""
    epoch, samples, each = composition.spec.epoch, epoch_samples(composition), least_global_batch(composition)
    if epoch is not None and epoch.batches:
        return epoch.batches
    return samples // each if samples and each and _has_known_ranks(composition) else None


def _has_known_ranks(composition: Composition) -> bool:
    """Whether the size of a global batch does not depend on the number of ranks of a run."""
    batch = composition.spec.batch
    return composition.spec.elastic is not None or bool(batch and batch.global_size)


def known_shares(composition: Composition) -> Iterator[tuple[Draft, float]]:
    """The share of each source in the whole mix, as far as probabilities and weights alone decide it."""
    lists = {id(sources.drafts[0]): sources for sources in composition.lists if sources.drafts}
    top = next(iter(composition.lists), None)
    if top is not None and not composition.spec.is_pass:
        yield from _divide(top, 1.0, lists)


def _divide(sources: SourceList, whole: float, lists: dict[int, SourceList]) -> Iterator[tuple[Draft, float]]:
    kinds = set(sources.share_kinds)
    kind = kinds.pop() if len(kinds) == 1 and not sources.scheduled else None
    numbers = sources.numbers(kind) if kind else ([1.0] if len(sources.drafts) == 1 else None)
    if not numbers or not sum(numbers):
        return
    for draft, number in zip(sources.drafts, numbers, strict=True):
        share = whole * number / sum(numbers)
        if draft.children:
            yield from _divide(lists[id(draft.children[0])], share, lists)
        else:
            yield draft, share


EXPRESSIONS = " ".join(("limits", *MEASURING))
"""The keys of `batch` that have expressions."""
KEYS = f"{EXPRESSIONS} max_cost padded max_size size_multiple window overlong group_wait incomplete pack"
"""The keys of `batch` that plan batches from windows."""


def _list_headers(composition: Composition) -> Iterator[str]:
    """The measures in expressions that are read from the headers of images, sounds and videos."""
    sources = right_sources(composition, "extensions", "rename", "decode", "tags")
    for _, text in _list_expressions(composition):
        try:
            paths = parse_expression(text, composition.spec.costs).paths
        except ExpressionError:  # reported as E330
            continue
        for name, part in (path for path in paths if len(path) == 2):
            files = [file for _, source in sources for file in files_of(source, str(name))]
            if any(part != "length" and reads_header(suffix, str(part)) for suffix, _ in files):
                yield describe_path((name, part))


def _read_batch(composition: Composition) -> Batch | None:
    """The `batch` of a spec; None if it has none, or a wrong one."""
    return None if "batch" in composition.bad else composition.spec.batch


def _read_windowed_batch(composition: Composition) -> Batch | None:
    """The `batch` of a spec if its batches are planned from windows."""
    batch = _read_batch(composition)
    return batch if batch is not None and batch.has_windows else None


def _list_expressions(composition: Composition) -> Iterator[tuple[Node, str]]:
    """The expressions of a spec, and where they are; keys of `limits` among them."""
    spec, top = composition.spec, composition.top
    if "costs" not in composition.bad:
        for name, text in spec.costs.items():
            yield locate(top.entries["costs"].value, (name,)), text
    yield from _list_expressions_of_batch(composition)


def _list_expressions_of_batch(composition: Composition) -> Iterator[tuple[Node, str]]:
    """The expressions of `batch`, and where they are."""
    batch = _read_batch(composition)
    if batch is None:
        return
    node = composition.top.entries["batch"].value
    for key in MEASURING:
        text = getattr(batch, key)
        if text is not None and not (key == "cost" and batch.is_by_function):
            yield node.value_or_self(key), text
    for text in batch.limits:
        yield locate(node, ("limits",)).key_or_self(text), text


@rule(
    "E330",
    "an expression that cannot be read",
    "Expressions have fields (`image.width`, `json.score`), constants, `+ - * /`, comparisons, `in`, `and or not`, and "
    "the functions min, max, ceil, floor, abs and default. They are the same in `where`, `costs`, `batch.cost`, "
    "`limits`, `balance` and `group_by`, and they cannot run code.",
    keys=f"costs {EXPRESSIONS}",
    bad="batch: {cost: 'ciel(image.width / 28)', max_cost: 4096}\ndataset:\n  - shards: a.tar\n",
    good="batch: {cost: 'ceil(image.width / 28)', max_cost: 4096}\ndataset:\n  - shards: a.tar\n",
)
def unreadable_expressions(composition: Composition) -> Findings:
    """Expressions that are not in the grammar."""
    named: Mapping[str, str] = {} if "costs" in composition.bad else composition.spec.costs
    for at, text in _list_expressions(composition):
        yield from find_unreadable(at, text, named)


def list_measures(composition: Composition) -> Iterator[tuple[Node, str]]:
    """The expressions by which `batch` measures samples, with the default cost of `pack`, and where they are.

    There are none if one cannot be read.
    """
    batch = _read_windowed_batch(composition)
    if batch is None or any(True for _ in unreadable_expressions(composition)):
        return
    yield from _list_expressions_of_batch(composition)
    if batch.pack is not None and batch.cost is None:
        yield composition.top.entries["batch"].value.key_or_self("pack"), batch.expressions[0]


def _fields_set(composition: Composition) -> dict[str, frozenset[str]]:
    """The fields of each source that `map` is known to set."""
    later = () if "map" in composition.bad else composition.spec.map
    sources = right_sources(composition, "map", "tags")
    return {leaf.name: fields_set_by(source.map, source.tags, later) for leaf, source in sources}


@rule("E316", keys=f"{EXPRESSIONS} pack")
def measured_fields(composition: Composition) -> Findings:
    """Fields in expressions and in `pack`."""
    batch, spec = _read_windowed_batch(composition), composition.spec
    if batch is None or spec.stage is not None or any(True for _ in unreadable_expressions(composition)):
        return  # a stage may add fields
    known = known_fields(right_sources(composition, *OF_FIELDS))
    others = right_sources(composition, "extensions", "rename", "map", "tags")
    sources = right_sources(composition, "extensions", "rename", "decode", "tags")
    set_by = _fields_set(composition)
    wholes = [call for call in spec.map if call.field is None]
    adder = next((call for call in wholes if not call.sets), None)

    def find(at: Node, path: Path, in_expression: bool = True) -> Findings:
        name, is_before = str(path[0]), isinstance(path, PathBeforeMap)
        sets = {} if is_before else {source: name in fields for source, fields in set_by.items()}
        here = {source: fields for source, fields in known.items() if not sets.get(source)}
        elsewhere = [(leaf, source) for leaf, source in others if not sets.get(leaf.name)]
        helper = None if is_before else adder
        yield from find_unknown(
            at, [name], here, elsewhere, before_map=path, adder=helper, in_expression=in_expression
        )
        if any(sets.values()) and spec.fields and not composition.bad & {"fields"}:
            kept = [entry.split(";")[0] for entry in spec.fields]
            if name not in kept:
                message = f"`{name[:60]}` cannot be measured after `map`, because `fields` removes it"
                yield Finding(at, message, "add it to `fields`")

    for at, text in _list_expressions(composition):
        expression = parse_expression(text, spec.costs)
        for path in expression.needed:
            yield from find(at, path)
        yield from find_unmeasurable(at, expression, sources, set_by)
    if batch.pack is not None:
        at = locate(composition.top.entries["batch"].value, ("pack",))
        packed = batch.pack.fields
        if wholes:  # they may add packed fields, but the cost has to be known
            packed = packed[:1] if batch.cost is None else ()
        makers = {
            f"add `labels: labels` to `{recipe.step}` of `{made}`, which makes them of the ids"
            for _, source in right_sources(composition, "make")
            for made, recipe in source.make.items()
            if isinstance(recipe, Tokenize) and recipe.labels is None
        }
        for name in packed:
            found = find(at, (name,), in_expression=False)
            hints = makers if name == "labels" else ()
            yield from (each._replace(hint=next(iter(hints), each.hint)) for each in found)


@rule("E316", keys="pack")
def packed_fields_left_out(composition: Composition) -> Findings:
    """Fields of `pack` that `fields` or `to_tuple` removes."""
    batch, spec = _read_batch(composition), composition.spec
    key = "to_tuple" if spec.to_tuple else "fields"
    kept = [entry.split(";")[0] for entry in spec.to_tuple or spec.fields or ()]
    if batch is None or batch.pack is None or not kept or composition.bad & {"to_tuple", "fields"}:
        return
    if any(MAGIC.intersection(entry) for entry in kept) or spec.stage is not None:
        return
    set_by = _fields_set(composition).values()
    sources = [source for _, source in right_sources(composition, *OF_FIELDS)]
    given = {name for source in sources for name in (*(visible_fields(source) or ()), *source.rename)}
    made = [name for source in sources for name in source.made_names]
    for name in batch.pack.fields:
        if name not in kept and not any(name in fields for fields in set_by):  # which are reported above
            at = locate(composition.top.entries["batch"].value, ("pack",))
            message = f"rows are packed of `{name[:60]}`, but `{key}` leaves it out"
            meant = "" if name in given else did_you_mean(name, made)
            yield Finding(at.key_or_self("fields"), message, meant or f"add `{name[:60]}` to `{key}`")


@rule(
    "E357",
    "decoded images or sound in a window of samples",
    "After a `stage`, or if `cost`, `limits`, `balance`, `group_by` or `pack` reads a field that `map` sets, samples "
    "are decoded before batches are planned, and a window of decoded samples is kept in memory. Pixels, frames and "
    "sound are too large for that. The header of a file says the size or duration only before `map`.",
    keys=f"{EXPRESSIONS} pack",
    bad="batch: {cost: txt.length, max_cost: 4096, collate: {txt: pad}}\nmap: {txt: 'mylib.text:encode'}\n"
    "dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: rgb8}\n",
    good="batch: {cost: before_map(txt.length) / 3, max_cost: 4096, collate: {txt: pad}}\n"
    "map: {txt: 'mylib.text:encode'}\ndataset:\n  - {shards: a.tar, extensions: jpg txt, decode: rgb8}\n",
)
def held_media(composition: Composition) -> Findings:
    """Decoded images, sound and videos in samples that are measured after `map`, and headers that are read then."""
    spec, bad = composition.spec, composition.bad
    measures = list(list_measures(composition))
    if not measures or bad & {"map", "fields", "stage"}:
        return
    kept = None if spec.fields is None else {entry.split(";")[0] for entry in spec.fields}
    is_staged = spec.stage is not None
    for leaf, source in right_sources(composition, "extensions", "rename", "decode", "scale", "map", "tags"):
        after, found = spec.fields_after_map(source), False
        if not after and not is_staged:
            continue
        for at, text in measures if not is_staged else ():
            for path in parse_expression(text, spec.costs).paths:
                name, *parts = map(str, path)
                if name not in after or isinstance(path, PathBeforeMap) or len(parts) != 1:
                    continue
                if any(reads_header(suffix, parts[0]) for suffix, _ in files_of(source, name)):
                    found = True
                    yield Finding(at, *describe_lost_header(describe_path(path), name))
        listed = field_names(source) or (() if source.decode is None else tuple(source.decode.fields))
        for field in () if found else listed:
            is_kept = kept is None or field in kept
            if is_kept and any(is_media(source, *file) for file in files_of(source, field)):
                yield Finding(measures[0][0], *describe_held_media(field, leaf.name, is_staged))
                break


@rule(
    "W357",
    "a product of what map makes",
    "A field that `map` sets is measured after `map`: with a tokenizer in `map`, `ids.length` is the number of tokens. "
    "To divide it by a number is probably meant as an estimate from the text: `before_map(ids.length) / 3`.",
    keys=f"{EXPRESSIONS} pack",
    bad="batch: {cost: txt.length / 3, max_cost: 4096, collate: {txt: pad}}\nmap: {txt: 'mylib.text:encode'}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt}\n",
    good="batch: {cost: txt.length, max_cost: 4096, collate: {txt: pad}}\nmap: {txt: 'mylib.text:encode'}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt}\n",
    warns_at_load=True,
)
def scaled_measures(composition: Composition) -> Findings:
    """Products and quotients of fields that `map` sets and numbers, which were estimates before."""
    if composition.spec.stage is not None or any(True for _ in held_media(composition)):
        return
    set_by = set().union(*_fields_set(composition).values())
    for at, text in list_measures(composition):
        for scaled in find_scaled(text, composition.spec.costs):
            name = next((field for field in scaled.fields if field in set_by), None)
            if name is not None:
                message = f"`{scaled.product}` is measured after `map`, which sets `{name[:60]}`"
                hint = f"write `{scaled.before_map}` for an estimate from the value before `map`"
                yield Finding(at, message, f"{hint}, or `{scaled.value}` for what `map` makes")
                break


@rule("E206", keys="shares_in")
def shares_of_unknown_cost(composition: Composition) -> Findings:
    """Shares of cost without a cost, or without the mean cost of a source."""
    spec, top = composition.spec, composition.top
    if composition.bad & {"mix", "batch"}:
        return
    for sources in composition.lists:
        shares_in = None if sources.mix is None else sources.mix.get("shares_in")
        if not _is_cost(shares_in) or shares_in is None:
            continue
        said = f"`shares_in: {plain(shares_in)}`"
        if spec.batch is None or not spec.batch.has_windows:
            hint = "add a cost, such as `batch: {cost: ids.length, max_tokens: 8192}`"
            yield Finding(shares_in, f"{said} needs a cost of samples", hint)
            return
        for leaf in sources.leaves if top.get("stats") is None else ():
            if leaf.model is not None and leaf.model.mean_cost is None:
                yield Finding(leaf.node, f"{said} needs the mean cost of each source", _advise_costs(spec))


def _advise_costs(spec: Spec) -> str:
    return f"{advise_stats(spec.split)}, or add `mean_cost: …`"


@rule(
    "E362",
    "an epoch of an unknown number of tokens",
    "`epoch: {tokens: n}` has as many batches as have about n tokens. That follows from the mean number of tokens of a "
    "sample: the `mean_cost` of each source, which `wdspec stats` measures if the batch has a cost, or the `length` of "
    "the samples of token files.",
    keys="tokens",
    bad="epoch: {tokens: 1e9}\nbatch: 8\ndataset:\n  - {shards: a.tar}\n",
    good="epoch: {tokens: 1e9}\nbatch: 8\ndataset:\n  - {shards: a.tar, mean_cost: 812.5}\n",
)
def epochs_of_unknown_tokens(composition: Composition) -> Findings:
    """Epochs in tokens, if those of a source are unknown."""
    spec, top = composition.spec, composition.top
    if spec.epoch is None or spec.epoch.tokens is None or composition.bad & {"epoch", "batch"}:
        return
    is_measured = spec.batch is not None and (spec.batch.cost is not None or spec.batch.pack is not None)
    if is_measured and top.get("stats") is not None:
        return
    hint = "add `mean_cost: …`, or a cost that counts tokens, `batch: {cost: ids.length, max_tokens: 8192}`"
    if is_measured:
        hint = _advise_costs(spec)
    for leaf, source in composition.mixed:
        if source.mean_cost is None and not (source.tokens and source.tokens.length):
            message = "`epoch: {tokens: …}` needs the mean number of tokens of a sample of each source"
            yield Finding(leaf.own, message, hint)


@rule("W102", keys="mean_cost")
def unused_costs(composition: Composition) -> Findings:
    """The first `mean_cost` in a spec whose shares are of samples."""
    stated = [leaf for leaf in composition.leaves if leaf.node.get("mean_cost") is not None]
    mixes = [holder.map_at("mix") for _, holder, _ in composition.holders]
    asked = [mix.get("shares_in") for mix in mixes if mix is not None]
    in_tokens = composition.spec.needs_costs
    if stated and not composition.bad & {"mix", "epoch"} and not in_tokens and not any(map(_is_cost, asked)):
        leaf = stated[0]
        shares = f"`{leaf.stated_shares[0]}`" if leaf.stated_shares else "a share"
        message = f"`mean_cost` has no effect: {shares} counts samples, not what they cost"
        hint = "write `mix: {shares_in: cost}` for shares of the cost, or remove it"
        yield Finding(leaf.node.key("mean_cost"), message, hint)


def _is_cost(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.value in ("cost", "tokens")


def _is_set(batch: Batch, key: str) -> bool:
    return key in batch.model_fields_set and bool(getattr(batch, key) is not None)


@rule("E207", keys=KEYS)
def batches_of_two_kinds(composition: Composition) -> Findings:
    """Values of keys of batches by cost that do not go together."""
    batch = _read_windowed_batch(composition)
    if batch is None:
        return
    node = composition.top.entries["batch"].value
    pack = batch.pack
    if batch.size_multiple > 1 and (pack or not batch.padded):
        message = "`size_multiple` is for padded batches"
        yield Finding(node.key_or_self("size_multiple"), message, "remove it, or `padded: false`")
    if batch.cuts_samples and (
        batch.limits or (pack and pack.pad_to_multiple_of > 1) or batch.is_by_function
    ):
        message = "samples that are cut need the length of what is packed as their cost, and nothing else"
        yield Finding(
            node.key_or_self("pack"), message, "remove `limits` and `pad_to_multiple_of`, or use `best_fit`"
        )
    if pack is not None and pack.length is not None and pack.pad_to_multiple_of > pack.length:
        message = (
            f"a row of {pack.length} has no room for a sample that is padded to {pack.pad_to_multiple_of}"
        )
        yield Finding(node.key_or_self("pack"), message, "raise `length`, or lower `pad_to_multiple_of`")
    if (
        pack is not None
        and pack.length is not None
        and (most := batch.max_cost or batch.max_tokens) is not None
        and most > pack.length
    ):
        cost_is_length = batch.cost is None or batch.cost == f"{pack.fields[0]}.length"
        if cost_is_length:
            key = "max_cost" if batch.max_cost else "max_tokens"
            message = f"rows of up to {most:g} do not fit into `length: {pack.length}`"
            yield Finding(node.value_or_self(key), message, f"write `{key}: {pack.length}`, or leave it out")


@rule("E206", keys="pack")
def padding_of_other_fields(composition: Composition) -> Findings:
    """`pad` of fields that are not packed."""
    batch = _read_batch(composition)
    if batch is None or batch.pack is None:
        return
    for name in batch.pack.pad:
        if name not in batch.pack.fields:
            at = locate(composition.top.entries["batch"].value, ("pack", "pad"))
            message = f"`pad` of `{name[:60]}` has no effect, because this field is not packed"
            yield Finding(at.key_or_self(name), message, "add it to `fields` of `pack`, or remove it")


@rule(
    "E356",
    "a batch with two fields of one name",
    "`position_ids`, `cu_seqlens`, `max_seqlen` and `segment_ids` of `pack`, and `mask` and `lengths` of `pad`, are "
    "names of fields that a batch has besides those of its samples. Each needs a name of its own, or a field would be "
    "lost. Names like `__size__` are reserved for wdspec.",
    keys="pack collate",
    bad="batch:\n  pack: {fields: [input_ids], length: 4096, position_ids: input_ids}\ndataset:\n  - shards: a.tar\n",
    good="batch:\n  pack: {fields: [input_ids], length: 4096, position_ids: position_ids}\ndataset:\n"
    "  - shards: a.tar\n",
)
def added_fields(composition: Composition) -> Findings:
    """Fields that a batch adds under the name of another one, and a field that is packed twice."""
    batch = _read_batch(composition)
    if batch is None:
        return
    node = locate(composition.top.entries["batch"].value, ())
    used: dict[str, str] = {}
    if batch.pack is not None:
        used = dict.fromkeys(batch.pack.fields, "a packed field")
        if (twice := next((name for name in used if batch.pack.fields.count(name) > 1), None)) is not None:
            at = locate(node, ("pack", "fields"))
            yield Finding(at, f"`{twice[:60]}` is packed twice", "name each field once")
    used = {**_known_fields(composition), **used}
    for path, name in _list_added(batch):
        if name.startswith("__") and name.endswith("__"):
            message = f"`{name[:60]}` is reserved for fields of wdspec"
        elif name in used:
            message = f"`{name[:60]}` is also the name of {used[name]}"
        else:
            used[name] = f"the field that `{path[-1]}` adds"
            continue
        yield Finding(locate(node, path), message, f"choose another name, such as `{path[-1]}`")


def _list_added(batch: Batch) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where the fields that a batch adds are named, and their names."""
    for key in ("position_ids", "cu_seqlens", "max_seqlen", "segment_ids") if batch.pack else ():
        if (name := getattr(batch.pack, key)) is not None:
            yield ("pack", key), name
    for field, how in batch.collate.fields.items() if batch.collate else ():
        for key in ("mask", "lengths"):
            if how.padding is not None and (name := getattr(how.padding, key)) is not None:
                yield ("collate", field, "pad", key), name


def _known_fields(composition: Composition) -> dict[str, str]:
    """The fields of samples that are certainly in a batch, and whose they are."""
    spec = composition.spec
    if composition.bad & {"map", "fields", "stage"} or spec.map or spec.stage is not None:
        return {}
    if spec.fields is not None:
        return {entry.split(";")[0]: "a field in `fields`" for entry in spec.fields}
    sources = right_sources(composition, "extensions", "rename", "map", "tags")
    return {
        name: f"a field of `{leaf.name}`" for leaf, source in sources for name in visible_fields(source) or ()
    }


@rule(
    "E355",
    "a window smaller than a batch",
    "Batches do not cross windows, so a window must contain the samples of several batches: `window` samples with "
    "`cost`, and `group_wait` samples with `group_by`. Batches are well filled if a window contains at least ten of "
    "them.",
    keys="window group_by",
    bad="batch: {cost: txt.length, max_cost: 4096, max_size: 64, window: 50}\ndataset:\n  - shards: a.tar\n",
    good="batch: {cost: txt.length, max_cost: 4096, max_size: 64, window: 1000}\ndataset:\n  - shards: a.tar\n",
)
def small_windows(composition: Composition) -> Findings:
    """A `window` below `max_size`, and a `group_wait` below `size` or `max_size`."""
    batch = _read_windowed_batch(composition)
    if batch is None:
        return
    key = "window" if batch.group_by is None else "group_wait"
    size, window = batch.size or batch.max_size, getattr(batch, key)
    if size is not None and size > window and (batch.size is not None or _is_set(batch, key)):
        node = composition.top.entries["batch"].value.value_or_self(key)
        message = f"a window of {window:,} samples never fills a batch of {size:,}"
        yield Finding(node, message, f"write `{key}: {10 * size}`, or lower the size")


@rule(
    "E331",
    "batches by cost in a spec that counts samples",
    "The number of samples in a batch by cost is known only when the samples are read. Therefore, set the length of "
    "an epoch in batches or use `epoch: pass`. `limit` is only possible in a pass, and `mix: {unit: batch}` is not. A "
    "pass needs the cost of every sample before it starts, which `wdspec stats` measures. After a `stage`, samples are "
    "decoded, so the size of an image or the duration of a sound cannot be read from its header.",
    keys="cost group_by pack",
    bad="batch: {cost: txt.length, max_cost: 4096}\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: {cost: txt.length, max_cost: 4096}\nepoch: {batches: 500}\ndataset:\n  - shards: a.tar\n",
)
def counted_samples(composition: Composition) -> Findings:
    """A stage after which samples cannot be measured."""
    spec, top = composition.spec, composition.top
    batch = _read_windowed_batch(composition)
    if batch is None:
        return
    found = []
    if spec.stage is not None and (measured := sorted(_list_headers(composition))):
        hint = (
            f"measure another field than `{measured[0]}`, or one that a function of `map` or the stage adds"
        )
        found.append(("stage", "a `stage` that decodes what they measure by its header", hint))
    measured_paths = (
        path for _, text in list_measures(composition) for path in parse_expression(text, spec.costs).paths
    )
    if spec.stage is not None and any(isinstance(path, PathBeforeMap) for path in measured_paths):
        found.append(("stage", "a `stage` if they read values before `map`", "remove `before_map(…)`"))
    for key, what, hint in found:
        if key not in composition.bad:
            yield Finding(top.entries[key].value, f"batches by cost cannot have {what}", hint)
    for number, step in enumerate(spec.mix.schedule or () if "mix" not in composition.bad else ()):
        if step.at.unit == "batches" and step.at.number and composition.schedule is not None:
            at = locate(composition.schedule, (number, "at"))
            hint = "write `at: {tokens: …}`, or a number of samples"
            yield Finding(at, "batches by cost cannot have a schedule that counts batches", hint)


@rule(
    "W416",
    "groups of equal lengths",
    "`group_by` puts samples with exactly the same value into a batch. Lengths and durations hardly ever are the same, "
    "so batches are much smaller than `size`. `cost` makes batches of similar lengths; rounded values make groups.",
    keys="group_by",
    bad="batch: {size: 8, group_by: json.text.length}\ndataset:\n  - {shards: a.tar, extensions: json}\n",
    good="batch: {size: 8, group_by: ceil(json.text.length / 64)}\ndataset:\n  - {shards: a.tar, extensions: json}\n",
)
def groups_of_equal_lengths(composition: Composition) -> Findings:
    """A length or a duration that is not rounded."""
    spec = composition.spec
    text = spec.batch.group_by if spec.batch is not None and "batch" not in composition.bad else None
    try:
        found = None if text is None else parse_expression(text, spec.costs)
    except ExpressionError:
        return
    if found is None or found.source != "v0" or found.paths[0][-1] not in ("length", "seconds"):
        return
    path = describe_path(found.paths[0])
    at = locate(composition.top.entries["batch"].value, ("group_by",))
    hint = (
        f"for similar values, write `cost: {path}` and `max_cost: …`, or groups such as `ceil({path} / 64)`"
    )
    yield Finding(at, f"`group_by: {path}` puts only exactly equal values into a batch", hint)
