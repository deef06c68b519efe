"""The data plane: an OpenAI-compatible gateway that picks the arm, relays bytes untouched and logs what happened.

A request's way: `app` (paths) → `auth` (whose key) → `request` (what is asked) → `routing` and `arms` (which arm) →
`upstream` (the engine) → `relay` (bytes to the client) → `recorder` (the event log). `inbox` takes feedback, also
through signed `links`; `lookup` reads interactions back. `admin` is how the controller steers it; `guard` is how it
protects users with no controller at hand. `openapi.yaml` describes it to clients.
"""
