"""`python -m quarterdeck.cli`: the program, where its script is not on PATH."""

from . import main

if __name__ == "__main__":
    main()
