"""Rules for `fetch`: what data may name, and what cannot be known of an object before it is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from wdspec.base.errors import did_you_mean
from wdspec.spec.build import Composition
from wdspec.spec.language.decoders import makes_media
from wdspec.spec.language.expressions import (
    ExpressionError,
    PathBeforeMap,
    describe_path,
    parse_expression,
    paths_read_by,
)
from wdspec.spec.language.fetching import measured_objects, parse_url
from wdspec.spec.language.making import Chat, behind, names_in
from wdspec.spec.language.samples import fields_set_by
from wdspec.spec.problems import list_names
from wdspec.spec.rules.batches import EXPRESSIONS, list_measures
from wdspec.spec.rules.fields import all_right_sources, decoders_of, image_of
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import MapNode, Node, locate
from wdspec.urls.references import parse_place
from wdspec.urls.urls import scheme_of

_PLAIN = re.compile(r"[\w.]+")

_ROOTED = "dataset:\n  - {shards: a.tar, fetch: {image: {url: json.path, root: s3://bucket/images/}}}\n"


def _fetching(composition: Composition, *keys: str) -> Iterator[tuple[Draft, Source, MapNode]]:
    """The sources with a right `fetch`, and the map."""
    for leaf, source in all_right_sources(composition, "fetch", *keys):
        node = leaf.node.map_at("fetch") if source.fetch else None
        if node is not None:
            yield leaf, source, node


@rule(
    "E365",
    "data that choose what is read",
    "A reference comes from the data. Without `root` and `hosts`, a row could name a file of this machine, or a "
    "service in its network. `root` is the directory where references start; `hosts` lists what complete URLs may "
    "name.",
    keys="fetch",
    bad="dataset:\n  - {shards: a.tar, fetch: {image: json.url}}\n",
    good=_ROOTED,
)
def unbounded_references(composition: Composition) -> Findings:
    """Objects without a root and hosts."""
    for _, source, node in _fetching(composition):
        for name, entry in source.fetch.items():
            if entry.root is None and not any(map(_is_place, entry.hosts)):
                url = entry.url if _PLAIN.fullmatch(entry.url) else json.dumps(entry.url, ensure_ascii=False)
                written = f"{name}: {{url: {url}, "
                hint = f"write `{written}root: s3://bucket/images/}}`"
                if parse_url(entry.url).form is None or scheme_of(entry.url):
                    hint += f", or `{written}hosts: [cdn.example.org]}}`"
                message = f"`{name}` names neither `root` nor a host in `hosts`, so the data would choose what is read"
                yield Finding(node.value_or_self(name), message, hint)


def _is_place(entry: str) -> bool:
    """Whether an entry of `hosts` is a host or a bucket, and not a network."""
    return bool(parse_place(entry).scheme)


@rule(
    "W448",
    "a name that is nearly that of a fetched field",
    "`decode` names a field that is nearly one of `fetch`, which has no decoder, or the field with its references: the "
    "objects would arrive as bytes. Or an option of a step that samples may lack, such as `images` of `chat`, names a "
    "field that is nearly one of `fetch` or `make`: the step would find none.",
    keys="fetch make",
    bad=_ROOTED.replace("fetch: {image:", "decode: {photo: rgb8}, fetch: {photos:"),
    good=_ROOTED.replace("fetch: {image:", "decode: {photos: rgb8}, fetch: {photos:"),
)
def misspelt_objects(composition: Composition) -> Findings:
    """Fields in `decode` and in steps whose name is nearly that of another one."""
    keys = ("fetch", "decode", "extensions", "rename", "make", "lookup", "join", "tags")
    for leaf, source in all_right_sources(composition, *keys):
        decoded = {} if source.decode is None else source.decode.fields
        bare = [name for name in source.fetch if name not in decoded]
        read = {str(path[0]): name for name in source.fetch for path in source.fetch[name].origins}
        known = {*source.fetch, *source.rename, *(source.extensions or ()), *source.made_names}
        for name in decoded if bare else ():
            meant = read[name] if name in read and makes_media(decoded[name]) else name
            hint = did_you_mean(meant, bare, 0.8)
            if name not in known and hint:
                message = f"`decode` names `{name[:60]}`, but `{leaf.name}` fetches {list_names(bare)}"
                yield Finding(locate(leaf.node.value_or_self("decode"), (name,)), message, hint)
        columns = {name for each in source.lookup for name in each.names}
        columns |= {name for each in source.join for name in each.names}
        known |= {*decoded, *source.tags, *source.companions, *columns, *read}
        for made, recipe in source.make.items():
            others = sorted({*source.fetch, *source.made_names} - {made, *recipe.results})
            for path in sorted(recipe.optional, key=str):
                name = str(path[0])
                if name not in known and (hint := did_you_mean(name, others, 0.8)):
                    message = f"`{recipe.step}` names `{name[:60]}`, but `{leaf.name}` makes {list_names(others, 8)}"
                    yield Finding(locate(leaf.node.value_or_self("make"), (made,)), message, hint)


@rule(
    "W495",
    "fetched images that the conversation leaves out",
    "The source fetches images and decodes them, and `chat` makes the tokens of the conversation, but no `chat` names "
    "the images. Each placeholder is then one token, or the letters of its text, and the model does not know which "
    "image belongs where.",
    keys="fetch make",
    bad=_ROOTED.replace(
        "shards: a.tar,", "shards: a.tar, decode: {image: rgb8}, make: {ids: {chat: json, file: model}},"
    ),
    good=_ROOTED.replace(
        "shards: a.tar,",
        "shards: a.tar, decode: {image: rgb8}, make: {ids: {chat: json, file: model, images: image, "
        'image_token: "<image>", image_length: 256}},',
    ),
)
def images_without_tokens(composition: Composition) -> Findings:
    """Steps `chat` without images in sources that fetch some, and decode them."""
    for _, source, node in _fetching(composition, "decode", "make", "rename"):
        chats = [(name, step) for name, step in source.make.items() if isinstance(step, Chat)]
        images = [name for name in source.fetch if any(map(image_of, decoders_of(source, name)))]
        if images and chats and not any(step.images for _, step in chats):
            name, field = chats[0][0], images[0]
            hint = f'write `images: {field}`, `image_token: "<image>"` and `image_length` in `make: {name}`'
            message = f"`chat` of `{source.name}` names no images, and `fetch` makes {list_names(images)}"
            yield Finding(node.key_or_self(field), message, hint)


_CUT = (
    "batch: {{size: 4, collate: {{ids: {0}}}}}\ndataset:\n  - shards: a.tar\n    make:\n"
    '      ids: {{chat: json, file: model, images: jpg, image_token: "<image>", image_length: 256}}\n'
)


@rule(
    "W496",
    "conversations with images that are cut",
    "`limit` and `length` of `pad` cut the end of a conversation. That may leave fewer tokens than its images need, "
    "for which a model raises an error, or no token with a loss. Select the conversations that are short enough by "
    "`where`.",
    keys="make",
    bad=_CUT.format("{pad: {limit: 2048}}"),
    good=_CUT.format("pad"),
)
def cut_images(composition: Composition) -> Findings:
    """Tokens and labels of conversations with images that `collate` cuts."""
    batch = composition.spec.batch
    ways = {} if batch is None or batch.collate is None else batch.collate.fields
    limits = {name: way.padding.limit or way.padding.length for name, way in ways.items() if way.padding}
    seen = set[str]()
    for _, source in all_right_sources(composition, "fetch", "make", "where") if any(limits.values()) else ():
        read = paths_read_by(source.where, composition.spec.costs)
        measured = [source.make.get(str(path[0])) for path in read if path[-1] == "length"]
        for made, step in () if any(isinstance(each, Chat) for each in measured) else source.make.items():
            names = {made, step.labels} if isinstance(step, Chat) and step.images else set()
            found = sorted(
                name for name in names if name is not None and limits.get(name) and name not in seen
            )
            if found:
                seen.update(found)
                limit, node = limits[found[0]], composition.top.value_or_self("batch")
                is_fetched = not source.fetch.keys().isdisjoint(names_in(step))
                measuring = _measure_chat(made, source) if is_fetched else None
                step_first, length, single = measuring or ("", f"{made}.length", "")
                hint = f"{step_first}{', and ' * bool(step_first)}write `where: {length} <= {limit}`{single}"
                what = f"`pad` cuts conversations of more than {limit} tokens, and the tokens of their images"
                yield Finding(locate(node, ("collate", found[0])), what, hint)


@rule("E310", keys="secure")
def references_without_root(composition: Composition) -> Findings:
    """Objects without a root, with WDS_SECURE."""
    if not composition.variant.secure:
        return
    for _, source, node in _fetching(composition):
        for name, entry in source.fetch.items():
            if entry.root is None:
                message = (
                    f"`fetch: {name}` has no `root`, so the data choose a host, which WDS_SECURE=1 forbids"
                )
                hint = "write a `root`, or unset WDS_SECURE if you trust this spec and its data"
                yield Finding(node.key_or_self(name), message, hint)


@rule(
    "E387",
    "a time span that cannot be combined",
    "`seconds` makes a new file of what is in a time span. A range of bytes of the video is no video, and the "
    "digest of the object says nothing of a part of it.",
    keys="fetch",
    bad=_ROOTED.replace("url: json.path,", "url: json.path, seconds: [0, 2], sha256: json.hash,"),
    good=_ROOTED.replace("url: json.path,", "url: json.path, seconds: [0, 2],"),
)
def spans_of_parts(composition: Composition) -> Findings:
    """Time spans beside `bytes` and `sha256`."""
    for _, source, node in _fetching(composition):
        for name, entry in source.fetch.items():
            for key, value in (("bytes", entry.span), ("sha256", entry.sha256)):
                if entry.seconds is not None and value is not None:
                    message = f"`{key}` is about bytes of the object, and `seconds` makes a new file of a part of it"
                    yield Finding(locate(node, (name, key)), message, f"remove `{key}`, or `seconds`")


@rule(
    "E366",
    "a fetched field with a name that is taken",
    "Each entry of `fetch` makes a new field. Files of the shards, columns of tables, other fields that are made and "
    "tags must have other names.",
    keys="fetch",
    bad="dataset:\n  - {shards: a.tar, extensions: jpg json, fetch: {jpg: {url: json.path, root: s3://b/}}}\n",
    good="dataset:\n  - {shards: a.tar, extensions: json, fetch: {jpg: {url: json.path, root: s3://b/}}}\n",
)
def taken_by_objects(composition: Composition) -> Findings:
    """Names of `fetch` that other keys use."""
    for _, source, node in _fetching(composition, "extensions", "rename", "lookup", "make", "tags", "join"):
        files = {each.lower() for entry in source.extensions or () for each in entry.split(";")}
        columns = {name for each in source.lookup for name in each.names}
        columns |= {name for each in source.join for name in each.names}
        for name in source.fetch:
            key = next(
                (
                    key
                    for key, names in {
                        "extensions": files,
                        "rename": {*source.rename},
                        "lookup` or `join": columns,
                        "make": {*source.made_names},
                        "tags": {*source.tags},
                    }.items()
                    if (name.lower() if key == "extensions" else name) in names
                ),
                None,
            )
            if key is not None:
                hint = "choose another name for one of them"
                if key == "extensions":
                    hint = "remove it from `extensions`, which lists the files in the shards"
                yield Finding(node.key_or_self(name), f"`{key}` has the field `{name}`, too", hint)


@rule(
    "E367",
    "an object that is needed before it is fetched",
    "Samples are selected and measured first, and then wdspec fetches the objects of those that are needed. So "
    "`where`, `subset`, `keys_of`, `join` and `lookup` cannot read a field of `fetch`. The expressions of `batch` can "
    "read the `width`, `height`, `pixels`, `aspect` and `bucket` of an image, which the start of the object says, but "
    "no other value, and none of a part of an object. Use a column that has the value.",
    keys="fetch",
    bad=_ROOTED.replace("shards: a.tar,", "shards: a.tar, where: image.width > 256,"),
    good=_ROOTED.replace("shards: a.tar,", "shards: a.tar, where: json.width > 256,"),
)
def objects_in_expressions(composition: Composition) -> Findings:
    """Expressions that read a fetched field, or one that is made of it."""
    spec = composition.spec
    later = () if "map" in composition.bad else spec.map
    measures = list(list_measures(composition)) if composition.keys & {*EXPRESSIONS.split(), "pack"} else []
    for leaf, source, node in _fetching(
        composition, "where", "subset", "keys_of", "join", "lookup", "make", "rename", "map"
    ):
        late = {new for new, olds in source.rename.items() if not source.fetch.keys().isdisjoint(olds)}
        late |= source.fetch.keys()
        late |= {
            made
            for made in source.made_names
            if any(not late.isdisjoint(names_in(source.make[each])) for each in behind(source.make, [made]))
        }
        set_by = fields_set_by(source.map, source.tags, later)
        of = None if source.subset is None else source.subset.of
        early = [("where", source.where), ("keys_of", source.keys_of), ("subset", of)]
        texts = [(leaf.node.value_or_self(key), text, key) for key, text in early if text]
        for key, entries in (("join", source.join), ("lookup", source.lookup)):
            on = (str(each.on) for each in entries if each.on not in (None, "__key__"))
            texts += [(leaf.node.value_or_self(key), text, key) for text in on]
        texts += [(locate(node, (name,)), text, "fetch") for name, text in _texts_of(source)]
        for at, text, key in texts:
            yield from _find_late(at, text, late, frozenset(), source, spec.costs, key)
        for at, text in measures:
            yield from _find_late(at, text, late, set_by, source, spec.costs, "cost", has_headers=True)


def _texts_of(source: Source) -> Iterator[tuple[str, str]]:
    """What the entries of `fetch` read."""
    for name, entry in source.fetch.items():
        yield from ((name, describe_path(path)) for path in entry.origins)


def _find_late(
    at: Node,
    text: str,
    late: Iterable[str],
    from_map: frozenset[str],
    source: Source,
    named: dict[str, str],
    key: str,
    has_headers: bool = False,
) -> Findings:
    """Find what an expression reads of objects too early.

    Args:
        key: what the expression is written for.
        has_headers: whether the headers of images are read before it is evaluated.
    """
    try:
        paths = parse_expression(text, named).paths
    except ExpressionError:  # E330
        return
    measured = measured_objects(source.fetch, source.rename, paths) if has_headers else {}
    for path in paths:
        name = str(path[0])
        if name not in late or (name in from_map and not isinstance(path, PathBeforeMap)) or path in measured:
            continue
        if ":" in text:
            return
        own = source.fetch.get(name)
        if own is not None and any(each[0] == name for each in parse_url(own.url).paths):
            hint = f"`{name}` is both what samples have and what `fetch` makes; give the latter another name"
            yield Finding(at, f"`{describe_path(path)}` is known only when the object is fetched", hint)
            continue
        url = next(
            (each.url for key, each in source.fetch.items() if name in (key, *source.rename)), "json.path"
        )
        whole, form = parse_url(url)
        holder = next((each[:1] for each in whole if len(each) > 1), ())
        if path[1:] == ("length",) and form is None:  # the number of objects in a list
            holder = whole[0]
        beside = (*holder, *path[1:])
        is_made = not any(name in (key, *source.rename) for key in source.fetch)
        column = describe_path(beside) if not is_made and path[1:] and isinstance(path[1], str) else ""
        hint = "use a value that the samples have instead" + (f", such as `{column}`" if column else "")
        if has_headers and own is not None and path[1:] == ("length",) and form is None:
            hint += f"; of an image, `{name}.pixels`, `{name}.width` and `{name}.height` are known"
        if (measuring := _measure_chat(name, source)) is not None:
            step, length, single = measuring
            written = rf"(?<![\w.]){re.escape(describe_path(path))}(?!\w)"
            tokens = length if re.match(rf"{written}\s*([<>]|$)", text) else f"({length})"
            parts = re.split(written, text)
            new = tokens.join(parts) if len(parts) > 1 else length
            hint = f"{step}, and write `{key}: {new}`{single}"
        yield Finding(at, f"`{describe_path(path)}` is known only when the object is fetched", hint)


def _measure_chat(name: str, source: Source) -> tuple[str, str, str] | None:
    """Return how to measure the tokens of a chat before its images are fetched: the step to add, the expression, and
    what differs for single images.

    Args:
        name: the field with its tokens or labels; None is returned for others.
    """
    for made, each in source.make.items():
        if isinstance(each, Chat) and each.images and name in (made, each.labels):
            images = (each.images,) if isinstance(each.images, str) else each.images
            cost, size, single = ["text_ids.length"], each.image_length, ""
            if isinstance(size, str):
                cost, size = [*cost, size], 1
            for key in images if size > 1 else ():
                if (entry := source.fetch.get(key)) is None:
                    cost.append(f"{size - 1}")
                    continue
                written = describe_path(parse_url(entry.url).paths[0])
                may_lack = (entry.missing or source.missing) != "error"
                number = f"default({written}.length, 0)" if may_lack else f"{written}.length"
                one = f"(default({written}, none) != none)" if may_lack else "1"
                cost.append(f"{size - 1} * {number}")
                single = f"; where a sample has one image, not a list, `{one}` in place of `{number}`"
            left_out = [key for key in each.model_fields_set if key.startswith(("image", "labels", "loss"))]
            step = (
                f"measure its text, and the number of its images: add `text_ids: {{chat: {each.chat}, …}}` to `make`, "
                f"with the same options but {list_names(sorted(left_out), 9)}, and `allow_special: true` if the "
                f"messages have `{each.image_token}` as text"
            )
            return step, " + ".join(cost), single
    return None
