package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// shownProgress is what people see of how far a job has come, in a list and by itself.
type shownProgress struct{ Done, Work, Percent any }

func progressShown(j api.Job) shownProgress {
	p := shownProgress{Work: j.Work}
	if j.Done != nil {
		p.Done = *j.Done
	}

	if j.Percent != nil {
		p.Percent = *j.Percent
	}

	return p
}

// wantProgress compares what is shown of a job with what should be.
func (y *yard) wantProgress(c *api.Client, j id.Job, when string, want shownProgress) {
	y.t.Helper()
	d, err := c.Job(y.t.Context(), j)
	y.must(err)

	if diff := cmp.Diff(want, progressShown(d.Job)); diff != "" {
		y.t.Errorf("%s (-want +got):\n%s", when, diff)
	}

	page, err := c.Jobs(y.t.Context(), api.JobFilter{})
	y.must(err)

	for _, listed := range page.Jobs {
		if listed.ID == j {
			if diff := cmp.Diff(want, progressShown(listed)); diff != "" {
				y.t.Errorf("%s, in the list (-want +got):\n%s", when, diff)
			}
		}
	}
}

func TestProgressIsShownFromSubmissionToEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j := y.submit(ada, "run: a\nspeed: {work: 200}\ncheckpoint: {dir: c}")[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	y.wantProgress(ada, j, "while it runs and has told nothing", shownProgress{Work: 200.0})
	tell := func(state job.RunState, p *job.Progress) {
		n.tell(api.RankReport{Run: run, State: state, Started: y.clock.Now(), Progress: p})
	}
	tell(job.RunRunning, &job.Progress{Done: 50.5})
	y.wantProgress(ada, j, "when it has told", shownProgress{Done: 50.5, Work: 200.0, Percent: 25.2})
	tell(job.RunRunning, &job.Progress{Done: 60, Work: 400})
	y.wantProgress(ada, j, "when it has found more to do", shownProgress{Done: 60.0, Work: 400.0, Percent: 15.0})
	tell(job.RunEnded, &job.Progress{Done: 400})
	d, err := ada.Job(t.Context(), j)
	y.must(err)

	if d.State != job.Succeeded || d.Done == nil || *d.Done != 400 {
		t.Errorf("at the end it is %s and has done %v, want 400", d.State, d.Done)
	}
}

func TestAJobOfUnknownWorkShowsWhatItTells(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(ada)
	y.wantProgress(ada, j, "before it tells anything", shownProgress{Work: 0.0})
	n.tell(api.RankReport{Run: run, State: job.RunRunning, Started: y.clock.Now(), Progress: &job.Progress{Done: 12}})
	y.wantProgress(ada, j, "when it has told", shownProgress{Done: 12.0, Work: 0.0})
}

func TestDeadlineCostAndSpeedAreShownAsSubmitted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	due := y.clock.Now().Add(48 * time.Hour).Truncate(time.Second)
	file := "run: a\nresources: {gpus: 1..4}\ndeadline: " + due.Format(time.RFC3339) + "\nlate_cost: $2.50\n" +
		"speed: {work: 130M, start: 45s, rates: [{gpu: A100, gpus: 2, spread: true, per_second: 12.5}]}"
	j := y.submit(ada, file)[0]
	d, err := ada.Job(t.Context(), j.ID)
	y.must(err)

	for name, got := range map[string]api.Job{"the answer": j, "the job": d.Job} {
		if got.Deadline == nil || !got.Deadline.Equal(due) || got.LateCost != 2_500_000 || got.Work != 130e6 ||
			got.Done == nil ||
			*got.Done != 0 {
			t.Errorf("%s says deadline %v, late cost %v, work %v, done %v", name, got.Deadline, got.LateCost, got.Work, got.Done)
		}
	}

	var spec job.Spec
	y.must(json.Unmarshal(d.Spec, &spec))

	want := job.NewSpeed(130e6, 45*time.Second, 0, job.Rate{GPU: "A100", GPUs: 2, Spread: true, PerSecond: 12.5})
	if !spec.Speed.Equal(want) {
		t.Errorf("the spec's speed is %+v", spec.Speed)
	}
}
