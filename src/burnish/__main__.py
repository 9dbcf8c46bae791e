"""`python -m burnish` is the `burnish` command."""

from burnish.cli import main

if __name__ == "__main__":
    main()
