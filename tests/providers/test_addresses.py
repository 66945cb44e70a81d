"""S-8: where a provider's URL may lead."""

import pytest

from quitclaim.providers.addresses import fault_of_url, is_public_address, is_reachable

INSIDE = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 127.0.0.1 127.0.0.2 127.255.255.255 169.254.0.1
169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.168.0.1 192.168.255.255 198.18.0.1
198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::10.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:7f00:1 64:ff9b::7f00:1
64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:c0a8:1::1 2001:db8::1 2001::1 2001:2::1
fc00::1 fd00:ec2::254 fd12:3456:789a::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 100::1
""".split()  # noqa: SIM905 - a page of addresses reads better than a column
NO_ADDRESS = ["", "localhost", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.1", "[::1]", "1.2.3.4/8", " 8.8.8.8"]
PUBLIC = ["8.8.8.8", "1.1.1.1", "142.250.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", [*INSIDE, *NO_ADDRESS])
def test_addresses_inside_are_refused(address):
    """Private, loopback, link-local, metadata, documentation, multicast, mapped, translated: none is public."""
    assert not is_public_address(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_pass(address):
    """What the internet can reach, in each of its spellings."""
    assert is_public_address(address)


def test_there_are_enough_addresses():
    """S-8 asks for 60."""
    assert len(INSIDE) + len(NO_ADDRESS) >= 60


@pytest.mark.parametrize(
    ("host", "address", "reachable"),
    [
        ("acme.example.com", "8.8.8.8", True),
        ("acme.example.com", "127.0.0.1", False),
        ("acme.example.com", "169.254.169.254", False),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "8.8.8.8", False),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_a_name_that_points_inside_is_not_followed(host, address, reachable):
    """DNS rebinding: the address is judged at the connection, not the name alone. Only localhost leads to this host."""
    assert is_reachable(host, address) is reachable


@pytest.mark.parametrize(
    "url",
    [
        "https://acme.example.com/token",
        "https://acme.example.com:8443/token?a=b",
        "https://xn--bcher-kva.example/token",
        "https://8.8.8.8/token",
        "https://acme.example.com",
    ],
)
def test_public_urls_pass(url):
    """Https to a public host."""
    assert fault_of_url(url, allow_loopback=False) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "acme.example.com/token",
        "//acme.example.com/token",
        "http://acme.example.com/token",
        "HTTP://acme.example.com/token",
        "ftp://acme.example.com/token",
        "file:///etc/passwd",
        "https:///token",
        "https://",
        "https://localhost/token",
        "https://LOCALHOST/token",
        "https://localhost./token",
        "https://foo.localhost/token",
        "https://router/token",
        "https://metadata.google.internal/token",
        "https://metadata/token",
        "https://printer.local/token",
        "https://127.0.0.1/token",
        "https://127.1/token",
        "https://2130706433/token",
        "https://0x7f000001/token",
        "https://0x7f.1/token",
        "https://0177.0.0.1/token",
        "https://10.0.0.1/token",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/token",
        "https://[::ffff:127.0.0.1]/token",
        "https://[fd00:ec2::254]/token",
        "https://[fe80::1%25eth0]/token",
        "https://user:pass@acme.example.com/token",
        "https://acme.example.com@evil.example/token",
        "https://acme.example.com\\@evil.example/token",
        "https://acme.example.com/a b",
        "https://acme.example.com/\n",
        "https://acme.example.com/#fragment",
        "https://acme.example.com:0/token",
        "https://acme.example.com:/token",
        "https://acme.example.com:99999/token",
        "https://acme.example.com:port/token",
        "https://b\u00fccher.example/token",
        "https://acme_x.example.com/token",
        "https://-acme.example.com/token",
        "https://acme..example.com/token",
        "https://{shop}.example.com/token",
    ],
)
def test_other_urls_are_refused(url):
    """Anything that is not plainly https to a public host, with a reason that says what to write."""
    fault = fault_of_url(url, allow_loopback=False)

    assert fault


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/o/token/", "http://localhost:1/", "https://[::1]:8443/x"])
def test_the_local_stack_may_call_this_machine(url):
    """Only where it is allowed by name."""
    assert fault_of_url(url, allow_loopback=True) is None
    assert fault_of_url(url, allow_loopback=False) is not None


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://acme.example.com/", "http://127.0.0.2/", "http://127.1/"])
def test_the_local_stack_may_call_nothing_else_by_http(url):
    """Loopback is not a way to other addresses."""
    assert fault_of_url(url, allow_loopback=True) is not None
