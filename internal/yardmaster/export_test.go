package yardmaster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unsafe"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/nodes"
)

// CheckInvariants looks at the whole state of a yard and says what of it does
// not agree with the rest. shrunk names nodes whose hardware became less while
// runs were on them: those alone may hold more than they have.
func CheckInvariants(y *Yard, shrunk map[id.Node]bool) error {
	for _, check := range []func(*Yard) error{checkJobs, checkNeeds, checkLine, checkRuns, checkOrders, checkUsers,
		checkKeys, checkTimers, checkRunning, checkPromises, checkQuestions, checkTexts, checkArrays,
		checkSnapshot} {
		if err := check(y); err != nil {
			return err
		}
	}

	return checkRooms(y, shrunk)
}

// checkTexts checks that the text of specs is counted as it is kept.
func checkTexts(y *Yard) error {
	var total job.Bytes
	counted, jobs := map[textKey]bool{}, map[textKey]int{}

	for _, r := range y.jobs {
		if r.State.Final() {
			continue
		}

		bytes, longTexts := r.text, r.longTexts
		if r.ofArray {
			key := arrayKey(r)
			jobs[key]++

			if counted[key] {
				continue
			}

			counted[key] = true
			bytes, longTexts = y.texts[key].array.text, y.texts[key].array.longTexts
		}

		total += bytes
		for _, text := range longTexts {
			key := textKey{r.Owner, text}
			jobs[key]++

			if !counted[key] {
				total += job.Bytes(len(text))
				counted[key] = true
			}
		}
	}

	if total != y.jobText || len(counted) != len(y.texts) {
		return fmt.Errorf("jobs have %d bytes of text, %d texts of them long, and %d bytes and %d texts are counted",
			total, len(counted), y.jobText, len(y.texts))
	}

	for key, record := range y.texts {
		if record.jobs != jobs[key] {
			return fmt.Errorf("%d jobs have a text of %d bytes, and %d are counted", jobs[key], len(key.text), record.jobs)
		}
	}

	return nil
}

// TextInMemory returns how many bytes the scripts and variables of all jobs take, by where they lie in memory.
func TextInMemory(y *Yard) int {
	seen, total := map[*byte]bool{}, 0
	add := func(text string) {
		if at := unsafe.StringData(text); text != "" && !seen[at] {
			seen[at] = true
			total += len(text)
		}
	}

	for _, r := range y.jobs {
		specs := []*job.Spec{r.Spec}
		if r.entry != nil {
			specs = append(specs, r.entry.Spec)
		}

		for _, s := range specs {
			add(s.Setup)
			add(s.Run)

			for _, value := range s.Env {
				add(value)
			}
		}
	}

	return total
}

// checkArrays checks that no array has more elements in the queue and on nodes than its limit, that what counts against
// it is counted, and that none waits although one could follow.
func checkArrays(y *Yard) error {
	found := map[id.Array]*arrayRecord{}

	for _, j := range slices.Sorted(maps.Keys(y.jobs)) {
		r := y.jobs[j]
		if r.Array == "" || r.State.Final() {
			continue
		}

		a := found[r.Array]
		if a == nil {
			a = &arrayRecord{limit: r.Spec.Array.Limit}
			found[r.Array] = a
		}

		a.alive++
		if r.admitted {
			a.admitted++
		}

		busy := r.item != nil || r.run != nil || r.promise != nil || r.admitted && slices.Contains(y.changedElements, r)
		waits := r.hold.kind == tenant.HoldArray
		if a.limit > 0 && busy != r.admitted && r.hold.reason == "" || waits && (busy || r.admitted) {
			return fmt.Errorf("element %s of %s is %s: in the queue or on a node %v, admitted %v, held %v",
				r.ID, r.Array, r.State, busy, r.admitted, waits)
		}

		if waits {
			number, _ := r.ID.Number()
			a.waiting = append(a.waiting, number)
		}
	}

	for name, a := range found {
		slices.Sort(a.waiting)
		have := y.arrays[name]

		switch {
		case have == nil || a.alive != have.alive || a.admitted != have.admitted || !slices.Equal(a.waiting, have.waiting):
			return fmt.Errorf("array %s is %+v, and %+v is counted", name, a, have)
		case a.limit > 0 && a.admitted > a.limit:
			return fmt.Errorf("array %s has %d elements at the same time, and its limit is %d", name, a.admitted, a.limit)
		case len(a.waiting) > 0 && a.admitted < a.limit:
			return fmt.Errorf("array %s has %d elements that wait, and %d of %d at the same time", name, len(a.waiting),
				a.admitted, a.limit)
		}
	}

	if len(found) != len(y.arrays) {
		return fmt.Errorf("there are %d arrays, and %d are counted", len(found), len(y.arrays))
	}

	return nil
}

// JobOf returns a job as the yard knows it.
func JobOf(y *Yard, j id.Job) (job.Job, bool) {
	r, ok := y.jobs[j]
	if !ok {
		return job.Job{}, false
	}

	return r.Job, true
}

// JobsInMemory lists the jobs that the yard holds, in order.
func JobsInMemory(y *Yard) []id.Job { return slices.Sorted(maps.Keys(y.jobs)) }

// OpenQuestions lists the open questions in the order of their jobs.
func OpenQuestions(y *Yard) []inbox.Question {
	var list []inbox.Question
	for _, j := range slices.Sorted(maps.Keys(y.jobs)) {
		for _, q := range y.jobs[j].questions {
			list = append(list, q.Question)
		}
	}

	return list
}

// checkQuestions checks that a job has open questions only while they matter.
func checkQuestions(y *Yard) error {
	for _, r := range y.jobs {
		kinds := map[inbox.Kind]bool{}

		for _, q := range r.questions {
			held := r.State == job.Paused || r.State == job.Pausing
			switch {
			case q.State != inbox.Open || q.Job != r.ID || q.Owner != r.Owner || kinds[q.Kind]:
				return fmt.Errorf("job %s has question %+v", r.ID, q.Question)
			case r.State.Final() || q.Kind.Holds() && !held:
				return fmt.Errorf("job %s is %s and question %+v is open", r.ID, r.State, q.Question)
			case q.Sentence == "" || len(q.Options) == 0:
				return fmt.Errorf("question %+v asks nothing", q.Question)
			}

			kinds[q.Kind] = true
		}
	}

	return nil
}

// Now returns the time as the yard takes it.
func Now(y *Yard) time.Time { return y.now }

// RateOf returns how much a user has in use, in GPUs.
func RateOf(y *Yard, u id.User) float64 {
	rate := 0.0
	y.people.InUse(func(name id.User, _ int, used float64) {
		if name == u {
			rate = used
		}
	})

	return rate
}

// UsageOf returns a user's decayed use.
func UsageOf(y *Yard, u id.User) float64 { return y.usage(u) }

// TimerCount returns how many things will fall due.
func TimerCount(y *Yard) int { return y.timers.Len() }

// HeldJob returns the job for which nodes are kept, "" if there is none.
func HeldJob(y *Yard) id.Job {
	if y.reservation == nil {
		return ""
	}

	return y.reservation.Job
}

// Settled reports an error if something is marked as changed after Take.
func Settled(y *Yard) error {
	if b := y.Take(); !b.Empty() {
		return fmt.Errorf("a second Take returned %+v", b)
	}

	for _, r := range y.jobs {
		if r.Marked() {
			return fmt.Errorf("job %s is still marked after Take", r.ID)
		}
	}

	for _, r := range y.runs {
		if r.Marked() {
			return fmt.Errorf("run %s is still marked after Take", r.ID)
		}
	}

	return nil
}

func checkJobs(y *Yard) error {
	for _, r := range y.jobs {
		switch {
		case r.State.Live() != (r.run != nil):
			return fmt.Errorf("job %s is %s and its live run is %v", r.ID, r.State, r.run)
		case r.run != nil && y.runs[r.run.ID] != r.run:
			return fmt.Errorf("job %s has run %s, which is not live", r.ID, r.run.ID)
		case r.item != nil && (!r.State.Waiting() || len(r.pendingNeeds) > 0 || r.NotBefore.After(y.now)):
			return fmt.Errorf("job %s is in line: %s, waits for %v, not before %s", r.ID, r.State, r.pendingNeeds, r.NotBefore)
		case r.item == nil && r.promise == nil && r.hold.reason == "" && r.State.Waiting() &&
			len(r.pendingNeeds) == 0 && !r.NotBefore.After(y.lastTick):
			return fmt.Errorf("job %s is %s, may run, and is not in line", r.ID, r.State)
		case r.State.Final() == r.Ended.IsZero():
			return fmt.Errorf("job %s is %s and ended at %s", r.ID, r.State, r.Ended)
		case r.Reason == "":
			return fmt.Errorf("job %s is %s without a reason", r.ID, r.State)
		case r.State == job.Failed && r.Cause == job.CauseNone:
			return fmt.Errorf("job %s failed of nothing", r.ID)
		case r.State == job.Succeeded && r.Cause != job.CauseNone:
			return fmt.Errorf("job %s succeeded with cause %s", r.ID, r.Cause)
		}
	}

	return nil
}

func checkNeeds(y *Yard) error {
	for _, r := range y.jobs {
		if r.State.Final() {
			continue
		}

		for _, n := range r.pendingNeeds {
			d, ok := y.jobs[n]
			if !ok || d.State.Final() {
				return fmt.Errorf("job %s waits for %s, which has ended", r.ID, n)
			}
			if !slices.Contains(y.needed[n], r.ID) {
				return fmt.Errorf("job %s waits for %s and will not be told of its end", r.ID, n)
			}
		}
	}

	for n := range y.needed {
		if d, ok := y.jobs[n]; !ok || d.State.Final() {
			return fmt.Errorf("jobs still wait for %s, which has ended", n)
		}
	}

	return nil
}

func checkLine(y *Yard) error {
	inLine := map[id.Job]*queue.Item{}
	walk := y.queue.Walk(y.usage)

	all := func(*queue.Shape) bool { return true }
	for it := walk.Next(all); it != nil; it = walk.Next(all) {
		if inLine[it.Job] != nil {
			return fmt.Errorf("job %s is in line twice", it.Job)
		}

		inLine[it.Job] = it
	}

	for _, r := range y.jobs {
		if r.item != inLine[r.ID] {
			return fmt.Errorf("job %s has item %v and the line has %v", r.ID, r.item, inLine[r.ID])
		}
		if r.item != nil && r.item.Shape.Need != y.need(r) {
			return fmt.Errorf("job %s is in line with the need %+v", r.ID, r.item.Shape.Need)
		}

		delete(inLine, r.ID)
	}

	if len(inLine) > 0 {
		return fmt.Errorf("the line has %v, which are not there", inLine)
	}

	return nil
}

func checkRuns(y *Yard) error {
	for key, run := range y.runs {
		r, ok := y.jobs[run.Job]
		switch {
		case !ok || r.run != run:
			return fmt.Errorf("run %s is live and its job does not have it", run.ID)
		case key != run.ID || run.ID != id.NewRun(run.Job, run.Epoch) || run.Epoch != r.Epoch:
			return fmt.Errorf("run %s has epoch %d and its job %d", run.ID, run.Epoch, r.Epoch)
		case run.State == job.RunEnded:
			return fmt.Errorf("run %s has ended and is live", run.ID)
		case (run.Stop != job.StopNone) != (run.State == job.RunStopping):
			return fmt.Errorf("run %s is %s and told to stop by %q", run.ID, run.State, run.Stop)
		}

		left := 0
		for i := range run.Ranks {
			if k := &run.Ranks[i]; k.State != job.RunEnded {
				left++
				n, ok := y.nodes.Get(k.Node)
				if !ok {
					return fmt.Errorf("rank %d of run %s is on %s, which is not there", i, run.ID, k.Node)
				}
				if at, here := n.Runs[run.ID]; !here || at != i {
					return fmt.Errorf("rank %d of run %s is on %s, which does not know it", i, run.ID, k.Node)
				}
			}
		}

		if left == 0 {
			return fmt.Errorf("run %s is live and all its ranks have ended", run.ID)
		}
	}

	return nil
}

func checkOrders(y *Yard) error {
	want := 0
	for _, run := range y.runs {
		for i := range run.Ranks {
			k := &run.Ranks[i]
			o := y.orders.Get(run.ID, i)
			ok := o != nil
			if ok != (k.State != job.RunEnded) {
				return fmt.Errorf("rank %d of run %s is %s; open order: %v", i, run.ID, k.State, ok)
			}
			if !ok {
				continue
			}

			want++

			if o.Node != k.Node || o.Epoch != run.Epoch || o.Rank != i || o.Stop != run.Stop || o.Job != run.Job {
				return fmt.Errorf("order %s does not agree with its run: %+v, %+v", o.Key(), *o, run.Run)
			}
		}
	}

	if want != y.orders.Len() {
		return fmt.Errorf("%d orders are open for %d ranks", y.orders.Len(), want)
	}

	return nil
}

func checkUsers(y *Yard) error {
	rates := map[id.User]float64{}
	alive := map[id.User]int{}

	projects := map[id.Project]float64{}
	for _, r := range y.jobs {
		if !r.State.Final() {
			alive[r.Owner]++
		}

		if r.run == nil {
			continue
		}

		for _, k := range r.run.Ranks {
			if k.State != job.RunEnded && !k.Lends() {
				rates[r.Owner] += k.Weight
				projects[r.Project] += k.Weight
			}
		}
	}

	for p, rate := range projects {
		if p != "" && math.Abs(y.people.ProjectRate(p)-rate) > 1e-6 {
			return fmt.Errorf("project %s is charged for %g GPUs and uses %g", p, y.people.ProjectRate(p), rate)
		}
	}

	var err error
	y.people.InUse(func(u id.User, counted int, rate float64) {
		switch usage := y.usage(u); {
		case math.Abs(rate-rates[u]) > 1e-6:
			err = fmt.Errorf("user %s is charged for %g GPUs and uses %g", u, rate, rates[u])
		case counted != alive[u]:
			err = fmt.Errorf("user %s has %d jobs and is counted with %d", u, alive[u], counted)
		case usage < 0 || math.IsNaN(usage) || math.IsInf(usage, 0):
			err = fmt.Errorf("user %s has used %g", u, usage)
		}
	})

	return err
}

func checkKeys(y *Yard) error {
	for key, ids := range y.keys {
		if r, ok := y.jobs[ids[0]]; !ok || r.Key != key.key || r.Owner != key.owner {
			return fmt.Errorf("key %v is kept for %v, which does not have it", key, ids)
		}
	}

	return nil
}

func checkTimers(y *Yard) error {
	if most := 64 + 2*y.nodes.Len() + 8*len(y.jobs); y.timers.Len() > most {
		return fmt.Errorf("%d timers are set for %d nodes and %d jobs", y.timers.Len(), y.nodes.Len(), len(y.jobs))
	}

	return nil
}

func checkRooms(y *Yard, shrunk map[id.Node]bool) error {
	for _, n := range y.nodes.All() {
		room, ok := y.nodes.Rooms.Get(n.ID)
		if n.State == fleet.Removed {
			if ok || len(n.Runs) > 0 {
				return fmt.Errorf("node %s was removed and is still in the table", n.ID)
			}

			continue
		}

		if !ok {
			return fmt.Errorf("node %s is not in the table", n.ID)
		}
		if err := checkRoom(y, n, room, shrunk[n.ID]); err != nil {
			return err
		}
	}

	if y.nodes.Rooms.Len() > y.nodes.Len() {
		return fmt.Errorf("the table has %d rooms for %d nodes", y.nodes.Rooms.Len(), y.nodes.Len())
	}

	return nil
}

func checkRoom(y *Yard, n *nodes.Node, room *fleet.Room, shrunk bool) error {
	if room.Open != (n.State == fleet.Ready && !n.Cordoned) {
		return fmt.Errorf("node %s is %s, drained %v, and open is %v", n.ID, n.State, n.Cordoned, room.Open)
	}

	var gpus, held uint64 // by runs, and by promises too
	runs := 0
	shared := map[uint64][]share.Cut{} // of GPUs that are shared, by their bit
	cpus, memory := n.Inventory.CPUs, n.Inventory.Memory
	left, leftMemory := cpus, memory // with what is promised

	for _, h := range room.Holds {
		held |= h.GPUs
		left -= h.CPUs
		leftMemory -= h.Memory

		run := y.runs[h.Run]
		if run == nil && isPromised(y, n.ID, &h) {
			continue
		}

		runs++

		rank, here := n.Runs[h.Run]
		if !here || run == nil {
			return fmt.Errorf("node %s is held by %s, which does not run there", n.ID, h.Run)
		}

		k := &run.Ranks[rank]
		if k.Lends() {
			if h.GPUs != 0 || h.CPUs != 0 || h.Memory != k.Memory+k.Suspension.Memory {
				return fmt.Errorf("node %s: hold %+v of the suspended rank %+v", n.ID, h, k)
			}

			memory -= h.Memory

			continue
		}

		if k.Node != n.ID || fleet.Mask(k.GPUs) != h.GPUs || k.Share != h.Share || k.CPUs != h.CPUs || k.Memory != h.Memory {
			return fmt.Errorf("node %s: hold %+v does not agree with rank %+v", n.ID, h, k)
		}
		if gpus&h.GPUs != 0 || h.Share == 0 && len(shared[h.GPUs]) > 0 {
			return fmt.Errorf("node %s: run %s has GPUs that another one has too", n.ID, h.Run)
		}

		if h.Share == 0 {
			gpus |= h.GPUs
		} else {
			beside, cut := share.GPU{Memory: room.MemoryOf(h.GPUs), Cuts: shared[h.GPUs]}, h.Cut()
			if beside.Fits(&cut) != share.NoObstacle && !shrunk {
				return fmt.Errorf("node %s: run %s shares a GPU and must not: %s", n.ID, h.Run, beside.Explain(&cut))
			}

			shared[h.GPUs] = append(shared[h.GPUs], cut)
		}

		cpus -= h.CPUs
		memory -= h.Memory
	}

	if room.Node.Reserved == nil && room.DedicatedToOther(room.Tenant()) {
		return fmt.Errorf("node %s is for one user at a time and has %+v", n.ID, room.Holds)
	}

	if runs != len(n.Runs) {
		return fmt.Errorf("node %s has %d runs and %d holds of runs", n.ID, len(n.Runs), runs)
	}

	if room.Free != room.Sound&^held || room.CPUs != left || room.Memory != leftMemory {
		return fmt.Errorf("node %s: free is %b, %s and %s, and should be %b, %s and %s", n.ID,
			room.Free, room.CPUs, room.Memory, room.Sound&^held, left, leftMemory)
	}

	if !shrunk && (cpus < 0 || memory < 0) {
		return fmt.Errorf("node %s is overbooked: %s CPUs and %s are left", n.ID, cpus, memory)
	}

	return nil
}

// isPromised reports whether a hold is that of a promise.
func isPromised(y *Yard, n id.Node, h *fleet.Hold) bool {
	return slices.ContainsFunc(y.promises, func(p *promise) bool {
		return p.run == h.Run &&
			slices.ContainsFunc(p.start.Allocations, func(s place.Allocation) bool { return s.Node == n && s.GPUs == h.GPUs })
	})
}

// checkRunning compares what policies see with what runs.
func checkRunning(y *Yard) error {
	for i, rn := range y.running {
		r, ok := y.jobs[rn.Job]
		switch {
		case i > 0 && y.running[i-1].Number >= rn.Number:
			return fmt.Errorf("what runs is out of order at %s", rn.Job)
		case !ok || r.running != rn || r.run == nil || r.run.ID != rn.Run:
			return fmt.Errorf("%s is among those that run and its job does not know", rn.Run)
		case rn.Stopping != (r.run.Stop != job.StopNone || r.run.move != nil || r.run.reclaim != nil || y.suspending(r.run)):
			return fmt.Errorf("%s is shown as stopping %v and was told to stop by %q", rn.Run, rn.Stopping, r.run.Stop)
		case !rn.Began.Equal(r.run.WorkingSince()):
			return fmt.Errorf("%s is shown to run since %s and does since %s", rn.Run, rn.Began, r.run.Started)
		case r.outlook != rn.Outlook || rn.Shape == nil:
			return fmt.Errorf("%s is shown with another outlook", rn.Run)
		case rn.Outlook.Slow >= place.SlowForecasts && !y.anySlow():
			return fmt.Errorf("%s is too slow and no plan looks at it", rn.Run)
		}
	}

	working := 0
	for _, run := range y.runs {
		if !run.Suspended() {
			working++
		}
	}

	if len(y.running) != working {
		return fmt.Errorf("%d jobs are shown to run and %d do", len(y.running), working)
	}

	return nil
}

// checkPromises looks at the seats that are kept for starts.
func checkPromises(y *Yard) error {
	for _, p := range y.promises {
		r, ok := y.jobs[p.job.ID]
		switch {
		case !ok || r != p.job || r.promise != p:
			return fmt.Errorf("%s is promised seats and its job does not know", p.run)
		case !r.State.Waiting() && (r.run == nil || r.run.Stop == job.StopNone && r.run.move == nil):
			return fmt.Errorf("%s is promised seats while its job is %s and is not stopping", p.run, r.State)
		case r.item != nil:
			return fmt.Errorf("%s is promised seats while its job is in line", p.run)
		}

		for _, s := range p.start.Allocations {
			if room, ok := y.nodes.Rooms.Get(s.Node); !ok ||
				!slices.ContainsFunc(room.Holds, func(h fleet.Hold) bool { return h.Run == p.run && h.GPUs == s.GPUs }) {
				return fmt.Errorf("%s is promised a seat on %s that is not held", p.run, s.Node)
			}
		}
	}

	for _, run := range y.runs {
		if run.move != nil && (run.Stop != job.StopNone || y.jobs[run.Job].promise == nil) {
			return fmt.Errorf("%s saves before it moves and is stopped by %q or has no seats to move to", run.ID, run.Stop)
		}
	}

	for _, r := range y.jobs {
		if r.promise != nil && !slices.Contains(y.promises, r.promise) {
			return fmt.Errorf("job %s has a promise that nobody keeps", r.ID)
		}
	}

	return nil
}

// PromiseCount returns how many starts wait for stops.
func PromiseCount(y *Yard) int { return len(y.promises) }

// Estimate returns how long jobs like one took, as policies are told.
func (y *Yard) Estimate(owner id.User, command string, gpus int) queue.Estimate {
	got, _ := y.past.Estimate(queue.Kin{User: owner, Program: y.programOf(&job.Spec{Run: command}), GPUs: gpus})
	return got
}

// OutlookOf returns what is known of the future of a job in memory.
func OutlookOf(y *Yard, j id.Job) job.Outlook { return *y.jobs[j].outlook }

// NodeOf returns the node of the first rank of a job that runs.
func NodeOf(y *Yard, j id.Job) id.Node { return y.jobs[j].run.Ranks[0].Node }

// MemoryOf returns what the yard has learned, in a form that can be compared.
func MemoryOf(y *Yard) map[string]string {
	text, err := y.past.MarshalJSON()
	memory := map[string]string{"past": fmt.Sprint(string(text), err)}

	for j, r := range y.jobs {
		if r.State.Final() {
			continue
		}

		seen := r.outlook.Observed(&r.Job)
		seen.Done, seen.At = 0, time.Time{}
		text, err := json.Marshal(seen)
		memory[string(j)] = fmt.Sprint(string(text), err)
	}

	return memory
}
