// Package evidence is what the jobs of the chaos tests write down about themselves, so that whether a job ran twice is
// known from its processes and not from the yard's own word.
//
// All processes of all nodes append to one file: a line when a process begins, one for each line that it has printed,
// and one when it ends. The kernel orders the lines and times them on one clock that no one can set. Package program of
// the same test writes the file, the tests read it.
package evidence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What a process notes.
const (
	Start = "start" // it began
	Tick  = "tick"  // it has printed another line
	End   = "end"   // it has done all it had to do
	Term  = "term"  // it was asked to stop, and did
)

// Process is one process of a job.
type Process struct {
	Job   string // by its name, which the yard does not choose
	Run   string
	Host  string // address of the machine it is on
	PID   int
	Begun time.Duration // on a clock that counts from the start of the machine
	Last  time.Duration // its latest note
	How   string        // its latest note
	Lines int           // lines printed

	notes []time.Duration
}

// Over reports whether the process ended by itself, and not by a kill.
func (p *Process) Over() bool { return p.How == End || p.How == Term }

// String names the process in messages.
func (p *Process) String() string { return fmt.Sprintf("%s (%s, process %d)", p.Run, p.Host, p.PID) }

// Line is the line of a given number that a process prints: lines of different runs differ, as do lines of one run, and
// their lengths.
func Line(job, run string, n int) string {
	return fmt.Sprintf("%s %s %d %s", job, run, n, strings.Repeat("x", n*7%41))
}

// file is where everything is noted.
func file(dir string) string { return filepath.Join(dir, "evidence") }

// Writer notes what one process does.
type Writer struct {
	file *os.File
	head string
}

// NewWriter opens the file in a folder for one process.
func NewWriter(dir, job, run, host string) (*Writer, error) {
	f, err := os.OpenFile(file(dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the evidence: %w", err)
	}

	return &Writer{file: f, head: fmt.Sprintf("%s %s %s %d", job, run, host, os.Getpid())}, nil
}

// Note writes one line, at once and whole.
func (w *Writer) Note(what string, lines int) error {
	now, err := Now()
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintf(w.file, "%d %s %s %d\n", now, what, w.head, lines); err != nil {
		return fmt.Errorf("write the evidence: %w", err)
	}

	return nil
}

// Now is the time since the start of the machine, which no one can set.
func Now() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}

	return time.Duration(ts.Nano()), nil
}

// Read returns the processes that were noted in a folder, in the order in which they began.
func Read(dir string) ([]*Process, error) {
	f, err := os.Open(file(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the evidence: %w", err)
	}

	defer func() { _ = f.Close() }() // it was only read

	return parse(f)
}

func parse(r io.Reader) ([]*Process, error) {
	type key struct {
		job, run, host string
		pid            int
	}

	var all []*Process
	open := map[key]*Process{}

	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 7 {
			return nil, fmt.Errorf("evidence %q is cut short", lines.Text())
		}

		nanos, err := strconv.ParseInt(fields[0], 10, 64)
		pid, pidErr := strconv.Atoi(fields[5])
		printed, printedErr := strconv.Atoi(fields[6])

		if err := errors.Join(err, pidErr, printedErr); err != nil {
			return nil, fmt.Errorf("evidence %q: %w", lines.Text(), err)
		}

		at, what := time.Duration(nanos), fields[1]
		k := key{fields[2], fields[3], fields[4], pid}
		p := open[k]
		if what == Start {
			p = &Process{Job: k.job, Run: k.run, Host: k.host, PID: k.pid, Begun: at}
			open[k] = p
			all = append(all, p)
		}

		if p == nil {
			return nil, fmt.Errorf("evidence %q: the process has not begun", lines.Text())
		}

		p.Last, p.How, p.Lines = at, what, printed
		p.notes = append(p.notes, at)
	}

	return all, lines.Err()
}

// Overlap is a time in which two processes of one job were at work.
type Overlap struct {
	First, Second *Process
	Length        time.Duration
}

// String describes the overlap.
func (o Overlap) String() string {
	return fmt.Sprintf("%s: %s and %s for %s", o.First.Job, o.First, o.Second, o.Length.Round(10*time.Millisecond))
}

// still is how long a process notes nothing only if it does not run. A frozen process does no work, so the time in
// which it was frozen is not counted as an overlap; that it works on afterwards is.
const still = 2 * time.Second

// Overlaps finds the jobs that ran twice at once: an older process that notes something after a newer one has begun.
func Overlaps(all []*Process) []Overlap {
	byJob := map[string][]*Process{}
	for _, p := range all {
		byJob[p.Job] = append(byJob[p.Job], p)
	}

	var found []Overlap
	for _, p := range all {
		for _, newer := range byJob[p.Job][slices.Index(byJob[p.Job], p)+1:] {
			if p.Last > newer.Begun {
				found = append(found, Overlap{p, newer, overlap(p, newer)})
			}
		}
	}

	return found
}

func overlap(p, newer *Process) time.Duration {
	var length time.Duration

	since := newer.Begun
	for _, at := range p.notes {
		if at <= since || since >= newer.Last && newer.Over() {
			continue
		}

		if gap := at - since; gap < still {
			length += gap
		}

		since = at
	}

	return length
}
