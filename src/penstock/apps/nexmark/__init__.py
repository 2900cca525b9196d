"""NEXMark: an auction house as three streams, and queries over them that stream engines answer."""
