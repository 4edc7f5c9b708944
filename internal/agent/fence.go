package agent

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

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
// after a newer. It is a text file with a line for each run ("+ run rank"), each
// rank that is begun ("> run rank"), each end ("- run rank"), each incarnation of the
// yard under which runs were started ("= number mark") and each start of the machine
// ("@ boot 0").
//
// Only a line that a rank is begun is forced to disk, before its supervisor is started. That is the only sync of
// a start: what else is written for it no process outlives either. After a power cut a rank that
// was begun has ended, whatever is left of its directory.
//
// The loop that reconciles uses it, and what prepares ranks beside it.
type fence struct {
	disk atomicfile.Disk
	path string
	boot string // the present start of the machine

	mu          sync.Mutex // guards what follows
	marked      bool       // the file names the present start of the machine
	file        atomicfile.File
	size        int64           // of the file
	syncs       int             // that are under way
	newestJob   uint64          // greatest number of a job
	newestEpoch map[id.Job]int  // greatest epoch started
	begun       map[key]string  // ranks that have not ended, and the start of the machine at which they were begun
	ended       map[key]bool    // ended and forgotten
	incarnation api.Incarnation // under which the newest run was started
}

// openFence reads the fence at the present start of the machine.
func openFence(disk atomicfile.Disk, path, boot string) (*fence, error) {
	f := &fence{
		disk: disk, path: path, boot: cmp.Or(boot, "unknown"),
		newestEpoch: map[id.Job]int{}, begun: map[key]string{}, ended: map[key]bool{},
	}

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

	boot := ""
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f.readLine(lines.Text(), &boot)
	}

	return lines.Err()
}

// readLine reads one line that was written at a start of the machine. One that a crash cut short says nothing.
func (f *fence) readLine(line string, boot *string) {
	fields := strings.Fields(line)
	if len(fields) != 4 || fields[3] != "." {
		return
	}

	switch fields[0] {
	case "=":
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			f.incarnation = api.Incarnation{Number: n, Mark: id.UID(fields[2])}
		}

		return
	case "@":
		*boot = fields[1]
		return
	}

	run := id.Run(fields[1])
	rank, err := strconv.Atoi(fields[2])

	j, epoch, ok := run.Split()
	if err != nil || !ok {
		return
	}

	f.note(j, epoch)

	switch k := (key{run, rank}); fields[0] {
	case ">":
		f.begun[k] = *boot
	case "-":
		f.ended[k] = true
		delete(f.begun, k)
	}
}

// note remembers the epoch of a job.
func (f *fence) note(j id.Job, epoch int) {
	f.newestEpoch[j] = max(f.newestEpoch[j], epoch)

	if n, ok := j.Number(); ok {
		f.newestJob = max(f.newestJob, n)
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

	for k := range f.begun {
		if j, _, _ := k.run.Split(); f.newestEpoch[j] == 0 {
			delete(f.begun, k)
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

	for k, boot := range f.begun {
		text.WriteString(bootLine(boot) + fenceLine(">", k))
	}

	text.WriteString(bootLine(f.boot))

	err := atomicfile.Write(f.path, []byte(text.String()), atomicfile.SingleWriter(), atomicfile.On(f.disk))
	if err != nil {
		return err
	}

	f.marked = true

	return f.reopen()
}

// reopen opens the file for more lines.
func (f *fence) reopen() error {
	file, err := f.disk.OpenFile(f.path, os.O_RDWR)
	if err != nil {
		return err
	}

	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}

	f.file, f.size = file, info.Size()

	return nil
}

// add appends lines. What a full disk takes of them is removed again: the next line must not continue it.
func (f *fence) add(lines string) error {
	if _, err := f.file.WriteAt([]byte(lines), f.size); err != nil {
		return errors.Join(err, f.file.Truncate(f.size))
	}

	f.size += int64(len(lines))

	return nil
}

// fenceLine ends with a dot, so that a line cut short is known as such.
func fenceLine(what string, k key) string {
	return what + " " + string(k.run) + " " + strconv.Itoa(k.rank) + " .\n"
}

func incarnationLine(i api.Incarnation) string {
	return "= " + strconv.FormatUint(i.Number, 10) + " " + string(i.Mark) + " .\n"
}

func bootLine(boot string) string { return "@ " + boot + " 0 .\n" }

// seen returns what this node has seen of the yard's history.
func (f *fence) seen() api.Seen {
	f.mu.Lock()
	defer f.mu.Unlock()

	return api.Seen{Incarnation: f.incarnation, Job: f.newestJob}
}

// newest returns the greatest epoch of a job that this node has had, 0 if it has had none.
func (f *fence) newest(j id.Job) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.newestEpoch[j]
}

// check says whether a rank may be started.
func (f *fence) check(k key) error {
	f.mu.Lock()
	defer f.mu.Unlock()

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
	f.mu.Lock()
	defer f.mu.Unlock()

	if under.Number > 0 && under != f.incarnation {
		if err := f.add(incarnationLine(under)); err != nil {
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

	f.note(j, epoch)

	return nil
}

// recordBegin notes that a rank is begun now. That survives a power cut once it returns.
func (f *fence) recordBegin(k key) error {
	file, err := f.addBegin(k)
	if err == nil && file != nil {
		err = f.sync(k, file)
	}

	if err != nil {
		return fmt.Errorf("record begin of run %s: %w", k.run, err)
	}

	return nil
}

// sync makes the line of a rank survive a power cut. It does not hold the lock meanwhile, so that ranks that begin at
// the same time share a sync of the file system.
func (f *fence) sync(k key, file atomicfile.File) error {
	err := file.Sync()

	f.mu.Lock()
	defer f.mu.Unlock()

	f.syncs--
	if err != nil {
		delete(f.begun, k) // nobody knows what is on the disk
	}

	return err
}

// addBegin adds the line of a rank that is begun and returns the file to sync, nil if it was begun before.
func (f *fence) addBegin(k key) (atomicfile.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if boot, known := f.begun[k]; known && boot == f.boot {
		return nil, nil
	}

	lines := fenceLine(">", k)
	if !f.marked {
		lines = bootLine(f.boot) + lines
	}

	if err := f.add(lines); err != nil {
		return nil, err
	}

	f.begun[k], f.marked = f.boot, true
	f.syncs++

	return f.file, nil
}

// lost reports whether a rank was begun before the machine started anew: it has ended, and if nothing of it is here a
// power cut took it.
func (f *fence) lost(k key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	boot, begun := f.begun[k]

	return begun && boot != f.boot
}

// recordEnd notes that a rank has ended for good and its record is about to go.
func (f *fence) recordEnd(k key) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.ended[k] {
		return nil
	}
	if err := f.add(fenceLine("-", k)); err != nil {
		return fmt.Errorf("record end of run %s: %w", k.run, err)
	}

	f.ended[k] = true
	delete(f.begun, k)

	return f.shorten()
}

// shorten forgets the oldest jobs and writes a shorter file, now and then. A full disk is no reason to fail.
func (f *fence) shorten() error {
	if len(f.newestEpoch) < 2*fenceKeeps || f.syncs > 0 {
		return nil
	}

	f.trim()

	long := f.file
	if err := f.rewrite(); err != nil {
		if diskspace.Full(err) {
			return nil
		}

		return fmt.Errorf("shorten the run fence: %w", err)
	}

	return long.Close()
}

func (f *fence) close() error { return f.file.Close() }
