"""Merged tree -> `Composition`: variables replaced, sources drafted, values checked, defaults in effect.

Paths made absolute: those in a file are relative to the file that they are written in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from wdspec.spec.files import Library
from wdspec.spec.language.decoder_options import split_decoder
from wdspec.spec.language.decoders import DEFAULT_IMAGE_DECODER, RAW
from wdspec.spec.language.samples import Decode
from wdspec.spec.language.values import DEFAULT_SCALE, IMAGE_DECODERS, Model, is_size, read_number
from wdspec.spec.problems import Problems
from wdspec.spec.secrets import without_secrets
from wdspec.spec.sources import Draft, Expander, draft_sources, every_draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Position, Scalar, is_null, plain
from wdspec.spec.validation import check_keys, checked, keys_of
from wdspec.urls.urls import is_relative

GROUP_KEYS = frozenset({"name", "probability", "weight", "upsample", "dataset", "mix", "defaults", "tags"})
_TOP_MIX_ONLY = ("draw", "unit", "schedule")


class Variant(NamedTuple):
    """Which of the specs that a file holds is meant, and what the environment says about it."""

    split: str | None
    environment: str | None
    file: str | None
    """The file as the user named it."""
    overlaid: set[Position]
    """Where the rewrite rules of the overlay stand: they go before all others."""
    secure: bool
    """Whether WDS_SECURE forbids programs and user code."""
    has_endpoint: bool
    """Whether AIS_ENDPOINT is set."""
    has_schemes: bool = False
    """Whether USE_AIS_FOR is set."""


@dataclass(eq=False, repr=False)
class SourceList:
    """One `dataset:` list, that of the top level or of a nested mix."""

    drafts: list[Draft]
    node: Node
    """The list in the file."""
    mix: MapNode | None
    """The `mix:` that goes with it."""

    @property
    def leaves(self) -> list[Draft]:
        """The drafts with shards in it."""
        return [leaf for draft in self.drafts for leaf in draft.leaves]

    @cached_property
    def scheduled(self) -> bool:
        """Whether a schedule gives the shares."""
        return self.mix is not None and self.mix.get("schedule") is not None

    @cached_property
    def share_kinds(self) -> list[str | None]:
        """For each source `probability`, `weight`, or None where its share goes by size."""
        stated = [draft.stated_shares[:1] for draft in self.drafts]
        return [keys[0] if keys and keys[0] != "upsample" else None for keys in stated]

    def numbers(self, key: str) -> list[float] | None:
        """The shares of its sources under one key; None where one is missing or wrong."""
        numbers = []
        for draft in self.drafts:
            node = draft.node.get(key)
            try:
                number = read_number(node.value if isinstance(node, Scalar) else node)
            except PydanticCustomError:
                return None
            if number < 0:
                return None
            numbers.append(float(number))
        return numbers


@dataclass(eq=False, repr=False)
class Composition:
    """A spec with effective values, and the trees that it was made from: what rules look at."""

    spec: Spec
    top: MapNode
    """The top level, merged and expanded."""
    drafts: list[Draft]
    """The sources of the top list."""
    bad: frozenset[str]
    """Keys of the top level whose values are wrong."""
    variant: Variant

    @cached_property
    def keys(self) -> set[str]:
        """The keys of the top level, of all sources, and of the maps right below them.

        Among them is `pass` where an epoch is one, however that is written, and `secure` where WDS_SECURE is set.
        """
        found = {"pass"} if self.spec.is_pass else set()
        if self.variant.secure:
            found.add("secure")
        for holder in (self.top, *(draft.node for draft in every_draft(self.drafts))):
            found.update(holder.entries)
            for entry in holder.entries.values():
                if isinstance(entry.value, MapNode):
                    found.update(entry.value.entries)
        return found

    @cached_property
    def leaves(self) -> list[Draft]:
        """The drafts with shards."""
        return [leaf for draft in self.drafts for leaf in draft.leaves]

    @cached_property
    def models(self) -> list[tuple[Draft, Source]]:
        """The drafts with shards of which a model could be made, and the models."""
        return [(leaf, leaf.model) for leaf in self.leaves if leaf.model is not None]

    @cached_property
    def lists(self) -> list[SourceList]:
        """The list of the top level, then those of nested mixes."""
        found = []
        if self.drafts:
            top = self.top
            found.append(SourceList(self.drafts, top.entries["dataset"].value, top.map_at("mix")))
        for draft in every_draft(self.drafts):
            if draft.children is not None:
                node = draft.node
                found.append(SourceList(draft.children, node.entries["dataset"].value, node.map_at("mix")))
        return found

    @property
    def mix(self) -> MapNode | None:
        """The `mix:` of the top level where its values are right and mean something."""
        usable = self.drafts and not self.bad & {"mix", "batch"} and not self.spec.is_pass
        return self.top.map_at("mix") if usable else None

    @property
    def schedule(self) -> ListNode | None:
        """The `mix.schedule`, likewise."""
        node = self.mix and self.mix.get("schedule")
        return node if isinstance(node, ListNode) else None


def compose(
    top: MapNode,
    variant: Variant,
    library: Library,
    expand: Expander,
    chain: tuple[str, ...],
    problems: Problems,
) -> Composition | None:
    """The spec of a merged tree, and what is wrong with its single values in `problems`; None where none can be made.

    Args:
        top: extends, split, overlay and overrides are merged.
        expand: gives a file's tree with the variables of its own scope replaced.
        chain: absolute paths of the files that are open.
    """
    expanded = expand(top)
    drafts = draft_sources(expanded, library, expand, chain, problems)
    _check_defaults(expanded, problems)
    for draft in drafts:
        _check(draft, variant, problems)
    known = _known(expanded.without("sources"), Spec, "at the top level", problems)
    extra: dict[str, Any] = {
        "dataset": (),
        "split": variant.split,
        "environment": variant.environment,
        "file": variant.file,
        "folder": os.path.dirname(os.path.abspath(variant.file)) if variant.file else "",
        **_placed(known, variant),
    }
    spec, bad = checked(known.without("dataset", "defaults", "vars"), Spec, extra, problems)
    if spec is None:
        return None
    leaves = [leaf for draft in drafts for leaf in draft.leaves if leaf.model is not None]
    _take_effect(spec, leaves)
    stats = None
    if "stats" in known.entries and "stats" not in bad and (node := known.get("stats")) is not None:
        from wdspec.spec.measurements import fill_in_measurements  # most specs name no file of them

        stats = fill_in_measurements(spec, node, library, leaves, problems)
    dataset = tuple(source for draft in drafts if (source := _finished(draft)) is not None)
    spec = spec.model_copy(update={"dataset": dataset, "stats": stats})
    return Composition(spec, known, drafts, bad, variant)


def _known(holder: MapNode, model: type[Model], where: str, problems: Problems) -> MapNode:
    """A map without its unknown keys, and without what is secret in it."""
    if "aistore" in holder.entries or "storage" in holder.entries:
        holder = without_secrets(holder, problems)
    return check_keys(holder, model, where, problems)


def _check_defaults(holder: MapNode, problems: Problems) -> None:
    """Unknown keys in `defaults` are reported also where no source takes them up."""
    if (defaults := holder.map_at("defaults")) is not None:
        check_keys(defaults, Source, "in `defaults`", problems)


def _check(draft: Draft, variant: Variant, problems: Problems) -> None:
    """Makes the models of a draft and of those in it."""
    if draft.children is None:
        _check_leaf(draft, variant, problems)
        return
    _check_defaults(draft.node, problems)
    node = check_keys(draft.node, Source, "in a source", problems)
    for key in node.entries:
        if key in keys_of(Source) and key not in GROUP_KEYS and node.get(key) is not None:
            hint = f"write `defaults: {{{key}: …}}` beside it, for all sources in it"
            problems.add("E216", node.key(key), f"`{key}` cannot stand in a nested mix", hint)
    mix = node.map_at("mix")
    for key in _TOP_MIX_ONLY:
        if mix is not None and mix.get(key) is not None:
            hint = "write it in the `mix:` of the top level"
            problems.add("E216", mix.key(key), f"`{key}` cannot stand in a nested mix", hint)
    group = node.without(*(key for key in node.entries if key not in GROUP_KEYS), "dataset", "defaults")
    extra = {"where": draft.own.position, "base": node.origin.directory}
    if draft.name:
        extra["name"] = draft.name
    draft.model, draft.bad = checked(group, Source, extra, problems)
    for child in draft.children:
        _check(child, variant, problems)


def _check_leaf(draft: Draft, variant: Variant, problems: Problems) -> None:
    node = draft.node = _known(draft.node, Source, "in a source", problems)
    for key in ("mix", "defaults"):
        if node.get(key) is not None:
            message = f"`{key}` belongs to a nested mix, but this source has `shards`"
            problems.add("E216", node.key(key), message, "remove it")
    tags = node.map_at("tags")
    for name in tags.entries if tags is not None else ():
        if name.startswith("__"):
            message = f"the tag `{name[:60]}` begins with `__`, as only wdspec's own fields do"
            problems.add("E216", node.entries["tags"].value.key_or_self(name), message, "choose another name")
    shards, where = node.get("shards"), draft.own.position
    extra = {"where": where, **_absolute_shards(shards), **_placed(node, variant)}
    if draft.name:
        extra["name"] = draft.name
    draft.model, draft.bad = checked(node.without("mix", "defaults"), Source, extra, problems)


def _finished(draft: Draft) -> Source | None:
    """The model of a draft, with those of its sources in it."""
    if draft.children is None or draft.model is None:
        return draft.model
    inner = tuple(source for child in draft.children if (source := _finished(child)) is not None)
    return draft.model.model_copy(update={"dataset": inner})


def _take_effect(spec: Spec, leaves: Iterable[Draft]) -> None:
    """Replaces what the models of sources with shards say by what takes effect.

    If any source of the mix rescales, images are decoded in all of them. In a pass sources are read as they are
    listed, unless they say otherwise; and what is sequential is read shard after shard.
    """
    is_pass = spec.is_pass
    made = [(leaf, leaf.model, _scaling(leaf.model)) for leaf in leaves if leaf.model is not None]
    is_scaled = any(effective["scale"] is not None for _, _, effective in made)
    for leaf, model, effective in made:
        stated = model.model_fields_set | leaf.bad
        if is_scaled:
            effective["decode"] = _with_images(model.decode)
        if is_pass:
            listed = {"order": "sequential", "shuffle": 0, "interleave": 1}
            effective |= {key: value for key, value in listed.items() if key not in stated}
        elif model.order == "sequential" and "interleave" not in stated:
            effective["interleave"] = 1
        leaf.model = model.model_copy(update=effective)


def _scaling(model: Source) -> dict[str, Any]:
    """`scaleprob` alone means the default range; a probability of 0 or a factor of 1 means never."""
    stated = model.model_fields_set
    scale = model.scale if "scale" in stated else DEFAULT_SCALE if "scaleprob" in stated else None
    if scale is None or scale == (1.0, 1.0) or model.scaleprob == 0:
        return {"scale": None, "scaleprob": 0.0}
    return {"scale": scale, "scaleprob": model.scaleprob}


def _with_images(decode: Decode | None) -> Decode:
    """The same, with images decoded where nothing else is asked for."""
    if decode is None:
        return Decode(names=(DEFAULT_IMAGE_DECODER,))
    if RAW in decode.names or any(split_decoder(name)[0] in IMAGE_DECODERS for name in decode.names):
        return decode
    return decode.model_copy(update={"names": (*decode.names, DEFAULT_IMAGE_DECODER)})


def _placed(holder: MapNode, variant: Variant) -> dict[str, Any]:
    """The values of the keys that say something of places, with their paths made absolute.

    Paths in a file are relative to the file that they are written in. `~` stays for the reader.
    """
    return {
        key: _PLACES[key](node, variant)
        for key in holder.entries
        if key in _PLACES and (node := holder.get(key))
    }


def _with_absolute(node: Node, names: Iterable[str]) -> Any:
    """The plain value of a map with the paths under some keys made absolute."""
    value = plain(node)
    for name in names:
        path = node.get(name) if isinstance(node, MapNode) else None
        if isinstance(path, Scalar) and isinstance(path.value, str) and path.value[:1] not in ("", "~"):
            value[name] = os.path.normpath(os.path.join(path.base, path.value))
    return value


def _placed_storage(node: Node, variant: Variant) -> Any:
    files = node.get("files") if isinstance(node, MapNode) else None
    if not isinstance(files, MapNode):
        return plain(node)
    return {**plain(node), "files": _with_absolute(files, files.entries)}


def _placed_output(node: Node, variant: Variant) -> Any:
    """With the directory of the file that says where: relative paths start there."""
    value = plain(node)
    path = node.get("dir") or node.get("to") if isinstance(node, MapNode) else node
    if isinstance(value, str):
        value = {"dir": value}
    base = path.base if isinstance(path, Scalar) else ""
    return {**value, "base": base} if isinstance(value, dict) else value


def _placed_cache(node: Node, variant: Variant) -> Any:
    value = plain(node)
    path = node.get("dir") if isinstance(node, MapNode) else node
    if not isinstance(path, Scalar) or not isinstance(path.value, str) or not _starts_here(path.value):
        return value
    if path is node and is_size(path.value):  # which is refused where it is read
        return value
    directory = f"{path.base.rstrip('/')}/{path.value.removeprefix('./')}"
    return {**value, "dir": directory} if isinstance(node, MapNode) else directory


def _placed_rewrites(node: Node, variant: Variant) -> Any:
    """The rules with where each was written."""
    if not isinstance(node, ListNode):
        return plain(node)
    return [
        _placed_rewrite(item, variant) if isinstance(item, MapNode) else plain(item) for item in node.items
    ]


def _placed_rewrite(item: MapNode, variant: Variant) -> dict[str, Any]:
    here, to = item.position, item.value_or_self("to")
    written = f"{here.file}:{here.line}" if here.line else here.file
    is_overlay = here in variant.overlaid
    origin = f"environment {variant.environment or 'overrides'} ({written})" if is_overlay else written
    rule = {**plain(item), "overlay": is_overlay, "origin": origin}
    if isinstance(to, Scalar) and isinstance(to.value, str) and _starts_here(to.value):
        base = to.base.replace("\\", r"\\").rstrip("/")
        rule["to"] = f"{base}/{to.value.removeprefix('./')}"
    elif is_null(to):
        rule["to"] = ""
    return rule


_PLACES: Mapping[str, Callable[[Node, Variant], Any]] = {
    "aistore": lambda node, _: _with_absolute(node, ("token_file", "client_ca", "client_crt", "client_key")),
    "cache": _placed_cache,
    "errors": lambda node, _: _with_absolute(node, ("log",)),
    "output": _placed_output,
    "rewrite": _placed_rewrites,
    "storage": _placed_storage,
}


def _absolute_shards(node: Node | None) -> dict[str, Any]:
    """The base directory of a source's shards, and the texts made absolute where some start somewhere else.

    A path begun by a variable starts where the variable was given its value.
    """
    if node is None:
        return {"base": ""}
    items = node.items if isinstance(node, ListNode) else (node,)
    texts = [
        (item.value, item.base) for item in items if isinstance(item, Scalar) and isinstance(item.value, str)
    ]
    base = texts[0][1] if texts else node.origin.directory
    if len(texts) != len(items) or len({*map(itemgetter(1), texts)}) == 1:
        return {"base": base}
    return {"base": base, "shards": [text if its == base else _absolute(text, its) for text, its in texts]}


def _absolute(text: str, base: str) -> str:
    mark = "@" if text.startswith("@") else ""
    path = text.removeprefix("@")
    if not _starts_here(path):
        return text
    literal = re.sub(r"([\\{},*?\[\]])", r"\\\1", base)
    return f"{mark}{literal.rstrip('/')}/{path}"


def _starts_here(path: str) -> bool:
    """Whether a path starts at the directory of the file that names it. What begins with `\\1` is a match's to say."""
    return bool(path.strip()) and not path.startswith("\\") and is_relative(path)
