"""Spec files: read within limits, parsed once, their `extends` merged below them; and files of other tools."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from wdspec.base.files import DESCRIPTORS, SPECIAL
from wdspec.spec.language.requirements import needs_newer
from wdspec.spec.problems import IgnoreComment, Problem, Problems, describe, ignore_comments
from wdspec.spec.python_values import from_python
from wdspec.spec.spec import Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Origin, Position, Scalar, merge, plain
from wdspec.spec.validation import MERGED_TOP, keys_of
from wdspec.spec.yaml import MAX_BYTES, decode_text, parse
from wdspec.urls.urls import scheme_of

if TYPE_CHECKING:
    from wdspec.convert.dialect import Dialect

T = TypeVar("T")

MAX_CHAIN = 16
MOST_DATA = 1 << 30
"""Bytes of a lock or of measurements, which have some hundred per shard."""
ReadFile = Callable[[str, bool, int], bytes]
"""Takes an absolute path, whether it must be a regular file, and a number n; returns up to n + 1 bytes.
May raise OSError and ValueError."""
STANDARD_INPUT = "-"
STANDARD_INPUT_NAME = "<stdin>"
_ENTRY = re.compile(rb"""[\w.-]+[ \t]*:(?:\s|$)|["'][ \t]*:|\0""")
"""Matches a key in YAML or JSON, and binary files, which have messages of their own."""
_OURS = frozenset({"dataset", "splits", "extends", "defaults", "wdspec"})
_TELLING = (
    "__module__",
    "__class__",
    "wids_version",
    "datasets",
    "streams",
    "input_cfg",
    "sources",
    "schedule",
)
"""Keys of other tools, to point at the first one that is present. A file with one of the first two is never a spec."""


def is_spec_file(what: str) -> bool:
    """Whether an argument names a spec, perhaps with its split, and not a URL or a directory."""
    return what.partition("#")[0].endswith((".yaml", ".yml", ".json"))


def may_have_keys(data: bytes) -> bool:
    """Whether the bytes of a file may be a map in YAML. If not, it may be any file, and its lines are in no message."""
    return _ENTRY.search(data) is not None


def hint_for_missing(name: str) -> str:
    """Return what to do if there is no file of this name."""
    return "specs are local files, so download it first" if scheme_of(name) else "check the path"


class Layers(NamedTuple):
    """What `extends` replaces, for warnings."""

    lists: dict[Position, tuple[str, list[str]]]
    """The place of a `dataset` -> the file whose list of sources it replaces, and their names."""
    bases: list[tuple[Node, str, str]]
    """Files that have no effect, as later ones replace all of their values: place, message and hint."""


class Library:
    """Reads and parses each file once, however often it is named.

    Args:
        problems: collects what is wrong.
        expand: replaces the variables in a file's tree.
        read: reads a file, from the disk or from a git revision.
    """

    def __init__(
        self, problems: Problems, expand: Callable[[MapNode], MapNode], read: ReadFile | None = None
    ) -> None:
        self._problems = problems
        self._expand = expand
        self._read = read or read_from_disk
        self._parsed: dict[str, MapNode | None] = {}
        self._merged: dict[str, MapNode | None] = {}
        self._data: dict[str, Any] = {}
        self.layers = Layers({}, [])
        self.tables: list[Node] = []
        """The lists of sources that were read."""
        self.ignore_comments: list[IgnoreComment] = []
        """The comments of all files that were read."""

    @property
    def files(self) -> frozenset[str]:
        """Absolute paths of the spec files that were read so far, without symbolic links."""
        return frozenset(self._parsed)

    def spec(
        self, path: str, named: str, at: Node | None = None, chain: tuple[str, ...] = ()
    ) -> MapNode | None:
        """Read a file and everything that it extends; None, and problems, if it cannot be used.

        Args:
            path: absolute.
            named: the name that the user gave.
            at: the value that names it; None for the file that a command was given.
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
            self._problems.add(
                "E101", at, f"these files form a cycle: {names}", "remove one of the references"
            )
        else:
            message = f"files refer to files more than {MAX_CHAIN} levels deep"
            self._problems.add("E101", at, message, "use fewer levels")

    def parsed(self, path: str, named: str, at: Node | None = None) -> MapNode | None:
        """Read one file, without what it extends."""
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
            hint = "name a file in it" if is_directory else hint_for_missing(named)
            if at is None:
                self._problems.note(Problem("E001", message, hint, named))
            else:
                self._problems.add("E001", at, message, hint)
        else:
            tree = self._tree if at is None else self._tree_of_another
            self._parsed[real] = tree(data, named, os.path.dirname(os.path.abspath(path)))
        return self._parsed[real]

    def standard_input(self) -> MapNode | None:
        """Read standard input; its relative paths start at the working directory."""
        return self._tree(sys.stdin.buffer.read(MAX_BYTES + 1), STANDARD_INPUT_NAME, os.getcwd())

    def _tree(self, data: bytes, named: str, directory: str) -> MapNode | None:
        text = decode_text(data, named, self._problems)
        if text is None:
            return None
        tree = parse(text, Origin(named, directory, text), self._problems)
        if isinstance(tree, MapNode) and "requires" in tree.entries and needs_newer(tree, self._problems):
            return None
        if "wdspec:" in text:
            self.ignore_comments += ignore_comments(text, named, self._problems)
        return None if tree is None else top_map(tree, self._problems)

    def _tree_of_another(self, data: bytes, named: str, directory: str) -> MapNode | None:
        """Parse a file that a spec names. If it is no spec, its lines are in no message: they may be secret."""
        if data.strip() and not may_have_keys(data):
            hint = "name a YAML file that is a part of a spec"
            self._problems.note(Problem("E015", "there is no `key: value` in this file", hint, named, 1, 1))
            return None
        tree = self._tree(data, named, directory)
        if tree is not None and tree.entries.keys().isdisjoint([*keys_of(Spec), *MERGED_TOP]):
            for entry in tree.entries.values():
                self._problems.hide(entry.key)
        return tree

    def extended(self, own: MapNode, chain: tuple[str, ...] = ()) -> MapNode:
        """Lay a tree over everything that it extends. A file of another tool is converted, if nothing is lost."""
        if may_be_foreign(own) and (native := natively_read(own)) is not None:
            return native
        if own.get("extends") is None:
            return own
        parts = {key: own.entries[key] for key in ("vars", "extends") if key in own.entries}
        extends = self._expand(own.with_entries(parts)).entries["extends"].value
        below: MapNode | None = None
        bases: list[tuple[Node, MapNode]] = []
        for node in extends.items if isinstance(extends, ListNode) else (extends,):
            found = self.find(node, "extends")
            base = found and self.spec(*found, node, chain)
            if base is not None:
                bases.append((node, base.without("extends")))
                below = merge(below, bases[-1][1])
        self._note_replaced(own, below, bases)
        return merge(below, own.without("extends"))

    def _note_replaced(
        self, own: MapNode, below: MapNode | None, bases: Sequence[tuple[Node, MapNode]]
    ) -> None:
        """Note the sources that a file replaces, and the files that it extends in vain."""
        mine, theirs = own.get("dataset"), below and below.get("dataset")
        if isinstance(mine, ListNode) and isinstance(theirs, ListNode):
            names = [item.get("name") for item in theirs.items if isinstance(item, MapNode)]
            known = [name.value for name in names if isinstance(name, Scalar) and isinstance(name.value, str)]
            self.layers.lists[mine.position] = theirs.origin.name, known
        for number, (node, base) in enumerate(bases[:-1]):
            later = bases[number + 1 :]
            values = dict(_values_in(base))
            above = {path: value for _, each in later for path, value in _values_in(each)}
            if values and len(values) < len(above) and values.keys() <= above.keys() and values != above:
                if all(values[path] == above[path] for path in values):
                    continue
                key = next(path for path in values if values[path] != above[path])
                ordered = [each for each, _ in (*bases[:number], *later, bases[number])]
                names_of = [str(plain(each)) for each in ordered]
                self.layers.bases.append(
                    (
                        node,
                        f"`extends`: `{plain(node)}` has no effect, as later files replace all of its values, such as "
                        f"`{'.'.join(key)}: {values[key]!s:.40}` by {above[key]!s:.40}",
                        f"write `extends: [{', '.join(names_of)}]`: each file is laid over those before it",
                    )
                )

    def find(self, node: Node, key: str) -> tuple[str, str] | None:
        """The absolute path and the name of the file that a value names; None, and a problem, if it names none."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
            message = f"`{key}` takes the path of a file, but this is {describe(plain(node))}"
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
            above = os.path.dirname(node.origin.name) if node.directory is None and node.line else ""
            named = os.path.normpath(os.path.join(above, node.value))
        return path, named

    def parse_data(self, path: str, most: int, parse: Callable[[bytes], T]) -> T:
        """Read another file than a spec, and parse its bytes with a function.

        Raises:
            OSError, ValueError: it cannot be read.
            Exception: from the function.
        """
        if path not in self._data:
            self._data[path] = parse(self._read(path, True, most))
        found: T = self._data[path]
        return found


def read_from_disk(path: str, only_regular: bool, most: int = MAX_BYTES) -> bytes:
    """Read a file from the disk; a `ReadFile`. A spec on the command line may also be `<(command)`."""
    kind = SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind is not None and (only_regular or not path.startswith(DESCRIPTORS)):
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", path)
    with open(path, "rb") as file:
        return file.read(most + 1)


def reason_of(error: Exception) -> str:
    """Say why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    return (getattr(error, "strerror", None) or str(error)).lower()


def top_map(tree: Node, problems: Problems) -> MapNode | None:
    """Check that a tree is a map; None, and a problem, if not."""
    if isinstance(tree, MapNode):
        return tree
    if isinstance(tree, Scalar) and tree.value is None:
        problems.add("E007", tree, "the file is empty", "write `dataset:` with at least one source")
    else:
        hint = "a spec is a map of keys; put the sources under `dataset:`"
        problems.add("E015", tree, f"expected a map at the top, but this is {describe(plain(tree))}", hint)
    return None


def may_be_foreign(top: MapNode) -> bool:
    """Whether a file may be a spec of another tool: it has no key of ours, or one that ours never have."""
    return _OURS.isdisjoint(top.entries) or not top.entries.keys().isdisjoint(_TELLING[:2])


def is_foreign(top: MapNode, problems: Problems) -> bool:
    """Whether a file is a spec of another tool. Then that is the only problem to report."""
    found = _recognize(top)
    if found is None:
        return False
    key = next(key for key in (*_TELLING, *top.entries) if key in top.entries)
    message = f"this looks like {found.title}, which wdspec does not read"
    problems.add("E402", top.key(key), message, "convert it with `wdspec convert FILE -o NEW.yaml`")
    return True


def natively_read(top: MapNode) -> MapNode | None:
    """Convert a file of another tool; None if it is not one, or if something would be lost."""
    found = _recognize(top)
    if found is None or not top.origin.directory:
        return None
    from wdspec.convert.dialect import Given, NewSpec

    new = NewSpec(top.origin.directory)
    found.convert(Given("", plain(top), top.origin.directory), new)
    if new.notes:
        return None
    tree = from_python(new.spec, Origin(top.origin.name, top.origin.directory, None), Problems())
    return tree if isinstance(tree, MapNode) else None


def _recognize(top: MapNode) -> Dialect | None:
    from wdspec.convert import find_dialect
    from wdspec.convert.dialect import Given

    value = plain(top)
    found = find_dialect(Given("", value, ""))
    return None if found is None or _may_be_ours(value) else found


def _may_be_ours(value: Any) -> bool:
    """Whether it may also be a spec of ours with a misspelled `dataset`."""
    listed = value.get("datasets")
    return set(value) == {"datasets"} and all(
        isinstance(each, dict) and set(each) <= {"name", "shards"} for each in listed
    )


def _values_in(node: MapNode, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values in a tree that a layer above replaces, with their paths."""
    for name, entry in node.entries.items():
        if isinstance(entry.value, MapNode):
            yield from _values_in(entry.value, (*path, name))
        elif path or name != "wdspec":
            yield (*path, name), plain(entry.value)
