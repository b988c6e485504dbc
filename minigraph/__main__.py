"""The command ``minigraph``, also ``python -m minigraph``; see `minigraph.cli.main`."""

import sys

from minigraph.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
