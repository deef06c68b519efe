"""What drives the library: the nightly flow, the controller, the command line."""
