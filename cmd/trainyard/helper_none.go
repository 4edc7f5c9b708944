//go:build !helper

package main

// embeddedHelper returns nothing in a binary that was built by go build alone.
func embeddedHelper() []byte { return nil }
