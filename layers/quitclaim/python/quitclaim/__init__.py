"""Quitclaim keeps the OAuth grants that an app's users give it at other companies, and never loses one."""
