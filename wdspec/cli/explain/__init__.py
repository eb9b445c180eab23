"""What `wdspec explain` finds out: a spec goes in, a `Explanation` made of plain values comes out.

Read `explanation.py` first; `survey_spec.py` fills it.
"""
