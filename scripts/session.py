"""Measures the missing cells of one server."""

import sys

from ddtree.session_job import main

sys.exit(main())
