"""Reading on another machine: what it is sent, what it checks before it reads, and how it reads.

A node has its own Python, libraries, paths and logins. What would change samples is compared before the first batch, so
that no batch differs from those of the trainer: the code of wdspec, Python, libraries that decode, and user functions.
Paths must exist, and stores must let the node in. The trainer's environment is not sent: each node reads its own logins
(`AIS_AUTHN_TOKEN`, proxies, netrc). Modules next to the spec are sent as text.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import pickle
import platform
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import worker as torch_worker

from wdspec.base.errors import ShardError, StoreError, UsageError, WdspecError, tell_place
from wdspec.base.files import shared_folder
from wdspec.base.user_code import digest_code, enforce_security, file_of_module, secure_mode
from wdspec.fields.memory import Array
from wdspec.planning.keys import key64
from wdspec.run.libraries import ALWAYS, IF_BOTH, version_of
from wdspec.run.out_of_band import Packer
from wdspec.run.parcels import Bundle, Parcel
from wdspec.run.run import Run
from wdspec.run.steps import Step
from wdspec.run.tasks import Delivery, TaskReader
from wdspec.shards.key_lists import KeyTable
from wdspec.stores import watchdog
from wdspec.stores.ais_cluster import AisCluster, AisVariables
from wdspec.stores.settings import HttpSettings
from wdspec.urls.urls import scheme_of

_MOST_CODE = 10_000_000
"""Bytes of modules to send; more are a package to install."""
_LOOKED_AT = 8
"""Shards of a source whose places are looked at."""


@dataclass(frozen=True)
class Setup:
    """What a node must have to read as the trainer does, and the modules that it gets."""

    code: str
    """Digest of the code of wdspec."""
    wdspec: str
    python: str
    libraries: Mapping[str, str]
    functions: Mapping[str, str]
    """Digests of the definitions of user functions, by name."""
    modules: Mapping[str, bytes]
    """Files of modules next to the spec, by relative path."""
    is_secure: bool
    worker: int = 0
    workers: int = 1

    @classmethod
    def of(cls, run: Run) -> Setup:
        """Describe this process.

        Raises:
            UsageError: the modules next to the spec are too large.
        """
        names = sorted({name for names in run.spec.functions.values() for name in names})
        return cls(
            code=_digest_package(),
            wdspec=version_of("wdspec") or "",
            python=platform.python_version(),
            libraries=_versions(),
            functions={name: digest_code(name, run.spec.folder) for name in names},
            modules=gather_modules(names, run.spec.folder),
            is_secure=secure_mode(),
        )

    def problems(self, folder: str) -> Iterator[str]:
        """Compare with this process, which is on another node; `folder` is that of the spec."""
        if _digest_package() != self.code:
            version = version_of("wdspec")
            other = f"wdspec {version}" if version != self.wdspec else f"other code of wdspec {version}"
            yield f"it has {other}, and the trainer has {self.wdspec}: install the same commit"
        if platform.python_version_tuple()[:2] != tuple(self.python.split(".")[:2]):
            yield f"it has Python {platform.python_version()}, and the trainer has {self.python}"
        here = _versions()
        for name in ALWAYS + IF_BOTH:
            mine, theirs = here.get(name), self.libraries.get(name)
            if mine != theirs and (name in ALWAYS or (mine and theirs)):
                yield (
                    f"it has {name} {mine or '(not installed)'}, and the trainer has {theirs or 'not'}; values could "
                    "differ: install the same version"
                )
        for name, digest in self.functions.items():
            if digest_code(name, folder) != digest:
                yield (
                    f"the function `{name}` is missing there, or has other code; remove the old copy "
                    f"{file_of_module(name, folder) or ''}, install the module there, or pass it by "
                    "`ray.init(runtime_env={'py_modules': [...]})`"
                )


@cache
def _versions() -> dict[str, str]:
    """Return the versions of libraries without their builds, such as `+cpu`."""
    found = {name: version_of(name) for name in ALWAYS + IF_BOTH}
    return {name: version.partition("+")[0] for name, version in found.items() if version}


@cache
def _digest_package() -> str:
    """Return a digest of the code of this package: versions of a checkout do not tell two commits apart."""
    root, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


def gather_modules(names: Iterable[str], folder: str) -> dict[str, bytes]:
    """Return the files of the modules of functions in the spec's folder or the working directory, and of what they
    import from there, by relative path. Nothing is imported.

    Raises:
        UsageError: they are too large.
    """
    places = [os.path.abspath(place) for place in (folder, os.getcwd()) if place]
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    pending = [name.partition(":")[0].partition(".")[0] for name in names]
    while pending:
        if (top := pending.pop()) in seen:
            continue
        seen.add(top)
        origin = file_of_module(top, folder)
        if origin is None or not origin.endswith(".py"):
            continue
        path = Path(origin).absolute()
        is_package = path.name == "__init__.py"
        place = path.parents[1] if is_package else path.parent
        if str(place) not in places:
            continue
        for each in sorted(path.parent.rglob("*.py")) if is_package else [path]:
            files[each.relative_to(place).as_posix()] = text = each.read_bytes()
            with suppress(SyntaxError, ValueError, RecursionError):  # importing it will raise this
                pending += _imports(ast.parse(text))
        if sum(map(len, files.values())) > _MOST_CODE:
            raise UsageError(
                f"the modules next to the spec have more than {_MOST_CODE:,} bytes; install the package of `{top}` on "
                "every node"
            )
    return files


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the top names of absolute imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _place_modules(files: Mapping[str, bytes]) -> None:
    """Write modules to a folder of this node, unless it has them, and let Python find them."""
    digest = hashlib.blake2b(repr(sorted(files.items())).encode(), digest_size=16).hexdigest()
    root = shared_folder("modules")
    folder = os.path.join(root, digest)
    if not os.path.exists(folder):
        partial = tempfile.mkdtemp(prefix=f"{digest}.partial-", dir=root)
        for name, data in files.items():
            path = Path(partial, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            os.rename(partial, folder)
        except OSError:  # another actor was faster
            shutil.rmtree(partial, ignore_errors=True)
    sys.path.insert(0, folder)


def pickle_run(run: Run) -> bytes:
    """Pickle a run without the logins of this process; where it is opened, it gets those of that node."""
    file = io.BytesIO()
    _RunPickler(file, 5).dump(run)
    return file.getvalue()


class _RunPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, HttpSettings):
            return _http_here, (value.allowed,)
        if isinstance(value, (AisVariables, AisCluster)):
            known = {each.name: getattr(value, each.name) for each in fields(value)}
            return _ais_here, (type(value), {**known, "token": value.token is not None})
        if isinstance(value, KeyTable):
            return _keys_here, (value.path,)
        return NotImplemented


def _http_here(allowed: Any) -> HttpSettings:
    return replace(HttpSettings.read(), allowed=allowed)


def _ais_here(kind: Callable[..., Any], known: dict[str, Any]) -> Any:
    token = os.environ.get("AIS_AUTHN_TOKEN", "").strip() or None
    return kind(**{**known, "token": token if known["token"] else None})


def _keys_here(path: str) -> KeyTable:
    if not os.path.exists(path):
        raise UsageError(
            f"it lacks the table of `keys` or `exclude` that the trainer has made, {path}; set TMPDIR of the trainer "
            "to a folder that all nodes share"
        )
    return KeyTable(path)


class RemoteReader:
    """Reads tasks on a node; made there.

    Args:
        setup: what the node must have.
        run: what to read, pickled by `pickle_run`.
        node: the name of this node, for messages.
        leave: reports the error of a read that nothing ends, and ends this process.

    Raises:
        UsageError: the node does not have it, or cannot reach the data.
    """

    def __init__(self, setup: Setup, run: Any, node: str, leave: Callable[[WdspecError], NoReturn]) -> None:
        self.node = node
        if setup.is_secure:
            enforce_security(True)
        if setup.modules:
            _place_modules(setup.modules)
        try:
            opened: Run = pickle.loads(run)
        except UsageError as error:
            raise self._refuse([error.message]) from None
        except Exception as error:
            # Code that differs may be unable to open the run at all.
            found = [*setup.problems(""), f"the run cannot be opened there: {type(error).__name__}: {error}"]
            raise self._refuse(found) from error
        found = list(setup.problems(opened.spec.folder)) or list(find_missing(opened))
        if found:
            raise self._refuse(found)
        self._reader = _Reader(opened)
        self._where = f"in actor {setup.worker} of a Loader, on node {self.node}"
        torch.set_num_threads(1)
        seed = (key64(opened.spec.seed, "loader", opened.seat.rank) >> 1) + setup.worker
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)  # as torch does in its workers
        info: Any = torch_worker.WorkerInfo
        torch_worker._worker_info = info(
            id=setup.worker, num_workers=setup.workers, seed=seed, dataset=self._reader
        )
        watchdog.stuck = lambda error: leave(error.at(node=self.node))

    def _refuse(self, problems: list[str]) -> UsageError:
        return UsageError(
            f"node {self.node} cannot read this spec as the trainer would: {'; '.join(problems)}"
        )

    def read(self, task: bytes) -> list[Array]:
        """Return the delivery for a task and the states after it, pickled, and the arrays of its parcels."""
        try:
            delivery = self._reader[pickle.loads(task)]
        except Exception:
            delivery = Delivery([], ExceptionWrapper(where=self._where))
        finally:  # also of a task that is cancelled
            arrays, states = self._reader.take()
        failure = delivery.failure
        if isinstance(failure, WdspecError):
            tell_place(failure, node=self.node)
        elif failure is not None:
            failure.where = self._where
        return [np.frombuffer(pickle.dumps((delivery, states), 5), np.uint8), *arrays]


class _Reader(TaskReader):
    """Reads tasks whose deliveries are sent to another machine."""

    is_sent, shares_memory = True, False

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._packer = Packer()
        self._states: dict[int, bytes] = {}

    def _pack(self, step: Step, bundle: Bundle | None) -> Parcel:
        parcel = self._packer.pack(step)
        self._states.update(step[1])
        return parcel

    def take(self) -> tuple[list[Array], dict[int, bytes]]:
        """Return the arrays of the parcels, and the states after them, since the last call."""
        states, self._states = self._states, {}
        return self._packer.take(), states


def find_missing(run: Run) -> Iterator[str]:
    """What the spec names and this node lacks: folders of local shards, files of `make`, and access to stores."""
    folders: dict[str, str] = {}
    stores: set[str] = set()
    for source in (*run.spec.sources, *run.spec.companions.values()):
        storage = run.shards.storages[source.name]
        listed = run.shards.lists[source.name]
        for number in range(0, len(listed), max(1, len(listed) // _LOOKED_AT)):
            location = storage.resolve(listed[number]).location
            if location.startswith("/"):
                folders.setdefault(os.path.dirname(location), source.name)
                continue
            store = location.partition("://")[2].partition("/")[0]
            if (key := f"{scheme_of(location)} {store}") in stores or scheme_of(location) == "pipe":
                continue
            stores.add(key)
            try:
                storage.stat_location(location)
            except StoreError as error:
                yield f"the source `{source.name}` cannot be read there: {error}"
            except (ShardError, OSError):
                pass  # a shard of its own; reading it will raise this, or skip it
        for recipe in source.make.values():
            for path in recipe.files.values():
                if not os.path.exists(path):
                    yield f"it has no file {path}, which `make` of the source `{source.name}` needs"
    for folder, name in folders.items():
        if not os.path.isdir(folder):
            yield (
                f"it has no folder {folder}, where the shards of the source `{name}` are; mount it on every node, or "
                "read from a store"
            )
