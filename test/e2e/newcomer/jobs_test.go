package newcomer_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// forever is what a job does that waits until it is stopped.
const forever = "while true; do sleep 0.1; done"

// Under the default policy a multi-node job over unlike nodes never started, and everything said that it would.
func TestNewcomer01AGangRunsOnUnlikeNodes(t *testing.T) { //nolint:paralleltest // it needs all nodes
	gang := script("echo here", "resources: {gpus: 2, nodes: 3, cpus: 0.1}")
	path := filepath.Join(t.TempDir(), "job.yaml")
	write(t, path, gang)

	has(t, "the dry run", day.ada.succeeds(t, "submit", "--dry-run", path).out, "3 nodes", "now")

	name := day.ada.submits(t, gang)
	has(t, "the reason of its run", day.ada.awaits(t, name, job.Succeeded).Runs[0].Reason, "succeeded")

	// Unless it says otherwise.
	write(t, path, script("echo here", "resources: {gpus: 2, nodes: 3, cpus: 0.1, same_gpu: true}"))
	has(t, "the refusal", day.ada.exits(t, 104, "submit", "-y", path).err,
		"3 nodes with the same GPU model needed (same_gpu), the yard has at most 2", "remove same_gpu, or add a node")

	var events api.EventPage
	day.ada.reads(t, &events, "events", "--job", name)

	for _, e := range events.Events {
		if e.To == string(job.Starting) {
			has(t, "why it started there", e.Reason, "unlike nodes, at the speed of the slowest")
			return
		}
	}

	t.Errorf("its start is not among its events: %+v", events.Events)
}

// A running job vanished from the list behind jobs that had ended.
func TestNewcomer03RunningJobsComeFirst(t *testing.T) {
	t.Parallel()

	long := day.grace.submits(t, script(forever, few, "name: long"))
	day.grace.awaits(t, long, job.Running)

	for range 2 {
		short := day.grace.submits(t, script("true", few))
		day.grace.awaits(t, short, job.Succeeded)
	}

	list := strings.Fields(day.grace.succeeds(t, "jobs", "-q", "--limit", "1").out)
	if at := slices.Index(list, long); at < 0 || at > 1 { // another test may have one that runs
		t.Errorf("%s is not among the first: %v", long, list)
	}
}

// A loss that was NaN and a node that was silent were told in the feed of events alone.
func TestNewcomer06WhatTheYardNoticesIsShown(t *testing.T) { //nolint:paralleltest // it stops an agent
	diverges := day.ada.submits(t, script(`echo "Epoch 1/100 loss: 0.5"
for i in 2 3 4 5 6; do echo "Epoch $i/100 loss: nan"; done
`+forever, "resources: {gpus: 1, gpu: V100, cpus: 0.1}"))
	day.ada.awaits(t, diverges, job.Running)

	await(t, "the list says that the loss is NaN", func() bool {
		return strings.Contains(day.ada.succeeds(t, "jobs").out, "loss is NaN or infinite")
	})
	has(t, "the job", day.ada.succeeds(t, "job", diverges).out, "Remarks:", "loss is NaN or infinite")

	node := day.agents["gpu-2"]
	if err := node.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = node.Signal(syscall.SIGCONT) }) // it may have gone on

	await(t, "the list says that its node is silent", func() bool {
		return strings.Contains(day.ada.succeeds(t, "jobs").out, "node gpu-2 has not reported since")
	})

	if err := node.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	await(t, "its node reports again", func() bool {
		return !strings.Contains(day.ada.succeeds(t, "jobs").out, "has not reported")
	})
}

// Memory was raised without a word after a run had run out of it.
func TestNewcomer08RaisedMemoryIsTold(t *testing.T) {
	t.Parallel()

	gate := filepath.Join(t.TempDir(), "gate")
	path := filepath.Join(t.TempDir(), "job.yaml")
	write(t, path, script(`if [ "$TRAINYARD_RUN" = "$TRAINYARD_JOB_ID.1" ]; then echo MemoryError; exit 1; fi
while ! test -e `+gate+`; do sleep 0.05; done`, "name: raised", "resources: {cpus: 0.1, memory: 200MB}"))

	follows := day.ada.begins(t, "submit", "-y", path)

	var name string

	await(t, "its second run runs", func() bool {
		var page api.JobPage
		day.ada.reads(t, &page, "jobs", "--name", "raised")

		for _, j := range page.Jobs {
			name = string(j.ID)
			return j.Epoch == 2 && j.State == job.Running
		}

		return false
	})

	raised := "memory raised from 200 MB to 400 MB"
	has(t, "the list", day.ada.succeeds(t, "jobs", "--name", "raised").out, raised)
	has(t, "the job", day.ada.succeeds(t, "job", name).out, raised)
	write(t, gate, "")

	end := follows()
	if end.code != 0 {
		t.Fatal(end)
	}

	has(t, "what is shown while it is followed", end.err, "RECOVERING", "the next run gets 400 MB of memory", raised)
}

// Whoever followed a job that waited never learned why it did.
func TestNewcomer09AWaitingJobSaysWhy(t *testing.T) { //nolint:paralleltest // it needs all V100s
	all := "resources: {gpus: 2, gpu: V100, cpus: 0.1}"
	holder := day.grace.submits(t, script(forever, all))
	day.grace.awaits(t, holder, job.Running)

	path := filepath.Join(t.TempDir(), "job.yaml")
	write(t, path, script("echo hello", all, "name: waits"))
	follows := day.ada.begins(t, "submit", "-y", path)

	var waits api.JobPage

	await(t, "it waits", func() bool {
		day.ada.reads(t, &waits, "jobs", "--name", "waits")
		return len(waits.Jobs) == 1 && strings.Contains(waits.Jobs[0].Reason, "needed")
	})

	page := day.ada.succeeds(t, "job", string(waits.Jobs[0].ID)).out
	has(t, "the job", page, "Why: ", "2× V100 and 0.1 CPUs needed", holder)
	lacks(t, "the job", page, "Reason:")

	day.grace.succeeds(t, "kill", holder)

	end := follows()
	if end.code != 0 {
		t.Fatal(end)
	}

	has(t, "what is shown while it is followed", end.err, "PENDING: ", "2× V100 and 0.1 CPUs needed", "SUCCEEDED")
}

// Pausing a job without checkpoint threw its work away without a warning.
func TestNewcomer12PauseWarnsOfLostWork(t *testing.T) {
	t.Parallel()

	name := day.ada.submits(t, script(forever, few))
	day.ada.awaits(t, name, job.Running)
	await(t, "it has run for a while", func() bool { return day.ada.job(t, name).Ran > 0 })

	has(t, "what pause says", day.ada.succeeds(t, "pause", name).err, name+" has no checkpoint", "from the beginning")

	d := day.ada.awaits(t, name, job.Paused)
	if d.Reason != "paused by ada" {
		t.Errorf("its reason is %q", d.Reason)
	}

	has(t, "the forecast of a paused job", day.ada.succeeds(t, "job", name).out, "paused by ada", "trainyard resume "+name)
}

// A job that its budget had stopped did not say so, and wait waited for it for ever.
func TestNewcomer17WaitEndsWhereABudgetIsUsedUp(t *testing.T) {
	t.Parallel()

	name := day.ada.submits(t, script(forever, "resources: {gpus: 1, gpu: A100, cpus: 0.1}", "budget: $0.02"))
	end := day.ada.exits(t, 101, "wait", name)
	has(t, "what wait says", end.err, "PAUSED", "of its budget of $0.02", "until its owner decides")

	var list api.JobPage
	day.ada.reads(t, &list, "jobs", "--state", "paused")

	for _, j := range list.Jobs {
		if string(j.ID) == name {
			has(t, "the list", j.Reason, "of its budget of $0.02")
			return
		}
	}

	t.Errorf("%s is not in the list of paused jobs", name)
}

// A node on which a job had just ended was idle since the start of the server.
func TestNewcomer20ANodeIsIdleSinceItsLastJob(t *testing.T) { //nolint:paralleltest // nothing else may run there
	name := day.ada.submits(t, script("true", "resources: {gpus: 2, gpu: V100, cpus: 0.1}"))
	d := day.ada.awaits(t, name, job.Succeeded)

	var n api.Node

	await(t, "gpu-2 is idle", func() bool {
		day.ada.reads(t, &n, "nodes", "gpu-2")
		return n.State == "idle"
	})

	if n.Since.Before(*d.Started) {
		t.Errorf("it is idle since %s, and its last job started at %s", n.Since, d.Started)
	}
}

// Reasons forgot who had acted.
func TestNewcomer21ReasonsKeepWhoActed(t *testing.T) { //nolint:paralleltest // it drains a node
	for verb, want := range map[string]string{"cancel": "cancelled by grace", "kill": "killed by grace"} {
		name := day.grace.submits(t, script(forever, few))
		day.grace.awaits(t, name, job.Running)
		day.grace.succeeds(t, verb, name)

		if d := day.grace.awaits(t, name, job.Cancelled); d.Reason != want {
			t.Errorf("after %s its reason is %q, want %q", verb, d.Reason, want)
		}
	}

	slow := day.grace.submits(t, script(forever, few, "max_duration: 1s"))
	if d := day.grace.awaits(t, slow, job.Failed); d.Reason != "ran longer than its max_duration of 1s" {
		t.Errorf("its reason is %q", d.Reason)
	}

	drained := day.grace.submits(t, script(forever, "resources: {gpus: 1, gpu: V100, cpus: 0.1}"))
	day.grace.awaits(t, drained, job.Running)

	t.Cleanup(func() {
		if _, err := day.admin.tries(context.Background(), "uncordon", "gpu-2"); err != nil {
			t.Error(err)
		}
	})
	has(t, "what drain says", day.admin.succeeds(t, "drain", "gpu-2").err, drained+" has no checkpoint")
	await(t, "its run has ended", func() bool {
		d := day.grace.job(t, drained)
		return len(d.Runs) == 1 && d.Runs[0].Ended != nil
	})

	if d := day.grace.job(t, drained); d.Runs[0].Reason != "node gpu-2 was drained by admin" {
		t.Errorf("the reason of its run is %q", d.Runs[0].Reason)
	}
}

// Jobs without GPUs all went to the best GPUs, where others could have used them.
func TestNewcomer29JobsWithoutGPUsLeaveTheBestOnes(t *testing.T) { //nolint:paralleltest // gpu-2 must be idle
	name := day.ada.submits(t, script(forever, few))
	if d := day.ada.awaits(t, name, job.Running); len(d.Nodes) != 1 || d.Nodes[0] != "gpu-2" {
		t.Errorf("it runs on %v, and gpu-2 has the weakest GPUs", d.Nodes)
	}
}

// A researcher was told who held the GPUs, and that there was no such job.
func TestNewcomer31AJobOfSomebodyElse(t *testing.T) {
	t.Parallel()

	name := day.grace.submits(t, script(forever, few))
	has(t, "the answer", day.ada.exits(t, 102, "job", name).err, "job "+name+" not found",
		"a job of somebody else is shown to admins and to readers of its project")
	has(t, "the same of a job that is not there", day.ada.exits(t, 102, "job", "j999999").err, "job j999999 not found",
		"a job of somebody else is shown to admins and to readers of its project")
}

// write writes a file.
func write(t *testing.T, path, text string) {
	t.Helper()

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
