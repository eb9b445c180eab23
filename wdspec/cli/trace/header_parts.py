"""Sources read by their headers alone: which samples come, and when, without a byte of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wdspec.read.budget import Budget
from wdspec.read.shard import ShardOpener
from wdspec.read.transform import MapSteps, Process, SourceParts, Transform
from wdspec.spec.spec import Spec


def header_parts(spec: Spec, parts: Mapping[str, SourceParts]) -> dict[str, SourceParts]:
    """The parts of the sources of a spec; those whose samples are left out only by what is in them stay as they
    are."""
    return {name: part if needs_samples(spec, part) else _by_headers(part) for name, part in parts.items()}


def needs_samples(spec: Spec, parts: SourceParts) -> bool:
    """Whether it takes the samples themselves to know which of them are left out."""
    return spec.stage is not None or parts.chooses


def _by_headers(parts: SourceParts) -> SourceParts:
    return replace(parts, open=parts.open.headers, transform=_AsItIs(parts.transform.fields))


@dataclass(frozen=True)
class _AsItIs(Transform):
    """Leaves samples as they are."""

    def build(
        self, budget: Budget, seed: int, slot: int, maps: MapSteps, shards: ShardOpener | None = None
    ) -> Process:
        def process(raw: dict[str, Any], ordinal: int) -> dict[str, Any]:
            budget.delivered += 1
            return raw

        return process
