"""The command line as a module: ``python -m graft``."""

from graft.cli.main import main

if __name__ == "__main__":
    main()
