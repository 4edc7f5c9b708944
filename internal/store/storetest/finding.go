package storetest

import (
	"fmt"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func finding() []contract {
	return []contract{
		{"jobs are listed newest first, as the filter says", filtersJobs},
		{"jobs are found by the word that people see, and counted by it", countsJobs},
		{"jobs are listed page by page", pagesJobs},
		{"jobs are sorted by their name, their cost and their end, page by page", sortsJobs},
		{"an outline of a job has what it is kept by", outlinesJobs},
		{"a job is found by its idempotency key", findsByKey},
		{"the jobs of a pipeline come in order of submission", listsPipeline},
		{"arrays are listed with how their elements are", listsArrays},
		{"elements of arrays are listed, or left out", listsElements},
		{"the spec of an array is stored once", keepsTheSpecOfAnArray},
		{"an array is forgotten with its last element", forgetsArrays},
		{"the runs of a job come in order of their epoch", listsRuns},
		{"events are listed oldest first, as the filter says", filtersEvents},
		{"users are listed by name, page by page", listsUsers},
		{"tokens are listed by id, page by page", listsTokens},
		{"what is not there is not found", findsNothing},
		{"a list without a limit is refused", needsLimit},
	}
}

func filtersJobs(h *harness) {
	jobs := []job.Job{
		plainJob(1, "ada", "resnet-50", job.Succeeded),
		plainJob(2, "bob", "resnet_50", job.Running),
		plainJob(3, "ada", "100%-sure", job.Pending),
		plainJob(4, "bob", "bert!", job.Failed),
		plainJob(10, "ada", "bert", job.Running),
	}

	jobs[3].Project = "text"
	s := h.with(&yardmaster.Batch{
		Jobs: jobs,
		Runs: []job.Run{
			sampleRun("j1", 1, job.RunEnded, "gpu-1"), sampleRun("j1", 2, job.RunEnded, "gpu-1", "gpu-2"),
			sampleRun("j2", 1, job.RunRunning, "gpu-2"), sampleRun("j10", 1, job.RunRunning, "gpu-1"),
		},
	})

	tests := []struct {
		name   string
		filter store.JobFilter
		want   []id.Job
	}{
		{"all", store.JobFilter{}, []id.Job{"j10", "j4", "j3", "j2", "j1"}},
		{"owner", store.JobFilter{Owner: "bob"}, []id.Job{"j4", "j2"}},
		{"project", store.JobFilter{Project: "text"}, []id.Job{"j4"}},
		{"owner, or one of the projects", store.JobFilter{Owner: "ada", Projects: []id.Project{"text", "none"}},
			[]id.Job{"j10", "j4", "j3", "j1"}},
		{"one state", store.JobFilter{States: []job.State{job.Running}}, []id.Job{"j10", "j2"}},
		{"two states", store.JobFilter{States: []job.State{job.Failed, job.Succeeded}}, []id.Job{"j4", "j1"}},
		{"part of the name", store.JobFilter{Name: "net"}, []id.Job{"j2", "j1"}},
		{"the whole name", store.JobFilter{Called: "bert"}, []id.Job{"j10"}},
		{"the whole name in other letters", store.JobFilter{Called: "Bert"}, nil},
		{"name in other letters", store.JobFilter{Name: "BERT"}, []id.Job{"j10", "j4"}},
		{"underscore is not a wildcard", store.JobFilter{Name: "resnet_5"}, []id.Job{"j2"}},
		{"percent is not a wildcard", store.JobFilter{Name: "0%"}, []id.Job{"j3"}},
		{"exclamation mark is itself", store.JobFilter{Name: "t!"}, []id.Job{"j4"}},
		{"backslash is itself", store.JobFilter{Name: `\`}, nil},
		{"node, once for each job", store.JobFilter{Node: "gpu-1"}, []id.Job{"j10", "j1"}},
		{"node of an earlier page", store.JobFilter{Node: "gpu-1", Before: 10}, []id.Job{"j1"}},
		{"node that never was", store.JobFilter{Node: "gpu-9"}, nil},
		{"since", store.JobFilter{Since: dayOne.Add(4 * time.Minute)}, []id.Job{"j10", "j4"}},
		{"before", store.JobFilter{Before: 4}, []id.Job{"j3", "j2", "j1"}},
		{"oldest first", store.JobFilter{Oldest: true, Limit: 3}, []id.Job{"j1", "j2", "j3"}},
		{"oldest first, a page", store.JobFilter{Oldest: true, After: 1, Limit: 2}, []id.Job{"j2", "j3"}},
		{"limit", store.JobFilter{Limit: 2}, []id.Job{"j10", "j4"}},
		{"all at once", store.JobFilter{
			Owner: "ada", Project: "vision", States: []job.State{job.Running, job.Succeeded}, Name: "e",
			Node: "gpu-1", Since: dayOne, Before: 10, Limit: 5,
		}, []id.Job{"j1"}},
	}

	for _, tt := range tests {
		if tt.filter.Limit == 0 {
			tt.filter.Limit = 100
		}

		got, err := s.Jobs(h.context(), tt.filter)
		h.must(err)
		h.same(tt.name, jobIDs(got), tt.want)
	}
}

func countsJobs(h *harness) {
	jobs := []job.Job{
		plainJob(1, "ada", "a", job.Failed),
		plainJob(2, "ada", "b", job.Failed),
		plainJob(3, "bob", "c", job.Failed),
		plainJob(4, "ada", "d", job.Failed),
		plainJob(5, "ada", "e", job.Running),
		plainJob(6, "ada", "f", job.Running),
		plainJob(7, "ada", "g", job.Cancelled),
	}

	jobs[0].Cause, jobs[1].Cause = job.CauseUserCode, job.CauseHostOOM
	jobs[2].Cause, jobs[3].Cause = job.CauseGPUOOM, job.CauseNeedFailed
	jobs[5].Suspended = dayOne
	s := h.with(&yardmaster.Batch{Jobs: jobs})

	for _, tt := range []struct {
		name   string
		filter store.JobFilter
		want   []id.Job
	}{
		{"out of memory", store.JobFilter{Statuses: []job.Status{job.StatusOutOfMemory}}, []id.Job{"j3", "j2"}},
		{"of one owner", store.JobFilter{Owner: "ada", Statuses: []job.Status{job.StatusOutOfMemory}}, []id.Job{"j2"}},
		{"suspended", store.JobFilter{Statuses: []job.Status{job.StatusSuspended}}, []id.Job{"j6"}},
		{"a state, or a word for others", store.JobFilter{
			States: []job.State{job.Cancelled}, Statuses: []job.Status{job.StatusCancelled},
		}, []id.Job{"j7", "j4"}},
	} {
		tt.filter.Limit = 100
		got, err := s.Jobs(h.context(), tt.filter)
		h.must(err)
		h.same(tt.name, jobIDs(got), tt.want)
	}

	counts, err := s.CountJobs(h.context(), store.JobFilter{Owner: "ada", Limit: 1})
	h.must(err)
	h.same("counts", counts, map[job.Status]int{ //nolint:exhaustive // of the others there are none
		job.StatusFailed: 1, job.StatusOutOfMemory: 1, job.StatusRunning: 1, job.StatusSuspended: 1, job.StatusCancelled: 2,
	})

	none, err := s.CountJobs(h.context(), store.JobFilter{Owner: "nobody"})
	h.must(err)
	h.same("counts of nobody", none, map[job.Status]int{})
}

func pagesJobs(h *harness) {
	b := &yardmaster.Batch{}
	for n := uint64(1); n <= 25; n++ {
		b.Jobs = append(b.Jobs, plainJob(n, "ada", "page", job.Pending))
	}

	s := h.with(b)
	var seen []id.Job

	before := uint64(0)
	for {
		page, err := s.Jobs(h.context(), store.JobFilter{Before: before, Limit: 10})
		h.must(err)

		if len(page) == 0 {
			break
		}

		if len(page) > 10 {
			h.Fatalf("a page of %d jobs, want at most 10", len(page))
		}

		seen = append(seen, jobIDs(page)...)
		before = number(page[len(page)-1].ID)
	}

	var want []id.Job
	for n := uint64(25); n >= 1; n-- {
		want = append(want, id.NewJob(n))
	}

	h.same("pages", seen, want)
}

func sortsJobs(h *harness) {
	jobs := []job.Job{
		plainJob(1, "ada", "cat", job.Succeeded),
		plainJob(2, "bob", "bee", job.Running),
		plainJob(3, "ada", "ant", job.Failed),
		plainJob(4, "ada", "bee", job.Succeeded),
		plainJob(10, "ada", "ant", job.Pending),
	}

	jobs[0].Cost, jobs[1].Cost, jobs[3].Cost = 2.5, 10, 2.5
	jobs[0].Ended = dayOne.Add(time.Hour) // the first one ended last
	s := h.with(&yardmaster.Batch{Jobs: jobs})

	for _, tt := range []struct {
		name   string
		filter store.JobFilter
		want   []id.Job
	}{
		{"name", store.JobFilter{Sort: store.SortName, Oldest: true}, []id.Job{"j3", "j10", "j2", "j4", "j1"}},
		{"name, from the end", store.JobFilter{Sort: store.SortName}, []id.Job{"j1", "j4", "j2", "j10", "j3"}},
		{"least cost", store.JobFilter{Sort: store.SortCost, Oldest: true}, []id.Job{"j3", "j10", "j1", "j4", "j2"}},
		{"cost", store.JobFilter{Sort: store.SortCost}, []id.Job{"j2", "j4", "j1", "j10", "j3"}},
		{"end", store.JobFilter{Sort: store.SortEnded}, []id.Job{"j1", "j4", "j3", "j10", "j2"}},
		{"earliest end", store.JobFilter{Sort: store.SortEnded, Oldest: true}, []id.Job{"j2", "j10", "j3", "j4", "j1"}},
		{"cost of an owner", store.JobFilter{Sort: store.SortCost, Owner: "ada"}, []id.Job{"j4", "j1", "j10", "j3"}},
		{"name, of some states", store.JobFilter{
			Sort: store.SortName, Oldest: true, States: []job.State{job.Succeeded, job.Running},
		}, []id.Job{"j2", "j4", "j1"}},
		{"nobody's", store.JobFilter{Sort: store.SortName, Owner: "eve"}, nil},
	} {
		var seen []id.Job

		for {
			tt.filter.Limit = 2

			page, err := s.Jobs(h.context(), tt.filter)
			h.must(err)

			if len(page) == 0 || len(seen) > len(jobs) {
				break
			}

			last := page[len(page)-1]
			seen = append(seen, jobIDs(page)...)
			tt.filter.Last = &store.JobPlace{
				Number: number(last.ID), Name: last.Spec.Name, Cost: last.Cost, Ended: last.Ended,
			}
		}

		h.same(tt.name, seen, tt.want)
	}

	_, err := s.Jobs(h.context(), store.JobFilter{Sort: "priority", Limit: 1})
	h.fails(err, fault.Invalid, "bad_sort")
}

func outlinesJobs(h *harness) {
	j := sampleJob(7, job.Succeeded)
	s := h.with(&yardmaster.Batch{Jobs: []job.Job{j}})

	got, err := s.Jobs(h.context(), store.JobFilter{Outline: true, Limit: 10})
	h.must(err)
	h.same("outline", got, []job.Job{{
		ID: j.ID, Owner: j.Owner, Project: j.Project, Workdir: j.Workdir, Pipeline: j.Pipeline, State: j.State,
		Cause: j.Cause, Submitted: j.Submitted, Started: j.Started, Ended: j.Ended,
	}})
}

func findsByKey(h *harness) {
	second := plainJob(10, "ada", "b", job.Pending)
	first := plainJob(9, "ada", "a", job.Pending)
	other := plainJob(8, "bob", "c", job.Pending)
	none := plainJob(7, "ada", "d", job.Pending)
	first.Key, second.Key, other.Key = "k1", "k1", "k1"
	s := h.with(&yardmaster.Batch{Jobs: []job.Job{second, first, other, none}})
	got, err := s.JobByKey(h.context(), "ada", "k1")
	h.must(err)
	h.same("first of the file", got, first)
	_, err = s.JobByKey(h.context(), "ada", "k2")
	h.fails(err, fault.NotFound, "job_not_found")
	_, err = s.JobByKey(h.context(), "eve", "k1")
	h.fails(err, fault.NotFound, "job_not_found")
	_, err = s.JobByKey(h.context(), "ada", "")
	h.fails(err, fault.NotFound, "job_not_found")
}

func listsPipeline(h *harness) {
	b := &yardmaster.Batch{}
	for _, n := range []uint64{10, 2, 9, 3} {
		j := plainJob(n, "ada", "step", job.Pending)
		j.Pipeline = map[bool]string{true: "p1", false: "p2"}[n != 3]
		b.Jobs = append(b.Jobs, j)
	}

	b.Jobs = append(b.Jobs, plainJob(11, "ada", "single", job.Pending))
	s := h.with(b)
	for pipeline, want := range map[string][]id.Job{"p1": {"j2", "j9", "j10"}, "p2": {"j3"}, "p3": nil, "": nil} {
		got, err := s.Pipeline(h.context(), pipeline)
		h.must(err)
		h.same("pipeline "+pipeline, jobIDs(got), want)
	}
}

func listsRuns(h *harness) {
	b := &yardmaster.Batch{}
	for _, n := range []int{10, 1, 2} {
		b.Runs = append(b.Runs, sampleRun("j1", n, job.RunEnded, "gpu-1"))
	}

	b.Runs = append(b.Runs, sampleRun("j11", 1, job.RunEnded, "gpu-1"))
	s := h.with(b)
	got, err := s.Runs(h.context(), "j1")
	h.must(err)
	h.same("runs", got, []job.Run{b.Runs[1], b.Runs[2], b.Runs[0]})
	none, err := s.Runs(h.context(), "j2")
	h.must(err)
	h.same("runs of a job without any", none, []job.Run(nil))
}

func filtersEvents(h *harness) {
	b := &yardmaster.Batch{Events: []yardmaster.Event{
		{Seq: 1, At: dayOne, Kind: "job.submitted", Owner: "ada", Job: "j1"},
		{Seq: 2, At: dayOne, Kind: "job.started", Owner: "ada", Job: "j1", Run: "j1.1", Node: "gpu-1"},
		{Seq: 3, At: dayOne, Kind: "jobs.purged", Owner: "bob", Job: "j2", Actor: "bob", Address: "10.0.0.7"},
		{Seq: 9, At: dayOne, Kind: "node.joined", Node: "gpu-1"},
		{Seq: 10, At: dayOne, Kind: "job", Owner: "bob", Job: "j10", Actor: "bob"},
	}}

	s := h.with(b)

	tests := []struct {
		name   string
		filter store.EventFilter
		want   []uint64
	}{
		{"all", store.EventFilter{}, []uint64{1, 2, 3, 9, 10}},
		{"after", store.EventFilter{After: 3}, []uint64{9, 10}},
		{"after the last", store.EventFilter{After: 10}, nil},
		{"limit", store.EventFilter{After: 1, Limit: 2}, []uint64{2, 3}},
		{"newest", store.EventFilter{Newest: true, Limit: 2}, []uint64{9, 10}},
		{"owner", store.EventFilter{Owner: "bob"}, []uint64{3, 10}},
		{"job", store.EventFilter{Job: "j1"}, []uint64{1, 2}},
		{"node", store.EventFilter{Node: "gpu-1"}, []uint64{2, 9}},
		{"kind", store.EventFilter{Kind: "job.started"}, []uint64{2}},
		{"first part of the kind", store.EventFilter{Kind: "job"}, []uint64{1, 2, 10}},
		{"how a kind begins", store.EventFilter{Kind: "job.st"}, []uint64{2}}, // newcomer 23
		{"a first part with its dot", store.EventFilter{Kind: "job."}, []uint64{1, 2}},
		{"half a first part", store.EventFilter{Kind: "jo"}, nil},
		{"other letters are another kind", store.EventFilter{Kind: "JOB"}, nil},
		{"a wildcard is taken literally", store.EventFilter{Kind: "%"}, nil},
		{"actor", store.EventFilter{Actor: "bob"}, []uint64{3, 10}},
		{"audit", store.EventFilter{Audit: true}, []uint64{3}},
		{"all at once", store.EventFilter{After: 1, Owner: "ada", Job: "j1", Node: "gpu-1", Kind: "job"}, []uint64{2}},
	}

	for _, tt := range tests {
		if tt.filter.Limit == 0 {
			tt.filter.Limit = 100
		}

		events, err := s.Events(h.context(), tt.filter)
		h.must(err)

		var got []uint64
		for _, e := range events {
			got = append(got, e.Seq)
		}

		h.same(tt.name, got, tt.want)
	}
}

func listsUsers(h *harness) {
	b := &yardmaster.Batch{}
	names := []id.User{"a", "a-1", "a.1", "a1", "a_1", "ab", "b"} // as bytes are ordered
	for i := range names {
		b.Users = append(b.Users, sampleUser(names[len(names)-1-i]))
	}

	s := h.with(b)

	var seen []id.User
	for after := id.User(""); ; after = seen[len(seen)-1] {
		page, err := s.Users(h.context(), after, 3)
		h.must(err)

		if len(page) == 0 {
			break
		}

		for _, u := range page {
			seen = append(seen, u.ID)
		}
	}

	h.same("users", seen, names)
}

func listsTokens(h *harness) {
	b := &yardmaster.Batch{}
	for i := range 9 {
		b.Tokens = append(
			b.Tokens,
			sampleToken(id.Token(fmt.Sprintf("t%d", 9-i)), []id.User{"ada", "bob", "ada"}[i%3], tenant.JoinToken),
		)
	}

	s := h.with(b)

	tests := []struct {
		name  string
		owner id.User
		after id.Token
		limit int
		want  []id.Token
	}{
		{"all", "", "", 100, []id.Token{"t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"}},
		{"of one owner", "bob", "", 100, []id.Token{"t2", "t5", "t8"}},
		{"the next page", "bob", "t2", 1, []id.Token{"t5"}},
		{"of nobody", "eve", "", 100, nil},
	}

	for _, tt := range tests {
		tokens, err := s.Tokens(h.context(), tt.owner, tt.after, tt.limit)
		h.must(err)

		var got []id.Token
		for _, token := range tokens {
			got = append(got, token.ID)
		}

		h.same(tt.name, got, tt.want)
	}
}

func findsNothing(h *harness) {
	s := h.with(everything())
	for _, j := range []id.Job{"j1", "j70", "j", "", "j7 ", "j99999999999999999999", "j18446744073709551615", "J7",
		"j7.1"} {
		_, err := s.Job(h.context(), j)
		h.fails(err, fault.NotFound, "job_not_found")
		runs, err := s.Runs(h.context(), j)
		h.must(err)
		h.same("runs of "+string(j), runs, []job.Run(nil))
	}

	for _, r := range []id.Run{"j7.2", "j1.1", "j7", "", "j7.", "j7.01", "j18446744073709551615.1"} {
		_, err := s.Run(h.context(), r)
		h.fails(err, fault.NotFound, "run_not_found")
	}
}

func needsLimit(h *harness) {
	s, ctx := h.store(), h.context()
	for _, limit := range []int{0, -1} {
		_, err := s.Jobs(ctx, store.JobFilter{Limit: limit})
		h.fails(err, fault.Invalid, "limit_required")
		_, err = s.Events(ctx, store.EventFilter{Limit: limit})
		h.fails(err, fault.Invalid, "limit_required")
		_, err = s.Users(ctx, "", limit)
		h.fails(err, fault.Invalid, "limit_required")
		_, err = s.Tokens(ctx, "", "", limit)
		h.fails(err, fault.Invalid, "limit_required")
	}
}
