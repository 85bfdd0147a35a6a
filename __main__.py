"""Run the command `gregor` as ``python -m gregor``, where scripts of the environment are not on the PATH."""

from .command_line import main

if __name__ == "__main__":
    main()
