"""Start the controller: `python -m flows.controller --configs DIR`."""

from flows.controller.process import main

main()
