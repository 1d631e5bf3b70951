"""Starting servers: leases, guard, launch, identity, effective configuration."""
