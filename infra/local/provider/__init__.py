"""
A real authorization server for the local stack: django-oauth-toolkit, which nobody here wrote.

PKCE (S256) is required, refresh tokens rotate, a spent one kills its family, RFC 7009 revokes and RFC 7662
introspects. Around the toolkit, never inside it, stand the control paths that tests and the demo use (`faults`).
"""
