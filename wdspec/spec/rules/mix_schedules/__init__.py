"""`mix.schedule`: steps in order, each for sources that are in the top list."""
