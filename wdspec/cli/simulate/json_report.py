"""What simulating a spec found, as JSON values."""

from __future__ import annotations

from typing import Any

from wdspec.cli.explain.explanation import heading_json
from wdspec.cli.simulate.results import SimulatedSource, SimulationResult, hints_of


def as_json(result: SimulationResult) -> dict[str, Any]:
    """The result as numbers and texts; keys are only ever added."""
    explanation, simulation = result.explanation, result.simulation
    plan, run = explanation.plan, explanation.run
    return {
        **heading_json(explanation, unit=plan.unit),
        "run": {"ranks": run.ranks, "workers": run.workers, "slots_per_worker": run.slots_per_worker},
        "batch": {
            "batched": plan.batching.batched,
            "per_slot": plan.batching.per_slot,
            "per_rank": plan.batching.global_size // run.ranks,
            "global": plan.batching.global_size,
        },
        "epoch": None
        if plan.epoch_batches is None
        else {"batches": plan.epoch_batches, "samples": plan.epoch_samples},
        "drawn": {name: getattr(simulation, name) for name in ("batches", "samples", "padding", "epochs")},
        "sources": [_source_json(each, result) for each in result.sources],
        "held_per_worker": {"samples": result.held_samples, "bytes": result.held_bytes},
        "open_per_worker": {
            "shards": result.open_shards[0],
            "different": result.open_shards[1],
            "buffer_bytes": explanation.buffer_bytes,
        },
        "legal": {"ranks": result.legal_ranks, "workers": result.legal_workers},
        "warnings": list(hints_of(result)),
    }


def _source_json(each: SimulatedSource, result: SimulationResult) -> dict[str, Any]:
    simulation, slots = result.simulation, result.explanation.plan.topology.slots
    explanation = each.explanation
    return {
        "name": explanation.name,
        "path": explanation.path,
        "nested": explanation.nested,
        "share": each.share,
        "shards": explanation.shards,
        "samples": explanation.samples,
        "estimated": explanation.estimated,
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
