package forecaster

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/yardmaster"
)

// noon is when tests begin.
var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// handClock stands still until it is moved.
type handClock struct{ ahead atomic.Int64 }

func (c *handClock) Now() time.Time       { return noon.Add(time.Duration(c.ahead.Load())) }
func (c *handClock) move(d time.Duration) { c.ahead.Add(int64(d)) }

// shakyStore is a real store that fails to save documents on request.
type shakyStore struct {
	store.Store
	mu    sync.Mutex
	err   error
	tries int
	slow  time.Duration // each time
}

func (s *shakyStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err = err
}

func (s *shakyStore) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

func (s *shakyStore) Keep(ctx context.Context, docs ...store.Document) error {
	s.mu.Lock()
	s.tries++
	err, slow := s.err, s.slow
	s.mu.Unlock()
	time.Sleep(slow)

	if err != nil {
		return err
	}

	return s.Store.Keep(ctx, docs...)
}

// lines counts what is logged.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// bench is a forecaster with a store of its own, whose passes tests make by hand.
type bench struct {
	*Forecaster
	t      testing.TB
	dir    string
	clock  *handClock
	store  *shakyStore
	logged *lines

	lock  sync.Mutex
	err   error // of the loop
	heard []yardmaster.JobForecast
}

// newBench starts a forecaster over a folder, which may hold what an earlier one left.
func newBench(t testing.TB, dir string, c *handClock) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, clock: c, logged: &lines{}}
	st, err := sqlstore.Open(t.Context(), filepath.Join(dir, "yard.db"), sqlstore.Options{Clock: c})
	b.must(err)
	t.Cleanup(func() { _ = st.Close() }) // a second time it has nothing to say
	_, err = st.Lead(t.Context(), store.Candidate{Server: store.Server{Name: "test"}, Lease: time.Minute})
	b.must(err)
	b.store = &shakyStore{Store: st}
	yard := yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	b.Forecaster = New(Deps{Store: b.store, Clock: c, Log: slog.New(slog.NewTextHandler(b.logged, nil)),
		Do: func(_ context.Context, m yardmaster.Message) (any, error) {
			b.lock.Lock()
			defer b.lock.Unlock()

			if b.err != nil {
				return nil, b.err
			}

			if f, ok := m.(yardmaster.PutForecasts); ok {
				b.heard = append(b.heard, f.Jobs...)
			}

			return nil, nil
		},
		Query: func(_ context.Context, fn func(*yardmaster.Yard)) error {
			b.lock.Lock()
			defer b.lock.Unlock()

			if b.err == nil {
				fn(yard)
			}

			return b.err
		},
		Statuses: func(jobs []*job.Job) ([]yardmaster.JobStatus, error) {
			b.lock.Lock()
			defer b.lock.Unlock()

			return make([]yardmaster.JobStatus, len(jobs)), b.err // the yard has none of them
		}})

	if !b.start(t.Context()) {
		t.Fatal("it did not begin")
	}

	return b
}

// again ends the forecaster, as a crash does or in good order, and starts another over what it left.
func (b *bench) again(crash bool) *bench {
	b.t.Helper()

	if !crash {
		b.flush(b.t.Context(), true)
	}

	b.must(b.store.Store.Close())

	return newBench(b.t, b.dir, b.clock)
}

func (b *bench) must(err error) {
	b.t.Helper()

	if err != nil {
		b.t.Fatal(err)
	}
}

// breaks makes the loop fail, nil for no longer.
func (b *bench) breaks(err error) {
	b.lock.Lock()
	defer b.lock.Unlock()

	b.err = err
}

// kinds lists the notices that the loop has heard.
func (b *bench) kinds() []string {
	b.lock.Lock()
	defer b.lock.Unlock()

	list := []string{}
	for _, f := range b.heard {
		for _, n := range f.Notices {
			list = append(list, strings.TrimPrefix(n.Kind, "job."))
		}
	}

	return list
}

// passes makes so many, a second apart.
func (b *bench) passes(n int) {
	for range n {
		b.pass(b.t.Context())
		b.clock.move(time.Second)
	}
}

// change commits what a job has become, and tells of it.
func (b *bench) change(jobs []job.Job, runs ...job.Run) {
	b.t.Helper()
	batch := &yardmaster.Batch{Jobs: jobs, Runs: runs}
	b.must(b.store.Commit(b.t.Context(), batch))
	b.Follow(batch)
}

// runs makes a job run since now, and returns it.
func (b *bench) runs(number, epoch int, file job.Spec) job.Job {
	b.t.Helper()
	now := b.clock.Now()
	file.Run = "python train.py"
	j := job.Job{
		ID:        id.Job(fmt.Sprint("j", number)),
		Seq:       uint64(10 * epoch),
		Owner:     "ann",
		Spec:      &file,
		State:     job.Running,
		Epoch:     epoch,
		Submitted: now,
		Since:     now,
		Started:   now,
	}

	b.change(
		[]job.Job{j},
		job.Run{
			ID:      id.NewRun(j.ID, epoch),
			Job:     j.ID,
			Epoch:   epoch,
			Seq:     1,
			State:   job.RunRunning,
			Ordered: now,
			Started: now,
		},
	)

	return j
}

// points are a loss that falls with the root of the step, one a second.
func points(from, until int, began time.Time) []api.MetricPoint {
	var list []api.MetricPoint
	for i := from; i < until; i++ {
		v := 4 / math.Sqrt(float64(i+1))
		list = append(list, api.MetricPoint{Step: float64(i + 1), At: seconds(began) + float64(i), Value: &v})
	}

	return list
}

// measures tells points of a job's run.
func (b *bench) measures(j id.Job, epoch int, name string, list []api.MetricPoint) {
	b.t.Helper()
	b.must(
		b.Take(
			b.t.Context(),
			&api.MetricsReport{
				Runs: []api.RunMetrics{
					{Run: id.NewRun(j, epoch), Series: []api.SeriesPoints{{Name: name, Source: "SDK", Points: list}}},
				},
			},
		),
	)
}

// kept returns how many points there are of each metric of a job.
func (b *bench) kept(j id.Job) map[string]int {
	b.t.Helper()
	all, err := b.seriesOf(b.t.Context(), j)
	b.must(err)

	out := map[string]int{}
	for i := range all {
		out[all[i].Name] = len(all[i].Points)
	}

	return out
}

func (b *bench) watched() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs)
}

func target(metric string, most float64) *job.Target {
	return &job.Target{Metric: metric, AtMost: &most}
}

func has(list []string, want string) int {
	n := 0
	for _, s := range list {
		if s == want {
			n++
		}
	}

	return n
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
