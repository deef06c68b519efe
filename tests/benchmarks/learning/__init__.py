"""Whether training helps: preferences of people whom the model never saw, before and after, for each method."""
