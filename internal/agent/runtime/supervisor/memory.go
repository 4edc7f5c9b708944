package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/share/accounts"
	"trainyard/internal/humanize"
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
	"std::bad_alloc",
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

// memoryReport is what the SDK says of a program that ends for lack of memory, as a line of the metrics file.
type memoryReport struct {
	Note      string `json:"note"`
	Device    string `json:"device"` // deviceGPU, or the host
	Text      string `json:"text"`
	Requested int64  `json:"requested"` // bytes; 0 if unknown
	Used      int64  `json:"used"`      // bytes that the program had; 0 if unknown
}

const (
	memoryNote = "out_of_memory" // of a memoryReport
	deviceGPU  = "gpu"
)

// line returns the message of a report, clipped for a reason.
func (r *memoryReport) line() string {
	first, _, _ := strings.Cut(r.Text, "\n")
	return rundir.Clip(first)
}

// needed returns how much memory the program had and asked for; 0 if that is not known.
func (r *memoryReport) needed() job.Bytes {
	if r.Requested <= 0 || r.Used < 0 || r.Requested > maxAmount || r.Used > maxAmount {
		return memoryNeeded(r.Text)
	}

	return job.Bytes(r.Requested + r.Used)
}

// memoryReport returns the newest report of the SDK that the program has run out of memory.
func (s *supervisor) memoryReport() (r memoryReport, found bool) {
	// What a program makes of its file is up to it: it may be a pipe that nobody writes.
	f, err := os.OpenFile(s.rec.Report(s.dir, rundir.MetricsFile), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false
	}

	if err != nil {
		s.logError(fmt.Errorf("look for a report of the SDK: %w", err))
		return r, false
	}

	defer func() { _ = f.Close() }()

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return r, false
	}

	tail := make([]byte, min(info.Size(), tailSize))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		s.logError(fmt.Errorf("look for a report of the SDK: %w", err))
		return r, false
	}

	for line := range bytes.SplitSeq(tail, []byte("\n")) {
		var one memoryReport
		if json.Unmarshal(line, &one) == nil && one.Note == memoryNote { // other lines are of no interest
			r, found = one, true
		}
	}

	return r, found
}

// maxAmount is more memory than there is: such an amount is a mistake.
const maxAmount = 1 << 50

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

	if err != nil || n > maxAmount {
		return 0
	}

	return job.Bytes(n)
}

// refusal is an allocation that failed on a GPU that the program shares.
type refusal struct{ accounts.Denial }

// refusalAge is how long before the end of a program a refused allocation can be the reason for it. Frameworks raise
// an exception within milliseconds, and then a program may take its time to end.
const refusalAge = 10 * time.Second

// refusal returns the allocation that failed just before the end of the program, and whether there was one. Many
// programs can live with that, so it says something about those that fail only.
func (s *supervisor) refusal() (refusal, bool) {
	if s.rec.ShareLibrary == "" {
		return refusal{}, false
	}

	d, ago, found, err := accounts.LastDenial(filepath.Join(s.dir, rundir.ShareDir))
	if err != nil {
		s.logError(err)
	}

	if err != nil || !found || ago > refusalAge || d.Bytes > maxAmount || d.Used > maxAmount {
		return refusal{}, false
	}

	return refusal{d}, true
}

// needed returns how much memory the program had and asked for; 0 if that is not known.
func (r refusal) needed() job.Bytes { return job.Bytes(r.Used + r.Bytes) }

// line says what was refused, and why.
func (r refusal) line() string {
	size := func(n uint64) string { return humanize.Size(job.Bytes(n)) }

	if r.ByCap() {
		return fmt.Sprintf("%s were refused, with %s in use of the %s that the job may have", size(r.Bytes), size(r.Used),
			size(r.Cap))
	}

	return fmt.Sprintf("%s were refused, with %s in use by the job: the GPU is full", size(r.Bytes), size(r.Used))
}

// namesError reports whether a line is the last one of a Python traceback: then that says why the program ended.
func namesError(line string) bool {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Interrupt)\b`).MatchString(line)
}
