package storetest

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// arrayOf makes the elements of an array that begins with a job.
func arrayOf(first uint64, owner id.User, name string, states ...job.State) []job.Job {
	spec := plainJob(first, owner, name, job.Pending).Spec
	spec.Array = &job.Array{Range: job.Steps{Last: len(states) - 1, Step: 1}, Limit: 2}

	list := make([]job.Job, len(states))
	for i, state := range states {
		list[i] = plainJob(first+uint64(i), owner, name, state)
		list[i].Array, list[i].Index, list[i].Spec, list[i].Cost = id.NewArray(first), i, spec, 0.5

		if state != job.Pending { // the first may run already when the array is stored
			list[i].Epoch = 1
		}
	}

	return list
}

func listsArrays(h *harness) {
	b := &yardmaster.Batch{}
	b.Jobs = append(b.Jobs, plainJob(1, "ada", "single", job.Pending))
	b.Jobs = append(b.Jobs, arrayOf(2, "ada", "sweep", job.Succeeded, job.Running, job.Pending, job.Pending)...)
	b.Jobs = append(b.Jobs, arrayOf(6, "bob", "Other", job.Succeeded, job.Cancelled)...)
	s := h.with(b)

	byStatus := map[job.Status]int{}
	byStatus[job.StatusSucceeded], byStatus[job.StatusRunning], byStatus[job.StatusPending] = 1, 1, 2

	one, err := s.Array(h.context(), "a2")
	h.must(err)
	h.same("an array", one, store.Array{
		ID: "a2", Owner: "ada", Project: "vision", Spec: b.Jobs[1].Spec, Submitted: b.Jobs[1].Submitted, Cost: 2,
		Active: true, Counts: byStatus, Ended: b.Jobs[1].Ended,
	})

	for _, missing := range []id.Array{"a1", "a3", "j2", ""} {
		_, err := s.Array(h.context(), missing)
		h.fails(err, fault.NotFound, "array_not_found")
	}

	for _, tt := range []struct {
		name string
		f    store.ArrayFilter
		want []id.Array
	}{
		{"all", store.ArrayFilter{}, []id.Array{"a6", "a2"}},
		{"of a user", store.ArrayFilter{Owner: "ada"}, []id.Array{"a2"}},
		{
			"of a user and a project", store.ArrayFilter{Owner: "ada", Projects: []id.Project{"vision"}},
			[]id.Array{"a6", "a2"},
		},
		{"of a project", store.ArrayFilter{Project: "nlp"}, nil},
		{"by a part of the name", store.ArrayFilter{Name: "oth"}, []id.Array{"a6"}},
		{"with elements that have not ended", store.ArrayFilter{Active: true}, []id.Array{"a2"}},
		{"the next page", store.ArrayFilter{Before: 6}, []id.Array{"a2"}},
	} {
		tt.f.Limit = 10
		list, err := s.Arrays(h.context(), tt.f)
		h.must(err)

		var got []id.Array
		for i := range list {
			got = append(got, list[i].ID)
		}

		h.same("arrays "+tt.name, got, tt.want)
	}
}

func listsElements(h *harness) {
	b := &yardmaster.Batch{}
	b.Jobs = append(b.Jobs, plainJob(1, "ada", "single", job.Pending))
	b.Jobs = append(b.Jobs, arrayOf(2, "ada", "sweep", job.Succeeded, job.Running, job.Pending, job.Pending)...)
	s := h.with(b)

	for _, tt := range []struct {
		name string
		f    store.JobFilter
		want []id.Job
	}{
		{"elements", store.JobFilter{Array: "a2"}, []id.Job{"j5", "j4", "j3", "j2"}},
		{"elements in a state", store.JobFilter{Array: "a2", States: []job.State{job.Pending}}, []id.Job{"j5", "j4"}},
		{"elements of a user", store.JobFilter{Array: "a2", Owner: "bob"}, nil},
		{"elements by cost", store.JobFilter{Array: "a2", Sort: store.SortCost}, []id.Job{"j5", "j4", "j3", "j2"}},
		{"elements by name", store.JobFilter{Array: "a2", Called: "sweep", Oldest: true}, []id.Job{"j2", "j3", "j4", "j5"}},
		{"no elements", store.JobFilter{Single: true}, []id.Job{"j1"}},
		{"no elements by name", store.JobFilter{Single: true, Sort: store.SortName}, []id.Job{"j1"}},
		{"another array", store.JobFilter{Array: "a3"}, nil},
	} {
		for _, outline := range []bool{false, true} {
			tt.f.Limit, tt.f.Outline = 10, outline
			list, err := s.Jobs(h.context(), tt.f)
			h.must(err)
			h.same(tt.name, jobIDs(list), tt.want)
		}
	}

	counts, err := s.CountJobs(h.context(), store.JobFilter{Array: "a2"})
	h.must(err)
	h.same("succeeded, running and pending elements",
		[]int{len(counts), counts[job.StatusSucceeded], counts[job.StatusRunning], counts[job.StatusPending]},
		[]int{3, 1, 1, 2})
}

// keepsTheSpecOfAnArray changes elements after their array was stored: what one is amended with is its own.
func keepsTheSpecOfAnArray(h *harness) {
	jobs := arrayOf(2, "ada", "sweep", job.Pending, job.Pending, job.Pending)
	s := h.with(&yardmaster.Batch{Jobs: jobs})

	amended := jobs[0]
	amended.Seq++
	amended.Amended = &job.Amendment{Budget: 5, By: "ada", At: dayOne}
	amended.Spec = amended.Amended.Apply(amended.Spec)
	running := jobs[1]
	running.Seq++
	running.State, running.Epoch = job.Running, 1
	h.must(s.Commit(h.context(), &yardmaster.Batch{Jobs: []job.Job{amended, running}}))

	for i, want := range []job.Job{amended, running, jobs[2]} {
		got, err := s.Job(h.context(), want.ID)
		h.must(err)
		h.same("an element", got, want)

		state := h.load(s, time.Time{})
		h.same("an element that is loaded", state.Jobs[i], want)
	}

	// All that have not been amended share one spec.
	state := h.load(s, time.Time{})
	if state.Jobs[1].Spec != state.Jobs[2].Spec {
		h.Error("two elements of an array have specs of their own")
	}
}

func forgetsArrays(h *harness) {
	jobs := arrayOf(2, "ada", "sweep", job.Succeeded, job.Succeeded, job.Failed)
	s := h.with(&yardmaster.Batch{Jobs: append(jobs, plainJob(9, "ada", "newest", job.Pending))})

	h.must(s.ForgetJobs(h.context(), "j2", "j3"))

	left, err := s.Job(h.context(), "j4")
	h.must(err)
	h.same("the element that is left", left, jobs[2])

	h.must(s.ForgetJobs(h.context(), "j4"))
	_, err = s.Array(h.context(), "a2")
	h.fails(err, fault.NotFound, "array_not_found")
}
