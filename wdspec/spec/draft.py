"""What composing makes of a file: drafts of its sources, and all of it together for rules to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from wdspec.spec.language.values import read_number
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Position, Scalar

SHARE_KEYS = ("probability", "weight", "upsample")


@dataclass(eq=False, repr=False)
class Draft:
    """A source on its way to becoming a `Source`: its merged tree, and the model once its values are checked."""

    node: MapNode
    name: str
    children: list[Draft] | None
    own: MapNode
    """The tree before defaults were merged, to see what this source states itself."""
    model: Source | None = None
    bad: frozenset[str] = frozenset()
    """Keys whose values are wrong."""

    @property
    def leaves(self) -> list[Draft]:
        """The drafts with shards in this one."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves]

    @property
    def stated_shares(self) -> list[str]:
        """The share keys it has: at most one, if it is right."""
        return [key for key in SHARE_KEYS if self.node.get(key) is not None]


class SourceList(NamedTuple):
    """One `dataset:` list, that of the top level or of a nested mix."""

    drafts: list[Draft]
    node: Node
    """The list in the file."""
    mix: MapNode | None
    """The `mix:` that goes with it."""

    @property
    def scheduled(self) -> bool:
        """Whether a schedule gives the shares."""
        return self.mix is not None and self.mix.get("schedule") is not None

    @property
    def share_kinds(self) -> list[str | None]:
        """For each source `probability`, `weight`, or None where its share goes by size."""
        stated = (draft.stated_shares[:1] for draft in self.drafts)
        return [keys[0] if keys and keys[0] != "upsample" else None for keys in stated]

    def has_zero_sum(self, key: str) -> bool:
        """Whether all its sources have this share key, with no share above 0."""
        numbers = self.numbers(key)
        return bool(numbers) and not any(numbers or ())

    def numbers(self, key: str) -> list[float] | None:
        """The shares of its sources under one key; None where one is missing or wrong."""
        numbers = []
        for draft in self.drafts:
            node = draft.node.get(key)
            try:
                number = read_number(node.value if isinstance(node, Scalar) else node)
            except PydanticCustomError:
                return None
            if number < 0:
                return None
            numbers.append(float(number))
        return numbers


class Variant(NamedTuple):
    """Which of the specs that a file holds is meant, and what the environment says about it."""

    split: str | None
    environment: str | None
    file: str | None
    """The file as the user named it."""
    overlaid: set[Position]
    """Where the rewrite rules of the overlay stand: they go before all others."""
    secure: bool
    """Whether WDS_SECURE forbids programs and user code."""
    has_endpoint: bool
    """Whether AIS_ENDPOINT is set."""
    has_schemes: bool = False
    """Whether USE_AIS_FOR is set."""


class Composed(NamedTuple):
    """A spec with effective values, beside the trees that it was made from."""

    spec: Spec
    top: MapNode
    """The top level, merged and expanded."""
    drafts: list[Draft]
    """The sources of the top list."""
    bad: frozenset[str]
    """Keys of the top level whose values are wrong."""
    variant: Variant

    @property
    def leaves(self) -> list[Draft]:
        """The drafts with shards."""
        return [leaf for draft in self.drafts for leaf in draft.leaves]

    @property
    def models(self) -> Iterator[tuple[Draft, Source]]:
        """The drafts with shards of which a model could be made, and the models."""
        return ((leaf, leaf.model) for leaf in self.leaves if leaf.model is not None)

    @property
    def every_draft(self) -> Iterator[Draft]:
        """All drafts, each nested mix before its sources."""
        return _nested(self.drafts)

    @property
    def lists(self) -> Iterator[SourceList]:
        """The list of the top level, then those of nested mixes."""
        if self.drafts:
            yield SourceList(self.drafts, self.top.entries["dataset"].value, _map(self.top.get("mix")))
        for draft in self.every_draft:
            if draft.children is not None:
                node = draft.node.entries["dataset"].value
                yield SourceList(draft.children, node, _map(draft.node.get("mix")))

    @property
    def is_pass(self) -> bool:
        """Whether an epoch is one pass over every sample."""
        return self.spec.epoch is not None and self.spec.epoch.remainder is not None

    @property
    def mix(self) -> MapNode | None:
        """The `mix:` of the top level where its values are right and mean something."""
        usable = self.drafts and not self.bad & {"mix", "batch"} and not self.is_pass
        return _map(self.top.get("mix")) if usable else None

    @property
    def schedule(self) -> ListNode | None:
        """The `mix.schedule`, likewise."""
        node = self.mix and self.mix.get("schedule")
        return node if isinstance(node, ListNode) else None


def _nested(drafts: Iterable[Draft]) -> Iterator[Draft]:
    for draft in drafts:
        yield draft
        yield from _nested(draft.children or ())


def _map(node: Node | None) -> MapNode | None:
    return node if isinstance(node, MapNode) else None
