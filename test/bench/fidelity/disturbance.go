package fidelity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trainyard/test/yardtest"
)

// maxBeside is the share of all processors that other work, and the host of a virtual machine, may take before the
// figures are refused: beyond it, what waits for a processor is slower than the simulator assumes.
const maxBeside = 0.25

// maxDrift is by how much the speed of a training may differ between the beginning of a stream and its end, and between
// one that is alone and several at once.
const maxDrift = 0.03

// disturbance is what was taken from the benchmark over a stretch of it, as shares of all processors.
type disturbance struct {
	stretch string
	others  float64 // processes that are not of the benchmark
	steal   float64 // the host of the virtual machine
}

func (d disturbance) String() string {
	return fmt.Sprintf("%s: other work %.1f %%, steal %.1f %% of the processors, at most %.0f %% together",
		d.stretch, 100*d.others, 100*d.steal, 100*maxBeside)
}

// refusal says why figures must not be quoted, nil if they may be.
func refusal(all []disturbance, slowdown float64, drifts []float64) error {
	var reasons []string
	for _, d := range all {
		if d.others+d.steal > maxBeside {
			reasons = append(reasons, d.String())
		}
	}

	if slowdown > maxDrift {
		reasons = append(reasons, fmt.Sprintf("trainings at once take %+.1f %% longer than one alone, at most %.0f %%",
			100*slowdown, 100*maxDrift))
	}

	for _, drift := range drifts {
		if math.Abs(drift) > maxDrift {
			reasons = append(reasons, fmt.Sprintf("speed of a training %+.1f %% after a stream, at most %.0f %%",
				100*drift, 100*maxDrift))
		}
	}

	if len(reasons) == 0 {
		return nil
	}

	return fmt.Errorf("figures refused, not to be quoted: the machine was not quiet (%s); run the benchmark again with "+
		"nothing beside it", strings.Join(reasons, "; "))
}

// processorTimes is what the processors have done so far, in ticks of all of them together.
type processorTimes struct{ busy, steal, total uint64 }

// parseProcessorTimes reads the first line of /proc/stat.
func parseProcessorTimes(text string) (processorTimes, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return processorTimes{}, fmt.Errorf("unexpected first line of /proc/stat: %q", line)
	}

	var t processorTimes
	for i, f := range fields[1:9] { // user, nice, system, idle, iowait, irq, softirq, steal
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return t, fmt.Errorf("read /proc/stat: %w", err)
		}

		t.total += n
		switch i {
		case 3, 4:
		case 7:
			t.steal = n
		default:
			t.busy += n
		}
	}

	return t, nil
}

// process is a process of this machine; a number is used again later, but not with the same start.
type process struct {
	pid   int
	start uint64
}

// parseProcess reads /proc/PID/stat: which process it is, and how many ticks it has run.
func parseProcess(pid int, text string) (process, uint64, error) {
	_, rest, _ := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ") // the command may have any characters
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return process{}, 0, fmt.Errorf("unexpected state of process %d: %q", pid, text)
	}

	user, err := strconv.ParseUint(fields[11], 10, 64)
	system, errSystem := strconv.ParseUint(fields[12], 10, 64)
	start, errStart := strconv.ParseUint(fields[19], 10, 64)

	return process{pid, start}, user + system, errors.Join(err, errSystem, errStart)
}

// account adds up what the processes of the benchmark have run, of which some end and others begin between two looks.
type account struct {
	seen map[process]uint64
	own  uint64 // ticks
}

// look takes note of how long the processes of the benchmark have run.
func (a *account) look(now map[process]uint64) {
	for p, ticks := range now {
		a.own += ticks - min(a.seen[p], ticks)
	}

	a.seen = now
}

// since says what others took between two readings.
func (a *account) since(stretch string, from, to processorTimes) disturbance {
	d := disturbance{stretch: stretch}
	if to.total <= from.total {
		return d
	}

	total := float64(to.total - from.total)
	d.others = max(float64(to.busy-from.busy)-float64(a.own), 0) / total
	d.steal = float64(to.steal-from.steal) / total

	return d
}

// lookEvery is how often the processes are looked at: what one runs after the last look is counted as others' work.
const lookEvery = 100 * time.Millisecond

// watched runs a stretch of the benchmark, whose processes are those that name the folder and this one, and says what
// others took meanwhile.
func watched(ctx context.Context, folder, stretch string, run func() error) (disturbance, error) {
	w := &watcher{folder: folder, foreign: map[int]bool{}}

	before, err := w.ours()
	if err != nil {
		return disturbance{}, err
	}

	w.account.seen = before // what they ran before does not count

	from, err := readProcessorTimes()
	if err != nil {
		return disturbance{}, err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()

	ended := make(chan error, 1)
	go func() { ended <- w.follow(ctx) }()

	err = run()
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return disturbance{}, err
	}

	to, err := readProcessorTimes()

	return w.account.since(stretch, from, to), err
}

// watcher looks at the processes of a folder.
type watcher struct {
	folder  string
	foreign map[int]bool // known to be none of ours
	looks   int
	account account
}

// follow looks until ctx ends, and a last time then.
func (w *watcher) follow(ctx context.Context) error {
	for {
		now, err := w.ours()
		if err != nil {
			return err
		}

		w.account.look(now)

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
}

// ours returns how many ticks each process of the benchmark has run.
func (w *watcher) ours() (map[process]uint64, error) {
	if w.looks%10 == 0 {
		clear(w.foreign) // their numbers may be ours by now
	}

	w.looks++

	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}

	now := map[process]uint64{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || w.foreign[pid] {
			continue
		}

		if pid != os.Getpid() && !yardtest.Names(pid, w.folder) {
			w.foreign[pid] = true
			continue
		}

		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}

		p, ticks, err := parseProcess(pid, string(text))
		if err != nil {
			return nil, err
		}

		now[p] = ticks
	}

	return now, nil
}

func readProcessorTimes() (processorTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processorTimes{}, fmt.Errorf("read the use of the processors: %w", err)
	}

	return parseProcessorTimes(string(text))
}

// loadAverage is how many processes ran or waited for a processor in the last minute.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("read the load: %w", err)
	}

	one, _, _ := strings.Cut(string(text), " ")

	return one, nil
}
