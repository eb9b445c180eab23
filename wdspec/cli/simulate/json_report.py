"""What simulating a spec found, as JSON values."""

from __future__ import annotations

from typing import Any

from wdspec.cli.explain.explanation import heading_json
from wdspec.cli.simulate.results import Outcome, SourceOutcome, hints_of


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as numbers and texts; keys are only ever added."""
    meaning, simulation = outcome.meaning, outcome.simulation
    plan, run = meaning.plan, meaning.run
    return {
        **heading_json(meaning, unit=plan.unit),
        "run": {"ranks": run.ranks, "workers": run.workers, "slots_per_worker": run.slots_per_worker},
        "batch": {
            "batched": plan.batching.batched,
            "per_slot": plan.batching.per_slot,
            "per_rank": run.canonical_ranks * plan.batching.per_slot,
            "global": plan.batching.global_size,
        },
        "epoch": None
        if plan.epoch_batches is None
        else {"batches": plan.epoch_batches, "samples": plan.epoch_samples},
        "drawn": {name: getattr(simulation, name) for name in ("batches", "samples", "padding", "epochs")},
        "sources": [_source_json(each, outcome) for each in outcome.sources],
        "held_per_worker": {"samples": outcome.held_samples, "bytes": outcome.held_bytes},
        "open_per_worker": {
            "shards": outcome.open_shards[0],
            "different": outcome.open_shards[1],
            "buffer_bytes": meaning.buffer_bytes,
        },
        "legal": {"ranks": outcome.legal_ranks, "workers": outcome.legal_workers},
        "warnings": list(hints_of(outcome)),
    }


def _source_json(each: SourceOutcome, outcome: Outcome) -> dict[str, Any]:
    simulation, slots = outcome.simulation, outcome.meaning.plan.topology.slots
    meaning = each.meaning
    return {
        "name": meaning.name,
        "path": meaning.path,
        "nested": meaning.nested,
        "share": each.share,
        "shards": meaning.shards,
        "samples": meaning.samples,
        "estimated": meaning.estimated,
        "per_batch": {
            "expected": each.share * simulation.global_size,
            "min": each.batch_least,
            "mean": each.drawn / simulation.batches,
            "max": each.batch_most,
        },
        "total": {"expected": each.expected, "drawn": each.drawn, "furthest_off": each.furthest},
        "by_epoch": each.by_epoch,
        "per_slot": {
            "expected": each.expected / slots,
            "min": min(each.by_slot),
            "max": max(each.by_slot),
            "shards": _range_json(each.slot_turns),
            "passes_behind": _range_json(each.slot_passes),
        },
        "coverage": each.coverage and each.coverage._asdict(),
    }


def _range_json(ends: tuple[int, int] | None) -> dict[str, int] | None:
    return ends and {"min": ends[0], "max": ends[1]}
