"""The one leader: hears wishes, brings adapters to engines, advances canaries, writes the routes."""
