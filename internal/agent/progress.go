package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

// maxProgress bounds the size of a progress file.
const maxProgress = 64 << 10

// progressFile is the progress file of a run as last read. It belongs to the report loop.
type progressFile struct {
	text      []byte // of its file, as last read
	progress  *job.Progress
	err       error  // why the text is not valid
	delivered bool   // the server has acknowledged it
	server    string // the server instance that has it: after a restart it is sent again
}

// addProgress adds new progress of the programs to a report. A file that cannot be read is
// logged and does not hold up the report.
func (a *Agent) addProgress(ranks []api.RankReport, server string) []api.RankReport {
	ranks = slices.Clone(ranks)
	seen := map[id.Run]bool{}

	for i := range ranks {
		r := &ranks[i]
		if r.Rank != 0 || r.Started.IsZero() {
			continue
		}

		seen[r.Run] = true

		t := a.progressFiles[r.Run]
		if t == nil {
			t = &progressFile{}
			a.progressFiles[r.Run] = t
		}

		a.noteProblem(progressTask(r.Run), a.readProgress(t, r))

		if !t.delivered || t.server != server {
			r.Progress = t.progress
		}
	}

	for run := range a.progressFiles {
		if !seen[run] {
			delete(a.progressFiles, run)
			a.mu.Lock()
			delete(a.problems, progressTask(run)) // over, though it does not work again
			a.mu.Unlock()
		}
	}

	return ranks
}

// progressTask names the place of trouble with a run's progress.
func progressTask(run id.Run) string { return "progress of " + string(run) }

// readProgress reads the file of a run. Invalid content may be half written, so it is an
// error only if it is unchanged at the next report.
func (a *Agent) readProgress(t *progressFile, r *api.RankReport) error {
	path, err := a.rt.ProgressFile(r.Run, r.Rank)
	if fault.KindOf(err) == fault.NotFound {
		return nil // forgotten since the report was made up
	}
	if err != nil {
		return err
	}

	text, at, err := readRegularFile(path, maxProgress)
	if err != nil {
		return err
	}
	if bytes.Equal(text, t.text) {
		return t.err
	}

	*t = progressFile{text: text}
	t.progress, t.err = parseProgress(text)
	if t.progress != nil {
		t.progress.At = at
	}

	if r.State != job.RunEnded {
		return nil
	}

	return t.err
}

// readRegularFile reads a file that a program has made and that may be anything, and
// when it was written; nil if there is none. It must not wait, as on a pipe that
// nobody writes to, nor follow a link elsewhere.
func readRegularFile(path string, limit int64) (text []byte, at time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, at, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO): // a link, a socket
		return nil, at, notRegular(path, err)
	case err != nil:
		return nil, at, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	info, err := f.Stat()
	if err != nil {
		return nil, at, err
	}
	if !info.Mode().IsRegular() {
		return nil, at, notRegular(path, nil)
	}

	text, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, at, err
	}
	if int64(len(text)) > limit {
		return nil, at, fault.New(fault.Invalid, "too_large", "%s must not be larger than %d bytes", path, limit)
	}

	return text, info.ModTime(), nil
}

func notRegular(path string, cause error) error {
	return fault.New(fault.Invalid, "no_file", "%s is not a regular file", path).WithCause(cause)
}

// parseProgress parses a progress file; an empty one is valid.
func parseProgress(text []byte) (*job.Progress, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}

	var in struct {
		Done  *float64   `json:"done"`
		Work  float64    `json:"work"`
		Rates []job.Rate `json:"rates"`

		Training *scaling.Training `json:"training"`
	}

	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fault.New(fault.Invalid, "bad_progress", "the progress file is not valid: %v", err).WithCause(err)
	}
	if in.Done == nil {
		return nil, fault.New(fault.Invalid, "bad_progress", `the progress file lacks "done"`)
	}

	p := &job.Progress{Done: *in.Done, Work: in.Work, Rates: in.Rates, Training: in.Training}
	if err := api.CheckProgress(p); err != nil {
		return nil, err
	}

	return p, nil
}

// markProgressDelivered notes which progress the server has acknowledged.
func (a *Agent) markProgressDelivered(ranks []api.RankReport, server string) {
	for i := range ranks {
		if ranks[i].Progress != nil {
			t := a.progressFiles[ranks[i].Run]
			t.delivered, t.server = true, server
		}
	}
}
