"""`python -m unmask.cli`."""

from unmask.cli.main import main

if __name__ == "__main__":
    main()
