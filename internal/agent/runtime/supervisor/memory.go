package supervisor

import (
	"regexp"
	"strconv"

	"trainyard/internal/job"
)

// gpuMemoryMarks are texts that frameworks print when they run out of GPU memory. The texts of CUDA are last: a
// framework quotes them in a line that says more.
var gpuMemoryMarks = []string{
	"CUDA out of memory", "HIP out of memory", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError",
	"RESOURCE_EXHAUSTED: Out of memory", "RESOURCE_EXHAUSTED: Failed to allocate", // JAX
	"OOM when allocating tensor", "ResourceExhaustedError", // TensorFlow
	"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
}

// hostMemoryMarks are texts that are printed when the host refuses memory, before its kernel kills anything.
var hostMemoryMarks = []string{
	"DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory", // PyTorch
	"_ArrayMemoryError", // NumPy
}

// memoryText is how much of the output behind a mark belongs to the same message: PyTorch's other allocator writes it
// in several lines.
const memoryText = 1000

// memoryNeeded returns how much memory a program had and asked for, as the text of a framework says; 0 if it does not.
func memoryNeeded(text string) job.Bytes {
	// Compiled here because few programs need it, and every supervisor would pay for it at its start.
	const amount = `([0-9]+(?:\.[0-9]*)?) ?(bytes|B|[KMGT]iB)\b`

	asked := regexp.MustCompile(
		`(?:[Tt]ried to allocate|trying to allocate|Failed to allocate|Unable to allocate|Requested\s*:) ` + amount)
	inUse := []*regexp.Regexp{ // what all of the process has, or else what its tensors have
		regexp.MustCompile(`this process has ` + amount + ` memory in use`),
		regexp.MustCompile(amount + ` reserved in total by PyTorch`),
		regexp.MustCompile(`Currently allocated\s*: ` + amount),
	}

	needed := amountOf(asked.FindStringSubmatch(text))
	if needed == 0 {
		return 0
	}

	for _, re := range inUse {
		if m := re.FindStringSubmatch(text); m != nil {
			return needed + amountOf(m)
		}
	}

	return needed
}

// amountOf converts the number and the unit of a match, 0 if there is none.
func amountOf(match []string) job.Bytes {
	if match == nil {
		return 0
	}

	units := map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

	n, err := strconv.ParseFloat(match[1], 64)
	if unit, large := units[match[2]]; large {
		n *= unit
	}

	const most = 1 << 50 // more is a mistake in the text
	if err != nil || n > most {
		return 0
	}

	return job.Bytes(n)
}
