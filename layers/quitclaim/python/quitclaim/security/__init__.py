"""Sealing, keys and keyed digests. Only ciphertext and digests leave this ring."""
