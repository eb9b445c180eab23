"""What `wdspec doctor` finds out: this installation and machine, the variables that matter, and stores that answer.

`machine.py` looks at versions and limits, `variable_advice.py` at the environment, `reaching.py` at the stores of
a spec.
"""
