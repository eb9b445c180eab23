"""A job from its tasks to its report: what is there already is skipped, what failed is tried again."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from wdspec.offline.engines import Engine
from wdspec.offline.job import Job, ShardTask
from wdspec.offline.shard_work import Outcome, ShardDone, ShardFailed, ShardWork, carry_out, lost_shard


@dataclass
class Report:
    """What became of a job's shards."""

    there: list[ShardTask] = field(default_factory=list)
    """Written before; not looked into."""
    done: dict[ShardTask, ShardDone] = field(default_factory=dict)
    failed: dict[ShardTask, ShardFailed] = field(default_factory=dict)
    """With the cause of the last attempt."""


def run_job(
    job: Job,
    engine: Engine,
    *,
    retries: int = 1,
    force: bool = False,
    told: Callable[[ShardTask, Outcome | None, bool], None] = lambda task, outcome, last: None,
) -> Report:
    """Does all tasks of a job whose output is not there yet.

    Args:
        job: the tasks.
        engine: who does them; closed at the end.
        retries: how often a failed shard is tried again, after all others.
        force: do also those whose output is there; it is replaced when the new one is whole.
        told: called with each task and its outcome (None: it was there), and whether that is final.
    """
    report = Report()
    pending: list[ShardTask] = []
    for task in job.tasks:
        if not force and job.options.outputs.is_written(task.output):
            report.there.append(task)
            told(task, None, True)
        else:
            pending.append(task)
    directory, number = os.getcwd(), uuid.uuid4().hex
    try:
        for left in range(retries, -1, -1):
            works = [
                ShardWork(task, job.parts[task.source], job.options, directory, number) for task in pending
            ]
            pending = []
            for work, outcome in engine.run(carry_out, works, lost_shard) if works else ():
                failed = isinstance(outcome, ShardFailed)
                told(work.task, outcome, not failed or not left)
                if isinstance(outcome, ShardDone):
                    report.done[work.task] = outcome
                elif left:
                    pending.append(work.task)
                else:
                    report.failed[work.task] = outcome
    finally:
        engine.close()
    return report
