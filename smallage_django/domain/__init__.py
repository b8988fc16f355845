"""Pure rules: no Django, Redis, clock, randomness, settings or logging in this package."""
