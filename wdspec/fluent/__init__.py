"""All that users of webdataset know: pipelines in Python, made of stages, with the names and methods of webdataset.

In: URLs of shards, or anything that can be iterated; functions of the user's. Out: `DataPipeline`, an `IterableDataset`
of samples or batches. A spec enters at one place, `spec_pipeline`, which is a pipeline that reads a spec's plan.

`stage` says what a stage is, and is the file to read first; `stage_chain` runs stages one behind the other,
`datapipeline` has the classes, with one method for each stage, `epoch_cuts` what `with_epoch` and `repeat` do, `mixing`
the mixes. `error_handlers` say what becomes of an exception; `field_handlers` decode fields for
`sample_decoder` and `decoder`. `replacements` lists what webdataset has and we have not, for the errors that name it.
"""
