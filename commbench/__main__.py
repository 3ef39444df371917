"""`python -m commbench` is the same as `commbench`."""

from commbench.cli.main import main

if __name__ == "__main__":
    main()
