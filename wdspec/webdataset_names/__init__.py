"""The inner modules of webdataset under their own names (`wdspec.filters`), so that code which imports from them runs.

Only names: each stands for a part of ours. This folder lies on the path of the package `wdspec`; a name that is not
here is an error that says what takes its place.
"""
