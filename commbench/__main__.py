"""The command `commbench`, and `python -m commbench`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback also while it imports."""
    try:
        from commbench.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped by SIGINT\nhint: run the same command again\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
