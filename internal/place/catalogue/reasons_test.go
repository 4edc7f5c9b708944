package catalogue_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/queue"
)

// The claims of reasons about other jobs: that they get GPUs of the job, and that they have some.
var (
	namedJobs = `((?:j\d+(?:, | and )?)+)`
	takesOver = regexp.MustCompile(`(?:released GPUs go to|moved to make room for|preempted for|makes room for) ` + namedJobs)
	hasSome   = regexp.MustCompile(`is not free: ` + namedJobs)
	aJob      = regexp.MustCompile(`j\d+`)
)

// TestReasonsAreTrue: where the reason of a stop or a start says that other jobs get the GPUs of a
// job, the plan starts these jobs on them; where it says that others have the GPUs that it would
// like, these jobs run after the plan. A job that the policy lets wait is queued and not started.
func TestReasonsAreTrue(t *testing.T) {
	t.Parallel()

	names := catalogue.All(nil).Names()

	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		name := rapid.SampledFrom(names).Draw(t, "policy")

		policy, err := catalogue.All(nil).Make(name)
		if err != nil {
			t.Fatal(err)
		}

		p := policy().Plan(v)
		for _, s := range p.Stops {
			checkTakers(t, name, s.Reason, s.Running, &p)
			checkHolders(t, name, s.Reason, v, &p)
		}

		for _, s := range p.Starts {
			checkHolders(t, name, s.Reason, v, &p)
		}

		for _, w := range p.Waits {
			queued := slices.ContainsFunc(v.Queue.Items(), func(it *queue.Item) bool { return it.Job == w.Job })
			if !queued || startsIn(&p, w.Job) || w.Reason == "" {
				t.Fatalf("%s: %s waits (%q); queued: %v, starts: %v", name, w.Job, w.Reason, queued, startsIn(&p, w.Job))
			}
		}
	})
}

func startsIn(p *place.Plan, j id.Job) bool {
	return slices.ContainsFunc(p.Starts, func(s place.Start) bool { return s.Item.Job == j })
}

// checkTakers checks the jobs of which a reason says that they get GPUs of a running job.
func checkTakers(t *rapid.T, policy, reason string, r *place.Running, p *place.Plan) {
	found := takesOver.FindStringSubmatch(reason)
	if found == nil {
		return
	}

	takers := place.TakersOf(p.Starts).Of(r)
	for _, j := range aJob.FindAllString(found[1], -1) {
		if !slices.Contains(takers, id.Job(j)) {
			t.Fatalf("%s stops %s: %q, and its GPUs go to %v", policy, r.Job, reason, takers)
		}
	}
}

// checkHolders checks the jobs of which a reason says that they have GPUs.
func checkHolders(t *rapid.T, policy, reason string, v *place.View, p *place.Plan) {
	found := hasSome.FindStringSubmatch(reason)
	if found == nil {
		return
	}

	for _, j := range aJob.FindAllString(found[1], -1) {
		stopped := slices.ContainsFunc(p.Stops, func(s place.Stop) bool { return s.Running.Job == id.Job(j) })
		runs := slices.ContainsFunc(v.Running, func(r *place.Running) bool { return r.Job == id.Job(j) })
		if !startsIn(p, id.Job(j)) && (stopped || !runs) {
			t.Fatalf("%s: %q, and %s has no GPUs after the plan: %s", policy, reason, j, strings.Join(planWords(p), "\n"))
		}
	}
}

func planWords(p *place.Plan) []string {
	var list []string
	for _, s := range p.Stops {
		list = append(list, "stop "+string(s.Running.Job)+": "+s.Reason)
	}

	for _, s := range p.Starts {
		list = append(list, "start "+string(s.Item.Job)+": "+s.Reason)
	}

	return list
}
