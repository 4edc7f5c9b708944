//go:build gpushare

package main

import _ "embed"

// gpuShareLibrary is native/gpushare for the same platform. `make build` puts it there if there is a C compiler.
//
//go:embed gpushare.bin
var gpuShareLibrary []byte

// embeddedGPUShare returns the content of the library that programs on a shared GPU are loaded with.
func embeddedGPUShare() []byte { return gpuShareLibrary }
