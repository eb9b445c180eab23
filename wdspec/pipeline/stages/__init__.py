"""The stages of pipelines in Python: functions from iterator to iterator, one file for each kind.

`wdspec.shuffle(100)` makes a stage; `DataPipeline(source, stage, …)` and the methods of `DataPipeline` chain
them. Any function from an iterator to an iterator is a stage too.
"""
