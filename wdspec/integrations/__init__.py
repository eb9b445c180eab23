"""Loaders in the training frameworks of others, one module each; import the one that you need.

`lightning` has a data module, `transformers` a Trainer, `torchtitan` a data loader, and `loaders` what they share, also
for Accelerate. Everything that a run does is in `wdspec.run`; these modules only connect it.
"""
