"""Outbound OAuth: what the catalogue says of a provider, the requests it takes, and what its answers mean."""
