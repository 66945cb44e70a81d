"""The custody protocol as an explicit-state model; see README.md."""
