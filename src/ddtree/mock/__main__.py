"""python -m ddtree.mock: the same as `ddtree mock`."""

import sys

from ddtree.mock.command import main

sys.exit(main(sys.argv[1:]))
