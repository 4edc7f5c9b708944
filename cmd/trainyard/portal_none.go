//go:build !portal

package main

import "io/fs"

// embeddedPortal returns nothing in a binary that was built by go build alone, or without Node.js.
func embeddedPortal() (fs.FS, error) { return nil, nil }
