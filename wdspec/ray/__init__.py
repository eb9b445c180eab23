"""Ray Data: reads the samples of a spec as a `ray.data.Dataset`, and writes datasets as shards.

`datasource` reads, `datasink` writes, and `columns` converts between samples and the Arrow tables of Ray's blocks. This
package needs the `ray` extra.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from wdspec.api import SpecLike
from wdspec.base.errors import UsageError, install_command
from wdspec.shards.shards import LockLike
from wdspec.spec.load import load

try:
    import pyarrow as pa
    import ray.data
except ModuleNotFoundError as error:
    raise UsageError(f"wdspec.ray needs {error.name}: {install_command('wdspec[ray]')}") from None

from wdspec.jobs.job import gpus_of
from wdspec.ray.datasink import ShardSink, writer_options
from wdspec.ray.datasource import SpecDatasource
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.write.shard_writer import Written

__all__ = ["read", "write"]


def read(
    spec: SpecLike,
    *,
    split: str | None = None,
    env: str | None = None,
    vars: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    lock: LockLike = None,
    schema: pa.Schema | Mapping[str, pa.DataType] | None = None,
    **ray_arguments: Any,
) -> ray.data.Dataset:
    """Return a Ray Data dataset that contains every sample of a spec once, in no particular order.

    The samples are the same as those that `wdspec process` writes: after decoders, `select`, `map` and `fields`. Each
    shard is a read task. Sources with a share of 0 are left out; otherwise shares, order and batches have no effect.
    `limit` is the maximum number of samples per shard. Until Ray executes the dataset, only the shard lists and a few
    file sizes are read.

    Columns are the fields of the samples, with `__key__`, `__url__` and `__source__`; a field that a sample does not
    have is null. Arrays and tensors become tensor columns. Values without an Arrow type, such as dicts, become
    Python objects.

    Args:
        spec: a path, a dict or a loaded Spec.
        split, env, vars, overrides: see `wdspec.load`.
        lock: a file that `wdspec lock` wrote. Exactly its shards are read, without listing any.
        schema: Arrow types for some columns, by name, such as `{"json": pa.struct({"caption": pa.string()})}`. From a
            dict, only the keys of the struct are kept.
        ray_arguments: arguments of `ray.data.read_datasource`, such as `concurrency`, `num_cpus` or
            `override_num_blocks`.

    Raises:
        SpecError: the spec has problems.
        UsageError: the spec has a `stage`.
        WdspecError: shards cannot be listed. Also while Ray reads: a shard is damaged or a sample cannot be decoded
            (unless `errors` of the source says to skip it), or a value does not match `schema`.

    Example:
        >>> import wdspec.ray
        >>> dataset = wdspec.ray.read("examples/specs/digits.yaml", split="train")
        >>> # dataset.map_batches(score, batch_size=64).write_parquet("scores")
    """
    checked = load(spec, split=split, env=env, vars=vars, overrides=overrides)
    types = (
        {field.name: field.type for field in schema} if isinstance(schema, pa.Schema) else dict(schema or {})
    )
    if gpus := gpus_of(checked):
        ray_arguments = {"num_gpus": gpus, "compute": ray.data.ActorPoolStrategy(min_size=1), **ray_arguments}
    return ray.data.read_datasource(SpecDatasource(checked, types, lock), **ray_arguments)


def write(
    dataset: ray.data.Dataset,
    folder: str | os.PathLike[str],
    *,
    suffix: str = ".tar",
    size: float = 500e6,
    samples: int | None = None,
    overwrite: bool = False,
    encoder: Mapping[str, Callable[[Any], bytes]] | None = None,
    allow_pickle: bool = False,
    **ray_arguments: Any,
) -> list[Written]:
    """Write a Ray Data dataset as shards, which only appear once they are complete.

    Each row becomes a sample, and each column a field, which is encoded by its name as in `wdspec.TarWriter`. Nulls are
    left out of the sample. `__key__` is the key; without this column, samples are numbered. `__url__` and `__source__`
    are not written. Ray moves blocks between tasks, so samples are in no particular order.

    When all shards are written, `shards.txt` in the folder lists them: `shards: "@folder/shards.txt"` in a spec never
    reads the shards of an interrupted write. If writing fails, its shards are deleted.

    Args:
        dataset: any Ray Data dataset.
        folder: a path that all nodes share, or a URL that can be written and listed.
        suffix: the suffix of the shards, such as `.tar`, `.tar.gz` or `.jsonl.zst`. It determines format and
            compression.
        size: minimum size of a shard, measured in bytes of Ray's blocks. The last shard may be smaller.
        samples: minimum number of samples in a shard; used instead of `size`.
        overwrite: whether to replace existing shards in the folder. They are deleted after the new ones are complete,
            so the dataset may read from them.
        encoder: dict of extension → function from value to bytes, for other formats or settings.
        allow_pickle: whether to encode `pkl` and arbitrary `pth` values.
        ray_arguments: arguments of `Dataset.write_datasink`: `concurrency`, `ray_remote_args`.

    Returns:
        For each shard, its name, the number of samples, and its size in bytes before compression.

    Raises:
        UsageError: the folder already contains shards.
        FieldError: a value cannot be encoded, or two rows of a shard have the same key.
        WdspecError: the folder cannot be listed or written.

    Example:
        >>> import wdspec.ray
        >>> dataset = wdspec.ray.read("examples/specs/digits.yaml", split="train")
        >>> # wdspec.ray.write(dataset.filter(is_good), "good/")
    """
    options = writer_options(encoder, allow_pickle)
    storage = Storage.of(Environment.read())
    sink = ShardSink(os.fspath(folder), storage, suffix, size, samples, overwrite, options)
    try:
        dataset.write_datasink(sink, **ray_arguments)
    except BaseException:
        sink.discard()
        raise
    return sink.shards
