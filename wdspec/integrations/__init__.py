"""Loaders in the training frameworks and telemetry of others, one module each; import the one that you need.

`lightning` has a data module, `transformers` a Trainer, `torchtitan` a data loader, `loaders` what they share, also for
Accelerate. `opentelemetry` exports the counts of loaders as metrics, and `tracking` logs what a run reads. Everything
that a run does is in `wdspec.run`; these modules only connect it.
"""
