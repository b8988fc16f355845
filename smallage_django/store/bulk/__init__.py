"""The hot statements, one per batch: PostgreSQL's own in ``postgres_…``, the same for all in ``portable_…``."""
