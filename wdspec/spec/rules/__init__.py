"""What takes more than one value of a spec to see: one file a rule, found by its folder.

A `Composed` goes in, findings come out. Rules only report: what they look at is computed in `compose/`. To add one,
write a file into one of the folders (or a new folder) with a function below `@rule`: code, title, explanation, a bad
and a good spec. `rule_table.py` finds it; `wdspec rule CODE`, docs/spec.md and tests of examples take it from there.
Read `lint_rule.py` first, then `source_shares/probability_sums.py` as an example.

A rule reports under one code alone, so that a code can be looked up, counted or ignored as one thing. What several
rules share is no rule, and stands in the modules beside the folders. Most rules own their code; those under general
codes (E105, E206, E207, E212, E214) collect all that is checked under it, however unlike the keys, since one page
explains them all. Each rule walks the sources anew: that costs some microseconds a source, and keeps the files apart.
"""
