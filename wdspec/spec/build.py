"""Merged tree -> `Composition`: variables are replaced, sources drafted, values checked, defaults applied.

Paths become absolute: a path in a file is relative to the file that has it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from wdspec.base.errors import UrlError
from wdspec.spec.companions import draft_companions
from wdspec.spec.files import Layers, Library
from wdspec.spec.language.decoders import DEFAULT_IMAGE_DECODER, RAW, split_decoder
from wdspec.spec.language.effects import Paths, paths_in
from wdspec.spec.language.joins import JoinOptions
from wdspec.spec.language.locations import CacheOptions, RewriteRule
from wdspec.spec.language.making import STEPS, step_of
from wdspec.spec.language.samples import Decode
from wdspec.spec.language.values import (
    DEFAULT_SCALE,
    IMAGE_DECODERS,
    TOTAL,
    FilePath,
    Model,
    is_size,
    read_number,
)
from wdspec.spec.problems import Problems, advise_stats, list_names
from wdspec.spec.secrets import remove_secrets
from wdspec.spec.sources import GROUP_KEYS, TOP_MIX_ONLY, Draft, Expander, draft_sources, every_draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Position, Scalar, is_null, plain
from wdspec.spec.validation import check_keys, keys_of, make_model
from wdspec.urls.urls import Part, is_relative, parse_shards

_PATHS_OF_SPEC, _PATHS_OF_SOURCE = paths_in(Spec), paths_in(Source)


class Variant(NamedTuple):
    """Which of the specs in a file this is, and the environment variables that it depends on."""

    split: str | None
    environment: str | None
    file: str | None
    """The file as the user named it."""
    overlaid: set[Position]
    """Positions of the rewrite rules of the overlay: these come before all others."""
    secure: bool
    """Whether WDS_SECURE forbids programs and user functions."""
    has_endpoint: bool
    """Whether AIS_ENDPOINT is set."""
    has_schemes: bool = False
    """Whether USE_AIS_FOR is set."""
    layers: Layers = Layers({}, [])
    """What its files replace in those that they extend."""
    defaults: MapEntry | None = None
    """The `defaults` of the top level, with variables."""


@dataclass(eq=False, repr=False)
class SourceList:
    """A `dataset:` list, of the top level or of a nested mix."""

    drafts: list[Draft]
    node: Node
    """The list in the file."""
    mix: MapNode | None
    """The `mix:` of these sources."""

    @property
    def leaves(self) -> list[Draft]:
        """Its sources with shards, including those in nested mixes."""
        return [leaf for draft in self.drafts for leaf in draft.leaves]

    @cached_property
    def scheduled(self) -> bool:
        """Whether a schedule sets the shares."""
        return self.mix is not None and self.mix.get("schedule") is not None

    @cached_property
    def share_kinds(self) -> list[str | None]:
        """`probability` or `weight` for each source; None if its share depends on its size."""
        stated = [draft.stated_shares[:1] for draft in self.drafts]
        return [keys[0] if keys and keys[0] != "upsample" else None for keys in stated]

    def numbers(self, key: str) -> list[float] | None:
        """The shares of its sources under one key; None if one is missing or wrong."""
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


class Holder(NamedTuple):
    """The top level or a source: its model, the tree that it was made from, and the keys whose values are wrong."""

    model: Model | None
    node: MapNode
    bad: frozenset[str]


@dataclass(eq=False, repr=False)
class Composition:
    """A spec with all defaults applied, and the trees that it was made from. Rules take it."""

    spec: Spec
    top: MapNode
    """The top level, merged, without variables."""
    drafts: list[Draft]
    """The sources of the top level."""
    leaves: list[Draft]
    """The drafts with shards of the mix."""
    bad: frozenset[str]
    """Keys of the top level whose values are wrong."""
    variant: Variant
    vars: Node | None
    """The `vars:` of the spec."""
    companions: Sequence[Draft] = ()
    """The sources of companions."""

    @cached_property
    def keys(self) -> set[str]:
        """The keys of the top level, of all sources, and of the maps directly below them.

        Also `pass` if an epoch is a pass, however it is written, `secure` if WDS_SECURE is set, `environment` if there
        is one, and `extends` if this replaces what other files say.
        """
        found = {"pass"} if self.spec.is_pass else set()
        if self.variant.secure:
            found.add("secure")
        if self.variant.environment is not None:
            found.add("environment")
        if any(self.variant.layers):
            found.add("extends")
        for _, node, _ in self.holders:
            found.update(node.entries)
            for entry in node.entries.values():
                if isinstance(entry.value, MapNode):
                    found.update(entry.value.entries)
        return found

    @cached_property
    def shard_texts(self) -> list[tuple[Draft, Scalar, Sequence[Part] | UrlError]]:
        """All texts in `shards` that are not empty: the source, the text, and its parts, or why it has none."""
        found = []
        for leaf in (*self.leaves, *self.companions):
            shards = leaf.node.get("shards")
            for item in shards.items if isinstance(shards, ListNode) else (shards,):
                if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                    found.append((leaf, item, _parse_shards(item.value, item.base)))
        return found

    @cached_property
    def models(self) -> list[tuple[Draft, Source]]:
        """The drafts with shards and their models, except those without a model; those of companions come last."""
        return [(leaf, leaf.model) for leaf in (*self.leaves, *self.companions) if leaf.model is not None]

    @cached_property
    def mixed(self) -> list[tuple[Draft, Source]]:
        """Those of the mix."""
        return [(leaf, leaf.model) for leaf in self.leaves if leaf.model is not None]

    @cached_property
    def holders(self) -> list[Holder]:
        """The top level, all sources and nested mixes, and the sources of companions."""
        drafts = [*every_draft(self.drafts), *self.companions]
        return [Holder(self.spec, self.top, self.bad), *(Holder(d.model, d.node, d.bad) for d in drafts)]

    @cached_property
    def lists(self) -> list[SourceList]:
        """The list of the top level, then the lists of nested mixes."""
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
        """The `mix:` of the top level; None if its values are wrong or have no effect."""
        usable = self.drafts and not self.bad & {"mix", "batch"} and not self.spec.is_pass
        return self.top.map_at("mix") if usable else None

    @property
    def schedule(self) -> ListNode | None:
        """The `mix.schedule`; None as for `mix`."""
        node = self.mix and self.mix.get("schedule")
        return node if isinstance(node, ListNode) else None


@lru_cache(maxsize=4096)
def _parse_shards(text: str, base: str) -> Sequence[Part] | UrlError:
    try:
        return parse_shards((text,), base)
    except UrlError as error:
        return error


def compose(
    top: MapNode,
    variant: Variant,
    library: Library,
    expand: Expander,
    chain: tuple[str, ...],
    problems: Problems,
) -> Composition | None:
    """Build the spec of a merged tree, and add what is wrong with single values; None if it cannot be built.

    Args:
        top: with `extends`, split, overlay and overrides merged.
        expand: replaces the variables in a file's tree.
        chain: absolute paths of the files that led here.
    """
    expanded = expand(top)
    vars = entry.value if (entry := top.entries.get("vars")) else None
    drafts = draft_sources(expanded, library, expand, chain, variant.split, problems, vars)
    _check_defaults(expanded, problems)
    leaves = [leaf for draft in drafts for leaf in draft.leaves]
    has_companions = any("companions" in node.entries for node in (expanded, *(leaf.node for leaf in leaves)))
    companions = draft_companions(expanded, leaves, problems) if has_companions else []
    for draft in (*drafts, *companions):
        _check_draft(draft, variant, problems)
    known = _keep_known(expanded.without("sources"), Spec, "at the top level", problems)
    names = {"split": variant.split, "environment": variant.environment, "file": variant.file}
    folder = os.path.dirname(os.path.abspath(variant.file)) if variant.file else ""
    extra = {"dataset": (), **names, "folder": folder, **_place_paths(known, _PATHS_OF_SPEC, variant)}
    spec, bad = make_model(known.without("dataset", "companions", "defaults", "vars"), Spec, extra, problems)
    if spec is None:
        return None
    if "mix" in bad:
        _explain_cap(known, drafts, problems)
    _apply_defaults(spec, leaves)
    spec = _with_companions(spec, companions) if companions else spec
    stats = None
    if "stats" in known.entries and "stats" not in bad and (node := known.get("stats")) is not None:
        from wdspec.spec.measurements import fill_in_measurements  # most specs do not use them

        stats = fill_in_measurements(spec, node, library, leaves, problems)
    dataset = tuple(source for draft in drafts if (source := _finish(draft)) is not None)
    spec = spec.model_copy(update={"dataset": dataset, "stats": stats})
    spec = _with_total(spec, leaves, known, problems) if spec.epoch and spec.epoch.samples == TOTAL else spec
    return Composition(spec, known, drafts, leaves, bad, variant, vars, companions)


def _with_companions(spec: Spec, drafts: Sequence[Draft]) -> Spec:
    """Return a spec with the sources of companions, which are not read in passes."""
    _apply_defaults(spec.model_copy(update={"epoch": None}), drafts)
    models = {draft.name: draft.model for draft in drafts if draft.model is not None}
    return spec.model_copy(update={"companions": models})


def _with_total(spec: Spec, leaves: Sequence[Draft], top: MapNode, problems: Problems) -> Spec:
    """Return a spec whose epoch has as many samples as all sources together; 0 if this is unknown."""
    unknown = [leaf.name for leaf in leaves if leaf.model is not None and leaf.model.samples is None]
    total = 0 if unknown else sum(source.samples or 0 for source in spec.sources)
    if unknown and top.get("stats") is None:  # otherwise, W108 says what the file lacks
        message = f"`total` needs the number of samples of each source, but {list_names(unknown, 3)} does not state it"
        hint = f"add `samples: n` there, or {advise_stats(spec.split)}"
        problems.add("E381", top.entries["epoch"].value.value_or_self("samples"), message, hint)
    return spec.model_copy(update={"epoch": spec.epoch and spec.epoch.model_copy(update={"samples": total})})


def _explain_cap(top: MapNode, drafts: Sequence[Draft], problems: Problems) -> None:
    """Say which `cap` gives the largest source a share, if a share was written in its place."""
    mix = top.map_at("mix")
    cap, by = (None, None) if mix is None else (mix.get("cap"), mix.get("by"))
    if not (isinstance(cap, Scalar) and isinstance(cap.value, float) and 0 < cap.value < 1):
        return
    key = by.value if isinstance(by, Scalar) else ""
    sizes = [getattr(draft.model, key, None) if key in ("samples", "bytes") else None for draft in drafts]
    known = sorted(size for size in sizes if size is not None)
    size = round(cap.value * sum(known[:-1]) / (1 - cap.value)) if len(known) == len(sizes) > 1 else 0
    if size and known[-2] <= size < known[-1]:
        name = drafts[sizes.index(known[-1])].name
        hint = f"it is a size, not a share: for a share of {cap.value:g} of `{name}`, write `cap: {size}`"
        problems.set_hint("E202", cap, hint)


def _keep_known(holder: MapNode, model: type[Model], where: str, problems: Problems) -> MapNode:
    """A map without its unknown keys and its secrets."""
    if "aistore" in holder.entries or "storage" in holder.entries:
        holder = remove_secrets(holder, problems)
    return check_keys(holder, model, where, problems)


def _check_defaults(holder: MapNode, problems: Problems) -> None:
    """Report unknown keys in `defaults` even if no source inherits them."""
    if (defaults := holder.map_at("defaults")) is not None:
        check_keys(defaults, Source, "in `defaults`", problems)


def _check_draft(draft: Draft, variant: Variant, problems: Problems) -> None:
    """Make the models of a draft and of the drafts in it."""
    if draft.children is None:
        _check_leaf(draft, variant, problems)
    else:
        _check_mix(draft, problems)
        for child in draft.children:
            _check_draft(child, variant, problems)


def _check_mix(draft: Draft, problems: Problems) -> None:
    _check_defaults(draft.node, problems)
    node = check_keys(draft.node, Source, "in a source", problems)
    for key in node.entries:
        if key in keys_of(Source) and key not in GROUP_KEYS and node.get(key) is not None:
            hint = f"write `defaults: {{{key}: …}}` in the mix, for all its sources"
            problems.add("E216", node.key(key), f"`{key}` is not allowed in a nested mix", hint)
    mix = node.map_at("mix")
    for key in TOP_MIX_ONLY:
        if mix is not None and mix.get(key) is not None:
            hint = "write it in the `mix:` of the top level"
            problems.add("E216", mix.key(key), f"`{key}` is not allowed in a nested mix", hint)
    group = node.without(*(key for key in node.entries if key not in GROUP_KEYS), "dataset", "defaults")
    extra = {"position": draft.own.position, "base": node.origin.directory}
    if draft.name:
        extra["name"] = draft.name
    draft.model, draft.bad = make_model(group, Source, extra, problems)


def _check_leaf(draft: Draft, variant: Variant, problems: Problems) -> None:
    node = draft.node = _keep_known(draft.node, Source, "in a source", problems)
    for key in ("mix", "defaults"):
        if node.get(key) is not None:
            message = f"`{key}` belongs to a nested mix, but this source has `shards`"
            problems.add("E216", node.key(key), message, "remove it")
    tags = node.map_at("tags")
    for name in tags.entries if tags is not None else ():
        if name.startswith("__"):
            message = f"the tag `{name[:60]}` starts with `__`, which is reserved for fields of wdspec"
            problems.add("E216", node.entries["tags"].value.key_or_self(name), message, "choose another name")
    extra = {"base": "", **_place_paths(node, _PATHS_OF_SOURCE, variant), "position": draft.own.position}
    if draft.name:
        extra["name"] = draft.name
    draft.model, draft.bad = make_model(node.without("mix", "defaults"), Source, extra, problems)


def _finish(draft: Draft) -> Source | None:
    """The model of a draft with the models of its sources."""
    if draft.children is None or draft.model is None:
        return draft.model
    inner = tuple(source for child in draft.children if (source := _finish(child)) is not None)
    return draft.model.model_copy(update={"dataset": inner})


def _apply_defaults(spec: Spec, leaves: Iterable[Draft]) -> None:
    """Apply the defaults that depend on other keys to the models of sources with shards.

    If any source of the mix rescales images, images are decoded in all of them. In a pass without `reshuffle`, sources
    are read in the order of their lists unless they state another one. Sequential ones are read shard by shard.
    """
    is_pass = spec.is_pass and not (spec.epoch and spec.epoch.reshuffle)
    made = [(leaf, leaf.model, _find_scaling(leaf.model)) for leaf in leaves if leaf.model is not None]
    is_scaled = any(effective["scale"] is not None for _, _, effective in made)
    for leaf, model, effective in made:
        stated = model.model_fields_set | leaf.bad
        if is_scaled:
            effective["decode"] = _decode_images(model.decode)
        if is_pass:
            listed = {"order": "sequential", "shuffle": 0, "interleave": 1}
            effective |= {key: value for key, value in listed.items() if key not in stated}
        elif model.order == "sequential" and "interleave" not in stated:
            effective["interleave"] = 1
        leaf.model = model.model_copy(update=effective)


def _find_scaling(model: Source) -> dict[str, Any]:
    """The effective `scale`: `scaleprob` alone means the default range; probability 0 or factor 1 means never."""
    stated = model.model_fields_set
    scale = model.scale if "scale" in stated else DEFAULT_SCALE if "scaleprob" in stated else None
    if scale is None or scale == (1.0, 1.0) or model.scaleprob == 0:
        return {"scale": None, "scaleprob": 0.0}
    return {"scale": scale, "scaleprob": model.scaleprob}


def _decode_images(decode: Decode | None) -> Decode:
    """Decode images too, unless the source asks for something else."""
    if decode is None:
        return Decode(names=(DEFAULT_IMAGE_DECODER,))
    if RAW in decode.names or any(split_decoder(name)[0] in IMAGE_DECODERS for name in decode.names):
        return decode
    return decode.model_copy(update={"names": (*decode.names, DEFAULT_IMAGE_DECODER)})


def _place_paths(node: MapNode, kinds: Paths, variant: Variant) -> dict[str, Any]:
    """The plain values of the keys of a map that are paths or have some, with absolute paths; and its `base`."""
    found: dict[str, Any] = {}
    for key in node.entries:
        if (kind := kinds.get(key)) is None or (value := node.get(key)) is None:
            continue
        if not isinstance(kind, FilePath):
            found[key] = _place_inside(value, kind, variant)
        elif kind.keeps_text:
            found |= _start_paths(key, value)
        elif kind.in_lists:
            shards = node.get("shards")
            base = node.origin.directory if shards is None else _start_paths("", shards)["base"]
            found[key] = _place_lists(value, base)
        else:
            found[key] = _make_absolute(value, kind)
    return found


def _place_inside(node: Node, model: type[Model], variant: Variant) -> Any:
    """The plain value of a map, of a list of maps, or of what may stand in place of a map, with absolute paths."""
    if isinstance(node, MapNode):
        rule = _describe_rule(node, variant) if model is RewriteRule else {}
        return {**plain(node), **rule, **_place_paths(node, paths_in(model), variant)}
    items = node.items if isinstance(node, ListNode) else (node,)
    maps = [item for item in items if isinstance(item, MapNode)]
    if maps and (not model.short or len(maps) == len(items)):
        return [_place_inside(item, model, variant) for item in items]
    is_text = isinstance(node, Scalar) and isinstance(node.value, str)
    is_size_alone = model is CacheOptions and is_text and is_size(plain(node))
    if not model.short or maps or is_size_alone or not (is_text or model is JoinOptions):
        return plain(node)
    entries = {model.short: MapEntry(node.scalar(model.short), node)}
    whole = MapNode(node.origin, node.line, node.column, entries)
    return {**plain(whole), **_place_paths(whole, paths_in(model), variant)}


def _describe_rule(item: MapNode, variant: Variant) -> dict[str, Any]:
    """Where a rewrite rule was written. Without a `to`, it removes what it matches."""
    here = item.position
    written = f"{here.file}:{here.line}" if here.line else here.file
    is_overlay = here in variant.overlaid
    origin = f"environment {variant.environment or 'overrides'} ({written})" if is_overlay else written
    removes = {"to": ""} if is_null(item.value_or_self("to")) else {}
    return {"overlay": is_overlay, "origin": origin, **removes}


def _make_absolute(node: Node, kind: FilePath) -> Any:
    if kind.in_steps and isinstance(node, MapNode):
        return {name: _place_step(each.value) for name, each in node.entries.items() if node.get(name)}
    if kind.in_entries and isinstance(node, MapNode):
        return {
            name: _place_key(each.value, kind.in_entries)
            for name, each in node.entries.items()
            if node.get(name)
        }
    if isinstance(node, MapNode):
        return {key: _make_absolute(each.value, kind) for key, each in node.entries.items() if node.get(key)}
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or kind.in_steps or kind.in_entries:
        return plain(node)
    if kind.is_template:
        base = node.base.replace("\\", r"\\").rstrip("/")
        return f"{base}/{node.value.removeprefix('./')}" if _starts_here(node.value) else node.value
    is_relative_path = node.value.strip() and node.value[0] not in "/~" and "://" not in node.value
    return os.path.normpath(os.path.join(node.base, node.value)) if is_relative_path else node.value


def _place_step(node: Node) -> Any:
    """The plain value of an entry of `make`, with absolute paths."""
    step = step_of(node.entries) if isinstance(node, MapNode) else None
    if step is None or not isinstance(node, MapNode):
        return plain(node)
    held = [key for key in STEPS[step].paths if node.get(key) is not None]
    return {**plain(node), **{key: _make_absolute(node.value_or_self(key), FilePath()) for key in held}}


def _place_key(node: Node, key: str) -> Any:
    """The plain value of a map, with an absolute path under a key."""
    held = node.get(key) if isinstance(node, MapNode) else None
    if (
        not isinstance(held, Scalar)
        or not isinstance(held.value, str)
        or held.value.startswith("@")
        or not _starts_here(held.value)
    ):
        return plain(node)
    return {**plain(node), key: _make_absolute(held, FilePath())}


def _place_lists(node: Node, base: str) -> list[Any]:
    """The plain values of a list of keys; paths of files (`@keys.txt`) start at `base`, wherever they are from."""
    entries = []
    for item in node.items if isinstance(node, ListNode) else (node,):
        entry = plain(item)
        if (
            isinstance(item, Scalar)
            and isinstance(entry, str)
            and entry.startswith("@")
            and item.base != base
        ):
            path = entry[1:]
            entry = (
                f"@{os.path.relpath(os.path.join(item.base, path), base)}" if _starts_here(path) else entry
            )
        entries.append(entry)
    return entries


def _start_paths(key: str, node: Node) -> dict[str, Any]:
    """The directory where paths start; and the paths, made absolute if they start in several directories.

    A path that starts with a variable is relative to the file that sets the variable.
    """
    items = node.items if isinstance(node, ListNode) else (node,)
    texts = [
        (item.value, item.base) for item in items if isinstance(item, Scalar) and isinstance(item.value, str)
    ]
    base = texts[0][1] if texts else node.origin.directory
    if len(texts) != len(items) or len({*map(itemgetter(1), texts)}) == 1:
        return {"base": base}
    return {"base": base, key: [text if its == base else _join_base(text, its) for text, its in texts]}


def _join_base(text: str, base: str) -> str:
    mark = "@" if text.startswith("@") else ""
    path = text.removeprefix("@")
    if not _starts_here(path):
        return text
    literal = re.sub(r"([\\{},*?\[\]])", r"\\\1", base)
    return f"{mark}{literal.rstrip('/')}/{path}"


def _starts_here(path: str) -> bool:
    """Whether a path is relative to the file that has it. `\\1` at its start depends on the match."""
    return bool(path.strip()) and not path.startswith("\\") and is_relative(path)
