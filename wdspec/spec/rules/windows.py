"""Rules for batches by cost: their expressions, and keys that cannot go with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition
from wdspec.spec.language.batch import Batch
from wdspec.spec.language.expressions import ExpressionError, parse_expression
from wdspec.spec.problems import list_names
from wdspec.spec.rules.fields import known_fields
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.tree import Node, Scalar, locate

KEYS = "cost max_cost padded max_size size_multiple window overlong limits balance group_by group_wait incomplete pack"
"""The keys of `batch` that plan batches from windows."""
_ONLY_WITH = {
    "max_cost": ("cost", "pack"),
    "padded": ("cost",),
    "max_size": ("cost", "group_by"),
    "size_multiple": ("cost", "group_by"),
    "window": ("cost", "pack"),
    "overlong": ("cost", "pack"),
    "limits": ("cost", "pack", "group_by"),
    "balance": ("cost", "pack"),
    "group_wait": ("group_by",),
    "incomplete": ("group_by",),
}
"""Keys, and those of which they need one."""
_NOT_WITH = {
    "global_size": ("cost", "group_by", "pack"),
    "size": ("cost", "pack", "max_size"),
    "group_by": ("pack", "balance"),
    "pack": ("collate", "ragged", "padded"),
    "accumulate": ("cost", "group_by", "pack"),
}
"""Keys, and those that exclude them."""
_EPOCH = "write `epoch: {batches: …}`"


def _windowed(composition: Composition) -> Batch | None:
    batch = None if "batch" in composition.bad else composition.spec.batch
    return batch if batch is not None and batch.has_windows else None


def _expressions(composition: Composition) -> Iterator[tuple[Node, str]]:
    """The expressions of a spec, and where they are; keys of `limits` among them."""
    spec, top = composition.spec, composition.top
    if "costs" not in composition.bad:
        for name, text in spec.costs.items():
            yield locate(top.entries["costs"].value, (name,)), text
    batch = None if "batch" in composition.bad else spec.batch
    if batch is None:
        return
    node = top.entries["batch"].value
    for key in ("cost", "balance", "group_by"):
        text = getattr(batch, key)
        if text is not None and not (key == "cost" and batch.is_by_function):
            yield node.value_or_self(key), text
    for text in batch.limits:
        yield locate(node, ("limits",)).key_or_self(text), text


@rule(
    "E330",
    "an expression that cannot be read",
    "Expressions have fields (`image.width`, `json.score`), constants, `+ - * /`, comparisons, `in`, `and or not`, and "
    "the functions min, max, ceil, floor, abs and default. They are the same in `costs`, `batch.cost`, `limits`, "
    "`balance` and `group_by`, and they cannot run code.",
    keys="costs cost limits balance group_by",
    bad="batch: {cost: 'ciel(image.width / 28)', max_cost: 4096}\ndataset:\n  - shards: a.tar\n",
    good="batch: {cost: 'ceil(image.width / 28)', max_cost: 4096}\ndataset:\n  - shards: a.tar\n",
)
def unreadable_expressions(composition: Composition) -> Findings:
    """Expressions that are not in the grammar."""
    named: Mapping[str, str] = {} if "costs" in composition.bad else composition.spec.costs
    for at, text in _expressions(composition):
        try:
            parse_expression(text, named)
        except ExpressionError as error:
            column = at.column_at(error.column) if isinstance(at, Scalar) and at.value == text else None
            yield Finding(at, f"the expression {error.message}", error.hint, column)


@rule("E316", keys="cost limits balance group_by pack")
def measured_fields(composition: Composition) -> Findings:
    """Fields in expressions and in `pack`."""
    batch, spec = _windowed(composition), composition.spec
    if batch is None or any(True for _ in unreadable_expressions(composition)):
        return
    known = known_fields(composition, "extensions", "rename", "map")
    for at, text in _expressions(composition):
        expression = parse_expression(text, spec.costs)
        needed = (path for path in expression.paths if path not in expression.optional)
        yield from _absent(at, dict.fromkeys(str(path[0]) for path in needed), known)
    if batch.pack is not None and not any(call.field is None for call in spec.map):
        yield from _absent(
            locate(composition.top.entries["batch"].value, ("pack",)), batch.pack.fields, known
        )


def _absent(at: Node, names: Any, known: Mapping[str, Any]) -> Findings:
    for name in names:
        for source, fields in known.items():
            if name not in fields and not name.startswith("__"):
                has = f"samples of `{source}` have {list_names(fields, 8)}"
                hint = did_you_mean(name, fields) or f"name one of these, or write `default({name}, 0)`"
                yield Finding(at, f"there is no field `{name[:60]}` before `map`: {has}", hint)
                break


@rule("E206", keys=KEYS)
def unlimited_batches(composition: Composition) -> Findings:
    """A cost without a limit, and keys without the one that they belong to."""
    batch = None if "batch" in composition.bad else composition.spec.batch
    if batch is None:
        return
    node = composition.top.entries["batch"].value
    limited = batch.max_cost is not None or batch.max_size is not None or batch.size is not None
    if batch.cost is not None and not limited and not (batch.pack and batch.pack.length):
        yield Finding(node.key_or_self("cost"), "`cost` needs a limit", "add `max_cost: …`")
    elif batch.pack is not None and batch.max_cost is None and batch.pack.length is None:
        yield Finding(
            node.key_or_self("pack"), "`pack` needs a limit", "add `length: …` to `pack`, or `max_cost: …`"
        )
    elif batch.group_by is not None and not limited:
        yield Finding(node.key_or_self("group_by"), "`group_by` needs a size of batches", "add `size: …`")
    for key, needed in _ONLY_WITH.items():
        if _is_set(batch, key) and not any(_is_set(batch, each) for each in needed):
            names = " or ".join(f"`{each}`" for each in needed)
            yield Finding(
                node.key_or_self(key), f"`{key}` has no effect without {names}", f"add {names}, or remove it"
            )


@rule("E206", keys="shares_in")
def shares_of_unknown_cost(composition: Composition) -> Findings:
    """Shares of cost without a cost, or without the mean cost of a source."""
    spec, top = composition.spec, composition.top
    if composition.bad & {"mix", "batch"}:
        return
    for sources in composition.lists:
        shares_in = None if sources.mix is None else sources.mix.get("shares_in")
        if not isinstance(shares_in, Scalar) or shares_in.value != "cost":
            continue
        if spec.batch is None or not spec.batch.has_windows:
            hint = "add `batch: {cost: …, max_cost: …}`"
            yield Finding(shares_in, "`shares_in: cost` needs a cost of samples", hint)
            return
        for leaf in sources.leaves if top.get("stats") is None else ():
            if leaf.model is not None and leaf.model.mean_cost is None:
                hint = "add `stats: FILE` and run `wdspec stats SPEC`, or add `mean_cost: …`"
                yield Finding(leaf.node, "`shares_in: cost` needs the mean cost of each source", hint)


def _is_set(batch: Batch, key: str) -> bool:
    return key in batch.model_fields_set and bool(getattr(batch, key) is not None)


@rule("E207", keys=KEYS)
def batches_of_two_kinds(composition: Composition) -> Findings:
    """Keys of batches by cost, and keys of other batches."""
    batch = _windowed(composition)
    if batch is None:
        return
    node = composition.top.entries["batch"].value
    for key, others in _NOT_WITH.items():
        other = next((each for each in others if _is_set(batch, key) and _is_set(batch, each)), None)
        if other is not None:
            yield Finding(node.key_or_self(key), f"`{key}` cannot go with `{other}`", "remove one of the two")
    pack = batch.pack
    if pack is None and batch.overlong in ("truncate", "split"):
        hint = "write `drop`, `alone` or `error`, or add `pack`"
        yield Finding(node.value_or_self("overlong"), f"`overlong: {batch.overlong}` needs `pack`", hint)
    if pack is not None and batch.overlong == "alone":
        hint = "write `drop`, `truncate` or `split`"
        yield Finding(node.value_or_self("overlong"), "a packed row cannot be longer than `max_cost`", hint)
    if batch.size_multiple > 1 and (pack or not batch.padded):
        message = "`size_multiple` is for padded batches"
        yield Finding(node.key_or_self("size_multiple"), message, "remove it, or `padded: false`")
    cuts = pack is not None and (pack.method == "concatenate" or batch.overlong in ("truncate", "split"))
    if cuts and (batch.limits or (pack and pack.pad_to_multiple_of > 1) or batch.is_by_function):
        message = "samples that are cut need the length of what is packed as their cost, and nothing else"
        yield Finding(
            node.key_or_self("pack"), message, "remove `limits` and `pad_to_multiple_of`, or use `best_fit`"
        )
    if (
        pack is not None
        and pack.length is not None
        and batch.max_cost is not None
        and batch.max_cost > pack.length
    ):
        cost_is_length = batch.cost is None or batch.cost == f"{pack.fields[0]}.length"
        if cost_is_length:
            message = f"rows of up to {batch.max_cost:g} do not fit into `length: {pack.length}`"
            yield Finding(
                node.value_or_self("max_cost"), message, f"write `max_cost: {pack.length}`, or leave it out"
            )


@rule(
    "E331",
    "batches by cost in a spec that counts samples",
    "The number of samples in a batch by cost is known only when the samples are read. So epochs are counted in "
    "batches, and `limit`, a pass, a stage and draws of whole batches are not possible. For evaluation, use "
    "`batch: {size: …}` with `epoch: pass`: how many batches a pass has would depend on the costs of all samples, "
    "which no rank knows.",
    keys="cost group_by pack",
    bad="batch: {cost: txt.length, max_cost: 4096}\nepoch: 10_000\ndataset:\n  - shards: a.tar\n",
    good="batch: {cost: txt.length, max_cost: 4096}\nepoch: {batches: 500}\ndataset:\n  - shards: a.tar\n",
)
def counted_samples(composition: Composition) -> Findings:
    """Keys of the top level that need batches of a known size."""
    spec, top = composition.spec, composition.top
    if _windowed(composition) is None:
        return
    found = []
    if spec.epoch is not None and not spec.epoch.batches:
        found.append(("epoch", "`epoch: pass`" if spec.is_pass else "an epoch of samples", _EPOCH))
    if spec.limit is not None:
        found.append(("limit", "a `limit`", _EPOCH))
    if spec.stage is not None:
        found.append(("stage", "a `stage`", "use `map`, which is called after the batches are planned"))
    if spec.mix.unit == "batch":
        found.append(("mix", "`unit: batch`", "remove it; `group_by: __source__` keeps sources apart"))
    for key, what, hint in found:
        if key not in composition.bad:
            yield Finding(top.entries[key].value, f"batches by cost cannot have {what}", hint)
