"""`python -m commbench` is the same as `commbench`."""

from commbench.cli import main

if __name__ == "__main__":
    main()
