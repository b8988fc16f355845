"""Every write that changes state, as conditional updates whose row count is read."""
