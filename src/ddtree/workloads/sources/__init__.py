"""One small reader per source of text; the registry gives them their names."""
