"""The `wdspec` program: reads arguments, and prints tables or JSON.

Read `main` first: it finds the commands; each has its own file. `report` prints the reports of commands as tables, text
or JSON. `spec_options` and `shard_files` have the options that several commands share, and `problems` shows what
validation finds. The `*_facts` and `*_draws` files compute what the command of that name shows.
"""
