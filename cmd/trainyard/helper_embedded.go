//go:build helper

package main

import _ "embed"

// embeddedHelper is command trainyard-helper for the same platform. `make build` and releases put it there.
//
//go:embed helper.bin
var embeddedHelper []byte
