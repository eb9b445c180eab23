"""`python -m wdspec`: the command `wdspec`, where its folder is not on the PATH."""

from wdspec.cli.main import main

if __name__ == "__main__":
    main()
