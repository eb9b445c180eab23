"""The samples of a step → the batch that the training loop gets.

`batch_maker` is where to begin: it takes each field's values to the `columns` that the spec asks for; `padding` brings
values of unequal length to one. What stacks by itself is in `wdspec.reading.collate`.
"""
