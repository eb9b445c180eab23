"""Sources that come too seldom, too often, or under a name of chance."""
