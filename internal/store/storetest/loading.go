package storetest

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

func loading() []contract {
	return []contract{
		{"an empty store loads as nothing", loadsNothing},
		{"jobs that ended long ago are left out", leavesOutOld},
		{"the final states of needed jobs are loaded", tellsNeeds},
		{"only runs that have not ended are loaded", loadsLiveRuns},
		{"the last run of a node is loaded", loadsIdle},
		{"the greatest numbers are those ever given", loadsGreatest},
	}
}

func loadsNothing(h *harness) {
	state := h.load(h.store(), time.Time{})
	h.same("state", state, yardmaster.State{})
}

func leavesOutOld(h *harness) {
	b := &yardmaster.Batch{}
	for i, state := range job.States() {
		for age := range 3 {
			j := plainJob(uint64(10*i+age+1), "ada", "aged", state)
			if state.Final() {
				j.Ended = dayOne.Add(time.Duration(age-1) * time.Microsecond) // just before, at, just after
			}

			b.Jobs = append(b.Jobs, j)
		}
	}

	s := h.with(b)

	var want []id.Job
	for _, j := range b.Jobs {
		if !j.State.Final() || !j.Ended.Before(dayOne) {
			want = append(want, j.ID)
		}
	}

	h.same("jobs", jobIDs(h.load(s, dayOne).Jobs), want)
	h.same("jobs of all times", jobIDs(h.load(s, time.Time{}).Jobs), jobIDs(b.Jobs))
}

func tellsNeeds(h *harness) {
	old, recent := plainJob(1, "ada", "old", job.Succeeded), plainJob(2, "ada", "recent", job.Failed)
	old.Ended, recent.Ended = dayOne.Add(-time.Hour), dayOne.Add(time.Hour)
	gone := plainJob(3, "ada", "not needed by a queued job", job.Cancelled)
	gone.Ended = dayOne.Add(-time.Hour)
	running := plainJob(4, "ada", "running", job.Running)
	waiting, paused := plainJob(5, "ada", "waiting", job.Pending), plainJob(6, "ada", "paused", job.Paused)
	waiting.Needs = []id.Job{"j1", "j2", "j4", "j99"}
	paused.Needs = []id.Job{"j1"}
	ended := plainJob(7, "ada", "ended", job.Cancelled)
	ended.Needs, ended.Ended = []id.Job{"j3"}, dayOne.Add(time.Hour)
	s := h.with(&yardmaster.Batch{Jobs: []job.Job{old, recent, gone, running, waiting, paused, ended}})
	state := h.load(s, dayOne)
	h.same("needs", state.Needs, map[id.Job]job.State{"j1": job.Succeeded, "j2": job.Failed})
	h.same("jobs", jobIDs(state.Jobs), []id.Job{"j2", "j4", "j5", "j6", "j7"})
}

func loadsLiveRuns(h *harness) {
	b := &yardmaster.Batch{Jobs: []job.Job{plainJob(1, "ada", "live", job.Running)}}
	for i, state := range []job.RunState{job.RunEnded, job.RunOrdered, job.RunPreparing, job.RunRunning, job.RunStopping} {
		b.Runs = append(b.Runs, sampleRun("j1", i+1, state, "gpu-1"))
	}

	s := h.with(b)
	h.same("runs", h.load(s, dayOne).Runs, b.Runs[1:])
}

func loadsIdle(h *harness) {
	b := &yardmaster.Batch{Jobs: []job.Job{
		plainJob(1, "ada", "moved", job.Running), plainJob(2, "ada", "later", job.Failed),
	}}
	b.Nodes = []fleet.Node{
		sampleNode("gpu-1", fleet.Ready), sampleNode("gpu-2", fleet.Ready), sampleNode("gpu-3", fleet.Ready),
		sampleNode("gone", fleet.Removed),
	}

	for i := range b.Nodes {
		b.Nodes[i].Joined = dayOne
	}

	// j1 was on gpu-1 twice and runs on gpu-2 now; j2, of two ranks, began later and ended before.
	for i, end := range []time.Duration{time.Hour, 4 * time.Hour, 0} {
		run := sampleRun("j1", i+1, job.RunEnded, "gpu-1")
		run.Ended = dayOne.Add(end)
		b.Runs = append(b.Runs, run)
	}

	b.Runs[2] = sampleRun("j1", 3, job.RunRunning, "gpu-2")
	both := sampleRun("j2", 1, job.RunEnded, "gpu-1", "gpu-2")
	both.Ended = dayOne.Add(3 * time.Hour)
	b.Runs = append(b.Runs, both)

	h.same("ends", h.load(h.with(b), dayOne).IdleSince, map[id.Node]time.Time{
		"gpu-1": dayOne.Add(4 * time.Hour), "gpu-2": dayOne.Add(3 * time.Hour), "gpu-3": dayOne,
	})
}

func loadsGreatest(h *harness) {
	old := plainJob(1000, "ada", "old", job.Succeeded)
	last := sampleEvent(12345)
	last.At = last.At.Add(time.Hour)
	s := h.with(&yardmaster.Batch{
		Jobs:   []job.Job{old, plainJob(999, "ada", "new", job.Pending)},
		Events: []yardmaster.Event{last, sampleEvent(99)},
	})

	state := h.load(s, old.Ended.Add(time.Hour))
	h.same("jobs", jobIDs(state.Jobs), []id.Job{"j999"})
	h.same("last job", state.LastJob, uint64(1000))
	h.same("last event", state.LastEvent, uint64(12345))
	h.same("time of the last event", state.LastEventAt, last.At)
}
