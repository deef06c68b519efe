"""What happened: gateways append interactions and feedback to segments; `collect` reads them back."""
