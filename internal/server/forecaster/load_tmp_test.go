package forecaster

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/baseline"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/yardmaster"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func pastJobs(n int, now time.Time) []history.Past {
	var past []history.Past
	for i := range n {
		p := history.Past{Job: id.Job(fmt.Sprint("j", 1000000+i)), Group: fmt.Sprint("u", i%37), Finished: now.Add(time.Duration(i-n) * time.Minute), Start: 20, Wait: 60,
			Features: history.Features{Name: fmt.Sprint("net", i%50, "x"), Owner: fmt.Sprint("u", i%37), Command: "python train.py", Metric: "loss", Target: 0.1, Task: "vision", Model: "cnn", GPUs: 1, Params: float64(1e6 * (1 + i%20))},
			Curve:    curve.Curve{Goal: curve.Goal{Value: 0.1, Set: true}}}
		for k := range 128 {
			x := float64(1+k) * 16 * (0.8 + 0.4*float64(i%10)/10)
			p.Curve.X, p.Curve.Y, p.At = append(p.Curve.X, x), append(p.Curve.Y, 4/math.Sqrt(x)), append(p.At, x)
		}
		p.End, p.Seconds = p.Curve.X[127], p.At[127]
		past = append(past, p)
	}
	return past
}

func TestLoad(t *testing.T) {
	n := 10000
	if s := os.Getenv("K1N"); s != "" {
		fmt.Sscan(s, &n)
	}
	np := 1000
	ctx := t.Context()
	st, err := sqlstore.Open(ctx, filepath.Join(t.TempDir(), "y.db"), sqlstore.Options{Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Acquire(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	y := yardmaster.New(yardmaster.Defaults(baseline.FIFO{}))
	var ymu sync.Mutex
	told := 0
	f := New(Deps{Store: st, Clock: clock.Wall{}, Log: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		Do: func(_ context.Context, m yardmaster.Message) (any, error) {
			ymu.Lock()
			told += len(m.(yardmaster.Foresee).Jobs)
			ymu.Unlock()
			return nil, nil
		},
		Query: func(_ context.Context, fn func(*yardmaster.Yard)) error { ymu.Lock(); fn(y); ymu.Unlock(); return nil }})
	now := time.Now().UTC()
	goal := 0.1
	var jobs []job.Job
	var runs []job.Run
	for i := range n {
		j := job.Job{ID: id.Job(fmt.Sprint("j", i+1)), Seq: 1, Owner: "u1", State: job.Running, Epoch: 1, Submitted: now.Add(-time.Hour), Started: now.Add(-2000 * time.Second),
			Spec: &job.Spec{Name: fmt.Sprint("net", i%50, "x"), Run: "python train.py", Target: &job.Target{Metric: "loss", AtMost: &goal}}}
		jobs = append(jobs, j)
		runs = append(runs, job.Run{ID: id.Run(fmt.Sprintf("%s.1", j.ID)), Job: j.ID, Epoch: 1, Seq: 1, State: job.RunRunning, Ordered: now.Add(-1010 * time.Second), Started: now.Add(-1000 * time.Second)})
	}
	t0 := time.Now()
	for i := 0; i < n; i += 1000 {
		f.Follow(&yardmaster.Batch{Jobs: jobs[i:min(i+1000, n)], Runs: runs[i:min(i+1000, n)]})
	}
	t.Logf("Follow of %d running: %s", n, time.Since(t0))
	c0 := cpu()
	feed := func(from, to int) {
		for i := range n {
			rep := &api.MetricsReport{Runs: []api.RunMetrics{{Run: id.NewRun(jobs[i].ID, 1)}}}
			for m, name := range []string{"loss", "acc", "lr"} {
				s := api.SeriesPoints{Name: name, Source: "SDK"}
				for k := from; k < to; k++ {
					v := 4/math.Sqrt(float64(k+1)*(0.8+0.4*float64(i%10)/10)) + 0.01*math.Sin(float64(k*(i+3))) + float64(m)
					s.Points = append(s.Points, api.MetricPoint{Step: float64(k + 1), At: float64(now.Unix()) - 1000 + float64(k), Value: &v})
				}
				rep.Runs[0].Series = append(rep.Runs[0].Series, s)
			}
			if err := f.Take(ctx, rep); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed(0, np)
	t.Logf("Take of all points: cpu %s", cpu()-c0)
	var ms runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&ms)
	t.Logf("heap %d MB", ms.HeapAlloc>>20)

	past := pastJobs(2000, now)
	c0 = cpu()
	for i := 0; i < len(past); i += 500 {
		if err := f.school.learn(ctx, past[i:i+500]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("learn 2000 in 4 batches: cpu %s", cpu()-c0)
	c0 = cpu()
	more := pastJobs(2010, now.Add(time.Hour))[2000:]
	if err := f.school.learn(ctx, more); err != nil {
		t.Fatal(err)
	}
	t.Logf("learn of 10: cpu %s", cpu()-c0)
	runtime.GC()
	runtime.ReadMemStats(&ms)
	t.Logf("heap with history %d MB", ms.HeapAlloc>>20)

	// the loop's commits and locks, meanwhile
	stop := make(chan struct{})
	var lat, lock []time.Duration
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for k := uint64(2); ; k++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			j := jobs[0]
			j.Seq = k
			t0 := time.Now()
			if err := st.Commit(ctx, &yardmaster.Batch{Jobs: []job.Job{j}}); err != nil {
				t.Error(err)
			}
			t1 := time.Now()
			f.Follow(&yardmaster.Batch{Jobs: []job.Job{j}})
			lat, lock = append(lat, t1.Sub(t0)), append(lock, time.Since(t1))
		}
	}()
	q := func(d []time.Duration) string {
		slices.Sort(d)
		return fmt.Sprintf("median %s p99 %s max %s of %d", d[len(d)/2], d[len(d)*99/100], d[len(d)-1], len(d))
	}
	passes := 30
	for p := range passes {
		if p == 15 {
			feed(np, np+5)
		}
		c0, t0 := cpu(), time.Now()
		f.pass(ctx)
		d := time.Since(t0)
		t.Logf("pass %d: %s wall, cpu %s, told %d", p, d, cpu()-c0, told)
		if d < time.Second {
			time.Sleep(time.Second - d)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("commit: %s", q(lat))
	t.Logf("Follow: %s", q(lock))
	f.mu.Lock()
	dirty := 0
	for _, w := range f.jobs {
		dirty += len(w.dirty)
	}
	f.mu.Unlock()
	t.Logf("dirty metrics: %d", dirty)
	runtime.ReadMemStats(&ms)
	t.Logf("sys %d MB heap %d MB", ms.Sys>>20, ms.HeapAlloc>>20)
	t0, c0 = time.Now(), cpu()
	f.flush(ctx, true)
	t.Logf("last flush: %s cpu %s", time.Since(t0), cpu()-c0)
}
