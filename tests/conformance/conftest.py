"""The stand-ins for the table that the conformance tests share with those of the flows."""

from tests.flows.conftest import dynamodb, stand_in

__all__ = ["dynamodb", "stand_in"]
