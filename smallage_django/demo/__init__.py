"""Everything that ``smallage_demo`` needs: processes that end together, an embedded Valkey, a readable feed of runs."""
