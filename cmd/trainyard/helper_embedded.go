//go:build helper

package main

import _ "embed"

// helperBinary is command trainyard-helper for the same platform. `make build` and releases put it there.
//
//go:embed helper.bin
var helperBinary []byte

// embeddedHelper returns the content of command trainyard-helper.
func embeddedHelper() []byte { return helperBinary }
