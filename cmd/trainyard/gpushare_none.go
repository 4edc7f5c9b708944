//go:build !gpushare

package main

// embeddedGPUShare returns nothing in a binary that was built without a C compiler: it cannot share GPUs.
func embeddedGPUShare() []byte { return nil }
