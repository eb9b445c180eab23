"""What code written for webdataset takes from its inner modules, done with our own parts; no room of ours uses it.

`wdspec/webdataset_names/` says under which names it is found.
"""
