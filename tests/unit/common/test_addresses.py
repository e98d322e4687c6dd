"""Addresses of Redis: what each form means, and what a bad one is told."""

import pytest

from common.streams.addresses import Address, BadRedisUrl, Topology, parse_address, problem_of


def test_one_node():
    """Host, port, database and credentials; what is left out has Redis' own defaults."""
    assert parse_address("redis://h") == Address(Topology.SINGLE, (("h", 6379),))
    full = parse_address("rediss://me:p%40ss@h:1/2?ssl_ca_certs=/ca&ssl_check_hostname=false")
    assert full == Address(
        Topology.SINGLE,
        (("h", 1),),
        db=2,
        username="me",
        password="p@ss",
        has_tls=True,
        tls={"ssl_ca_certs": "/ca", "ssl_check_hostname": False},
    )
    assert parse_address("redis://:secret@[::1]:7").hosts == (("::1", 7),)
    assert parse_address("redis://h?db=3").db == 3


def test_a_socket_of_this_machine():
    """The path is the address; a database may be named."""
    address = parse_address("unix://me:pass@/run/redis.sock?db=1")
    assert (address.path, address.db, address.username) == ("/run/redis.sock", 1, "me")
    assert address.hosts == ()


def test_sentinel():
    """Several Sentinels, the master's name, its database; credentials of both kinds are kept apart."""
    address = parse_address(
        "redis+sentinel://u:p@a,b:2,[::1]/main/4?sentinel_username=s&sentinel_password=q"
    )
    assert address == Address(
        Topology.SENTINEL,
        (("a", 26379), ("b", 2), ("::1", 26379)),
        master="main",
        db=4,
        username="u",
        password="p",
        sentinel_username="s",
        sentinel_password="q",
    )
    assert parse_address("rediss+sentinel://a/main").has_tls


def test_cluster():
    """Any of its nodes will do; there are no databases."""
    address = parse_address("redis+cluster://:p@a:1,b/")
    assert address == Address(Topology.CLUSTER, (("a", 1), ("b", 6379)), password="p")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "must begin with"),
        ("localhost:6379", "must begin with"),
        ("http://h", "must begin with"),
        ("redis:h", "must begin with"),
        ("redis://", "host is missing"),
        ("redis://:1", "host is missing in ':1'"),
        ("redis://a,b", "several hosts"),
        ("redis://h:port", "port of 'h:port'"),
        ("redis://h:65536", "port of 'h:65536'"),
        ("redis://h:0", "port of 'h:0'"),
        ("redis://[::1", "malformed"),
        ("redis://h/x", "'x' is no number of a database"),
        ("redis://h/1/2", "'1/2' is no number of a database"),
        ("redis://h/0?retries=3", "unknown option 'retries'"),
        ("redis://h/0?ssl_ca_certs=/ca", "unknown option 'ssl_ca_certs'"),
        ("rediss://h/0?ssl_cert_reqs=maybe", "none, optional or required"),
        ("rediss://h/0?ssl_check_hostname=1", "true or false"),
        ("redis://:pa#ss@h", "%23"),
        ("unix://", "path of the socket"),
        ("redis+sentinel://a,b", "master's name is missing"),
        ("redis+sentinel://a,,b/main", "host is missing"),
        ("redis+sentinel://a/main/x", "'x' is no number of a database"),
        ("redis+cluster://a/0", "no databases"),
        ("redis+cluster://a?db=1", "no databases"),
    ],
)
def test_a_bad_address_names_what_is_wrong(url: str, problem: str):
    """One sentence, fit to stand behind the name of a setting."""
    with pytest.raises(BadRedisUrl, match=None) as caught:
        parse_address(url)
    assert problem in str(caught.value)
    assert problem_of(url) == str(caught.value)


def test_no_password_is_shown():
    """Neither an address nor a complaint about one gives a password away."""
    good = "redis+sentinel://u:hidden@a/main?sentinel_password=hidden"
    assert problem_of(good) is None
    assert "hidden" not in repr(parse_address(good))
    for bad in (
        "redis://u:hidden@h:x",
        "redis://u:hidden@h/x",
        "redis://u:hid#den@h",
        "redis://u:hid/den@h",
    ):
        assert "hid" not in str(problem_of(bad))
