"""The plan: which servers, workloads and concurrencies are measured, validated before anything starts."""
