"""`python -m horolog` with one thing broken first, named by SCENARIO_PATCH."""

import os

from horolog.cli import main
from tests.broker.scenarios import patches

getattr(patches, os.environ["SCENARIO_PATCH"])()
main()
