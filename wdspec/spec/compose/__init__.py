"""One spec out of files, splits, environments, overrides, variables and child specs.

A tree goes in; a `Composed` comes out: the `Spec` with effective values, and beside it the merged trees it was made
from, so that rules can point at them. Read `composing.py` first, then `draft.py`. In the order of work:

    spec_files.py, merging.py            a file with all that it extends
    foreign_specs.py                     specs of other tools, which stop here
    variants.py                          the split, the environment's overlay, overrides
    variables.py                         `${name}`
    source_list.py, source_names.py      child specs, overlays by name, defaults; a name for each source
    written_secrets.py, absolute_paths.py   what must not stay in the tree, or not stay as it is
    effective_values.py                  what takes effect where sources say less
"""
