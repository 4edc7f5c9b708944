package supervisor

import (
	"testing"

	"trainyard/internal/job"
)

func TestWhatAProgramNeededIsReadFromItsMessage(t *testing.T) {
	t.Parallel()

	const mib, gib = job.Bytes(1 << 20), job.Bytes(1 << 30)

	for _, tt := range []struct {
		name, text string
		want       job.Bytes
	}{
		{
			"PyTorch",
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of " +
				"139.80 GiB of which 293.12 MiB is free. Process 77 has 8.00 GiB memory in use. Including non-PyTorch memory, " +
				"this process has 139.50 GiB memory in use. Of the allocated memory 138.00 GiB is allocated by PyTorch",
			140*gib + 512*mib,
		},
		{
			"PyTorch before 2.0",
			"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 13.00 GiB " +
				"already allocated; 9.75 MiB free; 14.50 GiB reserved in total by PyTorch)",
			16*gib + 512*mib,
		},
		{
			"PyTorch with cudaMallocAsync",
			"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n" +
				"Currently allocated     : 10.00 GiB\nRequested               : 1.50 GiB\nDevice limit            : 139.80 GiB",
			11*gib + 512*mib,
		},
		{"JAX", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", 16 * gib},
		{"PyTorch on the host", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.", 8 * gib},
		{"NumPy", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2. TiB for an array", 2 * gib << 10},
		{"TensorFlow", "OOM when allocating tensor with shape[1024,1024] and type float", 0},
		{"nothing", "Tried to allocate all of it", 0},
		{"nonsense", "Tried to allocate 99999999999999999999 TiB", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := memoryNeeded(tt.text); got != tt.want {
				t.Errorf("needed %v, want %v", got, tt.want)
			}
		})
	}
}
