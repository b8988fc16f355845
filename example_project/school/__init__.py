"""Classes, bookings and what has to happen around them in time."""
