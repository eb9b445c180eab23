"""What simulating a spec found, as JSON values."""

from __future__ import annotations

from typing import Any

from wdspec.cli.simulate.results import Outcome, SourceOutcome, hints_of


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as numbers and texts; keys are only ever added."""
    spec, plan, run, simulation = outcome.spec, outcome.plan, outcome.run, outcome.simulation
    own = run.canonical_ranks * plan.batching.per_slot
    return {
        "name": spec.name,
        "file": spec.file,
        "split": spec.split,
        "environment": spec.environment,
        "seed": plan.seed,
        "draw": plan.draw,
        "unit": plan.unit,
        "topology": {
            "ranks": plan.topology.ranks,
            "workers": plan.topology.workers,
            "slots": plan.topology.slots,
            "why": run.why,
        },
        "run": {"ranks": run.ranks, "workers": run.workers, "slots_per_worker": run.slots_per_worker},
        "batch": {
            "batched": plan.batching.batched,
            "per_slot": plan.batching.per_slot,
            "per_rank": own,
            "global": plan.batching.global_size,
        },
        "epoch": None
        if plan.epoch_batches is None
        else {"batches": plan.epoch_batches, "samples": plan.epoch_samples},
        "drawn": {
            "batches": simulation.batches,
            "samples": simulation.samples,
            "padding": simulation.padding,
            "epochs": simulation.epochs,
        },
        "sources": [_source_json(each, outcome) for each in outcome.sources],
        "windows_per_worker": {"samples": outcome.window_samples, "bytes": outcome.window_bytes},
        "open_per_worker": {
            "shards": outcome.open_shards[0],
            "different": outcome.open_shards[1],
            "buffer_bytes": outcome.buffer_bytes,
        },
        "legal": {"ranks": list(outcome.legal_ranks), "workers": list(outcome.legal_workers)},
        "warnings": list(hints_of(outcome)),
    }


def _source_json(each: SourceOutcome, outcome: Outcome) -> dict[str, Any]:
    simulation, slots = outcome.simulation, outcome.plan.topology.slots
    turns, passes = each.slot_turns, each.slot_passes
    return {
        "name": each.name,
        "path": list(each.path),
        "nested": each.nested,
        "share": each.share,
        "shards": each.shards,
        "samples": each.samples,
        "estimated": each.estimated,
        "per_batch": {
            "expected": each.share * simulation.global_size,
            "min": each.batch_least,
            "mean": each.drawn / simulation.batches,
            "max": each.batch_most,
        },
        "total": {"expected": each.expected, "drawn": each.drawn, "furthest_off": each.furthest},
        "by_epoch": list(each.by_epoch),
        "per_slot": {
            "expected": each.expected / slots,
            "min": min(each.by_slot),
            "max": max(each.by_slot),
            "shards": None if turns is None else {"min": turns[0], "max": turns[1]},
            "passes_behind": None if passes is None else {"min": passes[0], "max": passes[1]},
        },
        "coverage": None if each.coverage is None else each.coverage._asdict(),
    }
