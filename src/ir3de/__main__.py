"""`python -m ir3de` is the command line."""

from ir3de.cli import main

if __name__ == "__main__":
    main()
