"""Commands for specs that a team keeps in a repository; as in `spec_commands`, each file is a command."""
