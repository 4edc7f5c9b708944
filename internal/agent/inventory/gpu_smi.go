//go:build !nvml || !cgo

package inventory

// newDriver returns the way to the GPUs of this machine.
func newDriver() driver { return smi{"nvidia-smi"} }
