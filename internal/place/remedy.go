package place

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// noFit says what no node has, and what could run. found is how many nodes could run a rank.
func noFit(v *View, m *fleet.Matcher, found int) Why {
	need := m.Need
	w := Why{Blocker: BlockNoFit}

	if found > 0 {
		fewer := need
		fewer.Nodes, fewer.MaxNodes = found, max(found, min(need.MaxNodes, found))
		w.Sentence = fmt.Sprintf("%d nodes with %s each needed, the yard has %d", need.Nodes, NeedWords(need), found)
		w.Remedies = []Remedy{
			{Text: fmt.Sprintf("request at most %s, or add nodes", humanize.Count(found, "node")), Need: &fewer},
		}

		return w
	}

	w.Sentence = "no node has " + NeedWords(need)

	allowed := slices.ContainsFunc(v.Rooms, func(r fleet.Room) bool { return r.Node.Class.Allows(need.Place) })
	if !allowed {
		w.Sentence = fmt.Sprintf("place is %s, but the yard has no %s node", need.Place, need.Place)

		anywhere := need
		anywhere.Place = job.PlaceAny
		if eligible(v, anywhere) {
			w.Remedies = []Remedy{{Text: "set place: any, or add such a node", Need: &anywhere}}
		} else {
			w.Remedies = []Remedy{remedy("add such a node")}
		}

		return w
	}

	if lack, ok := lacksOne(v, need); ok {
		return lack
	}

	w.Remedies = append(w.Remedies, otherGPUs(v, need)...)

	if less, text := reduced(v, m); text != "" {
		w.Remedies = append(w.Remedies, Remedy{Text: text + ", or add a node", Need: &less})
	}

	if len(w.Remedies) == 0 {
		w.Remedies = []Remedy{remedy("add a node that could run it")}
	}

	return w
}

// otherGPUs says which condition on the GPUs no node meets, if the job could run without it.
func otherGPUs(v *View, need fleet.Need) []Remedy {
	anyModel, anySize, anyGPU := need, need, need
	anyModel.Kinds, anyGPU.Kinds = "", ""
	anySize.GPUMin, anySize.GPUMax = 0, 0
	anyGPU.GPUMin, anyGPU.GPUMax = 0, 0

	for _, o := range []struct {
		need *fleet.Need
		text string
	}{
		{&anyModel, "allow other GPU models; trainyard nodes lists those of the yard"},
		{&anySize, "change gpu_memory; trainyard nodes lists the GPUs of the yard"},
		{&anyGPU, "allow other GPU models and change gpu_memory; trainyard nodes lists the GPUs of the yard"},
	} {
		if *o.need != need && eligible(v, *o.need) {
			return []Remedy{{Text: o.text, Need: o.need}}
		}
	}

	return nil
}

// lacksOne says of how much memory, or of how many CPUs, the job asks for more than any node has that could run it
// otherwise. It reports false if it lacks something else too.
func lacksOne(v *View, need fleet.Need) (Why, bool) {
	plain := need
	plain.Memory = 0

	if most, node := largest(v, plain, func(i *fleet.Inventory) int64 { return int64(i.Memory) }); node != "" {
		less := need
		less.Memory = job.Bytes(most)
		size := humanize.Size(most)

		return Why{
			Blocker: BlockNoFit,
			Sentence: fmt.Sprintf("no node that could run it has %s of memory; the most is %s, on %s",
				humanize.Size(need.Memory), size, node),
			Remedies: []Remedy{{Text: fmt.Sprintf("request at most %s of memory, or add a node", size), Need: &less}},
		}, true
	}

	plain = need
	plain.CPUs = 0

	if most, node := largest(v, plain, func(i *fleet.Inventory) int64 { return int64(i.CPUs) }); node != "" {
		less := need
		less.CPUs = job.CPUs(most)

		return Why{
			Blocker: BlockNoFit,
			Sentence: fmt.Sprintf("no node that could run it has %s CPUs; the most is %s, on %s",
				need.CPUs, less.CPUs, node),
			Remedies: []Remedy{{Text: fmt.Sprintf("request at most %s CPUs, or add a node", less.CPUs), Need: &less}},
		}, true
	}

	return Why{}, false
}

// largest returns the most that a node has of something of those that could run a job on one node, and its name; "" if
// none could.
func largest(v *View, need fleet.Need, of func(*fleet.Inventory) int64) (most int64, node id.Node) {
	if need.Nodes > 1 {
		return 0, ""
	}

	m := fleet.NewMatcher(need)
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if has := of(&r.Node.Inventory); m.Eligible(r) && (node == "" || has > most) {
			most, node = has, r.Node.ID
		}
	}

	return most, node
}

// eligible reports whether as many nodes as the need has could ever run it.
func eligible(v *View, need fleet.Need) bool {
	m := fleet.NewMatcher(need)

	var found []*fleet.Room
	for i := range v.Rooms {
		if m.Eligible(&v.Rooms[i]) {
			found = append(found, &v.Rooms[i])
		}
	}

	return need.MostAlike(found) >= need.Nodes
}

// reduced returns the need cut down to what the nodes with the most matching GPUs have, so many
// of them as it asks for, and says so. The text is "" if that would not let it run.
func reduced(v *View, m *fleet.Matcher) (fleet.Need, string) {
	need := m.Need

	var rooms []*fleet.Room
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if r.Node.Class.Allows(need.Place) && (need.GPUs == 0 || m.MatchingGPUs(r) != 0) {
			rooms = append(rooms, r)
		}
	}

	if len(rooms) < need.Nodes {
		return need, ""
	}

	gpusOf := func(r *fleet.Room) int { return bits.OnesCount64(m.MatchingGPUs(r)) }
	slices.SortStableFunc(rooms, func(a, b *fleet.Room) int {
		return cmp.Or(
			cmp.Compare(min(gpusOf(b), need.GPUs), min(gpusOf(a), need.GPUs)),
			cmp.Compare(b.Node.Inventory.CPUs, a.Node.Inventory.CPUs),
			cmp.Compare(b.Node.Inventory.Memory, a.Node.Inventory.Memory),
		)
	})

	gpus, cpus, memory := fleet.MaxGPUs, rooms[0].Node.Inventory.CPUs, rooms[0].Node.Inventory.Memory
	for _, r := range rooms[:need.Nodes] {
		gpus = min(gpus, gpusOf(r))
		cpus, memory = min(cpus, r.Node.Inventory.CPUs), min(memory, r.Node.Inventory.Memory)
	}

	less := need
	less.GPUs, less.CPUs, less.Memory = min(need.GPUs, gpus), min(need.CPUs, cpus), min(need.Memory, memory)
	if need.GPUs > 0 && less.GPUs == 0 || !eligible(v, less) {
		return need, ""
	}

	return less, fmt.Sprintf("request at most %s, %s CPUs and %s of memory per node, as %s has",
		humanize.Count(gpus, "GPU"), cpus, humanize.Size(memory), rooms[need.Nodes-1].Node.ID)
}

// smaller says with how many GPUs there would be room for the job now.
func smaller(m *fleet.Matcher, open []*fleet.Room) []Remedy {
	if m.Need.GPUs < 2 || m.Need.Nodes > 1 {
		return nil
	}

	gpus, node := mostFree(m, open)
	if gpus == 0 || gpus >= m.Need.GPUs {
		return nil
	}

	less := m.Need
	less.GPUs, less.MaxGPUs = gpus, gpus

	return []Remedy{{Text: fmt.Sprintf("%s has room for it with gpus: %d", node, gpus), Need: &less, RoomNow: true}}
}

// Edits returns the changes of a job file that make of what a job asks for what the remedy says, in the form of
// spec.Set; none if the remedy is not a change of resources.
func (r *Remedy) Edits(asked *job.Resources) []string {
	if r.Need == nil {
		return nil
	}

	var list []string

	set := func(differs bool, field string, value any) {
		if differs {
			list = append(list, fmt.Sprintf("resources.%s=%v", field, value))
		}
	}

	n := r.Need
	set(n.Nodes < asked.Nodes.Min, "nodes", n.Nodes)
	set(n.GPUs < asked.GPUs.Min, "gpus", n.GPUs)
	set(n.CPUs < asked.CPUs, "cpus", n.CPUs)
	set(n.Memory < asked.Memory, "memory", n.Memory)
	set(n.Kinds == "" && len(asked.GPU) > 0, "gpu", "")
	set(n.GPUMin == 0 && n.GPUMax == 0 && asked.GPUMemory != (job.ByteRange{}), "gpu_memory", "")
	set(!n.SameGPU && asked.SameGPU, "same_gpu", "")

	return list
}

// vacancy is a node and the runs that must have ended before the job fits there.
type vacancy struct {
	node  id.Node
	holds []fleet.Hold
	at    time.Time // expected; zero if unknown
}

// afterEnds says which jobs must have ended before there is room for the job: those of the
// nodes that are expected to be free first.
func afterEnds(m *fleet.Matcher, open, fit []*fleet.Room) []Remedy {
	missing := m.Need.Nodes - len(fit)
	list := soonest(m, open, fit, missing)
	if len(list) < missing {
		return nil
	}

	var jobs []id.Job
	var names, nodes []string

	for _, o := range list {
		nodes = append(nodes, string(o.node))

		for i := range o.holds {
			h := &o.holds[i]
			if !slices.Contains(jobs, h.Job) {
				jobs = append(jobs, h.Job)
				names = append(names, fmt.Sprintf("%s (%s)", h.Job, h.Owner))
			}
		}
	}

	return []Remedy{{Text: fmt.Sprintf("%s room for it when %s ended", have(nodes), have(names)), Ended: jobs}}
}

// soonest lists the nodes on which there will be room for the job first, at most as many as are missing. fit are those
// of the open nodes that have room now, in the same order. No more than those that are missing are kept on the way.
func soonest(m *fleet.Matcher, open, fit []*fleet.Room, missing int) []vacancy {
	list := make([]vacancy, 0, missing)

	for _, r := range open {
		if len(fit) > 0 && fit[0] == r {
			fit = fit[1:]
			continue
		}

		var last *vacancy
		if len(list) == missing {
			last = &list[missing-1]
		}

		found, ok := vacancyOf(m, r, last)
		if !ok {
			continue
		}

		at, _ := slices.BinarySearchFunc(list, found, compareVacancies)
		if at < missing {
			list = slices.Insert(list[:min(len(list), missing-1)], at, found)
		}
	}

	return list
}

// compareVacancies orders nodes by when the job fits there, unknown times last, then by how many runs must have ended.
func compareVacancies(a, b vacancy) int {
	return cmp.Or(compareEnds(a.at, b.at), cmp.Compare(len(a.holds), len(b.holds)), cmp.Compare(a.node, b.node))
}

// beats reports whether it comes before any node whose name is greater and where the job does not fit before a time.
func (o *vacancy) beats(ends time.Time) bool {
	later := compareEnds(ends, o.at)

	return later > 0 || later == 0 && len(o.holds) == 1
}

// have names things with their verb: "a has", "a and b have". Of many it names the first.
func have(names []string) string {
	const most = 3
	if len(names) == 1 {
		return names[0] + " has"
	}

	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", more))
	}

	return humanize.List(names...) + " have"
}

// vacancyOf returns which runs on a node must have ended before the job fits there: the first
// to end, without those that make no difference. It is false where GPUs are shared: what is left
// of one depends on who else shares it. It is also false if the node is no better than the last one that is needed,
// which is nil if all are.
func vacancyOf(m *fleet.Matcher, r *fleet.Room, last *vacancy) (vacancy, bool) {
	o := vacancy{node: r.Node.ID}
	if slices.ContainsFunc(r.Holds, func(h fleet.Hold) bool { return h.Share > 0 }) {
		return o, false
	}

	fits := false
	for i := 0; i < len(r.Holds) && !fits; i++ {
		if last != nil && last.beats(r.Holds[i].Ends) {
			return o, false
		}

		o.holds, o.at = r.Holds[:i+1], r.Holds[i].Ends
		fits = fitsAfter(m, r, o.holds)
	}

	if !fits {
		return o, false
	}

	o.holds = slices.Clone(o.holds)
	for i := len(o.holds) - 2; i >= 0; i-- { // without the last it does not fit
		if fewer := slices.Delete(slices.Clone(o.holds), i, i+1); fitsAfter(m, r, fewer) {
			o.holds = fewer
		}
	}

	return o, true
}

// fitsAfter reports whether a rank fits in a room once some of its holds have ended.
func fitsAfter(m *fleet.Matcher, r *fleet.Room, ended []fleet.Hold) bool {
	room := *r
	for i := range ended {
		room.Free |= ended[i].GPUs & r.Sound
		room.CPUs += ended[i].CPUs
		room.Memory += ended[i].Memory
	}

	for i := range r.Holds {
		if h := &r.Holds[i]; !slices.ContainsFunc(ended, func(o fleet.Hold) bool { return o.Run == h.Run }) {
			room.Free &^= h.GPUs // a GPU may be booked already for a run that follows
		}
	}

	_, ok := m.Fits(&room)

	return ok
}
