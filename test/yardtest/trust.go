package yardtest

import "crypto/tls"

// trustAny is for questions whose answer does not matter to security: whether
// a server of ours on loopback is up.
func trustAny() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // see above
}
