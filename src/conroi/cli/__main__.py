"""`python -m conroi.cli`, for where the command is not on the path."""

import sys

from conroi.cli import main

sys.exit(main())
