"""Proofs on the real stack, which is spoken to as users and operators do: gateway, command line, MLflow, controller."""
