"""The page of the service: style, script and template; nothing from other servers."""
