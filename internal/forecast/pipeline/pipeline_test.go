package pipeline

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func band(low, mid, high float64) job.Band { return job.Band{Low: low, Mid: mid, High: high} }

func run(b job.Band) *job.Forecast { return &job.Forecast{Basis: job.BasisSteps, Remaining: b} }

func TestTheLongestPathDecides(t *testing.T) {
	t.Parallel()

	spans, err := Simulate([]Node{
		{Job: "report", Needs: []id.Job{"train", "eval"}, Forecast: run(band(10, 10, 10))},
		{Job: "prepare", Forecast: nil},
		{Job: "train", Needs: []id.Job{"prepare", "gone"}, Forecast: run(band(50, 100, 200))},
		{Job: "eval", Needs: []id.Job{"prepare"}, Forecast: run(band(5, 10, 20))},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}

	want := []id.Job{"prepare", "train", "report"}
	if got := spans[0].Path; !cmp.Equal(got, want[1:]) && !cmp.Equal(got, want) {
		t.Errorf("path %v, want %v", got, want)
	}

	if e := spans[0].End; math.Abs(e.Mid-110) > 8 || math.Abs(e.Low-60) > 8 || math.Abs(e.High-210) > 20 {
		t.Errorf("the report is there after %+v", e)
	}

	if e := spans[1].End; e != (job.Band{}) {
		t.Errorf("what has ended ends after %+v", e)
	}
}

func TestOfTwoEqualPathsTheLaterIsLaterThanEither(t *testing.T) {
	t.Parallel()

	spans, err := Simulate([]Node{
		{Job: "a", Forecast: run(band(50, 100, 200))},
		{Job: "b", Forecast: run(band(50, 100, 200))},
		{
			Job:      "c",
			Needs:    []id.Job{"a", "b"},
			Forecast: &job.Forecast{Basis: job.BasisSteps, Wait: band(0, 0, 0), Remaining: band(0, 0, 0)},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}

	if spans[2].End.Mid < 115 {
		t.Errorf("the later of two that end after 100 in the middle ends after %+v", spans[2].End)
	}
}

func TestWhatIsNotKnownIsNamed(t *testing.T) {
	t.Parallel()

	spans, err := Simulate([]Node{
		{Job: "a", Forecast: &job.Forecast{}},
		{Job: "b", Needs: []id.Job{"a"}, Forecast: run(band(1, 2, 3))},
		{Job: "c", Needs: []id.Job{"b"}, Forecast: run(band(1, 2, 3))},
		{Job: "d", Forecast: run(band(1, 2, 3))},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}

	for i, want := range []id.Job{"a", "a", "a", ""} {
		if spans[i].Unknown != want || (want != "") != (spans[i].End == job.Band{}) {
			t.Errorf("%s: unknown %q, end %+v", spans[i].Job, spans[i].Unknown, spans[i].End)
		}
	}
}

func TestACircleIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Simulate([]Node{{Job: "a", Needs: []id.Job{"b"}}, {Job: "b", Needs: []id.Job{"a"}}}, 1)

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "needs_circle" {
		t.Errorf("a circle gives %v", err)
	}
}

func TestNeedsNeverHastenAJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "jobs")
		nodes := make([]Node, n)
		for i := range nodes {
			mid := rapid.Float64Range(0, 1e6).Draw(t, "mid")
			low := mid * rapid.Float64Range(0, 1).Draw(t, "low")
			high := mid*rapid.Float64Range(1, 10).Draw(t, "high") + rapid.Float64Range(0, 1).Draw(t, "more")
			nodes[i] = Node{
				Job:      id.Job(rune('a' + i)),
				Forecast: &job.Forecast{Basis: job.BasisCurve, Wait: band(0, 0, low), Remaining: band(low, mid, high)},
			}

			for k := range i {
				if rapid.Bool().Draw(t, "need") {
					nodes[i].Needs = append(nodes[i].Needs, nodes[k].Job)
				}
			}
		}

		seed := rapid.Uint64().Draw(t, "seed")
		spans, err := Simulate(nodes, seed)
		if err != nil {
			t.Fatal(err)
		}

		again, _ := Simulate(nodes, seed)
		if diff := cmp.Diff(spans, again); diff != "" {
			t.Fatalf("the same seed gives other spans: %s", diff)
		}

		for i, s := range spans {
			if e := s.End; math.IsNaN(e.Low+e.Mid+e.High) || e.Low < 0 || e.Low > e.Mid || e.Mid > e.High {
				t.Fatalf("%+v", e)
			}

			for _, need := range nodes[i].Needs {
				if before := spans[need[0]-'a'].End; s.End.Low < before.Low || s.End.Mid < before.Mid || s.End.High < before.High {
					t.Fatalf("%s ends after %+v and what it needs after %+v", s.Job, s.End, before)
				}
			}

			if s.Path[len(s.Path)-1] != s.Job {
				t.Fatalf("the path of %s is %v", s.Job, s.Path)
			}
		}
	})
}
