"""Run the command line with `python -m plogicnet`."""

from plogicnet.cli import main

if __name__ == "__main__":
    main()
