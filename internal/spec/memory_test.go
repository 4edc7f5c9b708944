package spec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// TestASpecDoesNotKeepItsFile: the specs of queued jobs are in memory, and what is counted of them is their text. So a
// spec must not keep its whole job file in memory, of which most may be comments.
func TestASpecDoesNotKeepItsFile(t *testing.T) { // not in parallel: it measures the heap
	const jobs, fileSize, most = 200, 64 << 10, 8 << 10
	comment := strings.Repeat("# "+strings.Repeat("x", 78)+"\n", fileSize/81)

	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what the first one found to be finalized

		var m runtime.MemStats
		runtime.ReadMemStats(&m)

		return int64(m.HeapAlloc)
	}

	specs := make([]*job.Spec, jobs)
	before := heap()

	for i := range specs {
		text := fmt.Sprintf("%sname: job-%d\nrun: python train.py --seed %d\nenv: {SEED: %d}\n%s", comment, i, i, i, comment)
		file, err := Parse([]byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}

		specs[i] = &file.Jobs[0].Spec
	}

	if each := (heap() - before) / jobs; each > most {
		t.Errorf("a job with a file of %d bytes keeps %d bytes in memory, want at most %d", 2*len(comment), each, most)
	}

	runtime.KeepAlive(specs)
}
