package advise

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// workload is the jobs of a history as the simulator takes them. It is shared by all
// replays and never changed.
type workload struct {
	history *History
	jobs    []*sim.Job
	counted []bool // by job
	index   map[string]int
	bound   int // jobs whose length does not depend on where they run
}

// speed is how fast one GPU of a kind is.
type speed struct {
	kind   string
	tflops float64
}

// newWorkload makes the jobs of a history ready to be replayed, also on GPUs that the
// yard did not have.
func newWorkload(h *History, more []fleet.Offer) (*workload, error) {
	w := &workload{history: h, index: map[string]int{}}
	kinds := speeds(h, more)

	data := map[string]bool{}
	for i := range h.Data {
		data[string(h.Data[i].ID)] = true
	}

	list := slices.Clone(h.Jobs)
	slices.SortStableFunc(list, func(a, b Job) int { return a.Submitted.Compare(b.Submitted) })
	for i := range list {
		j := &list[i]
		if _, twice := w.index[string(j.ID)]; twice {
			return nil, fault.New(fault.Invalid, "job_twice", "job %s appears twice", j.ID)
		}

		s := &sim.Job{Name: string(j.ID), At: max(j.Submitted.Sub(h.From), 0), Owner: j.Owner, Spec: plain(j.Spec, data)}
		if !length(s, j.Stretches, kinds) {
			w.bound++
		}

		if s.Duration == 0 && s.Speed == nil {
			return nil, fault.New(fault.Invalid, "never_ran", "run time of job %s is unknown: it never ran", j.ID)
		}

		w.index[s.Name] = len(w.jobs)
		w.jobs = append(w.jobs, s)
		w.counted = append(w.counted, !j.Carried)
	}

	return w, nil
}

// plain returns what a job asks for without what only a real run needs. Jobs that it
// needed had ended when it started.
func plain(s *job.Spec, data map[string]bool) *job.Spec {
	c := *s
	c.Run = "replayed"
	c.Setup = ""
	c.Workdir = ""
	c.Image = ""
	c.Python = nil
	c.Needs = nil
	c.Env = nil
	c.Secrets, c.RegistryAuth = nil, ""
	c.Budget = 0
	c.Target = nil // it lasts as long as it lasted
	if c.Place == "" {
		c.Place = job.PlaceAny
	}

	if slices.ContainsFunc(c.Data, func(d string) bool { return !data[d] }) {
		c.Data = nil
	}

	return &c
}

// speeds lists all kinds of GPU that there are or could be, with how fast they are:
// as the yard's own nodes have it, else by the offer or the table, 0 if unknown.
// Kinds with longer names come first, because they are the narrower ones.
func speeds(h *History, more []fleet.Offer) []speed {
	var all []speed
	put := func(g fleet.GPU) {
		g = gpuspec.Describe(g)
		tflops, _ := g.TFLOPS()
		kind := kindText(g.Model, g.Memory)
		at := slices.IndexFunc(all, func(s speed) bool { return s.kind == kind })
		switch {
		case g.Model == "":
		case at < 0:
			all = append(all, speed{kind, tflops})
		case all[at].tflops == 0:
			all[at].tflops = tflops
		}
	}

	for i := range h.Nodes {
		for _, g := range h.Nodes[i].Inventory.GPUs {
			put(g)
		}
	}

	for _, list := range [][]fleet.Offer{h.Offers, more} {
		for i := range list {
			if o := &list[i]; o.GPUs > 0 {
				put(fleet.GPU{Model: o.GPU, Memory: o.GPUMemory, Peak: o.TFLOPS})
			}
		}
	}

	slices.SortFunc(all, func(a, b speed) int { return cmp.Or(len(b.kind)-len(a.kind), strings.Compare(a.kind, b.kind)) })

	return all
}

// length says how long a job really runs, and reports whether that depends on where.
func length(s *sim.Job, ran []Stretch, kinds []speed) bool {
	var lasted time.Duration
	for i := range ran {
		if !ran[i].Wasted {
			lasted += ran[i].Lasted
		}
	}

	if lasted == 0 { // all was lost: it takes at least that long
		for i := range ran {
			lasted = max(lasted, ran[i].Lasted)
		}
	}

	r := &s.Spec.Resources

	if declared(s, ran) {
		return true
	}

	s.Spec.Speed = nil // it says nothing of the GPUs that it ran on
	asked := max(r.GPUs.Min, 0) * max(r.Nodes.Min, 1)
	work, known := done(ran, asked, kinds)
	if asked == 0 || r.GPUShare > 0 || !known {
		s.Duration = lasted
		return false
	}

	usual := work / lasted.Seconds() / float64(asked) // GPUs of which nothing is known are taken to be as fast

	most := asked
	if r.GPUs.Max > r.GPUs.Min {
		most = r.GPUs.Max * max(r.Nodes.Max, r.Nodes.Min, 1)
	}

	var rates []job.Rate
	for _, k := range kinds {
		if k.tflops == 0 {
			k.tflops = usual
		}

		for n := asked; ; n = min(2*n, most) {
			rates = append(rates, job.Rate{GPU: k.kind, GPUs: n, PerSecond: pace(k.tflops, asked, n)})

			if n >= most {
				break
			}
		}
	}

	s.Speed = job.NewSpeed(work, 0, 0, rates...)

	return true
}

// pace is how fast a job is on so many GPUs: as the policy rules assumes, twice the
// GPUs are not quite twice as fast.
func pace(tflops float64, asked, gpus int) float64 {
	return tflops * float64(asked) * math.Pow(float64(gpus)/float64(asked), 0.9)
}

// done returns how much work a job has done, in TFLOPS times seconds, and false if
// that is not known. A kind of GPU that it can be replayed on is as fast as there.
func done(ran []Stretch, asked int, kinds []speed) (float64, bool) {
	work := 0.0

	for i := range ran {
		st := &ran[i]
		if st.Wasted {
			continue
		}

		tflops := st.TFLOPS
		if at := slices.IndexFunc(
			kinds,
			func(k speed) bool { return k.kind == kindText(st.GPU, st.Memory) },
		); at >= 0 &&
			kinds[at].tflops > 0 {
			tflops = kinds[at].tflops
		}

		if tflops <= 0 || asked == 0 {
			return 0, false
		}

		work += st.Lasted.Seconds() * pace(tflops, asked, max(st.GPUs, 1))
	}

	return work, work > 0
}

// declared takes the speed that a job file declares, if it does so for all GPUs that
// it ran on. How much work it is, is what it did.
func declared(s *sim.Job, ran []Stretch) bool {
	told := s.Spec.Speed
	if told == nil || len(told.Rates) == 0 {
		return false
	}

	work := 0.0

	for i := range ran {
		st := &ran[i]
		if st.Wasted {
			continue
		}

		rate := told.On(st.GPU, st.Memory).Rate(st.GPUs, max(st.Nodes, 1))
		if rate <= 0 {
			return false
		}

		work += max(st.Lasted-time.Duration(told.Start), time.Second).Seconds() * rate
	}

	if work <= 0 {
		return false
	}

	s.Speed = job.NewSpeed(work, time.Duration(told.Start), time.Duration(told.Save), told.Rates...)

	return true
}

// changes lists what happens to the yard's own nodes.
func (w *workload) changes(nodes []Node) []sim.Change {
	h := w.history
	var list []sim.Change

	for i := range nodes {
		n := &nodes[i]
		from, to := h.stay(n)
		if from > 0 && from < to {
			list = append(list, sim.Change{At: from, Kind: sim.NodeJoins, ID: n.ID, Node: &n.Node})
		}

		for _, g := range n.Away {
			a, b := max(g.From.Sub(h.From), from+1), min(g.To.Sub(h.From), to)
			if a < b {
				kind := sim.NodeReclaimed
				if g.Drained {
					kind = sim.NodeCordoned
				}

				list = append(list, sim.Change{At: a, Kind: kind, ID: n.ID}, sim.Change{At: b, Kind: sim.NodeUncordoned, ID: n.ID})
			}
		}

		if to < h.span() && from < to {
			list = append(list, sim.Change{At: to, Kind: sim.NodeReclaimed, ID: n.ID})
		}
	}

	slices.SortStableFunc(list, func(a, b sim.Change) int { return cmp.Compare(a.At, b.At) })

	return list
}

// present returns the nodes that are there from the beginning.
func (w *workload) present(nodes []Node) []fleet.Node {
	var list []fleet.Node
	for i := range nodes {
		if from, to := w.history.stay(&nodes[i]); from == 0 && to > 0 {
			list = append(list, nodes[i].Node)
		}
	}

	return list
}
