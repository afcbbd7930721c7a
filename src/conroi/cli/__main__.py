"""`python -m conroi.cli`: the command where `conroi` is not on the PATH."""

import sys

from conroi.cli import main

sys.exit(main())
