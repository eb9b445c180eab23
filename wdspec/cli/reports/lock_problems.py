"""What `wdspec validate --locked` has to say: whether each spec has a lock, and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.spec.load import load
from wdspec.spec.problems import Problem

_HINT = "`wdspec lock SPEC` writes it"


def lock_problems(
    file: str, split: str | None, env: str | None, vars: Mapping[str, Any], overrides: Sequence[str]
) -> list[Problem]:
    """The problems of the locks of a file that has no other errors; opens nothing but the locks."""
    from wdspec.shards.lock import Lock, lock_name, locked_splits

    found = []
    for name in locked_splits(file, split):
        path = lock_name(file, name)
        of_split = f" of the split `{name}`" if name else ""
        spec = load(file, split=name, env=env, vars=vars, overrides=overrides)
        try:
            misfits = list(Lock.read(path).misfits(spec))
        except UsageError as error:
            misfits = [error.message]
        except OSError:
            misfits = [f"there is no `{path}`"]
        found += [
            Problem("E403", f"the lock{of_split} does not fit: {each}", _HINT, file, 1, 1) for each in misfits
        ]
    return found
