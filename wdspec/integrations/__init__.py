"""Use loaders with training frameworks, telemetry and notebooks: one module for each. Import the one you need.

`lightning` has a data module, `transformers` a Trainer, and `torchtitan` a data loader. `loaders` has what they share,
and the adapter for Accelerate. `opentelemetry` exports the statistics of loaders as metrics, `tracking` logs what a
run reads, and `notebooks` makes the tables that notebooks show. These modules are thin adapters: the work is done in
`wdspec.run`.
"""
