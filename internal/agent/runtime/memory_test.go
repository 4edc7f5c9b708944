package runtime

import (
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// What the SDK reports of a lack of memory counts as what a program prints does, and says how much was needed.
func TestOutOfMemoryAsTheSDKReportsIt(t *testing.T) {
	t.Parallel()

	const gib = job.Bytes(1 << 30)

	gpus := []int{0}
	line := func(text string) string { return "echo '" + text + `' >> "$TRAINYARD_METRICS_FILE"; ` }
	report := line(`{"note":"out_of_memory","device":"gpu","text":"XlaRuntimeError: full\nmore","used":4294967296,` +
		`"requested":1073741824,"total":17179869184}`)
	host := line(`{"note":"out_of_memory","device":"host","text":"MemoryError: full"}`)
	odd := line(`{"note":"out_of_memory","device":"gpu","text":"Tried to allocate 2.00 GiB","used":-1,"requested":5}`)

	const onGPU, onHost = "out of GPU memory: XlaRuntimeError: full", "out of memory: XlaRuntimeError: full"

	for name, tt := range map[string]struct {
		command string
		gpus    []int
		cause   job.Cause
		needed  job.Bytes
		reason  string
	}{
		"on a GPU":            {report + "exit 1", gpus, job.CauseGPUOOM, 5 * gib, onGPU},
		"without a GPU":       {report + "exit 1", nil, job.CauseHostOOM, 5 * gib, onHost},
		"on the host":         {host + "exit 1", gpus, job.CauseHostOOM, 0, "out of memory: MemoryError: full"},
		"before other lines":  {report + line(`{"step":7}`) + line("{") + "exit 1", gpus, job.CauseGPUOOM, 5 * gib, onGPU},
		"the last of two":     {host + report + "exit 1", gpus, job.CauseGPUOOM, 5 * gib, onGPU},
		"with odd amounts":    {odd + "exit 1", gpus, job.CauseGPUOOM, 2 * gib, "Tried to allocate"},
		"and went on":         {report + "exit 0", gpus, "", 0, ""},
		"a pipe":              {`mkfifo "$TRAINYARD_METRICS_FILE"; exit 1`, gpus, job.CauseUserCode, 0, "exit code 1"},
		"as Python prints it": {"echo MemoryError; exit 1", gpus, job.CauseHostOOM, 0, "out of memory: MemoryError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			s := y.end(y.start(api.Launch{Command: tt.command, GPUs: tt.gpus}))

			if s.Cause != tt.cause || s.Needed != tt.needed || !strings.Contains(s.Reason, tt.reason) {
				t.Errorf("it ended with %q, needed %v: %q", s.Cause, s.Needed, s.Reason)
			}
		})
	}
}
