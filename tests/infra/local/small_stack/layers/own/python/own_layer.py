"""A module that only the layer has."""

WORD = "from the layer"
