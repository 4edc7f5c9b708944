package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sampler"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// fakeRuntime keeps the contract of package runtime without processes. It is
// used by one agent after another, as the data directory is.
type fakeRuntime struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change of a rank
	granted chan struct{} // closed at the next renewal
	ranks   map[rankKey]*fakeRank
	starts  map[rankKey]int // how often a rank really began
	stops   []string
	saves   []string
	gangs   []string
	forgot  []string
	renewed []renewal
	aside   []string // set aside: run and UID
	adopted int
	files   runtime.Materialise
	gang    bool   // what is started waits for the other ranks
	instant bool   // what is started has ended at once
	text    string // and has printed this
	fail    error  // of the next starts
	tries   int    // how often a start was tried
	// progress is the folder of the programs' progress files.
	progress string
	work     string // the working directory of all
}

type fakeRank struct {
	spec   rundir.Spec
	status rundir.Status
	log    []byte
	saves  int
	mute   error // why its progress cannot be had
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		changed: make(chan struct{}),
		granted: make(chan struct{}),
		ranks:   map[rankKey]*fakeRank{},
		starts:  map[rankKey]int{},
	}
}

func (f *fakeRuntime) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()

	fn()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeRuntime) Watch() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeRuntime) Adopt() ([]rundir.Status, error) {
	f.mu.Lock()
	f.adopted++
	f.mu.Unlock()

	return f.List(), nil
}

func (f *fakeRuntime) Start(_ context.Context, s rundir.Spec) (err error) {
	f.change(func() {
		f.tries++
		if f.fail != nil {
			err = f.fail
			return
		}

		k := rankKey{s.Run, s.Rank}
		if _, known := f.ranks[k]; known {
			return
		}

		f.starts[k]++
		f.ranks[k] = &fakeRank{
			spec: s,
			status: rundir.Status{
				Run:     s.Run,
				UID:     s.Launch.UID,
				Rank:    s.Rank,
				Job:     s.Job,
				Epoch:   s.Epoch,
				State:   job.RunRunning,
				Started: time.Unix(1, 0).UTC(),
			},
		}

		if st := &f.ranks[k].status; f.gang {
			st.State, st.Ready = job.RunPreparing, true
		}

		if st := &f.ranks[k].status; f.instant {
			st.State, st.Ended, st.Silent = job.RunEnded, time.Unix(2, 0).UTC(), f.text == ""
			f.ranks[k].log = []byte(f.text)
		}
	})

	return err
}

func (f *fakeRuntime) Evict(id.Run, int, string) error { return nil }

func (f *fakeRuntime) Stop(run id.Run, rank int, mode job.StopMode) error {
	f.change(func() {
		r := f.ranks[rankKey{run, rank}]
		if r == nil || r.status.State == job.RunEnded {
			return
		}

		f.stops = append(f.stops, fmt.Sprintf("%s %s", run, mode))
		r.status.State, r.status.Signalled, r.status.Signal = job.RunEnded, true, strings.ToUpper("sig"+string(mode))
	})

	return nil
}

func (f *fakeRuntime) StartGang(run id.Run, rank int, start rundir.GangStart) error {
	f.mu.Lock()
	r := f.ranks[rankKey{run, rank}]
	waits := r != nil && r.status.Ready
	f.mu.Unlock()

	if waits {
		f.change(func() {
			r.status.Ready, r.status.State = false, job.RunRunning
			f.gangs = append(f.gangs, fmt.Sprintf("%s.%d %v", run, rank, start.Nodes))
		})
	}

	return nil
}

func (f *fakeRuntime) RequestSave(run id.Run, rank, number int) error {
	f.mu.Lock()
	r := f.ranks[rankKey{run, rank}]
	again := r == nil || r.saves >= number
	f.mu.Unlock()

	if again {
		return nil // no change, or the agent would ask forever
	}

	f.change(func() {
		r.saves = number
		f.saves = append(f.saves, fmt.Sprintf("%s %d", run, number))
	})

	return nil
}

func (f *fakeRuntime) Suspend(run id.Run, rank int, order job.SuspendOrder) error {
	f.change(func() {
		if r := f.ranks[rankKey{run, rank}]; r != nil {
			r.status.Suspension = job.Suspension{Number: order.Number, On: order.On()}
		}
	})

	return nil
}

func (f *fakeRuntime) Forget(run id.Run, rank int) (err error) {
	f.change(func() {
		k := rankKey{run, rank}
		if r := f.ranks[k]; r == nil || r.status.State != job.RunEnded {
			err = fmt.Errorf("%s is not there or has not ended", run)
			return
		}

		delete(f.ranks, k)
		f.forgot = append(f.forgot, string(run))
	})

	return err
}

func (f *fakeRuntime) SetAside(run id.Run, rank int) (path string, err error) {
	f.change(func() {
		k := rankKey{run, rank}
		r := f.ranks[k]
		if r == nil || r.status.State != job.RunEnded {
			err = fmt.Errorf("%s is not there or has not ended", run)
			return
		}

		delete(f.ranks, k)
		f.aside = append(f.aside, string(run)+" "+string(r.status.UID))
		path = "/aside/" + string(run)
	})

	return path, err
}

func (f *fakeRuntime) List() []rundir.Status {
	f.mu.Lock()
	defer f.mu.Unlock()

	var all []rundir.Status
	for _, r := range f.ranks {
		all = append(all, r.status)
	}

	slices.SortFunc(all, func(a, b rundir.Status) int { return strings.Compare(string(a.Run), string(b.Run)) })

	return all
}

// renewal is a contact lease that the agent has given to the runtime.
type renewal struct {
	lease    contact.Lease
	answered bool // by an answer of the server
}

func (f *fakeRuntime) RenewContactLease(l contact.Lease, answered bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.renewed = append(f.renewed, renewal{l, answered})
	close(f.granted)
	f.granted = make(chan struct{})

	return nil
}

func (f *fakeRuntime) Limits() string { return "none (fake)" }
func (f *fakeRuntime) Close() error   { return nil }

func (f *fakeRuntime) OpenLog(run id.Run, rank int, offset int64) (io.ReadCloser, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r := f.ranks[rankKey{run, rank}]
	if r == nil {
		return nil, 0, fmt.Errorf("no log of %s", run)
	}

	return &fakeLog{f: f, r: r, at: offset}, int64(len(r.log)), nil
}

func (f *fakeRuntime) ProgressFile(run id.Run, rank int) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r := f.ranks[rankKey{run, rank}]
	if r == nil {
		return "", fmt.Errorf("no progress of %s", run)
	}

	return filepath.Join(f.progress, fmt.Sprintf("%s.%d", run, rank)), r.mute
}

func (f *fakeRuntime) Target(run id.Run, rank int) (sampler.Target, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.ranks[rankKey{run, rank}] == nil {
		return sampler.Target{}, fmt.Errorf("no rank %d of %s", rank, run)
	}

	return sampler.Target{PID: os.Getpid()}, nil
}

func (f *fakeRuntime) MetricSources(run id.Run, rank int) (runtime.MetricSources, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r := f.ranks[rankKey{run, rank}]
	if r == nil {
		return runtime.MetricSources{}, fmt.Errorf("no places of %s", run)
	}

	return runtime.MetricSources{Work: f.work, Metrics: filepath.Join(f.work, "told.jsonl"), Launch: r.spec.Launch}, nil
}

// fakeLog reads a log that grows.
type fakeLog struct {
	f  *fakeRuntime
	r  *fakeRank
	at int64
}

func (l *fakeLog) Read(p []byte) (int, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()

	if l.at >= int64(len(l.r.log)) {
		return 0, io.EOF
	}

	n := copy(p, l.r.log[l.at:])
	l.at += int64(n)

	return n, nil
}

func (l *fakeLog) Close() error { return nil }

// print adds to the output of rank 0 of a run.
func (f *fakeRuntime) print(run id.Run, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r := f.ranks[rankKey{run, 0}]
	r.log = append(r.log, text...)
}

// end ends rank 0 of a run by itself.
func (f *fakeRuntime) end(run id.Run, exit int) {
	f.change(func() {
		r := f.ranks[rankKey{run, 0}]
		r.status.State, r.status.ExitCode, r.status.Ended = job.RunEnded, exit, time.Unix(2, 0).UTC()
	})
}

// wait waits until ok holds; ok is called under the lock.
func (f *fakeRuntime) wait(y *fakeYard, what string, ok func() bool) {
	y.t.Helper()
	limit, cancel := context.WithTimeout(y.t.Context(), 5*time.Minute)
	defer cancel()

	for {
		f.mu.Lock()
		done, changed, granted := ok(), f.changed, f.granted
		f.mu.Unlock()

		if done {
			return
		}

		select {
		case <-changed:
		case <-granted:
		case <-limit.Done():
			y.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (f *fakeRuntime) Visit(context.Context, id.Run, int, runtime.Visit) (runtime.Visitor, error) {
	return nil, fault.New(fault.Conflict, "no_visitors", "nobody can be let in here")
}

func (f *fakeRuntime) DialPort(_ context.Context, _ id.Run, _, port int, _ bool) (net.Conn, error) {
	return nil, fault.New(fault.Conflict, "port_closed", "nothing listens on port %d", port)
}
