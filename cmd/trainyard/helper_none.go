//go:build !helper

package main

// embeddedHelper is empty in a binary that was built by go build alone.
var embeddedHelper []byte
