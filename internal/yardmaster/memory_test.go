package yardmaster_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/queue"
	"trainyard/internal/scaling"
	"trainyard/internal/yardmaster"
)

// storedYard is a yard whose changes are stored.
type storedYard struct {
	*yard
	cfg   func() yardmaster.Config
	store *record
}

func newStoredYard(t testing.TB, cfg func() yardmaster.Config) *storedYard {
	t.Helper()

	return &storedYard{yard: newYardOf(t, cfg()), cfg: cfg, store: newRecord()}
}

// commit stores what has changed.
func (y *storedYard) commit() {
	y.t.Helper()
	if err := y.store.commit(y.Take()); err != nil {
		y.t.Fatal(err)
	}
}

// restart replaces the yard by one that is loaded from the store.
func (y *storedYard) restart() {
	y.t.Helper()
	y.commit()

	state, err := y.store.load(y.now.Add(-y.cfg().KeepFinal))
	if err != nil {
		y.t.Fatal(err)
	}

	y.Yard = yardmaster.New(y.cfg())
	y.Load(y.now, state)
	y.check()
}

// finished lets alice run a command on one GPU of a node, to its end.
func (y *storedYard) finished(node id.Node, command string, ran time.Duration) {
	y.t.Helper()

	s := spec(1)
	s.Run = command
	j := y.submit("alice", s)
	y.Round(y.now)
	y.commit()

	r := id.NewRun(j, 1)
	running := yardmaster.RankReport{Run: r, State: job.RunRunning, Started: y.now}
	y.ok(yardmaster.NodeReport{Node: node, Ranks: []yardmaster.RankReport{running}})
	y.now = y.now.Add(ran)
	y.ok(yardmaster.NodeReport{Node: node, Ranks: []yardmaster.RankReport{{Run: r, State: job.RunEnded, Ended: y.now}}})
	y.commit()
}

// told lets a program report progress.
func (y *storedYard) told(node id.Node, j id.Job, epoch int, p job.Progress) {
	y.t.Helper()
	p.At = y.now
	y.ok(yardmaster.NodeReport{Node: node, Ranks: []yardmaster.RankReport{
		{Run: id.NewRun(j, epoch), State: job.RunRunning, Started: y.now, Progress: &p},
	}})
}

func policyOf(t testing.TB, text string) place.Policy {
	t.Helper()
	make, err := catalogue.All(nil).Make(text)
	if err != nil {
		t.Fatal(err)
	}

	return make()
}

// seen is what policies and people are told.
type seen struct {
	Estimate queue.Estimate
	DryRun   string
	Outlooks map[id.Job]job.Outlook
	Queue    string
	Rooms    string
	Past     string
	Rates    map[id.Job]float64
}

func (y *storedYard) seen(like *job.Spec, jobs ...id.Job) seen {
	y.t.Helper()
	text := func(v any) string {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			y.t.Fatal(err)
		}

		return string(b)
	}

	s := seen{
		Estimate: y.Estimate("alice", like.Run, 1), DryRun: text(y.preview("alice", like)),
		Outlooks: map[id.Job]job.Outlook{}, Rates: map[id.Job]float64{},
	}

	v := y.View(y.now)
	s.Queue, s.Rooms, s.Past = text(v.Queue), text(v.Rooms), text(v.Past)

	for _, r := range v.Running {
		s.Rates[r.Job] = r.Rate
	}

	for _, j := range jobs {
		s.Outlooks[j] = yardmaster.OutlookOf(y.Yard, j)
	}

	return s
}

// training is what a program reports of its batch.
func training(i int) *scaling.Training {
	return &scaling.Training{
		Batch: 64, BaseBatch: 32, MaxBatch: 512, MinPerGPU: 1, MaxPerGPU: 256,
		StepSeconds: 0.1 + float64(i)/100, NoiseScale: 100,
	}
}

// TestARestartForgetsNothing: what a yard has learned of past runs and of jobs that have not ended is the same after a
// restart, and so is what it tells policies and people.
func TestARestartForgetsNothing(t *testing.T) {
	t.Parallel()

	for _, policy := range []string{"rules", "sjf-easy", "harvest"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			y := newStoredYard(t, func() yardmaster.Config { return yardmaster.Defaults(policyOf(t, policy)) })
			y.gpuNode("a", "A100", 4)

			for i := range 7 {
				y.finished("a", fmt.Sprintf("python train.py --seed %d", i), time.Hour+time.Duration(i)*time.Minute)
			}

			y.gpuNode("b", "V100", 4)

			elastic := spec(2)
			elastic.Checkpoint = &job.Checkpoint{Dir: "c"}
			elastic.Resources.GPUs = job.Range{Min: 2, Max: 2}
			declared := spec(2)
			declared.Speed = job.NewSpeed(1e6, 0, 0, job.Rate{GPUs: 1, PerSecond: 10}, job.Rate{GPUs: 2, PerSecond: 16})
			learns, moves, measured := y.submit("alice", elastic), y.submit("alice", elastic), y.submit("alice", declared)
			y.round()

			node := map[id.Job]id.Node{}
			for _, j := range []id.Job{learns, moves, measured} {
				node[j] = yardmaster.NodeOf(y.Yard, j)
				y.running(j, 0)
			}

			y.pass(30*time.Second, "a", "b")

			for i := range 4 {
				y.told(node[learns], learns, 1, job.Progress{Done: float64(i * 700), Work: 1e5})
				y.told(node[moves], moves, 1, job.Progress{
					Done: float64(i * 600), Work: 2e5, Training: training(i),
				})
				y.told(node[measured], measured, 1, job.Progress{Done: float64(i * 1000)})
				y.pass(time.Minute, "a", "b")
			}

			y.ok(yardmaster.Pause{Job: moves, By: "alice"})
			y.report(moves, 0, yardmaster.RankReport{State: job.RunEnded, Cause: job.CauseCancelled, Signalled: true})
			y.ok(yardmaster.Resume{Job: moves, By: "alice"})
			y.submit("alice", spec(4)) // more than is free on one node
			y.round()
			y.running(moves, 0)
			y.pass(time.Minute, "a", "b")

			for i := range 2 {
				y.told(yardmaster.NodeOf(y.Yard, moves), moves, 2, job.Progress{
					Done: float64(2500 + 500*i), Training: training(i),
				})
				y.pass(time.Minute, "a", "b")
			}

			next := spec(1)
			next.Run = "python train.py --seed 99"
			next.Objective = job.ObjectiveTime
			y.commit()

			before := y.seen(next, learns, moves, measured)
			y.restart()

			if diff := cmp.Diff(before, y.seen(next, learns, moves, measured), cmp.AllowUnexported(job.Speed{})); diff != "" {
				t.Errorf("after a restart (-before +after):\n%s", diff)
			}

			if before.Estimate.Basis != "7 past runs of train.py" {
				t.Errorf("the estimate is by %q, want by 7 past runs", before.Estimate.Basis)
			}

			if o := before.Outlooks[learns]; o.Learned == nil || o.Startup == 0 || o.Done != 2100 {
				t.Errorf("nothing was learned of %s: %+v", learns, o)
			}

			if o := before.Outlooks[moves]; o.Learned == nil || o.Learned.Training == nil || o.Ran != 2 {
				t.Errorf("nothing was learned of %s: %+v", moves, o)
			}

			if o := before.Outlooks[measured]; o.Speed.Equal(declared.Speed) {
				t.Errorf("nothing was learned of %s: %+v", measured, o)
			}
		})
	}
}
