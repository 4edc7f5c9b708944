package sim_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/lp"
	"trainyard/internal/sim"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// scene is a yard with its jobs, from which the same simulation is begun as often as needed.
type scene struct {
	policy    string
	make      func() place.Policy
	nodes     []fleet.Node
	jobs      []*sim.Job
	quotas    []tenant.Quota
	data      []dataset.Dataset
	offers    []fleet.Offer
	nodesMax  int           // the yard's limit on provisioned nodes, 0 for none
	stop      time.Duration // when the promises are taken
	condition *condition    // of harvest, nil if there is none
	log       bytes.Buffer  // what the yard decided since the simulation was begun last
}

// features are what a scene may have.
type features struct {
	policies []string
	unlike   bool // nodes with GPUs of several models
	gangs    bool
	quotas   bool
	data     bool
	clouds   bool
	elastic  bool
	preempts bool // jobs have checkpoints
}

func (f features) with(policies []string) features {
	f.policies = policies
	return f
}

func (f features) withClouds() features {
	f.clouds = true
	return f
}

func drawScene(t *rapid.T, f features) *scene {
	s := &scene{policy: rapid.SampledFrom(f.policies).Draw(t, "policy")}

	if s.policy == "harvest" && rapid.IntRange(0, 2).Draw(t, "condition") > 0 {
		s.condition = drawCondition(t)
		s.policy += s.condition.parameter()
	}

	var err error
	s.make, err = catalogue.All(noSolver).Make(s.policy)
	if err != nil {
		t.Fatal(err)
	}

	models := []fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}, {Model: "Tesla T4", Memory: 15 << 30}}
	if !f.unlike {
		models = models[:1]
	}

	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := fleet.Node{
			ID: id.Node(fmt.Sprintf("n%d", i+1)), Pool: "racks",
			Class:    rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Local, fleet.Reserved}).Draw(t, "class"),
			Cordoned: rapid.IntRange(0, 5).Draw(t, "cordoned") == 0,
			Inventory: fleet.Inventory{
				CPUs:   job.CPUs(1000 * rapid.SampledFrom([]int{4, 16}).Draw(t, "cpus")),
				Memory: rapid.SampledFrom([]job.Bytes{32 << 30, 256 << 30}).Draw(t, "memory"),
			},
		}

		model := rapid.SampledFrom(models).Draw(t, "model")
		for g := range rapid.SampledFrom([]int{0, 1, 2, 4, 4}).Draw(t, "gpus") {
			model.Index = g
			n.Inventory.GPUs = append(n.Inventory.GPUs, model)
		}

		s.nodes = append(s.nodes, n)
	}

	if f.data && rapid.Bool().Draw(t, "data rule") {
		s.data = []dataset.Dataset{{ID: "mri", Rule: job.PlaceLocal, Owner: "ann", Size: 1 << 20,
			Copies: []dataset.Copy{{At: job.PlaceLocal, Path: "/mri"}}}}
	}

	if f.quotas {
		s.quotas = drawQuotas(t)
	}

	refused := place.Refusal(s.make(), place.Clouds) != nil
	if f.clouds && !refused && rapid.IntRange(0, 3).Draw(t, "clouds") > 0 {
		s.offers = drawOffers(t)
		s.nodesMax = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "limit of nodes")
	}

	for range rapid.IntRange(2, 9).Draw(t, "jobs") {
		s.jobs = append(s.jobs, s.drawJob(t, f, time.Duration(rapid.IntRange(0, 30).Draw(t, "at"))*time.Minute))
	}

	slices.SortStableFunc(s.jobs, func(a, b *sim.Job) int { return int(a.At - b.At) })
	s.stop = time.Duration(rapid.IntRange(0, 60).Draw(t, "stop")) * time.Minute

	return s
}

// noSolver is a solver that fails, so that the search decides about conditions across jobs.
func noSolver(*lp.Model) (*lp.Solution, error) { return nil, errors.New("no solver") }

// condition is a condition across jobs: on the GPUs of some users, or on what their GPUs cost.
type condition struct {
	users  []string // none means everyone
	weight string   // of a GPU
	atMost int
}

func drawCondition(t *rapid.T) *condition {
	return &condition{
		users:  rapid.SampledFrom([][]string{nil, {"ann"}, {"ann", "bob"}}).Draw(t, "users of the condition"),
		weight: rapid.SampledFrom([]string{"1", "1", "price"}).Draw(t, "what the condition counts"),
		atMost: rapid.IntRange(0, 6).Draw(t, "at most"),
	}
}

// parameter is the condition as a parameter of the policy.
func (c *condition) parameter() string {
	users := ""
	if len(c.users) > 0 {
		users = strings.Join(c.users, ", ") + ": "
	}

	return fmt.Sprintf(`:at_most="%s%s <= %d"`, users, c.weight, c.atMost)
}

// broken reports whether the jobs that run do not meet the condition.
func (c *condition) broken(v *place.View) bool {
	if c == nil || c.weight != "1" {
		return false
	}

	gpus := 0
	for _, r := range v.Running {
		if len(c.users) == 0 || slices.Contains(c.users, string(r.User)) {
			gpus += r.GPUs
		}
	}

	return gpus > c.atMost
}

func drawQuotas(t *rapid.T) []tenant.Quota {
	var list []tenant.Quota
	for _, u := range []id.User{"ann", "bob"} {
		q := tenant.Quota{Subject: tenant.Subject{User: u}, Seq: 1, Period: tenant.Day}
		switch rapid.IntRange(0, 6).Draw(t, "quota") {
		case 0:
			q.GPUs = rapid.IntRange(1, 4).Draw(t, "quota of GPUs")
			q.Borrow = rapid.IntRange(0, 4).Draw(t, "borrows") == 0
		case 1:
			q.GPUHours = rapid.Float64Range(0.1, 4).Draw(t, "quota of GPU-hours")
		case 2:
			q.Budget = job.Money(rapid.IntRange(1, 20).Draw(t, "budget")) * 100_000
		case 3:
			q.Nodes = 1
		default:
			continue
		}

		q.OnExceeded = rapid.SampledFrom([]tenant.OnExceeded{tenant.ExceededAsk, tenant.ExceededDowngrade}).Draw(t, "exceeded")
		list = append(list, q)
	}

	return list
}

func drawOffers(t *rapid.T) []fleet.Offer {
	var list []fleet.Offer
	for i, gpus := range []int{1, 4} {
		o := fleet.Offer{
			Provider: "p", Type: fmt.Sprintf("type%d", i), Region: "north", GPU: "NVIDIA A100-SXM4-80GB", GPUs: gpus,
			GPUMemory: 80 << 30, CPUs: 16_000, Memory: 256 << 30, Hourly: job.Money(gpus) * 2_000_000,
			Boot: job.Duration(4 * time.Minute), MaxNodes: rapid.IntRange(0, 2).Draw(t, "maximum of nodes"),
		}
		o.Name = o.NameOf()
		list = append(list, o)
	}

	return list
}

// drawJob draws a job that takes exactly as long as it says, wherever it runs.
func (s *scene) drawJob(t *rapid.T, f features, at time.Duration) *sim.Job {
	gpus := rapid.SampledFrom([]int{0, 1, 1, 2, 2, 4, 8}).Draw(t, "wants")
	lasts := time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute
	spec := &job.Spec{
		Run: "simulated",
		Place: rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceAny, job.PlaceAny, job.PlaceLocal, job.PlaceCloud}).
			Draw(t, "place"),
		Objective: rapid.SampledFrom([]job.Objective{job.ObjectiveBalanced, job.ObjectiveTime, job.ObjectiveCost}).
			Draw(t, "objective"),
		Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
		Expect:   job.Duration(lasts),
		Resources: job.Resources{
			GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: 1, Max: 1},
			CPUs:   job.CPUs(1000 * rapid.SampledFrom([]int{1, 1, 8}).Draw(t, "CPUs")),
			Memory: rapid.SampledFrom([]job.Bytes{0, 0, 64 << 30}).Draw(t, "memory"),
		},
	}

	if f.preempts && rapid.Bool().Draw(t, "checkpoints") {
		spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(time.Minute)}
	}

	if f.gangs && rapid.IntRange(0, 4).Draw(t, "gang") == 0 {
		spec.Resources.Nodes = job.Range{Min: 2, Max: 2}
	}

	if f.unlike && gpus > 0 && rapid.IntRange(0, 4).Draw(t, "of a model") == 0 {
		spec.Resources.GPU = []job.GPUKind{{Model: rapid.SampledFrom([]string{"A100", "T4", "H100"}).Draw(t, "model")}}
	}

	if len(s.data) > 0 && rapid.IntRange(0, 3).Draw(t, "uses data") == 0 && spec.Place != job.PlaceCloud {
		spec.Data = []string{"mri"}
	}

	if f.quotas && rapid.IntRange(0, 5).Draw(t, "has a budget") == 0 {
		spec.Budget = job.Money(rapid.IntRange(1, 30).Draw(t, "budget")) * 100_000
	}

	j := &sim.Job{
		At: at, Owner: rapid.SampledFrom([]id.User{"ann", "bob"}).Draw(t, "owner"), Spec: spec, Duration: lasts,
	}

	if f.elastic && gpus > 0 && rapid.Bool().Draw(t, "elastic") {
		spec.Resources.GPUs.Max = 2 * gpus
		spec.Resources.Nodes.Max += rapid.IntRange(0, 1).Draw(t, "more nodes")
		spec.Speed = job.NewSpeed(lasts.Seconds(), 0, 0,
			job.Rate{GPUs: gpus, PerSecond: 1}, job.Rate{GPUs: 2 * gpus, PerSecond: 1.6})
		spec.Expect, j.Duration = 0, 0 // how long it takes depends on the GPUs that it gets
	}

	return j
}

// begin begins the simulation and lets it go on until the promises are taken.
func (s *scene) begin(t *rapid.T) *sim.Simulation {
	cfg := sim.Config{
		Policy: s.make(), Nodes: slices.Clone(s.nodes), Jobs: &list{jobs: s.jobs}, Quotas: slices.Clone(s.quotas),
		Data: slices.Clone(s.data), FairShare: true,
		Tariff: &fleet.Tariff{Energy: 0.5, Nodes: []fleet.NodePrice{{Watts: []float64{500, 1000}}}},
		Yard: func(c *yardmaster.Config) {
			c.Unmetered = len(s.quotas) == 0
			c.Provision.MaxNodes = s.nodesMax
		},
	}
	if len(s.offers) > 0 {
		cfg.Cloud = &sim.Cloud{Offers: s.offers}
	}

	s.log.Reset()
	cfg.Log = &s.log

	w, err := sim.Begin(cfg)
	if err != nil {
		t.Fatal(err)
	}

	s.goOn(t, w, s.stop, nil)

	return w
}

// goOn lets the simulation go on until a time, with a look after each step; it ends early where
// the look says so.
func (s *scene) goOn(t *rapid.T, w *sim.Simulation, until time.Duration, look func() bool) {
	for {
		more, err := w.Step(until)
		if err != nil {
			t.Fatal(err)
		}
		if !more || look != nil && !look() {
			return
		}
	}
}

// horizon is how long a promise is watched: longer than all jobs one after the other.
const horizon = 10 * time.Hour

func TestMain(m *testing.M) {
	flag.Parse()

	if s := flag.Lookup("rapid.seed"); s.Value.String() == s.DefValue {
		if err := s.Value.Set("1"); err != nil {
			panic(err)
		}
	}

	m.Run()
}

// TestPromisesComeTrue takes every promise that the yard makes at some moment and compares it
// with what then happens: why each queued job waits, when it starts, what would help, and what
// would become of a new job. -rapid.checks sets how many yards are looked at. They are the same in
// every run, unless -rapid.seed says otherwise: make test-promises looks at others.
func TestPromisesComeTrue(t *testing.T) {
	t.Parallel()

	all := features{unlike: true, gangs: true, quotas: true, data: true, preempts: true, elastic: true}
	for name, f := range map[string]features{
		"plain":  all.with([]string{"fifo", "rules"}),
		"quick":  all.with(quick()).withClouds(),
		"slow":   all.with(slow()).withClouds(),
		"clouds": all.with([]string{"rules"}).withClouds(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { drawScene(t, f).check(t, f) })
		})
	}
}

// slow lists the policies that search for long, quick the others.
func quick() []string { return policies(false) }
func slow() []string  { return policies(true) }

func policies(slow bool) []string {
	var names []string
	all := catalogue.All(nil)
	for _, e := range all {
		made, err := all.Make(e.Name)
		if err != nil {
			continue
		}

		if _, searches := made().(place.Searcher); (searches && place.IsSlow(made())) == slow {
			names = append(names, e.Name)
		}
	}

	return names
}

// check takes the promises of one scene.
func (s *scene) check(t *rapid.T, f features) {
	w := s.begin(t)
	jobs := w.Jobs()
	slices.Sort(jobs)

	var made []*promise
	for _, j := range jobs {
		why, waits := w.Yard().Why(w.Now(), j)
		if !waits {
			continue
		}

		if why.Sentence == "" {
			s.fail(t, w, "%s waits without a reason", j)
		}
		if why.Blocker == place.BlockNone && !w.Yard().PlanDue() {
			s.fail(t, w, "%s: %q, but a plan has considered it and has not started it", j, why.Sentence)
		}

		s.checkRemedies(t, w, j, &why.Why)
		made = append(made, &promise{job: j, owner: w.Owner(j), why: why.Why})
	}

	s.checkStarts(t, made)
	s.checkCourse(t)
	s.checkDrops(t)
	s.checkDryRun(t, s.drawJob(t, f, s.stop))
}

// promise is what the yard says of a job that waits, and when that job then started.
type promise struct {
	job       id.Job
	owner     id.User
	why       place.Why
	started   time.Time // zero if it did not
	overtaken bool      // another job was started before its expected start
}

// never reports whether the job is said not to start unless the yard changes.
func (p *promise) never() bool {
	return slices.Contains([]place.Blocker{
		place.BlockNoFit, place.BlockNoNode, place.BlockClosed, place.BlockData, place.BlockPaused,
	}, p.why.Blocker)
}

// watched reports whether something is said about the start of the job.
func (p *promise) watched() bool {
	return p.never() || !p.why.Start.IsZero() || !p.why.NotBefore.IsZero()
}

// checkStarts lets the simulation go on without anything new and compares when jobs start.
func (s *scene) checkStarts(t *rapid.T, made []*promise) {
	if !slices.ContainsFunc(made, (*promise).watched) {
		return
	}

	w := s.begin(t)
	w.Close()

	nodes := len(w.Yard().Nodes("", 100))
	queued := len(s.waiting(w))
	joined := false

	s.goOn(t, w, s.stop+horizon, func() bool {
		joined = joined || len(w.Yard().Nodes("", 100)) != nodes // a node that joins changes the yard
		started := len(s.waiting(w)) < queued
		pending := false

		for _, p := range made {
			if !p.watched() || !p.started.IsZero() {
				continue
			}

			_, waits := w.Yard().Why(w.Now(), p.job)
			switch {
			case !waits && joined && p.never():
			case !waits:
				p.started = w.Now()
			default:
				pending = true
				p.overtaken = p.overtaken || started && !w.Now().After(p.why.Start)
			}
		}

		return pending && len(w.Jobs()) > 0
	})

	for _, p := range made {
		if p.watched() {
			s.judge(t, p)
		}
	}
}

// judge compares what was said of the start of a job with its start.
func (s *scene) judge(t *rapid.T, p *promise) {
	why, did := &p.why, !p.started.IsZero()
	early, late := p.started.Before(why.Start), !did || p.started.Sub(why.Start) > 2*time.Second
	wrong := false

	switch {
	case p.never():
		wrong = did
	case !why.NotBefore.IsZero():
		wrong = did && p.started.Before(why.NotBefore)
	case why.Blocker == place.BlockProvisioning: // it may start elsewhere before, and money may be used up meanwhile
		wrong = late && !s.paysFor(p.owner)
	case !s.stopsEarly():
		wrong = did && early || late && !p.overtaken
	}

	if wrong {
		s.fail(t, s.begin(t), "%s: %q (%s), start %s, not before %s; it started at %s", p.job, why.Sentence, why.Blocker,
			why.Start, why.NotBefore, p.started)
	}
}

// waiting lists the jobs that wait.
func (s *scene) waiting(w *sim.Simulation) []id.Job {
	var list []id.Job
	for _, j := range w.Jobs() {
		if _, waits := w.Yard().Why(w.Now(), j); waits {
			list = append(list, j)
		}
	}

	return list
}

// stopsEarly reports whether jobs may run for less time than they declare, because their money
// or that of their owner is used up.
func (s *scene) stopsEarly() bool {
	return slices.ContainsFunc(s.quotas, func(q tenant.Quota) bool { return q.Budget > 0 || q.GPUHours > 0 }) ||
		slices.ContainsFunc(s.jobs, func(j *sim.Job) bool { return j.Spec.Budget > 0 })
}

// paysFor reports whether money or GPU-hours of a user, or of one of their jobs, may be used up.
func (s *scene) paysFor(u id.User) bool {
	return slices.ContainsFunc(s.quotas, func(q tenant.Quota) bool {
		return q.Subject.User == u && (q.Budget > 0 || q.GPUHours > 0)
	}) || slices.ContainsFunc(s.jobs, func(j *sim.Job) bool { return j.Owner == u && j.Spec.Budget > 0 })
}

// checkRemedies applies what would help to a copy of the world.
func (s *scene) checkRemedies(t *rapid.T, w *sim.Simulation, j id.Job, why *place.Why) {
	view := w.Yard().View(w.Now())

	for i := range why.Remedies {
		r := &why.Remedies[i]

		if r.Need != nil && count(view, *r.Need, r.RoomNow, nil) < r.Need.Nodes {
			s.fail(t, w, "%s: %q: %q, but that would not do: %+v", j, why.Sentence, r.Text, *r.Need)
		}

		if len(r.Ended) > 0 {
			need := s.needOf(view, j)
			if count(view, need, true, r.Ended) < need.Nodes {
				s.fail(t, w, "%s: %q: %q, but there would be no room for it", j, why.Sentence, r.Text)
			}
		}
	}

	if why.Blocker != place.BlockClosed || len(why.Remedies) == 0 {
		return
	}

	copied := s.begin(t)
	for i := range why.Remedies {
		if n := why.Remedies[i].Uncordon; n != "" {
			if err := copied.Do(yardmaster.Cordon{Node: n, By: "admin"}); err != nil {
				t.Fatal(err)
			}
		}
	}

	if then, waits := copied.Yard().Why(copied.Now(), j); waits && then.Blocker == place.BlockClosed {
		s.fail(t, w, "%s: %q: %v, but then: %q", j, why.Sentence, place.Texts(why.Remedies), then.Sentence)
	}
}

func (s *scene) needOf(v *place.View, j id.Job) fleet.Need {
	for _, it := range v.Queue.Items() {
		if it.Job == j {
			return it.Shape.Need
		}
	}

	return fleet.Need{}
}

// count returns on how many nodes a rank with this need could run, now or ever, if some jobs
// had ended.
func count(v *place.View, need fleet.Need, now bool, ended []id.Job) int {
	found := 0
	for i := range v.Rooms {
		r := &v.Rooms[i]
		inv := &r.Node.Inventory
		if !r.Node.Class.Allows(need.Place) {
			continue
		}

		cpus, memory, free := inv.CPUs, inv.Memory, r.Sound
		for _, h := range r.Holds {
			if now && !slices.Contains(ended, h.Job) {
				cpus, memory, free = cpus-h.CPUs, memory-h.Memory, free&^h.GPUs
			}
		}

		if m := fleet.NewMatcher(need); (!now || r.Open) && cpus >= need.CPUs && memory >= need.Memory &&
			bits.OnesCount64(m.MatchingGPUs(r)&free) >= need.GPUs {
			found++
		}
	}

	return found
}

// checkDrops makes plans although nothing has changed: none may be made only to be dropped.
func (s *scene) checkDrops(t *rapid.T) {
	w := s.begin(t)
	first, second := w.Round(), w.Round()
	for _, d := range second {
		if slices.Contains(first, d) {
			s.fail(t, w, "the same part of a plan is dropped in each round: %s", d)
		}
	}
}

// checkCourse lets the simulation go on and looks at every step: no part of a plan may be dropped
// again and again, limits are kept, a job for which nodes are provisioned starts there, and a job
// may be held for a quota of GPUs only while its minimum exceeds it.
func (s *scene) checkCourse(t *rapid.T) {
	w := s.begin(t)
	w.Close()
	s.log.Reset()

	wrongSince := map[id.Job]time.Time{}
	provisioned := map[id.Job]time.Time{} // when jobs are to start whose nodes boot
	s.goOn(t, w, s.stop+horizon, func() bool {
		view := w.Yard().View(w.Now())
		s.checkLimits(t, w, view)

		for _, j := range w.Jobs() {
			why, waits := w.Yard().Why(w.Now(), j)
			if waits && why.Blocker == place.BlockProvisioning {
				provisioned[j] = why.Start
			}

			switch at := provisioned[j]; {
			case !waits:
				delete(provisioned, j)
			case !at.IsZero() && w.Now().Sub(at) > 2*time.Second && !s.paysFor(w.Owner(j)):
				s.fail(t, w, "%s was to start at %s on nodes that were provisioned for it: %q", j, at, why.Sentence)
			}

			if !waits || why.Blocker != place.BlockLimit || !strings.Contains(why.Sentence, "GPUs at a time") {
				delete(wrongSince, j)
				continue
			}

			held := j
			if before, _, ok := strings.Cut(why.Sentence, " was submitted before it"); ok {
				held = id.Job(before)
			}

			if s.exceeds(view, w.Spec(held), w.Owner(held)) {
				delete(wrongSince, j)
				continue
			}

			if wrongSince[j].IsZero() {
				wrongSince[j] = w.Now()
			}

			// Quotas are checked every minute.
			if w.Now().Sub(wrongSince[j]) > 2*time.Minute {
				s.fail(t, w, "%s: %q, but its minimum is within the quota since %s", j, why.Sentence, wrongSince[j])
			}
		}

		return len(w.Jobs()) > 0
	})

	seen := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != "dropped" {
			continue
		}

		what := strings.Join(fields[1:], " ")
		seen[what]++
		if seen[what] > 2 {
			s.fail(t, w, "the same part of a plan is dropped again and again: %s", what)
		}
	}
}

// checkLimits compares what runs with the quotas of GPUs and with the condition across jobs.
func (s *scene) checkLimits(t *rapid.T, w *sim.Simulation, v *place.View) {
	if s.condition.broken(v) {
		s.fail(t, w, "the condition %+v is not met", *s.condition)
	}

	for i := range s.quotas {
		q := &s.quotas[i]
		used := 0
		for _, r := range v.Running {
			if r.User == q.Subject.User {
				used += r.GPUs
			}
		}

		if q.GPUs > 0 && !q.Borrow && used > q.GPUs {
			s.fail(t, w, "%s uses %d GPUs of %d", q.Subject, used, q.GPUs)
		}
	}
}

// exceeds reports whether the minimum of a job exceeds the quota of GPUs of its owner, beside what
// the owner's jobs hold and what is kept for those whose nodes are being provisioned.
func (s *scene) exceeds(v *place.View, spec *job.Spec, owner id.User) bool {
	used := 0
	for _, r := range v.Running {
		if r.User == owner {
			used += r.GPUs
		}
	}

	for _, it := range v.Queue.Items() {
		leased := slices.ContainsFunc(v.Leases, func(l *fleet.Lease) bool { return l.Job == it.Job && l.Live() })
		if leased && it.User == owner {
			used += it.Shape.Need.GPUs * it.Shape.Need.Nodes
		}
	}

	for i := range s.quotas {
		q := &s.quotas[i]
		needs := spec.Resources.GPUs.Min * spec.Resources.Nodes.Min
		if q.Subject.User == owner && q.GPUs > 0 && !q.Borrow && used+needs > q.GPUs {
			return true
		}
	}

	return false
}

// checkDryRun asks what would become of a new job, and submits it.
func (s *scene) checkDryRun(t *rapid.T, j *sim.Job) {
	w := s.begin(t)
	rehearsal, err := w.Yard().Rehearse(w.Now(), j.Owner, []yardmaster.Candidate{{Spec: j.Spec}})
	if err != nil {
		return // refused; a submission is refused by the same code
	}

	said := rehearsal.Previews(nil)[0]

	name, err := w.Submit(j)
	if err != nil {
		t.Fatal(err)
	}

	got, waits := w.Yard().Why(w.Now(), name)
	switch {
	case said.Starts && !said.Why.Start.IsZero() && waits,
		said.Starts && waits && !strings.HasPrefix(got.Sentence, "starts on "),
		!said.Starts && !waits,
		!said.Starts && got.Blocker != said.Why.Blocker:
		s.fail(t, w, "dry run of %+v by %s: %q (%s, starts: %v), but then %s waits: %v, %q (%s)", j.Spec.Resources, j.Owner,
			said.Why.Sentence, said.Why.Blocker, said.Starts, name, waits, got.Sentence, got.Blocker)
	}

	seen := map[string]bool{}
	for _, o := range said.Options {
		if o.Offer != "" && seen[o.Offer] {
			s.fail(t, w, "the dry run lists offer %s twice for %+v: %+v", o.Offer, j.Spec.Resources, said.Options)
		}

		seen[o.Offer] = true
	}
}

// fail tells the story.
func (s *scene) fail(t *rapid.T, w *sim.Simulation, format string, args ...any) {
	t.Helper()

	var b strings.Builder
	fmt.Fprintf(&b, format+"\n", args...)
	fmt.Fprintf(&b, "policy %s, promises taken at %s\n", s.policy, w.Now().Format(time.TimeOnly))

	for _, n := range s.nodes {
		fmt.Fprintf(&b, "node %s: %s, %d GPUs, %s CPUs, %d GB, cordoned %v\n", n.ID, n.Class, len(n.Inventory.GPUs),
			n.Inventory.CPUs, n.Inventory.Memory>>30, n.Cordoned)
	}

	for i, j := range s.jobs {
		fmt.Fprintf(&b, "j%d at %s by %s: %+v, place %s, objective %s, priority %d, takes %s, budget %s, data %v\n", i+1, j.At,
			j.Owner, j.Spec.Resources, j.Spec.Place, j.Spec.Objective, j.Spec.Priority, j.Spec.Expect, j.Spec.Budget,
			j.Spec.Data)
	}

	for _, q := range s.quotas {
		fmt.Fprintf(&b, "quota %+v\n", q)
	}

	for i := range s.offers {
		fmt.Fprintf(&b, "offer %s, at most %d\n", s.offers[i].Name, s.offers[i].MaxNodes)
	}

	if s.nodesMax > 0 {
		fmt.Fprintf(&b, "at most %d provisioned nodes\n", s.nodesMax)
	}

	for _, j := range w.Jobs() {
		why, waits := w.Yard().Why(w.Now(), j)
		fmt.Fprintf(&b, "  %s: waits %v: %s (%s)\n", j, waits, why.Sentence, why.Blocker)
	}

	t.Fatal(b.String())
}
