package agent

// Vouches is vouches, for tests that make its errors on real connections.
func Vouches(err error) bool { return vouches(err) }
