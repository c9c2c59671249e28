"""Entry point of `python -m reproduction`."""

from plogicnet.cli import run_program

if __name__ == "__main__":
    run_program("reproduction.command:app", "python -m reproduction")
