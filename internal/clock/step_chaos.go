//go:build chaos

package clock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// step is by how much a test has stepped the wall clock of this process. In a binary built with
// the tag chaos the file NAME.clock beside the executable NAME says so, as a duration such as
// -1h30m. It may be written, replaced or removed at any time and holds for all
// processes of that executable. A test gives each machine a hard link of its own to the binary, and so its
// own wall clock. The file is read at most every stepEvery.
func step() time.Duration { return steps.now() }

const stepEvery = 20 * time.Millisecond

var steps = &stepFile{}

type stepFile struct {
	mu   sync.Mutex
	read time.Time // when it was read last
	step time.Duration
}

func (f *stepFile) now() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()

	if time.Since(f.read) >= stepEvery {
		f.read, f.step = time.Now(), readStep()
	}

	return f.step
}

func readStep() time.Duration {
	program, err := os.Executable()
	if err != nil {
		panic(fmt.Sprintf("clock: find the executable: %v", err))
	}

	text, err := os.ReadFile(program + ".clock")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		panic(fmt.Sprintf("clock: read the step: %v", err))
	}

	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic(fmt.Sprintf("clock: read the step: %v", err))
	}

	return d
}
