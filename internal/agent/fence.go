package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// fenceKeeps is how many jobs are remembered; the oldest go first. A job so
// old that thousands came after it is not given to this node anew.
const fenceKeeps = 10_000

// fence remembers which runs this node has had, longer than the runs' own
// records, so that none is started a second time and none of an older epoch
// after a newer. It is a text file with a line for each start ("+ run rank"),
// each end ("- run rank") and each incarnation of the yard under which runs
// were started ("= number mark"). Lines are not forced to disk: what a power cut
// takes, no process survived either.
type fence struct {
	path        string
	file        *os.File
	newestEpoch map[id.Job]int  // greatest epoch started
	ended       map[key]bool    // ended and forgotten
	incarnation api.Incarnation // under which the newest run was started
}

func openFence(path string) (*fence, error) {
	f := &fence{path: path, newestEpoch: map[id.Job]int{}, ended: map[key]bool{}}
	if err := f.load(); err != nil {
		return nil, fmt.Errorf("read the run fence: %w", err)
	}

	f.trim()

	err := f.rewrite()
	if diskspace.Full(err) {
		err = f.reopen() // a longer file says the same, and an agent on a full disk must be able to stop its runs
	}

	if err != nil {
		return nil, fmt.Errorf("write the run fence: %w", err)
	}

	return f, nil
}

func (f *fence) load() error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	defer func() { _ = file.Close() }()

	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f.readLine(lines.Text())
	}

	return lines.Err()
}

// readLine reads one line. One that a crash cut short says nothing.
func (f *fence) readLine(line string) {
	fields := strings.Fields(line)
	if len(fields) != 4 || fields[3] != "." {
		return
	}

	if fields[0] == "=" {
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			f.incarnation = api.Incarnation{Number: n, Mark: id.UID(fields[2])}
		}

		return
	}

	run := id.Run(fields[1])
	rank, err := strconv.Atoi(fields[2])

	j, epoch, ok := run.Split()
	if err != nil || !ok {
		return
	}

	f.newestEpoch[j] = max(f.newestEpoch[j], epoch)
	if fields[0] == "-" {
		f.ended[key{run, rank}] = true
	}
}

// trim forgets the oldest jobs.
func (f *fence) trim() {
	if len(f.newestEpoch) <= fenceKeeps {
		return
	}

	jobs := make([]id.Job, 0, len(f.newestEpoch))
	for j := range f.newestEpoch {
		jobs = append(jobs, j)
	}

	number := func(j id.Job) uint64 {
		n, _ := j.Number()
		return n
	}

	slices.SortFunc(jobs, func(a, b id.Job) int {
		switch x, y := number(a), number(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}

		return 0
	})

	for _, j := range jobs[:len(jobs)-fenceKeeps] {
		delete(f.newestEpoch, j)
	}

	for k := range f.ended {
		if j, _, _ := k.run.Split(); f.newestEpoch[j] == 0 {
			delete(f.ended, k)
		}
	}
}

// rewrite replaces the file by a short one and opens it for more.
func (f *fence) rewrite() error {
	var text strings.Builder
	for j, epoch := range f.newestEpoch {
		text.WriteString(fenceLine("+", key{id.NewRun(j, epoch), 0}))
	}

	for k := range f.ended {
		text.WriteString(fenceLine("-", k))
	}

	if f.incarnation.Number > 0 {
		text.WriteString(incarnationLine(f.incarnation))
	}

	if err := atomicfile.Write(f.path, []byte(text.String()), atomicfile.SingleWriter()); err != nil {
		return err
	}

	return f.reopen()
}

// reopen opens the file for more lines.
func (f *fence) reopen() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	f.file = file

	return err
}

// add appends a line. What a full disk takes of it is removed again: the next line must not continue it.
func (f *fence) add(line string) error {
	before, err := f.file.Stat()
	if err != nil {
		return err
	}

	_, err = f.file.WriteString(line)
	if err != nil {
		err = errors.Join(err, f.file.Truncate(before.Size()))
	}

	return err
}

// fenceLine ends with a dot, so that a line cut short is known as such.
func fenceLine(what string, k key) string {
	return what + " " + string(k.run) + " " + strconv.Itoa(k.rank) + " .\n"
}

func incarnationLine(i api.Incarnation) string {
	return "= " + strconv.FormatUint(i.Number, 10) + " " + string(i.Mark) + " .\n"
}

// seen returns what this node has seen of the yard's history.
func (f *fence) seen() api.Seen {
	seen := api.Seen{Incarnation: f.incarnation}
	for j := range f.newestEpoch {
		n, _ := j.Number()
		seen.Job = max(seen.Job, n)
	}

	return seen
}

// newest returns the greatest epoch of a job that this node has had, 0 if it has had none.
func (f *fence) newest(j id.Job) int { return f.newestEpoch[j] }

// check says whether a rank may be started.
func (f *fence) check(k key) error {
	j, epoch, ok := k.run.Split()
	switch {
	case !ok || k.rank < 0:
		return fault.New(fault.Invalid, "bad_rank", "invalid run id %.80q", k.run)
	case f.ended[k]:
		return fault.New(fault.Conflict, "run_over", "run %s has already ended on this node", k.run)
	case epoch < f.newestEpoch[j]:
		return fault.New(
			fault.Conflict,
			"stale_epoch",
			"run %s is older than run %s, which this node has already run",
			k.run,
			id.NewRun(j, f.newestEpoch[j]),
		)
	}

	return nil
}

// recordStart notes that a rank is about to be started under an incarnation of the yard.
func (f *fence) recordStart(k key, under api.Incarnation) error {
	if under.Number > 0 && under != f.incarnation {
		if _, err := f.file.WriteString(incarnationLine(under)); err != nil {
			return fmt.Errorf("record the incarnation of the yard: %w", err)
		}

		f.incarnation = under
	}

	j, epoch, _ := k.run.Split()
	if f.newestEpoch[j] == epoch {
		return nil
	}
	if err := f.add(fenceLine("+", k)); err != nil {
		return fmt.Errorf("record start of run %s: %w", k.run, err)
	}

	f.newestEpoch[j] = max(f.newestEpoch[j], epoch)

	return nil
}

// recordEnd notes that a rank has ended for good and its record is about to go.
func (f *fence) recordEnd(k key) error {
	if f.ended[k] {
		return nil
	}
	if err := f.add(fenceLine("-", k)); err != nil {
		return fmt.Errorf("record end of run %s: %w", k.run, err)
	}

	f.ended[k] = true

	return nil
}

func (f *fence) close() error { return f.file.Close() }
