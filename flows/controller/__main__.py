"""Start the controller: `python -m flows.controller --configs DIR`."""

from flows.controller.api import main

main()
