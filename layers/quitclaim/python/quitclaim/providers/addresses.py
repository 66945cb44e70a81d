"""
Where a provider's URL may lead (S-8): https to a public address, judged twice.

The URL is judged when the catalogue is compiled, by its text. The address is judged when a connection is made, because
a name that was public yesterday may point inside today; the connection then goes to the address that was judged.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
INSIDE_SUFFIXES: Final = (
    "localhost",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "arpa",
    "onion",
)
"""Names that do not belong to the public DNS; `metadata.google.internal` is one of them."""


def is_public_address(text: str) -> bool:
    """Whether an IP address is one that the whole internet can reach. What embeds an IPv4 address is judged by it."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in NAT64 or address in IPV4_COMPATIBLE:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if embedded is not None:
            return is_public_address(str(embedded))
        if address.scope_id is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_loopback_host(host: str) -> bool:
    """Whether *host* names this machine in the one way that only a catalogue of the local stack may use."""
    return host in ("localhost", "127.0.0.1", "::1")


def is_reachable(host: str, address: str) -> bool:
    """Whether a connection to *host* may be made at *address*, one of those that its name resolved to."""
    if is_loopback_host(host):
        return ipaddress.ip_address(address).is_loopback
    return is_public_address(address)


def fault_of_url(url: str, *, allow_loopback: bool) -> str | None:
    """Why a provider must not be called at *url*, and what to write instead; None if it may."""
    if re.search(r"[^\x21-\x7e]", url) or "\\" in url:
        return "holds a space, a backslash or a character outside ASCII; write it percent-encoded"
    if "{" in url or "}" in url:
        return "holds a placeholder that nothing fills; write the provider's address in full"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "is not a URL; write https://host/path"
    if allow_loopback and is_loopback_host(host) and parts.scheme in ("http", "https"):
        return _fault_of_rest(url, host, port)
    if parts.scheme != "https":
        return "is not https; write https://host/path"
    return _fault_of_host(host) or _fault_of_rest(url, host, port)


def _fault_of_rest(url: str, host: str, port: int | None) -> str | None:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return "holds a user name; leave out everything before the host"
    if port == 0 or parts.netloc.endswith(":"):
        return "has an empty port; leave it out"
    if "#" in url:
        return "has a fragment; leave it out"
    if not host:
        return "has no host; write https://host/path"
    return None


def _fault_of_host(host: str) -> str | None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return None if is_public_address(host) else f"leads to {host}, which is not a public address"
    labels = host.split(".")
    if not all(LABEL.fullmatch(label) for label in labels):
        return f"has {host!r} for a host, which is no host name"
    if len(labels) < 2 or labels[-1] in INSIDE_SUFFIXES:
        return f"leads to {host}, which is not a public host; name the provider's public host"
    if re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1]):
        return f"leads to {host}, which some resolvers read as an address; write a host name"
    return None
