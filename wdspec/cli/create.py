"""`wdspec create`: create shards from the files in a folder, from a recipe, or from a manifest."""

from __future__ import annotations

import io
import os
import random
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TextIO, cast

import click

from wdspec.base.encodings import describe_encoding, name_wide
from wdspec.base.errors import UsageError
from wdspec.base.files import open_regular
from wdspec.base.progress import with_progress
from wdspec.cli.output import join_names, pluralize
from wdspec.cli.shard_files import Target, key_option, limit_options, os_errors_reported, writing
from wdspec.cli.spec_options import parse_assignments
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import save
from wdspec.urls.urls import local_path
from wdspec.write import recipes as sources
from wdspec.write.shard_writer import by_count, by_size, check_limits, check_pattern
from wdspec.write.tar_writer import END

Kind = Literal["folder", "recipe", "manifest"]


@click.command()
@click.argument("what", metavar="FOLDER|RECIPE|MANIFEST")
@writing
@click.option(
    "--as",
    "kind",
    type=click.Choice(["folder", "recipe", "manifest"]),
    help="Kind of input (default: by name; .csv, .tsv, .jsonl and .json files are manifests, other files are recipes).",
)
@click.option("--shards", type=click.IntRange(min=1), metavar="N", help="Create N shards.")
@limit_options
@click.option(
    "--by",
    type=click.Choice(["count", "size"]),
    help="With --shards: balance the samples or the bytes (default: count).",
)
@click.option("--shuffle", type=int, metavar="SEED", help="Shuffle the samples with this seed.")
@click.option(
    "--key-column",
    metavar="COLUMN",
    help="Manifest: the column of keys (default: __key__; without it, numbers).",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Manifest: store the values of a column as a field. Repeatable.",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Manifest: store the files named in a column as a field. Repeatable.",
)
@click.option(
    "--classes",
    is_flag=True,
    help="Folder: add the number and the name of its class to each sample. Each folder is a class.",
)
@click.option(
    "--class-names",
    "names_file",
    metavar="FILE",
    help="Names of the classes, one per line, numbered from 0. FILE is written if it does not exist (default: "
    "classes.txt next to the shards). Implies --classes.",
)
@click.option(
    "--base",
    metavar="FOLDER",
    default=".",
    help="Folder that paths are relative to (default: the working directory).",
)
@click.option(
    "--run-pipes", is_flag=True, help="Run the commands (`pipe:`) of a recipe. WDS_SECURE=1 forbids it."
)
@key_option
def create(
    what: str,
    target: Target,
    kind: Kind | None,
    shards: int | None,
    maxcount: int | None,
    maxsize: int | None,
    by: str | None,
    shuffle: int | None,
    key_column: str | None,
    values: tuple[str, ...],
    files: tuple[str, ...],
    classes: bool,
    names_file: str | None,
    base: str,
    run_pipes: bool,
    key: Literal["first_dot", "last_dot"],
) -> None:
    """Create shards from the files in a folder, from a recipe, or from a manifest.

    \b
    A folder    has a sample for each key (`a/1.jpg` and `a/1.cls` are the sample `a/1`).
                Samples are sorted by key. With --classes, subfolders are classes and each
                file is a sample, as in ImageFolder. The sample gets `cls`, the number of its class, and `label.txt`,
                its name. The numbers come from the file --class-names. The first call writes
                it, sorted by name, so that later calls (for validation data) use the same numbers.
    A recipe    has lines `name.ext source`, as for `tarp create`. A source is a file,
                `text:...` or `pipe:command`. `-` is standard input.
    A manifest  has a row for each sample: CSV or TSV with a header, JSON lines, or a list in JSON. JSON of COCO has
                a row for each image, with the columns `boxes`, `labels` and `annotations`.

    \b
    wdspec create photos/ -o 'photos-%06d.tar' --maxsize 1GB --shuffle 1
    wdspec create imagenet/train/ -o 'train-%06d.tar' --classes --maxcount 10000 --shuffle 1
    wdspec create index.csv -o 'data-%04d.tar' --shards 8 --key-column id --file jpg=path --value cls=label

    The limits determine the number of shards. Samples are distributed evenly over the shards.
    """
    if run_pipes and Environment.read().secure:
        raise UsageError("WDS_SECURE forbids the commands of a recipe; unset it if you trust the recipe")
    check_limits(shards, maxcount, maxsize)
    if by is not None and shards is None:
        raise click.UsageError("--by needs --shards")
    if (shards, maxcount, maxsize) != (None, None, None):
        target.check_several()
    classes = classes or names_file is not None
    names: list[str] = []
    with os_errors_reported():
        recipes = _recipes(what, kind, base, key, run_pipes, key_column, values, files, classes)
        if not recipes:
            raise UsageError("it contains no samples", location=what)
        if classes:
            if names_file is None and (folder := local_path(os.path.dirname(target.output))) is not None:
                names_file = None if target.output == "-" else os.path.join(folder, "classes.txt")
            names = _number_classes(sources.list_classes(recipes), names_file)
            recipes = sources.add_classes(recipes, names)
        if shuffle is not None:
            random.Random(shuffle).shuffle(recipes)
        if maxsize is not None or by == "size":
            room = None if maxsize is None else max(1, maxsize - len(END))
            counts = by_size([sources.size_of(recipe) for recipe in recipes], shards=shards, most=room)
        else:
            counts = by_count(len(recipes), shards=shards, most=maxcount)
        _check_free(target, len(counts))
    target.write(map(sources.gather, with_progress(recipes, "writing samples")), key, counts=counts)
    if classes:
        click.echo(_describe_classes(names, names_file), err=True)


def _number_classes(found: Sequence[str], file: str | None) -> list[str]:
    """Return the names of the classes by number. They come from the file, which is written if it is missing."""
    if file is None:
        return list(found)
    if not os.path.exists(file):
        save(file, os.fsencode("".join(f"{name}\n" for name in found)))
        return list(found)
    with open_regular(file) as lines:
        data = lines.read()
    if name_wide(data):
        raise UsageError(describe_encoding(data), location=file)
    names = data.decode("utf-8-sig", "surrogateescape").splitlines()
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(
            "a name occurs twice, or a line is empty; write each name on one line", location=file
        )
    if missing := [name for name in found if name not in set(names)]:
        raise UsageError(
            f"no line for {pluralize(len(missing), 'class', 'classes')} ({join_names(missing)}); add the names at its "
            "end, or name another file with --class-names to start from 0",
            location=file,
        )
    return names


def _describe_classes(names: Sequence[str], file: str | None) -> str:
    numbered = join_names([f"{number} {name}" for number, name in enumerate(names)], 10)
    where = "not saved: name a file with --class-names" if file is None else f"in {file}"
    return f"{pluralize(len(names), 'class', 'classes')} ({where}): {numbered}"


def _recipes(
    what: str,
    kind: Kind | None,
    base: str,
    rule: Literal["first_dot", "last_dot"],
    run_pipes: bool,
    key_column: str | None,
    values: tuple[str, ...],
    files: tuple[str, ...],
    classes: bool,
) -> list[sources.Recipe]:
    if kind is None:
        is_table = what.lower().endswith((".csv", ".tsv", ".jsonl", ".ndjson", ".json"))
        kind = "folder" if os.path.isdir(what) else "manifest" if is_table else "recipe"
    if kind != "manifest" and (key_column or values or files):
        raise click.UsageError("--key-column, --value and --file work only with a manifest")
    if classes and kind != "folder":
        raise click.UsageError("--classes works only with a folder")
    if kind == "folder":
        recipes = sources.recipes_of_classes(what) if classes else sources.recipes_of_folder(what, rule)
        if not classes and sources.looks_like_classes(recipes):
            click.echo("the folders look like classes; --classes adds the class to each sample", err=True)
        return recipes
    with _lines(what) as lines:
        if kind == "recipe":
            return list(sources.recipes_of_lines(lines, what, base, rule, run_pipes))
        columns = sources.Columns(
            key_column, parse_assignments(values, "--value"), parse_assignments(files, "--file")
        )
        return list(sources.recipes_of_manifest(lines, what, columns, base))


def _lines(path: str) -> AbstractContextManager[TextIO]:
    if path == "-":
        return nullcontext(sys.stdin)
    try:
        file = open_regular(path, descriptors=True)
        opened = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        if name_wide(head := cast(io.BufferedReader, opened.buffer).peek()):
            opened.close()
            raise UsageError(describe_encoding(head), location=path)
        return opened
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", location=path) from error


def _check_free(target: Target, shards: int) -> None:
    """Refuse existing outputs at the start, not after hours of work."""
    output = target.output
    if target.force or output == "-":
        return
    if "%" in output:
        check_pattern(output)
    storage = Storage.of(Environment.read())
    for number in range(shards):
        name = output % number if "%" in output else output
        if storage.is_written(name):
            raise UsageError("a file of this name exists; choose another name, or add --force", location=name)
