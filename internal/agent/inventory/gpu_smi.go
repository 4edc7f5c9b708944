//go:build !nvml || !cgo

package inventory

import (
	"context"

	"trainyard/internal/fleet"
)

// gpus lists the machine's GPUs and the indices of those in use.
func gpus(ctx context.Context) ([]fleet.GPU, []int, error) { return viaSMI(ctx, "nvidia-smi") }
