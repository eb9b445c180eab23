"""Who reads for a Loader, processes or threads: what they are told, and how batches are sent. Read `tasks` first."""
