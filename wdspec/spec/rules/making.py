"""Rules for `make`: fields that cannot be made, and what would silently replace them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from wdspec.base.amounts import show_value
from wdspec.base.errors import SpecError, install_command
from wdspec.spec.build import Composition
from wdspec.spec.language.class_files import add_aliases, numbers_of
from wdspec.spec.language.decoder_options import GEOMETRY
from wdspec.spec.language.decoders import (
    BY_NAME,
    EXTRAS,
    FORMAT_OF,
    RAW,
    is_installed,
    reads_header,
    split_decoder,
)
from wdspec.spec.language.expressions import (
    Path,
    PathBeforeMap,
    describe_path,
    parse_expression,
    paths_read_by,
    suggest_path,
)
from wdspec.spec.language.making import (
    Chat,
    Crop,
    Label,
    MaskTokens,
    Recipe,
    Segment,
    Tokenize,
    behind,
    hint_of,
    in_order,
    names_in,
    names_made,
)
from wdspec.spec.language.samples import Call, fields_set_by
from wdspec.spec.problems import list_names
from wdspec.spec.rules.batches import EXPRESSIONS, list_measures
from wdspec.spec.rules.fields import (
    MAGIC,
    all_right_sources,
    decoders_of,
    files_of,
    right_sources,
    visible_fields,
)
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.spec import Source
from wdspec.spec.tree import MapNode, Node, is_null, locate

_KEYS = ("make", "extensions", "rename", "tags", "lookup", "map")


def makes_of(composition: Composition, is_mixed: bool = False) -> Iterator[tuple[Draft, Source, MapNode]]:
    """The sources with a right `make`, and the map.

    Args:
        is_mixed: whether to leave out those of companions.
    """
    for leaf, source in (right_sources if is_mixed else all_right_sources)(composition, *_KEYS):
        node = leaf.node.map_at("make") if source.make else None
        if node is not None:
            yield leaf, source, node


@rule(
    "E370",
    "a field that cannot be made",
    "Each entry of `make` makes a new field from one that samples have, or from one that another entry makes, but not "
    "in a circle. The new name must not be that of another field: `text.length` would be the number of characters in "
    "one place and of tokens in another. Steps that change images or recordings need them decoded.",
    keys="make",
    bad="dataset:\n  - {shards: a.tar, make: {cls: {label: cls, names: [cat, dog]}}}\n",
    good="dataset:\n  - {shards: a.tar, make: {class_id: {label: cls, names: [cat, dog]}}}\n",
)
def unmakeable_fields(composition: Composition) -> Findings:
    """Names that are taken, circles, and fields that no sample has."""
    for leaf, source, node in makes_of(composition):
        known = visible_fields(source.model_copy(update={"make": {}, "tags": {}, "map": ()}))
        columns = [name for lookup in source.lookup for name in lookup.names]
        taken = {*(known or ()), *source.rename, *columns, *source.tags}
        made, ordered = Counter(source.made_names), in_order(source.make)
        for name, recipe in source.make.items():
            at = node.value_or_self(name)
            for new in (name, *recipe.results):
                where, hint = (node.key_or_self(name) if new == name else at), "choose another name"
                if new in names_in(recipe):
                    message = f"`{new}` would be made from itself, and its origin keeps its name"
                    yield Finding(where, message, f"{hint}{_advise_dotted(new, recipe)}")
                elif new in taken:
                    place = "`tags`" if new in source.tags else f"samples of `{leaf.name}`"
                    yield Finding(where, f"there is another field `{new}` in {place}", hint)
                elif made[new] > 1:
                    yield Finding(where, f"`{new}` is made twice", f"{hint} for one of them")
            if name not in ordered and name in behind(source.make, names_in(recipe) - {name}):
                others = sorted(behind(source.make, [name]) - {name})
                hint = "make one of them from a field of the samples"
                yield Finding(at, f"`{name}` is made from itself, through {list_names(others)}", hint)
            for path in recipe.origins:
                is_known = path[0] in made or path[0] in source.companions or str(path[0]).startswith("__")
                if not is_known and path not in recipe.optional:
                    yield from _find_no_origin(at, path, (leaf, source), known, name)
            if (recipe.makes_media or recipe.mixes) and not isinstance(recipe, Segment):
                for path in dict.fromkeys(recipe.origins):
                    yield from _find_encoded(at, path, (leaf, source), composition, recipe.step)


def _advise_dotted(new: str, recipe: Recipe) -> str:
    """How to read a file such as `label.txt` where the field `label` is made from it; empty if it is none."""
    for path in recipe.origins:
        file = ".".join(map(str, path))
        if path[0] == new and len(path) > 1 and file == describe_path(path):  # no places of lists
            named = f"`rename: {{file_{new}: {file}}}`, and make `{new}` from `file_{new}`"
            return f"; if `{file}` is a file of the samples, write {named}"
    return ""


def _find_no_origin(
    at: Node, path: Path, of: tuple[Draft, Source], known: Sequence[str] | None, made: str
) -> Findings:
    """What a field is made from, if samples surely do not have it."""
    origin, (leaf, source) = str(path[0]), of
    name, recipe = leaf.name, source.make[made]
    renamed = next((new for new, olds in source.rename.items() if origin in olds), None)
    if origin in source.rename or (origin not in source.tags and renamed is None and known is None):
        return
    mine = (made, *recipe.results)
    fields = [*(known or ()), *(each for each in source.made_names if each not in mine)]
    if origin in source.tags:
        what, hint = "`tags` are added later", "make it from a field of the samples"
    elif renamed is not None:
        what = f"`rename` of `{name}` makes it `{renamed}`"
        hint = f"write `{recipe.step}: {describe_path((renamed, *path[1:]))}`"
    elif known is not None and origin not in known:
        what = f"samples of `{name}` have {list_names(fields, 8)}"
        others = {*known} - {str(each[0]) for recipe in source.make.values() for each in recipe.origins}
        hint = f"write `rename: {{{origin}: {others.pop()}}}` in `{name}`" if len(others) == 1 else ""
        hint = suggest_path(path, fields, source.rename) or hint or "use the name of an existing field"
    else:
        return
    yield Finding(at, f"there is no field `{origin[:60]}` to make it from: {what}", hint)


def _find_encoded(
    at: Node, path: Path, of: tuple[Draft, Source], composition: Composition, step: str
) -> Findings:
    """An image or a recording that a step needs, and that stays a file."""
    leaf, source = of
    owner, (field, *rest) = source, map(str, path)
    if field in source.companions and rest:
        named = source.companions[field].source
        found = [(each, own) for each, own in composition.models if own.name == named]
        leaf, owner = found[0] if len(found) == 1 else of
        field, *rest = rest if len(found) == 1 else ("", "")
    if rest or field in owner.make or leaf.bad & {"decode", "scale"}:
        return
    for file, decoder in files_of(owner, field):
        ending = file.lower().rpartition(".")[2]
        medium = "rgb8" if ending in FORMAT_OF else "audio" if ending in BY_NAME["audio"].extensions else ""
        is_rescaled = medium == "rgb8" and owner.scale is not None and decoder is None
        if decoder in (None, RAW) and medium and not is_rescaled and ending not in ("image", "audio"):
            what = f"`{step}` needs `{describe_path(path)}` decoded, and it is the bytes of a file"
            hint = f"write `decode: {{{field}: {medium}}}` in `{owner.name}`"
            if owner.decode is not None and owner.decode.fields:
                hint = f"add `{field}: {medium}` to `decode` of `{owner.name}`"
            yield Finding(at, what, hint)
            return


@rule("W102", keys="make")
def defaults_of_null(composition: Composition) -> Findings:
    """`default: null`, which is no default, since null leaves a key out. Next to an inherited step, it removes one."""
    for leaf, source, _ in makes_of(composition):
        own = leaf.own.map_at("make")
        for name, recipe in source.make.items():
            step = None if own is None else own.map_at(name)
            if step is not None and recipe.step in step.entries and is_null(step.value_or_self("default")):
                message = f"`default: null` of `{name[:60]}` has no effect: null leaves a key out"
                hint = "write `missing: none` in the source to get None"
                yield Finding(step.key("default"), message, hint if recipe.step == "take" else "remove it")


@rule(
    "W440",
    "a file of a step that is not here",
    "A step of `make` names a file or a folder on this machine that does not exist: a tokenizer, a chat template or "
    "the names of classes. Paths are relative to the spec. Reading raises an error. If the spec is only read "
    "elsewhere, ignore this warning. Of a file that exists, only `eos`, `mask_token` and `image_token` are looked up "
    "(E385); `wdspec explain` loads it.",
    keys="make",
    bad="dataset:\n  - {shards: a.jsonl, make: {ids: {tokenize: text, file: missing/tokenizer.json}}}\n",
    good="dataset:\n  - {shards: a.jsonl, make: {class_id: {label: topic, names: [news, science]}}}\n",
)
def absent_files(composition: Composition) -> Findings:
    """Local files of steps that do not exist, each once."""
    seen = set[str]()
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            for option, path in recipe.files.items():
                if path in seen or "://" in path:
                    continue
                seen.add(path)
                local, key = os.path.expanduser(path), "file" if option == "folder" else option
                at = node.value_or_self(name)
                at = at.value_or_self(key) if isinstance(at, MapNode) else at
                what, hint = "does not exist", "correct the path, which is relative to the spec"
                if os.path.isdir(local) and key == "file" and recipe.step != "label":
                    what = "has no tokenizer.json"
                    hint = f"write it: `AutoTokenizer.from_pretrained({path!r}).save_pretrained({path!r})`"
                    local = os.path.join(local, "tokenizer.json")
                if not os.path.lexists(local):
                    yield Finding(at, f"`{path}` of `{recipe.step}` {what}", hint)


@rule("E203", keys="make")
def unusable_classes(composition: Composition) -> Findings:
    """Files of classes that cannot be used, and aliases of names that are no class of their file."""
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            if isinstance(recipe, Label) and recipe.file is not None and os.path.lexists(recipe.file):
                key = "file"
                try:
                    numbers, key = numbers_of(None, recipe.file), "aliases"
                    add_aliases(numbers, recipe.aliases, recipe.file)
                except SpecError as error:
                    yield Finding(locate(node, (name, key)), error.message)


@rule(
    "W461",
    "images of one token each",
    "Without `image_length`, `chat` writes one token for each image. Most models need one for each of its patches, as "
    "their processor writes them, and fail, or do not see the whole image, if there are fewer. Write this number, or "
    "`image_length: 1` if the model itself puts all patches in the place of one token.",
    keys="make",
    bad="dataset:\n"
    "  - {shards: a.tar, make: {ids: {chat: json, file: model, images: jpg, image_token: <image>}}}\n",
    good="dataset:\n"
    "  - shards: a.tar\n"
    "    make: {ids: {chat: json, file: model, images: jpg, image_token: <image>, image_length: 256}}\n",
)
def images_of_one_token(composition: Composition) -> Findings:
    """Conversations with images whose number of tokens is not written."""
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            if isinstance(recipe, Chat) and recipe.images and "image_length" not in recipe.model_fields_set:
                hint = "write `image_length: 256` with the number of your model, or `image_length: 1` if this is meant"
                yield Finding(locate(node, (name, "images")), "one token stands for each image", hint)


@rule(
    "E378",
    "labels padded with a token",
    "Labels have -100 where there is no loss. Packed rows and `pad` are filled with 0 by default, so the model would "
    "learn to write token 0 after each row, or class 0 for what is padded.",
    keys="make",
    bad="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {pack: {fields: [ids, labels], length: 512}}\n",
    good="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {pack: {fields: [ids, labels], length: 512, pad: {labels: -100}}}\n",
)
def padded_labels(composition: Composition) -> Findings:
    """Labels of steps that are packed or padded without a value for what is filled."""
    batch = composition.spec.batch
    labels = _labels_in(composition)
    if batch is None or not labels or "batch" not in composition.top.entries:
        return
    node = composition.top.entries["batch"].value
    for name in labels:
        if batch.pack is not None and name in batch.pack.fields and name not in batch.pack.pad:
            hint = f"write `pad: {{{name}: -100}}` in `pack`"
            yield Finding(locate(node, ("pack",)), f"`{name}` has labels, and rows are filled with 0", hint)
        way = batch.collate.fields.get(name) if batch.collate is not None else None
        if way is not None and way.padding is not None and "value" not in way.padding.model_fields_set:
            hint = f"write `{name}: {{pad: {{value: -100}}}}`"
            yield Finding(locate(node, ("collate", name)), f"`{name}` has labels, and is filled with 0", hint)


def _labels_in(composition: Composition) -> list[str]:
    """The fields with labels: those that steps make beside their ids, and the classes of `label`."""
    made = makes_of(composition, is_mixed=True)
    pairs = (pair for _, source, _ in made for pair in source.make.items())
    names = {name if isinstance(step, Label) else getattr(step, "labels", None) for name, step in pairs}
    return sorted(filter(None, names))


@rule(
    "W446",
    "labels padded with a class",
    "Losses leave out labels of -100. Any label from 0 on is the number of a token or a class, which the model then "
    "learns to predict for the padding. If your loss leaves out this number, as with `ignore_index=0`, it also leaves "
    "out the tokens of that number.",
    keys="make",
    bad="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {size: 8, collate: {ids: pad, labels: {pad: {value: 0}}}}\n",
    good="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {size: 8, collate: {ids: pad, labels: {pad: {value: -100}}}}\n",
)
def labels_padded_with_classes(composition: Composition) -> Findings:
    """Labels of steps whose padding is written as a number that is a token or a class."""
    for name, value, at in paddings_of(composition, _labels_in(composition)):
        if value >= 0:
            hint = "write -100, which losses leave out"
            yield Finding(at, f"`{name}` has labels, and its padding {value} is one, too", hint)


@rule(
    "W456",
    "names that get a number of no class, and are not left out",
    "`unknown: -1` is for `where: class_id >= 0`, which leaves out the samples whose name is no class. Without it, "
    "they are delivered with this number, for which losses fail, on a GPU with an error that does not say why. Losses "
    "leave out -100. If yours leaves out another number, as with `ignore_index=-1`, write `unknown: -100` for both. A "
    "name with a negative number in `names` is no class either; with `unknown: -100`, -100 may be meant.",
    keys="make",
    bad="dataset:\n  - {shards: a.jsonl, make: {class_id: {label: topic, names: [news, science], unknown: -1}}}\n",
    good="dataset:\n"
    "  - shards: a.jsonl\n"
    "    make: {class_id: {label: topic, names: [news, science], unknown: -1}}\n"
    "    where: class_id >= 0\n",
)
def unknown_names_left_in(composition: Composition) -> Findings:
    """Steps `label` whose `unknown` is below 0, but not -100, if no selection reads the field or its names."""
    spec = composition.spec
    fields = spec.fields or spec.to_tuple
    for leaf, source, node in makes_of(composition, is_mixed=True) if not spec.map else ():
        read = {str(path[0]) for path in paths_read_by(source.where, spec.costs)}
        for name, step in source.make.items() if not source.selects and not source.map else ():
            known = {name, *(str(path[0]) for path in step.origins)}
            if not isinstance(step, Label) or (fields is not None and name not in fields) or known & read:
                continue
            if step.unknown != "error" and -100 != step.unknown < 0:
                at = locate(node, (name, "unknown"))
                message = f"names that are no class get {step.unknown}, for which losses fail"
                hint = f"write `unknown: -100`, which losses leave out, or add `where: {name} >= 0` to `{leaf.name}`"
                yield Finding(at, message, hint)
            elif (no_class := _find_no_class(step)) is not None:
                at = locate(node, (name, "names" if step.file is None else "file"))
                message = f"{show_value(no_class, 60)} is no class, but samples of it are delivered"
                yield Finding(at, message, f"add `where: {name} >= 0` to `{leaf.name}`, or give it a class")


def _find_no_class(step: Label) -> str | None:
    """The first name with a negative number that is not one which `unknown` gives on purpose; None if there is none.

    A list of names, such as those of objects, may have -100 for some of them.
    """
    allowed = {step.unknown, -100 if "[" in describe_path(step.origins[0]) else None}
    with suppress(SpecError):  # W440 says that a file does not exist
        numbers = numbers_of(step.names, step.file)
        return next((name for name, number in numbers.items() if number < 0 and number not in allowed), None)
    return None


@rule(
    "W449",
    "token ids padded with a number that is no token",
    "An embedding has a row for each token, and fails for a negative number, on a GPU with an error that does not say "
    "why. So it does for a number above those of the tokenizer, such as 50256, the end of text of GPT-2, with a "
    "smaller one. -100 is for labels, which losses leave out.",
    keys="make",
    bad="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {tokenize: text, file: model}}}\n"
    "batch: {size: 8, collate: {ids: {pad: {value: -100, mask: mask}}}}\n",
    good="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {tokenize: text, file: model}}}\n"
    "batch: {size: 8, collate: {ids: {pad: {value: 0, mask: mask}}}}\n",
)
def ids_padded_with_no_token(composition: Composition) -> Findings:
    """Token ids whose padding is written as a negative number, if they have labels or a mask, or are packed alone.

    Others may be labels themselves, such as the captions that a model learns to write.
    """
    batch = composition.spec.batch
    ways = {} if batch is None or batch.collate is None else batch.collate.fields
    inputs = {name for name, way in ways.items() if way.padding is not None and way.padding.mask is not None}
    inputs |= (
        {*batch.pack.fields} if batch is not None and batch.pack and len(batch.pack.fields) == 1 else set()
    )
    made = makes_of(composition, is_mixed=True)
    recipes = [pair for _, source, _ in made for pair in source.make.items()]
    steps = [(name, recipe) for name, recipe in recipes if isinstance(recipe, (Tokenize, Chat, MaskTokens))]
    names = {name for name, recipe in steps if name in inputs or recipe.labels is not None}
    for name, value, at in paddings_of(composition, sorted(names)):
        if value < 0:
            hint = "write the id of the tokenizer's padding token, or leave the value out for 0"
            yield Finding(at, f"`{name}` has token ids, and its padding {value} is none", hint)


def paddings_of(composition: Composition, names: Iterable[str]) -> Iterator[tuple[str, float, Node]]:
    """The fields for which a padding is written, with its value and its place."""
    batch = composition.spec.batch
    if batch is None or "batch" not in composition.top.entries:
        return
    node = composition.top.entries["batch"].value
    for name in names:
        if batch.pack is not None and (value := batch.pack.pad.get(name)) is not None:
            yield name, value, locate(node, ("pack", "pad", name))
        way = None if batch.collate is None else batch.collate.fields.get(name)
        if way is not None and way.padding is not None and "value" in way.padding.model_fields_set:
            yield name, way.padding.value, locate(node, ("collate", name))


_PLACES = ("side", "length", "limit", "multiple")
"""The options of `pad` that decide at which place of a row a value is."""


@rule(
    "E390",
    "ids and labels at different places",
    "A label belongs to the token at the same place of the row. If ids and labels are padded on different sides or cut "
    "to different lengths, each label is next to another token. `side`, `length`, `limit` and `multiple` must be the "
    "same for both. If only one of them is packed, the other is a list of whole arrays beside rows of many samples.",
    keys="make",
    bad="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {size: 8, collate: {ids: {pad: left}, labels: {pad: {value: -100}}}}\n",
    good="dataset:\n"
    "  - {shards: a.jsonl, make: {ids: {chat: messages, file: model, labels: labels}}}\n"
    "batch: {size: 8, collate: {ids: {pad: left}, labels: {pad: {value: -100, side: left}}}}\n",
)
def misplaced_results(composition: Composition) -> Findings:
    """Further results of a step, such as labels, that are padded or packed in another way than its ids."""
    batch, spec = composition.spec.batch, composition.spec
    if batch is None or "batch" not in composition.top.entries:
        return
    node, ways = composition.top.entries["batch"].value, {} if batch.collate is None else batch.collate.fields
    pairs = {
        (name, new, new == getattr(recipe, "labels", None))
        for _, source, _ in makes_of(composition, is_mixed=True)
        for name, recipe in source.make.items()
        if not isinstance(recipe, Crop)
        for new in recipe.results
    }
    packed = () if batch.pack is None or any(call.field is None for call in spec.map) else batch.pack.fields
    kept = spec.fields or spec.to_tuple
    for name, new, has_labels in sorted(pairs):
        absent = {name, new}.difference(packed, ways, () if kept is None else {name, new}.difference(kept))
        if absent and not absent.issuperset((name, new)) and not {name, new}.isdisjoint(packed):
            what = f"`{new}` belongs to `{name}`, but only `{name if new in absent else new}` is packed"
            hint = f"write `fields: [{', '.join((*packed, *absent))}]`"
            if new in absent and has_labels:
                hint += f" and `pad: {{{new}: -100}}`"
            yield Finding(locate(node, ("pack", "fields")), what, f"{hint} in `pack`")
        one, other = (ways[each].padding if each in ways else None for each in (name, new))
        if one is None or other is None:
            continue
        wrong = [key for key in _PLACES if getattr(one, key) != getattr(other, key)]
        if wrong:
            own = other.model_dump(exclude=set(_PLACES), exclude_unset=True)
            right = one.model_dump(include=set(_PLACES), exclude_defaults=True)
            options = {**({"value": -100} if has_labels else {}), **own, **right}
            written = ", ".join(f"{key}: {value}" for key, value in options.items())
            what = f"`{new}` belongs to `{name}`, but is padded with another {list_names(wrong)}"
            yield Finding(locate(node, ("collate", new)), what, f"write `{new}: {{pad: {{{written}}}}}`")


@rule(
    "E377",
    "copies with other random values",
    "A pass with `repeat` or `reshuffle` plans what it reads from what it counts once. A field that a step draws, such "
    "as one of several captions, has another value in each copy of a sample and in each epoch, so a selection or a "
    "cost that reads it would choose or measure them in another way than they were counted.",
    keys="pass",
    bad="epoch: pass\ndataset:\n"
    "  - {shards: a.jsonl, repeat: 2, where: text.length > 9, make: {text: {choose: [a, b]}}}\n",
    good="epoch: pass\ndataset:\n"
    "  - {shards: a.jsonl, repeat: 2, where: a.length > 9, make: {text: {choose: [a, b]}}}\n",
)
def counted_draws(composition: Composition) -> Findings:
    """Selections and costs that read a field that is drawn, in a pass with copies or several epochs."""
    spec = composition.spec
    measured = spec.batch.expressions if spec.batch and spec.batch.has_windows else ()
    for leaf, source, node in makes_of(composition, is_mixed=True):
        again = "copy of a sample (`repeat`)" if source.copies > 1 else "epoch (`reshuffle`)"
        for text in (*source.selecting_texts, *measured) if source.copies > 1 or spec.reshuffles else ():
            paths = paths_read_by(text, spec.costs)
            names = [str(path[0]) for path in paths if not _is_measured(source, path)]
            read = behind(source.make, names)
            drawn = next((name for name in source.make if name in read and source.make[name].draws), None)
            if drawn is not None:
                what = f"`{text}` reads `{drawn}`, which is drawn anew for each {again}"
                remove = f"`repeat` of `{leaf.name}`" if source.copies > 1 else "`reshuffle`"
                hint = f"let it read what `{drawn}` is made from, or remove {remove}"
                yield Finding(node.value_or_self(drawn), what, hint)
                break


def _is_measured(source: Source, path: Path) -> bool:
    """Whether a value of a made field is read from what it is made from, without making it."""
    recipe = source.make.get(str(path[0]))
    return recipe is not None and recipe.measure(path[1:]) is not None


@rule(
    "W455",
    "a result of a step that nothing reads",
    "Some steps make further fields beside their own, such as `labels` of `chat` or `kept` of `crop`. If `fields` or "
    "`to_tuple` leaves one out and nothing reads it, it is made for nothing, and often needed: with `kept`, `crop` "
    "drops boxes outside the crop, so that the labels of boxes match them only if `kept` says which are left. If a "
    "further field is delivered, but not that of the step, it belongs to nothing: the boxes of a crop do not match the "
    "image from which it is taken.",
    keys="fields to_tuple",
    bad="fields: [image, boxes, classes]\n"
    "dataset:\n"
    "  - shards: a.jsonl\n"
    "    decode: {picture: rgb8}\n"
    "    make: {image: {crop: picture, size: 224, boxes: {boxes: bboxes}, kept: kept}}\n",
    good="fields: [image, boxes, classes, kept]\n"
    "dataset:\n"
    "  - shards: a.jsonl\n"
    "    decode: {picture: rgb8}\n"
    "    make: {image: {crop: picture, size: 224, boxes: {boxes: bboxes}, kept: kept}}\n",
)
def unread_results(composition: Composition) -> Findings:
    """Further results of steps whose other fields are delivered or read, unless user functions may read them."""
    spec, batch = composition.spec, composition.spec.batch
    delivered = {name for each in spec.to_tuple or spec.fields or ("*",) for name in each.split(";")}
    whole = [call for call in spec.map if call.field is None] or spec.map_batches or spec.stage
    is_unknown = bool(composition.bad & {"fields", "to_tuple", "map", "batch", "costs"})
    is_unknown = is_unknown or any(MAGIC.intersection(name) for name in delivered)
    if whole or is_unknown or (batch is not None and batch.is_by_function):
        return
    texts = batch.expressions if batch is not None and batch.has_windows else ()
    packed = batch.pack.fields if batch is not None and batch.pack is not None else ()
    for leaf, source, node in makes_of(composition, is_mixed=True):
        calls = (*spec.map, *source.map)
        if (
            source.select
            or any(call.field is None for call in calls)
            or leaf.bad & {"where", "subset", "keys_of"}
        ):
            continue
        paths = (
            path for text in (*texts, *source.selecting_texts) for path in paths_read_by(text, spec.costs)
        )
        expected = () if source.expect is None else source.expect.fields
        read = {
            *delivered,
            *packed,
            *expected,
            *(call.field for call in calls),
            *(str(path[0]) for path in paths),
        }
        used = behind(source.make, filter(None, read))
        shown = {*delivered, *packed}
        beyond = _origins_behind(source, shown)
        read |= _origins_behind(source, used)
        key = "to_tuple" if spec.to_tuple else "fields"
        for name in sorted(used):
            recipe = source.make[name]
            others = [new for new in recipe.results if new in shown | beyond]
            if name not in read and others:
                origin = getattr(recipe, recipe.step)
                what = f"nothing delivers or reads `{name}`, to which {list_names(others)} of `{recipe.step}` belong"
                hint = f"write `{name}` in place of `{origin}` in" if origin in shown else "add it to"
                yield Finding(locate(node, (name,)), what + "s" * (len(others) == 1), f"{hint} `{key}`")
            for result in recipe.results:
                is_kept = isinstance(recipe, Crop) and result == recipe.kept
                if result not in read and not (is_kept and delivered <= {name, *recipe.results}):
                    yield _describe_unread(locate(node, (name,)), result, recipe, is_kept, key)


def _origins_behind(source: Source, names: Iterable[str]) -> set[str]:
    """The fields from which some fields are made, directly or through others."""
    return {origin for name in behind(source.make, names) for origin in names_in(source.make[name])}


def _describe_unread(at: Node, result: str, recipe: Recipe, is_kept: bool, key: str) -> Finding:
    option = next((key for key in type(recipe).model_fields if getattr(recipe, key) == result), "")
    what, hint = f"nothing delivers or reads `{result}`", f"add it to `{key}`, or remove it"
    if is_kept:
        what += (
            ", and boxes outside the crop are dropped: fields with an item for each box no longer match them"
        )
        hint = (
            f"add it to `{key}`, and take the labels by `labels[{result}]`; or remove it, and all boxes stay"
        )
    return Finding(at.value_or_self(option), what, hint)


@rule(
    "E395",
    "a crop of an image that is changed before",
    "`crop` moves boxes, points and masks as it moves the image. If `decode`, `scale` or another `crop` has already "
    "flipped, resized, cropped or turned the image, they no longer match.",
    keys="make",
    bad="dataset:\n"
    "  - shards: a.tar\n"
    "    decode: {jpg: rgb8+hflip=0.5}\n"
    "    make: {image: {crop: jpg, size: 224, boxes: {boxes: json.boxes}}}\n",
    good="dataset:\n"
    "  - shards: a.tar\n"
    "    decode: {jpg: rgb8}\n"
    "    make: {image: {crop: jpg, size: 224, hflip: 0.5, boxes: {boxes: json.boxes}}}\n",
)
def crops_of_changed_images(composition: Composition) -> Findings:
    """Boxes, points and masks that are not changed as the image was before `crop`."""
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            found = _find_changed(source, recipe) if isinstance(recipe, Crop) else None
            if found is not None:
                yield Finding(node.value_or_self(name), *found)


def _find_changed(source: Source, recipe: Crop) -> tuple[str, str] | None:
    """Return what changes an image before `crop`, but not what belongs to it, and what to do about it."""
    image, *others = (str(path[0]) for path in recipe.origins)
    home = dict(names_made(source.make))
    earlier = source.make.get(home.get(image, ""))
    for place, other in enumerate(others):
        if isinstance(earlier, Crop):
            if home.get(other) != home[image]:
                hint = f"make one crop of `{earlier.crop}`, with all that belongs to it"
                return f"`{image}` is a crop, and `{other}` is not from the same one", hint
            continue
        before = changes_before(source, image, other if place < len(recipe.masks) else None, recipe.relative)
        if before:
            hint = "remove it there: `size`, `scale`, `ratio` and `hflip` of `crop` change both"
            if "+upright" in before:
                hint = "remove `upright`, and turn images when you write the shards"
            return (
                f"{before} changes `{image}` before `crop`, but not `{other}`, which no longer matches",
                hint,
            )
    return None


def changes_before(source: Source, image: str, mask: str | None, is_relative: bool) -> str:
    """Return what moves the pixels of an image when it is decoded; empty if all that belongs to it moves with it.

    Args:
        mask: a mask of the image, which options of the same text change in the same way; None for boxes and points.
        is_relative: whether these are fractions of the image, so that they may be resized with it.
    """
    is_scaled = source.scale is not None or "scaleprob" in source.model_fields_set
    if mask is None and is_scaled and source.scaleprob > 0 and not is_relative:
        return "`scale`"
    beside = {_moves(each) for each in decoders_of(source, mask)} if mask is not None else {()}
    for decoder in decoders_of(source, image):
        moves = _moves(decoder)
        if "upright" not in moves and (
            beside == {moves} or (mask is None and is_relative and _only_resizes(moves))
        ):
            continue
        if moves or beside != {()}:
            return f"`decode: {decoder}`"
    return ""


def _moves(decoder: str | None) -> tuple[str, ...]:
    """The options of a decoder that move pixels, sorted."""
    options = (decoder or "").split("+")[1:] if ":" not in (decoder or "") else []
    return tuple(sorted(each for each in options if each.partition("=")[0] in GEOMETRY))


def _only_resizes(moves: Iterable[str]) -> bool:
    return all(each.startswith("resize=") for each in moves)


@rule(
    "E391",
    "a recording that is decoded before its segment is read",
    "`segment` reads the bytes of an audio file, so that it decodes no more than the segment. If `decode` decodes the "
    "field, there are no bytes left, and the whole recording would be decoded. The decoder and its options belong into "
    "`segment`.",
    keys="make",
    bad="dataset:\n"
    "  - shards: a.tar\n"
    "    extensions: flac json\n"
    "    decode: {flac: audio+rate=16000}\n"
    "    make: {audio: {segment: flac, offset: json.offset, duration: json.duration}}\n",
    good="dataset:\n"
    "  - shards: a.tar\n"
    "    extensions: flac json\n"
    "    make: {audio: {segment: flac, offset: json.offset, duration: json.duration, decode: audio+rate=16000}}\n",
)
def decoded_recordings(composition: Composition) -> Findings:
    """Segments of fields that `decode` decodes."""
    for leaf, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            if not isinstance(recipe, Segment) or leaf.bad & {"decode"}:
                continue
            origin = str(recipe.origins[0][0])
            found = next((each for each in decoders_of(source, origin) if each not in (None, RAW)), None)
            if found is not None and len(recipe.origins[0]) == 1:
                what = f"`decode: {found}` decodes `{origin}` before `segment` reads a part of it"
                hint = f"remove it there, and write it into `segment`: `decode: {found}`"
                if split_decoder(found)[0] not in ("audio", "torch_audio"):
                    hint = f"write `decode: {{{origin}: raw}}`"
                yield Finding(node.value_or_self(name), what, hint)


@rule(
    "W419",
    "the duration of the whole recording as that of a segment",
    "`flac.seconds` is the duration in the header of the file. If `segment` makes a field of a part of it, "
    "`audio.seconds`, of that field, is the duration of the segment, which is known before the file is opened.",
    keys="make",
    bad="dataset:\n"
    "  - shards: a.tar\n"
    "    extensions: flac json\n"
    "    where: flac.seconds < 20\n"
    "    make: {audio: {segment: flac, offset: json.offset, duration: json.duration}}\n",
    good="dataset:\n"
    "  - shards: a.tar\n"
    "    extensions: flac json\n"
    "    where: audio.seconds < 20\n"
    "    make: {audio: {segment: flac, offset: json.offset, duration: json.duration}}\n",
    warns_at_load=True,
)
def seconds_of_recordings(composition: Composition) -> Findings:
    """Expressions with the seconds of recordings of which segments are made."""
    spec = composition.spec
    for leaf, source, _ in makes_of(composition, is_mixed=True):
        made = {
            str(recipe.origins[0][0]): name
            for name, recipe in source.make.items()
            if isinstance(recipe, Segment) and (recipe.offset or recipe.duration)
        }
        of_batch = [] if "batch" in composition.bad or not made else list(list_measures(composition))
        own = [(leaf.node.value_or_self("where"), source.where)] if source.where else []
        for at, text in (*own, *of_batch):
            paths = paths_read_by(text, spec.costs) if made else ()
            found = next(
                (str(path[0]) for path in paths if path[1:] == ("seconds",) and str(path[0]) in made), None
            )
            if found is not None:
                what = f"`{found}.seconds` is the duration of the whole recording, not of the segment"
                yield Finding(at, what, f"write `{made[found]}.seconds`")


@rule("W366", keys="make")
def absent_libraries(composition: Composition) -> Findings:
    """Steps whose libraries are not installed."""
    for _, source, node in makes_of(composition):
        for name, recipe in source.make.items():
            for module in recipe.needs:
                if not is_installed(module):
                    hint = f"it comes with {install_command(f'wdspec[{EXTRAS[module]}]')}"
                    what = f"`{recipe.step}` needs {module}, which is not installed"
                    yield Finding(node.value_or_self(name), what, hint)


_TEXTS = frozenset({"txt", "text", "caption", "prompt", "content", "document"})
"""Usual names of fields of text, for rows, whose types are not known."""


def _is_text(source: Source, name: str, is_sure: bool = False) -> bool:
    """Whether a field is text.

    Args:
        is_sure: not if only its name says so.
    """
    if name in source.make or name in source.tags:
        return False
    if any(name == str(path[0]) for path in _text_origins(source).values()):
        return True
    decoders = [split_decoder(each or "")[0] for each in decoders_of(source, name)]
    return set(decoders) == {"txt"} or (not is_sure and name.lower() in _TEXTS)


def _text_origins(source: Source) -> dict[str, Path]:
    """The fields of token ids → the first text of which they are made."""
    return {name: recipe.origins[0] for name, recipe in source.make.items() if isinstance(recipe, Tokenize)}


@rule(
    "E371",
    "a text in rows of numbers",
    "`pack` puts arrays of numbers after each other, such as token ids. This field is text, which nothing turns into "
    "numbers; `make` tokenizes it.",
    keys="pack",
    bad="batch: {pack: {fields: txt, length: 2048}}\ndataset:\n  - {shards: a.tar, extensions: txt}\n",
    good="batch: {pack: {fields: ids, length: 2048}}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt, make: {ids: {tokenize: txt, file: tokenizer.json}}}\n",
)
def packed_texts(composition: Composition) -> Findings:
    """Packed fields that are surely text, also after `map`."""
    spec, bad = composition.spec, composition.bad
    if bad & {"batch", "map"} or spec.batch is None or spec.batch.pack is None or spec.stage is not None:
        return
    at = locate(composition.top.entries["batch"].value, ("pack", "fields"))
    for _, source in right_sources(composition, *_KEYS, "decode"):
        calls = (*source.map, *spec.map)
        if any(call.field is None for call in calls):
            continue
        for name in spec.batch.pack.fields:
            if name in fields_set_by(source.map, source.tags, spec.map) or not _is_text(
                source, name, is_sure=True
            ):
                continue
            made = next((new for new, path in _text_origins(source).items() if path == (name,)), None)
            hint = f"write `{made}`, which is made of it" if made else hint_of({"tokenize": name})
            yield Finding(at, f"`{name}` is text, and rows are of numbers", hint)
            return


@rule(
    "W367",
    "characters where tokens are probably meant",
    "The length of a text is its number of characters. A function of `map` that takes whole samples may replace the "
    "text by token ids later, or `make` makes ids of it, whose length is the number of tokens. There are about four "
    "times as many characters as tokens, so batches would be filled to a quarter.",
    keys=f"{EXPRESSIONS} pack",
    bad="batch: {cost: txt.length, max_cost: 4096, collate: {txt: list}}\nmap: mylib:tokenize\n"
    "dataset:\n  - {shards: a.tar, extensions: txt}\n",
    good="batch: {cost: ids.length, max_cost: 4096, collate: {ids: pad}}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt, make: {ids: {tokenize: txt, file: tokenizer.json}}}\n",
    warns_at_load=True,
)
def characters_measured(composition: Composition) -> Findings:
    """Lengths of texts in `batch` that may become tokens."""
    spec = composition.spec
    if "map" in composition.bad or spec.stage is not None:
        return
    for at, text in list_measures(composition):
        paths = parse_expression(text, spec.costs).paths
        lengths = [path for path in paths if path[1:] == ("length",) and not isinstance(path, PathBeforeMap)]
        for leaf, source in right_sources(composition, *_KEYS, "decode"):
            found = next((each for path in lengths if (each := _find_counted(source, spec.map, path))), None)
            if found is not None:
                name, why, hint = found
                length = describe_path((name, "length"))
                what = f"`{length}` is the number of characters of `{leaf.name}`, {why}"
                yield Finding(at, what, f"{hint}; or, if you mean characters, `before_map({length})`")
                break


def _find_counted(source: Source, later: Sequence[Call], path: Path) -> tuple[str, str, str] | None:
    """The field of a length, why it is of characters, and what to write; None if the length is right."""
    name = str(path[0])
    if name in fields_set_by(source.map, source.tags, later) or not _is_text(source, name):
        return None
    made = next((new for new, origin in _text_origins(source).items() if origin[0] == name), None)
    if made is not None:
        length = describe_path((made, "length"))
        return name, f"and `make` makes `{made}` of them", f"write `{length}` for the number of tokens"
    call = next((call for call in (*source.map, *later) if call.field is None and not call.sets), None)
    if call is None:
        return None
    sets = f"write `sets: {name}` next to `call: '{call.call}'` if it makes tokens of them"
    hint = f"{sets}, or {hint_of({'tokenize': name})}"
    return name, f"before `map: {call.call}`", hint


@rule(
    "W368",
    "a selection by a field that `map` replaces",
    "`where`, `subset` and `keys` see the fields of the shards and those of `make`, not what `map` makes of them. With "
    "a tokenizer in `map`, `text.length` is the number of characters there. `make` tokenizes samples before they are "
    "selected.",
    keys="where subset keys_of",
    bad="dataset:\n  - {shards: a.tar, extensions: txt, where: txt.length <= 8192, map: {txt: 'mylib:encode'}}\n",
    good="dataset:\n  - shards: a.tar\n    extensions: txt\n    make: {ids: {tokenize: txt, file: tokenizer.json}}\n"
    "    where: ids.length <= 8192\n",
    warns_at_load=True,
)
def selections_before_map(composition: Composition) -> Findings:
    """Lengths of fields that `map` sets in expressions that select samples."""
    spec = composition.spec
    for leaf, source in right_sources(composition, *_KEYS, "where", "subset", "decode"):
        later = () if "map" in composition.bad else spec.map
        replaced = fields_set_by(source.map, (), later)
        for key in ("where", "subset", "keys_of") if replaced else ():
            text = {
                "where": source.where,
                "subset": source.subset.of if source.subset else None,
                "keys_of": source.keys_of,
            }[key]
            for path in paths_read_by(text, spec.costs):
                name = str(path[0])
                is_read = path[1:] in ((), ("length",)) and not isinstance(path, PathBeforeMap)
                if (
                    is_read
                    and name in replaced
                    and not any(reads_header(file, "width") for file, _ in files_of(source, name))
                ):
                    written = describe_path(path)
                    what = f"`{written}` is the value before `map`, which replaces `{name}`"
                    hint = f"write `before_map({written})`, if you mean that"
                    if len(path) > 1:
                        made = f"for tokens, {hint_of({'tokenize': name})}, and `ids.length` here"
                        hint = f"{made}; for characters, `before_map({written})`"
                    yield Finding(leaf.node.value_or_self(key), what, hint)
                    break


@rule(
    "E386",
    "characters that are counted as tokens",
    "`max_tokens`, `shares_in: tokens`, `at: {tokens: …}` and `epoch: {tokens: …}` say that the cost of a sample is "
    "its number of tokens. The length of a text is its number of characters, about four times as many. `make` "
    "tokenizes the text.",
    keys="max_tokens shares_in schedule tokens",
    bad="batch: {cost: txt.length, max_tokens: 4096, collate: {txt: list}}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt}\n",
    good="batch: {cost: ids.length, max_tokens: 4096, collate: {ids: pad}}\n"
    "dataset:\n  - {shards: a.tar, extensions: txt, make: {ids: {tokenize: txt, file: tokenizer.json}}}\n",
)
def characters_as_tokens(composition: Composition) -> Findings:
    """Words for tokens next to a cost that is the length of a text."""
    spec = composition.spec
    words = [] if composition.bad & {"mix", "batch", "map"} else list(_token_words(composition))
    if not words or spec.batch is None or spec.batch.is_by_function:
        return
    for _, text in list(list_measures(composition))[:1]:
        paths = parse_expression(text, spec.costs).paths
        names = [str(path[0]) for path in paths if path[1:] == ("length",)]
        for _, source in right_sources(composition, *_KEYS, "decode"):
            set_by = fields_set_by(source.map, source.tags, spec.map)
            name = next((each for each in names if each not in set_by and _is_text(source, each)), None)
            if name is not None:
                at, word = words[0]
                what = f"`{word}` counts tokens, but the cost `{text}` counts characters"
                yield Finding(
                    at,
                    what,
                    f"tokenize the text, {hint_of({'tokenize': name})}, and write `cost: ids.length`",
                )
                return


def _token_words(composition: Composition) -> Iterator[tuple[Node, str]]:
    """Where a spec says that its cost is a number of tokens, and in which words."""
    spec, top = composition.spec, composition.top
    if spec.batch is not None and spec.batch.max_tokens is not None:
        yield locate(top.entries["batch"].value, ("max_tokens",)), "max_tokens"
    if spec.mix.shares_in == "tokens":
        yield locate(top.entries["mix"].value, ("shares_in",)), "shares_in: tokens"
    if spec.epoch is not None and spec.epoch.tokens is not None:
        yield locate(top.entries["epoch"].value, ("tokens",)), "epoch: {tokens: …}"
    for number, step in enumerate(spec.mix.schedule or ()):
        if step.at.unit == "tokens" and composition.schedule is not None:
            yield locate(composition.schedule, (number, "at")), "at: {tokens: …}"


@rule(
    "W442",
    "a cost that adds fields which are padded apart",
    "Each field of a batch is padded to its own longest value, and these may be in different samples. So the batch "
    "has as many tokens as its size times the sum of the longest values, and not times the largest sum: with a `cost` "
    "that adds the lengths, batches may exceed `max_cost`. The number of fields times the greater length is enough.",
    keys="max_cost max_tokens",
    bad="batch: {cost: a.length + b.length, max_cost: 4096, collate: {a: pad, b: pad}}\n"
    "dataset:\n  - {shards: a.tar, rename: {a: a.npy, b: b.npy}}\n",
    good="batch: {cost: '2 * max(a.length, b.length)', max_cost: 4096, collate: {a: pad, b: pad}}\n"
    "dataset:\n  - {shards: a.tar, rename: {a: a.npy, b: b.npy}}\n",
)
def added_lengths(composition: Composition) -> Findings:
    """Sums of lengths of fields that `collate` pads."""
    batch = composition.spec.batch
    if batch is None or batch.collate is None or not isinstance(batch.cost, str) or not batch.padded:
        return
    for at, text in list(list_measures(composition))[:1]:
        parsed = parse_expression(text, composition.spec.costs)
        ways = batch.collate.fields
        names = {str(path[0]) for path in parsed.paths if path[1:] == ("length",)}
        padded = sorted(name for name in names if name in ways and ways[name].padding is not None)
        if len(padded) > 1 and "max(" not in text:
            lengths = ", ".join(f"{name}.length" for name in padded)
            what = f"{list_names(padded)} are padded apart, so batches may have more than `cost: {text[:60]}` counts"
            yield Finding(at, what, f"write `cost: {len(padded)} * max({lengths})`")
