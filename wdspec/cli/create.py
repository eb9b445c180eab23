"""`wdspec create`: shards of the files in a folder, of a recipe, or of a manifest."""

from __future__ import annotations

import os
import random
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TextIO

import click

from wdspec.base.errors import UsageError
from wdspec.base.progress import with_progress
from wdspec.cli.shard_files import Target, key_option, limit_options, os_errors_reported, writing
from wdspec.cli.spec_options import assigned
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
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
    help="What it is (default: a folder is one; .csv, .tsv and .jsonl are manifests; all else is a recipe).",
)
@click.option("--shards", type=click.IntRange(min=1), metavar="N", help="Fill N shards.")
@limit_options
@click.option(
    "--by", type=click.Choice(["count", "size"]), help="With --shards: what is to be equal (default: count)."
)
@click.option(
    "--shuffle", type=int, metavar="SEED", help="Shuffle the samples, the same way for the same seed."
)
@click.option(
    "--key-column", metavar="COLUMN", help="Manifest: the column of keys (default: __key__, else numbers)."
)
@click.option(
    "--value", "values", multiple=True, metavar="FIELD=COLUMN", help="Manifest: store the column's values."
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Manifest: store the files the column names.",
)
@click.option(
    "--classes", is_flag=True, help="A folder of classes: each sample gets the number and name of its folder."
)
@click.option(
    "--base", metavar="FOLDER", default=".", help="What paths in it are relative to (default: here)."
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
    base: str,
    run_pipes: bool,
    key: Literal["first_dot", "last_dot"],
) -> None:
    """Write shards of the files in a folder, of a recipe, or of a manifest.

    \b
    A folder    a sample for each key (`a/1.jpg` and `a/1.cls` are the sample `a/1`), sorted.
                With --classes the folders in it are classes, as ImageFolder has them: each sample
                gets `cls`, the number of its class in the order of names, and `label.txt`, the name.
    A recipe    lines `name.ext source`, as `tarp create` reads them; a source is a file,
                `text:...` or `pipe:command`. `-` reads it from standard input.
    A manifest  a row for each sample: CSV or TSV with a heading, or JSON lines.

    \b
    wdspec create photos/ -o 'photos-%06d.tar' --maxsize 1GB --shuffle 1
    wdspec create imagenet/train/ -o 'train-%06d.tar' --classes --maxcount 10000 --shuffle 1
    wdspec create index.csv -o 'data-%04d.tar' --shards 8 --key-column id --file jpg=path --value cls=label

    Shards come out balanced: the limits say how many there must be, and the samples are spread evenly over them.
    """
    if run_pipes and Environment.read().secure:
        raise UsageError(
            "WDS_SECURE forbids running the commands of a recipe; unset it if you trust the recipe"
        )
    check_limits(shards, maxcount, maxsize)
    if by is not None and shards is None:
        raise click.UsageError("--by goes with --shards")
    if (shards, maxcount, maxsize) != (None, None, None):
        target.check_several()
    with os_errors_reported():
        recipes = _recipes(what, kind, base, key, run_pipes, key_column, values, files, classes)
        if not recipes:
            raise UsageError("there is nothing in it to make samples of", location=what)
        if shuffle is not None:
            random.Random(shuffle).shuffle(recipes)
        if maxsize is not None or by == "size":
            room = None if maxsize is None else max(1, maxsize - len(END))
            counts = by_size([sources.size_of(recipe) for recipe in recipes], shards=shards, most=room)
        else:
            counts = by_count(len(recipes), shards=shards, most=maxcount)
        _check_free(target, len(counts))
    target.write(map(sources.gathered, with_progress(recipes, "writing samples")), key, counts=counts)


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
        is_table = what.lower().endswith((".csv", ".tsv", ".jsonl", ".ndjson"))
        kind = "folder" if os.path.isdir(what) else "manifest" if is_table else "recipe"
    if kind != "manifest" and (key_column or values or files):
        raise click.UsageError("--key-column, --value and --file go with a manifest")
    if classes and kind != "folder":
        raise click.UsageError("--classes goes with a folder")
    if kind == "folder":
        recipes = list(sources.recipes_of_folder(what, rule, classes))
        if not classes and sources.looks_like_classes(recipes):
            click.echo("the folders look like classes; --classes gives each sample its own", err=True)
        return recipes
    with _lines(what) as lines:
        if kind == "recipe":
            return list(sources.recipes_of_lines(lines, what, base, rule, run_pipes))
        columns = sources.Columns(key_column, assigned(values, "--value"), assigned(files, "--file"))
        return list(sources.recipes_of_manifest(lines, what, columns, base))


def _lines(path: str) -> AbstractContextManager[TextIO]:
    if path == "-":
        return nullcontext(sys.stdin)
    try:
        return open(path, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", location=path) from error


def _check_free(target: Target, shards: int) -> None:
    """Says before hours of work, and not in their midst, that a name is taken."""
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
