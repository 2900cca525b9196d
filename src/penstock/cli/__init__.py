"""The ``penstock`` command: one thin file a subcommand."""
