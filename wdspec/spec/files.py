"""Spec files: read within limits, parsed once, their `extends` merged below them; and files of other tools."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from wdspec.spec.problems import IgnoreComment, Problem, Problems, ignore_comments, shown
from wdspec.spec.python_values import from_python
from wdspec.spec.tree import ListNode, MapNode, Node, Origin, Scalar, merge, plain
from wdspec.spec.yaml import MAX_BYTES, decode_text, parse
from wdspec.urls.urls import scheme_of

if TYPE_CHECKING:
    from wdspec.convert.dialect import Dialect

T = TypeVar("T")

MAX_CHAIN = 16
MOST_BESIDE = 1 << 30
"""Bytes of a file that goes with a spec, a lock or measurements: a shard takes some hundreds."""
ReadFile = Callable[[str, bool, int], bytes]
"""Absolute path, whether only a regular file will do, and a number -> up to so many bytes and one more. Raises OSError,
ValueError."""
STANDARD_INPUT = "-"
STANDARD_INPUT_NAME = "<stdin>"
_OURS = frozenset({"dataset", "splits", "extends", "defaults", "wdspec"})
_TELLING = ("__module__", "__class__", "datasets", "streams", "input_cfg", "sources", "schedule")
"""Keys of other tools to point at, the first that is there; a file with one of the first two is never ours."""


class Library:
    """The files of one run: each is read and parsed once, however often it is named.

    Args:
        problems: where what is wrong is noted.
        expand: gives a file's tree with the variables of its own scope replaced.
        read: reads a file: from the disk, or out of a revision.
    """

    def __init__(
        self, problems: Problems, expand: Callable[[MapNode], MapNode], read: ReadFile | None = None
    ) -> None:
        self._problems = problems
        self._expand = expand
        self._read = read or read_from_disk
        self._parsed: dict[str, MapNode | None] = {}
        self._merged: dict[str, MapNode | None] = {}
        self._beside: dict[str, Any] = {}
        self.ignore_comments: list[IgnoreComment] = []
        """Those of all files that were read."""

    def spec(
        self, path: str, named: str, at: Node | None = None, chain: tuple[str, ...] = ()
    ) -> MapNode | None:
        """A file with everything it extends; None, and problems, when it cannot be used.

        Args:
            path: absolute.
            named: what the user calls it.
            at: the value that names it, or None for the file a command was given.
            chain: the files that led here, outermost first.
        """
        real = os.path.realpath(path)
        if at is not None and (real in chain or len(chain) >= MAX_CHAIN):
            self._note_circle(real, at, chain)
            return None
        if real not in self._merged:
            own = self.parsed(path, named, at)
            self._merged[real] = own and self.extended(own, (*chain, real))
        return self._merged[real]

    def _note_circle(self, real: str, at: Node, chain: tuple[str, ...]) -> None:
        if real in chain:
            names = " -> ".join(os.path.basename(each) for each in (*chain[chain.index(real) :], real))
            self._problems.add("E101", at, f"this closes a circle: {names}", "break it at one of them")
        else:
            self._problems.add("E101", at, f"files lead to files more than {MAX_CHAIN} deep", "flatten them")

    def parsed(self, path: str, named: str, at: Node | None = None) -> MapNode | None:
        """The tree of one file alone."""
        real = os.path.realpath(path)
        if real in self._parsed:
            return self._parsed[real]
        self._parsed[real] = None
        self._problems.saw(named)
        try:
            data = self._read(path, at is not None, MAX_BYTES)
        except (OSError, ValueError) as error:
            is_directory = isinstance(error, IsADirectoryError)
            message = (
                f"{named} is a directory" if is_directory else f"cannot read {named}: {reason_of(error)}"
            )
            hint = "name a file in it" if is_directory else "check the path"
            if at is None:
                self._problems.note(Problem("E001", message, hint, named))
            else:
                self._problems.add("E001", at, message, hint)
        else:
            self._parsed[real] = self._tree(data, named, os.path.dirname(os.path.abspath(path)))
        return self._parsed[real]

    def standard_input(self) -> MapNode | None:
        """The tree of what comes from standard input; its relative paths start at the working directory."""
        return self._tree(sys.stdin.buffer.read(MAX_BYTES + 1), STANDARD_INPUT_NAME, os.getcwd())

    def _tree(self, data: bytes, named: str, directory: str) -> MapNode | None:
        if len(data) > MAX_BYTES:
            hint = "a spec describes data, it does not hold it; put long lists of shards into an `@file`"
            message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
            self._problems.note(Problem("E002", message, hint, named, 1, 1))
            return None
        text = decode_text(data, named, self._problems)
        if text is None:
            return None
        if "wdspec:" in text:
            self.ignore_comments += ignore_comments(text, named, self._problems)
        tree = parse(text, Origin(named, directory, text), self._problems)
        return None if tree is None else top_map(tree, self._problems)

    def extended(self, own: MapNode, chain: tuple[str, ...] = ()) -> MapNode:
        """A tree laid over everything it extends; that of another tool's file, where a spec can say all of it."""
        if may_be_foreign(own) and (native := natively_read(own)) is not None:
            return native
        if own.get("extends") is None:
            return own
        parts = {key: own.entries[key] for key in ("vars", "extends") if key in own.entries}
        extends = self._expand(own.with_entries(parts)).entries["extends"].value
        below: Node | None = None
        for node in extends.items if isinstance(extends, ListNode) else (extends,):
            found = self.find(node, "extends")
            base = found and self.spec(*found, node, chain)
            if base is not None:
                below = merge(below, base.without("extends"))
        return merge(below, own.without("extends"))

    def find(self, node: Node, key: str) -> tuple[str, str] | None:
        """Absolute path and name of the file that a value names; None, and a problem, when it names none."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
            message = f"`{key}` takes the path of a file, but this is {shown(plain(node))}"
            self._problems.add("E202", node, message, "write the path as text")
            return None
        if scheme_of(node.value):
            hint = "copy the file here: version 1 reads specs from local files only"
            self._problems.add("E102", node, f"`{key}` of a remote file is not allowed", hint)
            return None
        if node.value.startswith("~"):
            path = named = os.path.expanduser(node.value)
        else:
            path = os.path.join(node.base, node.value)
            beside = os.path.dirname(node.origin.name) if node.directory is None and node.line else ""
            named = os.path.normpath(os.path.join(beside, node.value))
        return path, named

    def beside(self, path: str, most: int, parse: Callable[[bytes], T]) -> T:
        """What a function makes of the bytes of a file that is no spec.

        Raises:
            OSError, ValueError: it cannot be read.
            Exception: what the function raises.
        """
        if path not in self._beside:
            self._beside[path] = parse(self._read(path, True, most))
        found: T = self._beside[path]
        return found


def read_from_disk(path: str, only_regular: bool, most: int = MAX_BYTES) -> bytes:
    """The bytes of a file, as `ReadFile` says; a spec on the command line may also be a pipe."""
    kind = os.stat(path).st_mode
    if only_regular and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    with open(path, "rb") as file:
        return file.read(most + 1)


def reason_of(error: Exception) -> str:
    """Why a file cannot be read, in words."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (getattr(error, "strerror", None) or str(error)).lower()


def top_map(tree: Node, problems: Problems) -> MapNode | None:
    """The tree if it is a map; None, and a problem, if not."""
    if isinstance(tree, MapNode):
        return tree
    if isinstance(tree, Scalar) and tree.value is None:
        problems.add("E007", tree, "the file is empty", "write at least `dataset:` with one source")
    else:
        hint = "a spec is a map of keys; put the sources under `dataset:`"
        problems.add("E015", tree, f"expected a map at the top, but this is {shown(plain(tree))}", hint)
    return None


def may_be_foreign(top: MapNode) -> bool:
    """Whether a file may be a spec of another tool: it has none of our keys, or one that we never have."""
    return _OURS.isdisjoint(top.entries) or not top.entries.keys().isdisjoint(_TELLING[:2])


def is_foreign(top: MapNode, problems: Problems) -> bool:
    """Whether the file is a spec of another tool; if so that is noted, and nothing else need be checked."""
    found = _recognised(top)
    if found is None:
        return False
    key = next(key for key in (*_TELLING, *top.entries) if key in top.entries)
    message = f"this looks like {found.title}, which wdspec does not read"
    problems.add("E402", top.key(key), message, "`wdspec convert FILE -o NEW.yaml` makes a spec of it")
    return True


def natively_read(top: MapNode) -> MapNode | None:
    """What a file of another tool says, where a spec can say all of it; None for any other file."""
    found = _recognised(top)
    if found is None or not top.origin.directory:
        return None
    from wdspec.convert.dialect import Given, NewSpec

    new = NewSpec(top.origin.directory)
    found.convert(Given("", plain(top), top.origin.directory), new)
    if new.notes:
        return None
    tree = from_python(new.spec, Origin(top.origin.name, top.origin.directory, None), Problems())
    return tree if isinstance(tree, MapNode) else None


def _recognised(top: MapNode) -> Dialect | None:
    from wdspec.convert import recognised
    from wdspec.convert.dialect import Given

    value = plain(top)
    found = recognised(Given("", value, ""))
    return None if found is None or _may_be_ours(value) else found


def _may_be_ours(value: Any) -> bool:
    """Whether it is as likely a spec whose `dataset` is misspelt."""
    listed = value.get("datasets")
    return set(value) == {"datasets"} and all(
        isinstance(each, dict) and set(each) <= {"name", "shards"} for each in listed
    )
