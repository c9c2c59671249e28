"""`python -m plogicnet`: the program without its installed script."""

from plogicnet.cli import main

if __name__ == "__main__":
    main()
