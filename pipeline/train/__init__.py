"""From a snapshot to an adapter: TRL and PEFT in a process of its own."""
