"""Servers: launch, leases, guard, identity, effective configuration, reasons for failures."""

from ddtree.servers.identity import ServerFailed
from ddtree.servers.running import RunningServer, start

__all__ = ["RunningServer", "ServerFailed", "start"]
