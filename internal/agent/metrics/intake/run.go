package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// Limits on what one run may send.
const (
	maxBody     = 1 << 20  // of a request
	maxLines    = 5000     // in a request
	maxReceived = 64 << 20 // in all
	perSecond   = 500.0    // lines, over a while
	burst       = 10_000.0 // lines at once
)

// run is what is known of a rank that sends.
type run struct {
	clk  clock.Clock
	path string
	busy chan struct{} // a place for each request whose body is read

	mu     sync.Mutex
	allow  float64 // lines that it may send now
	filled time.Time
	total  reading.Float // steps, as its status messages say
	mlflow mlflowRuns
}

// run returns the rank of a name, nil if there is no such here.
func (i *Intake) run(name string) *run {
	i.mu.Lock()
	defer i.mu.Unlock()

	r := i.runs[name]
	if r == nil {
		dir := filepath.Join(i.dir, name)
		if filepath.Base(dir) != name { // names of ranks have no parts
			return nil
		}

		if !i.expects(name) {
			return nil
		}

		r = &run{
			clk:    i.clk,
			path:   filepath.Join(dir, receivedFile),
			busy:   make(chan struct{}, maxBusy),
			allow:  burst,
			filled: i.clk.Now(),
		}

		if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // its name was checked; the request finds out too
			i.log.Warn("cannot create the folder of received metrics", "rank", name, "error", err)
			return r
		}

		i.runs[name] = r
	}

	return r
}

// expects reports whether a rank of this name is here: it has a token, or a folder in which an agent of an earlier
// version has put that.
func (i *Intake) expects(name string) bool {
	for _, path := range []string{i.tokenPath(name), filepath.Join(i.dir, name)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}

	return false
}

// keep appends lines to the file of the rank, all of them or none.
func (r *run) keep(lines []reading.Line) error {
	var text []byte
	for k := range lines {
		if lines[k].At == 0 {
			lines[k].At = float64(r.clk.Now().UnixMilli()) / 1000
		}

		line, err := json.Marshal(lines[k])
		if err != nil {
			return fmt.Errorf("store received metrics: %w", err)
		}

		text = append(append(text, line...), '\n')
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.spend(float64(len(lines))); err != nil {
		return err
	}

	return r.write(text)
}

// spend counts lines against what the rank may send.
func (r *run) spend(n float64) error {
	now := r.clk.Now()
	r.allow = min(burst, r.allow+perSecond*max(now.Sub(r.filled).Seconds(), 0))
	r.filled = now
	if n > r.allow {
		return fault.New(fault.OverLimit, "too_fast", "rate limit exceeded: a run may send at most %.0f points per second",
			perSecond).
			WithRemedy("send fewer; one value every few seconds is enough")
	}

	r.allow -= n

	return nil
}

// write appends to the file.
func (r *run) write(text []byte) (err error) {
	//nolint:gosec // a folder of the intake's own, see Intake.run
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size()+int64(len(text)) > maxReceived {
		return fault.New(fault.OverLimit, "too_much", "a run may send at most %d bytes in total", maxReceived)
	}

	_, err = f.Write(text)

	return err
}
