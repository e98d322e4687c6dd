"""Where Redis is: the forms of address that a service accepts, and what is wrong with any other.

    redis://[user:password@]host[:port][/db]                          one node; rediss:// with TLS
    unix://[user:password@]/path/of/socket[?db=N]                     one node of this machine
    redis+sentinel://[user:password@]host[:port],…/master name[/db]   whoever Sentinel says is the master
    redis+cluster://[user:password@]host[:port],…                     a cluster, known from any of its nodes

``rediss+sentinel`` and ``rediss+cluster`` use TLS. The password is the data nodes'; Sentinels that ask for one
get ``?sentinel_username=…&sentinel_password=…``. TLS is set with ``?ssl_ca_certs=…`` and the like.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit


class BadRedisUrl(ValueError):
    """The address cannot be used; the message says what is wrong and shows no password."""


class Topology(StrEnum):
    """What stands at an address."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


Host = tuple[str, int]
"""Name or number of a machine, and a port."""


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. ``hosts`` are the node, the Sentinels, or some nodes of the cluster; none with ``path``."""

    topology: Topology
    hosts: tuple[Host, ...]
    path: str = ""
    master: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    has_tls: bool = False
    tls: Mapping[str, str | bool] = field(default_factory=dict)


_SCHEMES = {
    "redis": (Topology.SINGLE, False),
    "rediss": (Topology.SINGLE, True),
    "unix": (Topology.SINGLE, False),
    "redis+sentinel": (Topology.SENTINEL, False),
    "rediss+sentinel": (Topology.SENTINEL, True),
    "redis+cluster": (Topology.CLUSTER, False),
    "rediss+cluster": (Topology.CLUSTER, True),
}
_DEFAULT_PORTS = {Topology.SINGLE: 6379, Topology.SENTINEL: 26379, Topology.CLUSTER: 6379}
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


def parse_address(url: str) -> Address:
    """The address that ``url`` spells.

    Raises:
        BadRedisUrl: it spells none that can be used.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadRedisUrl(f"malformed: {error}") from None
    if parts.scheme not in _SCHEMES or "://" not in url:
        raise BadRedisUrl(f"must begin with one of {', '.join(f'{name}://' for name in _SCHEMES)}")
    is_password_cut = "@" in parts.path + parts.query and "@" not in parts.netloc
    if parts.fragment or (parts.netloc and is_password_cut):
        raise BadRedisUrl("in a password '/', '?' and '#' are written %2F, %3F and %23")
    topology, has_tls = _SCHEMES[parts.scheme]
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    options = _options(parts, topology, has_tls)
    path, master, db = _place(parts, topology, options)
    return Address(
        topology=topology,
        hosts=() if path else _hosts(hosts, topology),
        path=path,
        master=master,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) or None,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        has_tls=has_tls,
        tls=_tls(options),
    )


def problem_of(url: str) -> str | None:
    """What is wrong with an address, or None: the form in which settings check a value."""
    try:
        parse_address(url)
    except BadRedisUrl as error:
        return str(error)
    return None


def _hosts(text: str, topology: Topology) -> tuple[Host, ...]:
    items = text.split(",")
    if topology is Topology.SINGLE and len(items) > 1:
        raise BadRedisUrl(
            "names several hosts; redis+sentinel:// and redis+cluster:// take several"
        )
    return tuple(_host(item, _DEFAULT_PORTS[topology]) for item in items)


def _host(text: str, default_port: int) -> Host:
    """``host``, ``host:port``, ``[IPv6]`` or ``[IPv6]:port``."""
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadRedisUrl(f"'{text}' is no host: an IPv6 address is written [address]:port")
        port = port.removeprefix(":")
    else:
        name, _, port = text.partition(":")
    if not name:
        raise BadRedisUrl(f"a host is missing in '{text}'" if text else "a host is missing")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadRedisUrl(f"the port of '{text}' is no number from 1 to 65535")
    return unquote(name), int(port or default_port)


def _place(
    parts: SplitResult, topology: Topology, options: Mapping[str, str]
) -> tuple[str, str, int]:
    """Path of a socket, name of a master, number of a database."""
    words = [unquote(word) for word in parts.path.removeprefix("/").split("/")]
    path = master = ""
    if parts.scheme == "unix":
        path, words = unquote(parts.path), []
        if path in {"", "/"}:
            raise BadRedisUrl("the path of the socket is missing: unix:///path/of/socket")
    elif topology is Topology.SENTINEL:
        master, *words = words
        if not master:
            raise BadRedisUrl("the master's name is missing: redis+sentinel://host,host/name")
    given = [word for word in (*words, options.get("db", "")) if word]
    if not given:
        return path, master, 0
    if topology is Topology.CLUSTER:
        raise BadRedisUrl("a cluster has no databases: nothing may follow its hosts")
    if len(given) > 1 or not (given[0].isascii() and given[0].isdigit()):
        raise BadRedisUrl(f"'{'/'.join(given)}' is no number of a database")
    return path, master, int(given[0])


def _options(parts: SplitResult, topology: Topology, has_tls: bool) -> dict[str, str]:
    known = ["db"]
    if has_tls:
        known += [*_TLS_OPTIONS, "ssl_check_hostname"]
    if topology is Topology.SENTINEL:
        known += _SENTINEL_OPTIONS
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise BadRedisUrl(
                f"unknown option '{name}'; {parts.scheme}:// knows {', '.join(known)}"
            )
    return options


def _tls(options: Mapping[str, str]) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {
        name: options[name] for name in _TLS_OPTIONS if name in options
    }
    if found.get("ssl_cert_reqs", "required") not in {"none", "optional", "required"}:
        raise BadRedisUrl("ssl_cert_reqs must be none, optional or required")
    if (check := options.get("ssl_check_hostname")) is not None:
        if check not in {"true", "false"}:
            raise BadRedisUrl("ssl_check_hostname must be true or false")
        found["ssl_check_hostname"] = check == "true"
    return found
