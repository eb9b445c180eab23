"""What `wdspec diff` compares and how it says so: two specs, planned, beside each other.

`git_revisions` reads a spec as it was at a revision; `spec_diff` holds the comparison, as values; `saved_states` says
what becomes of a run that was begun with the older spec. `diff_report` makes text, markdown and JSON of it,
`diff_chart` a picture.
"""
