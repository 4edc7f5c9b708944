//go:build !nvml || !cgo

package inventory

import "context"

// newDriver returns the driver for the GPUs of this machine.
func newDriver() driver { return smi{"nvidia-smi"} }

// smi reads the GPUs through nvidia-smi. It reports no Xid errors; those come from the kernel log.
type smi struct{ command string }

func (s smi) devices(ctx context.Context) ([]device, error) { return viaSMI(ctx, s.command) }
func (smi) xids() []xid                                     { return nil }
func (smi) close() error                                    { return nil }
