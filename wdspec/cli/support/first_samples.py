"""The first samples of a spec, for commands that show them: read in this process, as training would.

Reading runs the functions that the spec names, so it is prepared for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.progress import progress
from wdspec.cli.support.skip_columns import LiveCount, skip_columns
from wdspec.spec.spec import Spec


def first_samples(
    spec: Spec, count: int, workers: int | None = None, *, drawn: bool = False
) -> Iterator[dict[str, Any]]:
    """The first samples of rank 0, read in this process; needs no torch.

    Args:
        spec: the spec.
        count: how many.
        workers: of the topology, where `elastic` does not say.
        drawn: whether to draw a bar where samples may be left out: else the first ones come at once.

    Raises:
        WdspecError: what training would raise. Errors of the user's own functions become one, too.
    """
    from wdspec.api import sample_reader

    read_like_training()
    count = count if spec.limit is None else min(count, spec.limit)
    reader = sample_reader(spec.model_copy(update={"limit": count}), workers=workers)
    batches = reader.plan.epoch_batches
    budgets = reader.budgets.values()
    columns = skip_columns(
        spec,
        LiveCount(lambda: sum(sum(list(budget.skipped.values())) for budget in budgets)),
        LiveCount(lambda: sum(sum(list(budget.dropped.values())) for budget in budgets)),
    )
    try:
        with progress("samples", count, drawn=drawn and bool(columns), **columns) as bar:
            for number in range(count if batches is None else min(count, batches)):
                for sample in reader.batch(number):
                    yield sample
                    bar.advance()
    except WdspecError:
        raise
    except Exception as error:
        raise from_users_code(error) from error
    finally:
        reader.close()


def first_batch(spec: Spec) -> list[tuple[str, Any]]:
    """The first batch of rank 0, as the training loop gets it: (name of a field, its column), in order.

    Raises:
        UsageError: the spec makes no batches.
        WdspecError: what training would raise. Errors of the user's own functions become one, too.
    """
    from wdspec.api import compile

    if spec.batch is None:
        raise UsageError(
            "the spec has no `batch`, so there are only samples: leave out --batch, or add `batch: 32`"
        )
    read_like_training()
    pipeline = compile(spec, rank=0, world_size=spec.elastic.ranks if spec.elastic else 1)
    try:
        batch = next(iter(pipeline))
    except WdspecError:
        raise
    except Exception as error:
        raise from_users_code(error) from error
    finally:
        pipeline.close()
    if isinstance(batch, dict):
        return [(str(name), column) for name, column in batch.items()]
    names = [entry.split(";")[0] for entry in spec.to_tuple or ()]
    return list(zip(names, batch, strict=True)) if isinstance(batch, tuple) and names else [("batch", batch)]


def columns_of(spec: Spec) -> list[tuple[str, Any]]:
    """What the first batch holds: names and values, those of `pad` and other tuples part by part."""
    return [part for field, column in first_batch(spec) for part in _parts_of(field, column)]


def _parts_of(field: str, column: Any) -> list[tuple[str, Any]]:
    """A column by itself, or the parts of one that is a tuple: those of `pad` by their names."""
    if not isinstance(column, tuple):
        return [(field, column)]
    names = getattr(column, "_fields", range(len(column)))
    parts = zip(names, column, strict=True)
    return [found for name, part in parts for found in _parts_of(f"{field}.{name}", part)]


def read_like_training() -> None:
    """Lets skipped errors be seen."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


def from_users_code(error: Exception) -> WdspecError:
    """One error of a user's function, with the lines of their code that led to it."""
    from wdspec.offline.shard_work import users_lines

    notes = "\n".join(getattr(error, "__notes__", ()))
    said = "\n".join(filter(None, (f"{type(error).__name__}: {error}", notes, users_lines(error))))
    return WdspecError(f"a function that the spec names failed: {said}")
