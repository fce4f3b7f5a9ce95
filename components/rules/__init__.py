"""What no site may do, as pure functions over its resources; one list, `listing.RULES`, that every host uses."""
