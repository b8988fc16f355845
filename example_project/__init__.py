"""A small learning platform that uses smallage_django, for ``make demo`` and as an example to copy from."""
