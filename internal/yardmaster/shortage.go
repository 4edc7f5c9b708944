package yardmaster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/forecast/history"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// What jobs taught about the memory that others like them need. A job that has not run yet gets more from the start if
// one like it ran out of memory: one of the same owner with the same program, arguments, variables and number of GPUs.

const (
	// shortageAge is how long a shortage is remembered: the program may need less by then.
	shortageAge = 30 * 24 * time.Hour
	// maxShortages bounds how many are remembered, the newest ones.
	maxShortages = 1000
)

// learnMemory records what the end of a run says about the memory that its job and those like it need.
func (y *Yard) learnMemory(r *jobRecord, run *runRecord, cause job.Cause, rank *job.Rank) {
	if cause == job.CauseNone {
		y.correctShortage(r, run)
		return
	}

	if cause != job.CauseHostOOM && cause != job.CauseGPUOOM {
		return
	}

	lacked := y.lacked(r, cause, rank)
	if lacked == (job.Floor{}) {
		return
	}

	r.Lacked = lacked

	// What others on the node had may be why the memory of a whole node or of a shared GPU was used up.
	others := rank.Share > 0 || cause == job.CauseHostOOM && rank.Memory == 0
	if !others || rank.Needed > 0 {
		y.addShortage(r, lacked)
	}
}

// addShortage records that jobs like one need more memory than it had.
func (y *Yard) addShortage(r *jobRecord, lacked job.Floor) {
	key := memoryKey(&r.Job)
	y.ownShortages()

	s := y.shortages[key]
	if y.now.Sub(s.At) > shortageAge {
		s = job.Shortage{}
	}

	s.Key = key
	s.Add(lacked, r.ID, y.now)
	y.shortages[key] = s
	y.shortagesChanged[key] = true

	y.limitShortages()
	y.reconsiderMemory(r, key)
}

// correctShortage drops what is known of jobs like one that succeeded with less memory. A run that continued from a
// checkpoint did only a part of the work, and tells nothing.
func (y *Yard) correctShortage(r *jobRecord, run *runRecord) {
	if len(y.shortages) == 0 || run.Epoch > 1 && r.outlook.Resumes {
		return
	}

	key := memoryKey(&r.Job)
	s, known := y.shortages[key]
	if !known {
		return
	}

	var had job.Floor
	for i := range run.Ranks {
		k := &run.Ranks[i]
		if gpu := y.nodes.GPUMemory(k); gpu > 0 && (had.GPUMemory == 0 || gpu < had.GPUMemory) {
			had.GPUMemory = gpu
		}

		had.Memory = k.Memory // the same on all nodes
	}

	if !s.Correct(had) {
		return
	}

	y.ownShortages()

	if s.Floor == (job.Floor{}) {
		delete(y.shortages, key)
	} else {
		y.shortages[key] = s
	}

	y.shortagesChanged[key] = true
	y.reconsiderMemory(r, key)
}

// ownShortages copies the shortages before they change: snapshots have the old ones.
func (y *Yard) ownShortages() {
	y.shortages = maps.Clone(y.shortages)
	if y.shortages == nil {
		y.shortages = map[string]job.Shortage{}
	}
}

// limitShortages forgets shortages that are too old, and the oldest if there are too many.
func (y *Yard) limitShortages() {
	oldest := slices.SortedFunc(maps.Values(y.shortages), func(a, b job.Shortage) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Key, b.Key))
	})

	for i := range oldest {
		if len(y.shortages) <= maxShortages && y.now.Sub(oldest[i].At) <= shortageAge {
			return
		}

		delete(y.shortages, oldest[i].Key)
		y.shortagesChanged[oldest[i].Key] = true
	}
}

// reconsiderMemory applies what was learned from a job to those like it that are queued and have not run yet.
func (y *Yard) reconsiderMemory(from *jobRecord, key string) {
	for _, j := range sortedKeys(y.jobs) {
		r := y.jobs[j]
		if r.Owner != from.Owner || r.item == nil || r.promise != nil || r.Epoch > 0 || memoryKey(&r.Job) != key {
			continue
		}

		had := r.Floor
		if r.FloorOf != "" {
			r.Floor, r.FloorOf = job.Floor{}, ""
		}

		since := r.item.Since
		y.dequeue(r)
		y.expectMemory(r)
		y.enqueueSince(r, since)

		if r.Floor != had {
			y.changedJob(r)
			y.event(Event{
				Kind: "job.memory", Actor: theYard, Owner: r.Owner, Job: r.ID,
				Reason: cmp.Or(y.memoryNote(r), fmt.Sprintf("needs no more memory: %s like it succeeded with less", from.ID)),
			})
		}
	}
}

// expectMemory raises the floor of a job that has not run yet to what jobs like it need, if that can be had, and
// reports whether it did.
func (y *Yard) expectMemory(r *jobRecord) bool {
	s, known := shortageOf(y.now, &r.Job, y.shortages)
	if !known || r.Floor != (job.Floor{}) {
		return false
	}

	floor := s.For(r.Spec)
	if floor == (job.Floor{}) || !y.available(r, &job.Relief{Floor: floor}) {
		return false
	}

	r.Floor, r.FloorOf = floor, s.Job

	return true
}

// shortageOf returns what is known of the memory that jobs like one need that has not run yet.
func shortageOf(now time.Time, j *job.Job, shortages map[string]job.Shortage) (job.Shortage, bool) {
	if len(shortages) == 0 || j.Epoch > 0 {
		return job.Shortage{}, false
	}

	s, known := shortages[memoryKey(j)]

	return s, known && now.Sub(s.At) <= shortageAge
}

// memoryNote says how much memory a job needs because of one like it, "" if there was none.
func memoryNote(now time.Time, j *job.Job, shortages map[string]job.Shortage) string {
	if j.FloorOf != "" {
		return fmt.Sprintf("needs %s: %s like it ran out there", memoryWords(j.Floor), j.FloorOf)
	}

	s, known := shortageOf(now, j, shortages)
	if !known || s.For(j.Spec) == (job.Floor{}) {
		return ""
	}

	return fmt.Sprintf("%s like it ran out of memory, and no node that this one may use has %s",
		s.Job, memoryWords(s.For(j.Spec)))
}

// memoryNote says how much memory a job needs because of one like it, "" if there was none.
func (y *Yard) memoryNote(r *jobRecord) string { return memoryNote(y.now, &r.Job, y.shortages) }

// memoryWords names the memory of a floor.
func memoryWords(f job.Floor) string {
	var words []string
	if f.GPUMemory > 0 {
		words = append(words, "more than "+humanize.Size(f.GPUMemory)+" of GPU memory")
	}

	if f.Memory > 0 {
		words = append(words, humanize.Size(f.Memory)+" of memory")
	}

	return strings.Join(words, " and ")
}

// memoryKey identifies jobs that need as much memory as one.
func memoryKey(j *job.Job) string {
	resolved := j.Resolved()
	env, params := maps.Clone(resolved.Env), maps.Clone(resolved.Params)
	maps.DeleteFunc(env, func(name, _ string) bool { return history.MemoryNeutral(name) })
	maps.DeleteFunc(params, func(name string, _ any) bool { return history.MemoryNeutral(name) })

	model := job.Model{}
	if j.Spec.Model != nil {
		model = *j.Spec.Model
	}

	ask := &j.Spec.Resources
	rest := fmt.Sprintf("%q %v %v %q %v %v %v", env, params, model, j.Spec.Data, ask.GPUs, ask.GPUShare, ask.Nodes)

	return string(digest(string(j.Owner), history.Invocation(resolved.Run), rest))
}

// takeShortages adds the shortages that have changed to a batch.
func (y *Yard) takeShortages(b *Batch) {
	b.Shortages, b.ShortagesForgotten = b.Shortages[:0], b.ShortagesForgotten[:0]

	for _, key := range sortedKeys(y.shortagesChanged) {
		if s, known := y.shortages[key]; known {
			b.Shortages = append(b.Shortages, s)
		} else {
			b.ShortagesForgotten = append(b.ShortagesForgotten, key)
		}
	}

	clear(y.shortagesChanged)
}

// loadShortages restores the shortages.
func (y *Yard) loadShortages(list []job.Shortage) {
	if len(list) == 0 {
		return
	}

	y.shortages = make(map[string]job.Shortage, len(list))
	for i := range list {
		y.shortages[list[i].Key] = list[i]
	}

	y.limitShortages()
}
