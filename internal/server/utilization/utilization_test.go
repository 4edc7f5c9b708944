package utilization

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/yardmaster"
)

var begun = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// kit is a recorder over a real store.
type kit struct {
	*testing.T
	*Recorder
	orders []yardmaster.Order
}

func newKit(t *testing.T) *kit {
	t.Helper()
	st, err := sqlstore.Open(t.Context(), filepath.Join(t.TempDir(), "yard.db"), sqlstore.Options{Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = st.Close() })

	if _, err := st.Lead(t.Context(), store.Candidate{Server: store.Server{Name: "test"}, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}

	k := &kit{T: t, orders: []yardmaster.Order{{Run: "j1.1"}, {Run: "j1.1", Rank: 1}, {Run: "j1.2"}}}
	k.Recorder = k.another(st)

	return k
}

// another is a recorder that knows what is in the store and nothing else.
func (k *kit) another(st store.Store) *Recorder {
	return New(Deps{Store: st, Clock: clock.Wall{}, Log: slog.New(slog.DiscardHandler)})
}

// report reports what rank 0 of a run uses after so many seconds.
func (k *kit) report(run id.Run, rank, second int, u job.Use, state job.RunState) {
	k.Helper()
	u.At = begun.Add(time.Duration(second) * time.Second)
	k.Take(k.Context(), "n1", []api.RankReport{{Run: run, Rank: rank, State: state, Use: &u}}, k.orders)
}

func (k *kit) of(ended bool) api.Utilization {
	k.Helper()
	j := &job.Job{ID: "j1", Owner: "ada", Spec: &job.Spec{Name: "net"}, State: job.Running}
	if ended {
		j.State = job.Succeeded
	}

	rank := job.Rank{GPUs: []int{0, 1}, CPUs: 8000, Memory: 32 << 30}
	var runs []job.Run
	for epoch := 1; epoch <= 2*maxEarlier; epoch++ {
		runs = append(runs, job.Run{ID: id.NewRun("j1", epoch), Ranks: []job.Rank{rank}})
	}

	u, err := k.Of(k.Context(), j, runs)
	if err != nil {
		k.Fatal(err)
	}

	return u
}

func gpus(busy ...float64) []job.GPUUse {
	var list []job.GPUUse
	for i, b := range busy {
		list = append(list, job.GPUUse{Index: i, Busy: b, Memory: int64(10+i) << 30})
	}

	return list
}

// The driver may have been asked last while the rank before it had the GPU.
func TestGPUsOfTheFirstMeasurementDoNotCount(t *testing.T) {
	t.Parallel()
	k := newKit(t)

	for i, busy := range []float64{1, 0.25, 0.5} {
		k.report("j1.1", 0, 10*i, job.Use{GPUs: gpus(busy)}, job.RunRunning)
	}

	if u := k.of(false); *u.Peak.GPUBusy != 0.5 || *u.Mean.GPUBusy != 0.375 {
		t.Errorf("GPUs are busy %v on average, %v at most", *u.Mean.GPUBusy, *u.Peak.GPUBusy)
	}
}

func TestMeanAndPeakOfARun(t *testing.T) {
	t.Parallel()
	k := newKit(t)

	for i, cpu := range []float64{30, 40, 80, 90} { // 1, 4 and 1 CPUs, and 30 s before the first measurement
		k.report("j1.1", 0, 10*i, job.Use{
			CPUSeconds: cpu, Memory: int64(i+1) << 30, GPUs: gpus(0.5, 1), Read: int64(100 * i),
			Unmeasured: []job.Unmeasured{{Resource: job.ResourceNetwork, Why: "shared"}},
		}, job.RunRunning)
	}

	u := k.of(false)
	if *u.Mean.CPUs != 2 || *u.Peak.CPUs != 4 || *u.Now.CPUs != 1 || *u.Peak.Memory != 4<<30 || *u.Mean.Memory != 3<<30 {
		t.Errorf("mean %v CPUs %v bytes, peak %v %v, now %v", *u.Mean.CPUs, *u.Mean.Memory, *u.Peak.CPUs, *u.Peak.Memory,
			*u.Now.CPUs)
	}
	if *u.Rates.Read != 10 || *u.Rates.Written != 0 || u.Rates.Received != nil || !u.At.Equal(begun.Add(30*time.Second)) {
		t.Errorf("rates %+v at %v", u.Rates, u.At)
	}

	if *u.Mean.GPUBusy != 0.75 || *u.Peak.GPUMemory != 11<<30 || *u.Total.Read != 300 {
		t.Errorf("GPUs %v, GPU memory %v, read %v", *u.Mean.GPUBusy, *u.Peak.GPUMemory, *u.Total.Read)
	}
	if u.Total.Received != nil || len(u.Missing) != 1 || u.Missing[0].Why != "shared" {
		t.Errorf("received %v although it was not measured: %+v", u.Total.Received, u.Missing)
	}
	if u.Ended || u.Advice != nil {
		t.Errorf("a running job is advised %q", u.Advice)
	}

	// The same report again, an older one, and one of another node change nothing.
	k.report("j1.1", 0, 30, job.Use{CPUSeconds: 1e9, Memory: 1 << 50}, job.RunRunning)
	k.report("j1.1", 0, 5, job.Use{CPUSeconds: 1e9, Memory: 1 << 50}, job.RunRunning)
	k.report("j9.1", 0, 50, job.Use{CPUSeconds: 1e9, Memory: 1 << 50}, job.RunRunning)

	if again := k.of(false); *again.Peak.Memory != 4<<30 || again.Samples != 4 {
		t.Errorf("after repeated reports the peak is %v of %d samples", *again.Peak.Memory, again.Samples)
	}
	if _, known := k.jobs["j9"]; known {
		t.Error("what a node says of a run that is not assigned to it was taken")
	}
}

func TestTheEndOfARankCompletesItsSums(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.report("j1.1", 0, 0, job.Use{CPUSeconds: 1, Memory: 1 << 30}, job.RunRunning)
	k.report("j1.1", 0, 10, job.Use{CPUSeconds: 11, Memory: 1 << 30}, job.RunRunning)
	k.report("j1.1", 0, 13, job.Use{CPUSeconds: 15, MemoryPeak: 5 << 30}, job.RunEnded)

	u := k.of(true)
	if *u.Total.CPUSeconds != 15 || *u.Peak.Memory != 5<<30 || !u.Ended || u.Now != nil {
		t.Errorf("ended with %v CPU seconds, %v bytes: %+v", *u.Total.CPUSeconds, *u.Peak.Memory, u)
	}

	// One that was too short to be measured has its sums all the same.
	k.report("j1.2", 0, 20, job.Use{CPUSeconds: 0.5, MemoryPeak: 1 << 20}, job.RunEnded)

	if u := k.of(true); u.Run != "j1.2" || *u.Total.CPUSeconds != 0.5 || u.Mean.CPUs != nil {
		t.Errorf("a short run: %+v", u)
	}
}

func TestTheCourseIsBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t)

	const samples = 2_000
	for i := range samples {
		k.report("j1.1", 0, 5*i, job.Use{CPUSeconds: float64(10 * i), Memory: 1000}, job.RunRunning)
	}

	u := k.of(false)
	if n := len(u.Points); n < maxPoints/4 || n > maxPoints+1 {
		t.Errorf("the course has %d points", n)
	}

	for _, p := range u.Points {
		if *p.CPUs < 1.99 || *p.CPUs > 2.01 || *p.Memory != 1000 {
			t.Fatalf("a point of the course is %v CPUs and %v bytes, want 2 and 1000", *p.CPUs, *p.Memory)
		}
	}

	if last := u.Points[len(u.Points)-1].At; !last.Equal(begun.Add(5 * (samples - 1) * time.Second)) {
		t.Errorf("the course ends at %v", last)
	}
}

func TestTheCoursesOfEarlierRunsAreKept(t *testing.T) {
	t.Parallel()
	k := newKit(t)

	const runs, samples = maxEarlier + 3, 100
	for run := 1; run <= runs; run++ {
		name := id.NewRun("j1", run)
		k.orders = append(k.orders, yardmaster.Order{Run: name})

		for i := range samples {
			k.report(name, 0, 10_000*run+i, job.Use{Memory: int64(run), GPUs: gpus(0.5)}, job.RunRunning)
		}
	}

	k.report("j1.2", 0, 1e6, job.Use{Memory: 1}, job.RunRunning) // late, and of no use any more
	k.Flush(t.Context())
	k.Recorder = k.another(k.Store)

	u := k.of(false)
	if len(u.Earlier) != maxEarlier || u.Earlier[0].Run != "j1.3" || u.Earlier[maxEarlier-1].Run != "j1.12" {
		t.Fatalf("courses of %d earlier runs are kept, want those of the newest %d", len(u.Earlier), maxEarlier)
	}

	for i, e := range u.Earlier {
		if n := len(e.Points); n < maxEarlierPoints/3 || n > maxEarlierPoints {
			t.Errorf("the course of %s has %d points", e.Run, n)
		}

		first, last := e.Points[0], e.Points[len(e.Points)-1]
		if *first.Memory != int64(i+3) || *first.GPUBusy != 0.5 || *first.GPUMemory != 10<<30 {
			t.Errorf("%s begins with %d bytes, busy %v, %d bytes on a GPU", e.Run, *first.Memory, *first.GPUBusy, *first.GPUMemory)
		}
		if end := begun.Add(time.Duration(10_000*(i+3)+samples-1) * time.Second); !last.At.Equal(end) {
			t.Errorf("the course of %s ends at %v, want %v", e.Run, last.At, end)
		}
	}
}

func TestWhatWasMeasuredSurvivesTheServer(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.report("j1.1", 0, 0, job.Use{CPUSeconds: 0, Memory: 7 << 30}, job.RunRunning)
	k.report("j1.1", 0, 10, job.Use{CPUSeconds: 20, Memory: 3 << 30}, job.RunRunning)
	k.Flush(t.Context())

	k.Recorder = k.another(k.Store)
	if u := k.of(false); *u.Peak.Memory != 7<<30 {
		t.Errorf("another server knows a peak of %v", *u.Peak.Memory)
	}

	k.report("j1.1", 0, 20, job.Use{CPUSeconds: 40, Memory: 3 << 30}, job.RunRunning)

	if u := k.of(false); *u.Mean.CPUs != 2 || u.Samples != 3 {
		t.Errorf("it goes on with a mean of %v CPUs of %d samples", *u.Mean.CPUs, u.Samples)
	}

	// When the job has ended it is stored and forgotten.
	k.Follow(&yardmaster.Batch{Jobs: []job.Job{{ID: "j1", State: job.Succeeded}}})
	k.Flush(t.Context())

	if len(k.jobs) != 0 {
		t.Errorf("%d jobs stay in memory", len(k.jobs))
	}
	if u := k.of(true); u.Samples != 3 {
		t.Errorf("of the ended job %d samples are known", u.Samples)
	}

	j := &job.Job{ID: "j2", Spec: &job.Spec{}}
	if _, err := k.Of(t.Context(), j, nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a job that was never measured: %v", err)
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		asked   api.Asked
		memory  job.Bytes
		cpus    float64
		busy    float64
		idle    int
		elapsed float64
		want    []string
	}{
		"as it should be":   {api.Asked{GPUs: 1, CPUs: 8000, Memory: 32 << 30}, 24 << 30, 7, 0.9, 0, 600, nil},
		"too much memory":   {api.Asked{CPUs: 1000, Memory: 32 << 30}, 6 << 30, 1, 0, 0, 600, []string{"memory: 8GB"}},
		"too little memory": {api.Asked{CPUs: 1000, Memory: 8 << 30}, 7800 << 20, 1, 0, 0, 600, []string{"memory: 10GB"}},
		"no limit":          {api.Asked{CPUs: 1000}, 1 << 30, 1, 0, 0, 600, []string{"memory: 1280MB"}},
		"too many CPUs":     {api.Asked{CPUs: 16000, Memory: 2 << 30}, 1500 << 20, 2, 0, 0, 600, []string{"cpus: 3"}},
		"too few CPUs":      {api.Asked{CPUs: 1000, Memory: 2 << 30}, 1500 << 20, 5.5, 0, 0, 600, []string{"cpus: 6"}},
		"idle GPUs":         {api.Asked{GPUs: 4, CPUs: 1000, Memory: 2 << 30}, 1500 << 20, 1, 0.2, 3, 600, []string{"gpus: 1 ("}},
		"waiting GPUs":      {api.Asked{GPUs: 1, CPUs: 1000, Memory: 2 << 30}, 1500 << 20, 1, 0.2, 0, 600, []string{"gpus: they worked 20%"}},
		"too short":         {api.Asked{GPUs: 1, CPUs: 1000, Memory: 32 << 30}, 1 << 20, 0, 0, 1, 20, []string{"no recommendation"}},
	} {
		memory := int64(test.memory)
		u := &api.Utilization{Asked: test.asked, Elapsed: test.elapsed, Samples: 100, Peak: api.UseAmounts{
			Memory: &memory, CPUs: &test.cpus,
		}, Mean: api.UseAmounts{CPUs: &test.cpus, GPUBusy: &test.busy}}
		u.Asked.Nodes = 1

		got := advise(u, test.idle)
		if len(got) != len(test.want) || len(got) > 0 && !strings.HasPrefix(got[0], test.want[0]) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// handClock stands still until it is moved.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }

// A report may be taken when its job has just ended: nothing tells of that end any more. It does not stay in memory for
// ever, and nor does a job that is queued again.
func TestJobsOfWhichNothingIsReportedLeaveTheMemory(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	clk := &handClock{now: begun}
	k.Clock = clk

	k.Follow(&yardmaster.Batch{Jobs: []job.Job{{ID: "j1", State: job.Succeeded}}})
	k.report("j1.1", 0, 10, job.Use{CPUSeconds: 10, Memory: 1 << 30}, job.RunRunning)
	k.Flush(t.Context())

	if len(k.jobs) != 1 {
		t.Fatal("a job of which something was just reported is not in memory")
	}

	clk.now = clk.now.Add(quietFor)
	k.Flush(t.Context())

	if len(k.jobs) != 0 {
		t.Errorf("%d jobs are in memory of which nothing is reported", len(k.jobs))
	}

	k.report("j1.1", 0, 20, job.Use{CPUSeconds: 20, Memory: 1 << 30}, job.RunRunning)

	if u := k.of(false); u.Samples != 2 {
		t.Errorf("%d samples are known after a pause, want 2", u.Samples)
	}
}
