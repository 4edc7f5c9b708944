package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	run := func(stop job.StopMode) *api.Assignment { return &api.Assignment{Run: "j1.1", Stop: stop} }
	is := func(state job.RunState) *rundir.Status { return &rundir.Status{Run: "j1.1", State: state} }
	tests := []struct {
		name      string
		want      *api.Assignment
		have      *rundir.Status
		begun     bool
		delivered bool
		do        action
		stray     bool
	}{
		{"assigned and not here is started", run(job.StopNone), nil, false, false, doStart, false},
		{
			"assigned and lost by the runtime is started again if the fence lets it",
			run(job.StopNone),
			nil,
			true,
			false,
			doStart,
			false,
		},
		{"assigned and running is left alone", run(job.StopNone), is(job.RunRunning), true, false, doNothing, false},
		{"adopted and running is left alone", run(job.StopNone), is(job.RunRunning), false, false, doNothing, false},
		{"adopted in preparation goes on", run(job.StopNone), is(job.RunPreparing), false, false, doStart, false},
		{"in preparation is left alone", run(job.StopNone), is(job.RunPreparing), true, false, doNothing, false},
		{"assigned and ended is never started again", run(job.StopNone), is(job.RunEnded), false, true, doNothing, false},
		{"told to stop", run(job.StopTerm), is(job.RunRunning), true, false, doTerm, false},
		{"told to stop while it stops", run(job.StopTerm), is(job.RunStopping), true, false, doTerm, false},
		{"told to end at once", run(job.StopKill), is(job.RunStopping), true, false, doKill, false},
		{"told to stop in preparation", run(job.StopTerm), is(job.RunPreparing), false, false, doTerm, false},
		{"told to stop and never here", run(job.StopTerm), nil, false, false, doCancel, false},
		{"told to stop and ended", run(job.StopKill), is(job.RunEnded), true, true, doNothing, false},
		{"not assigned and running is killed", nil, is(job.RunRunning), true, false, doKill, false},
		{"not assigned and stopping is killed", nil, is(job.RunStopping), false, false, doKill, false},
		{"not assigned, ended, output not delivered is kept", nil, is(job.RunEnded), true, false, doNothing, false},
		{"not assigned, ended, all delivered is forgotten", nil, is(job.RunEnded), true, true, doForget, false},
		{"nothing about nothing", nil, nil, false, false, doNothing, false},
		{"of another history and running is killed", run(job.StopNone), is(job.RunRunning), true, false, doKill, true},
		{"of another history and ended is set aside", run(job.StopNone), is(job.RunEnded), true, false, doAside, true},
		{"of another history, ended and not assigned is set aside", nil, is(job.RunEnded), false, true, doAside, true},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := decide(tt.want, tt.have, tt.begun, tt.delivered, tt.stray); got != tt.do {
				t.Errorf("decide = %s, want %s", got, tt.do)
			}
		})
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fence")
	reopen := func(f *fence) *fence {
		t.Helper()

		if f != nil {
			if err := f.close(); err != nil {
				t.Fatal(err)
			}
		}

		f, err := openFence(atomicfile.OS{}, path, "boot-1")
		if err != nil {
			t.Fatal(err)
		}

		return f
	}

	f := reopen(nil)
	for _, k := range []key{{"j1.2", 0}, {"j2.1", 3}} {
		if err := f.check(k); err != nil {
			t.Errorf("%v: %v", k, err)
		}

		if err := f.recordStart(k, api.Incarnation{Number: 2, Mark: "m"}); err != nil {
			t.Fatal(err)
		}
	}

	if err := f.recordEnd(key{"j2.1", 3}); err != nil {
		t.Fatal(err)
	}

	// A crash in the middle of a line.
	if err := f.add("+ j1.3"); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		key  key
		code string
	}{
		{key{"j1.1", 0}, "stale_epoch"}, {key{"j1.2", 0}, ""}, {key{"j1.2", 1}, ""}, {key{"j1.3", 0}, ""},
		{key{"j2.1", 3}, "run_over"}, {key{"j2.1", 4}, ""}, {key{"j2.2", 3}, ""},
		{key{"../x", 0}, "bad_rank"}, {key{"j1.01", 0}, "bad_rank"}, {key{"j1.1", -1}, "bad_rank"},
	}

	for range 2 {
		for _, tt := range tests {
			err := f.check(tt.key)
			got := ""

			var e *fault.Error
			if errors.As(err, &e) {
				got = e.Code
			}

			if got != tt.code {
				t.Errorf("%v: %q, want %q", tt.key, got, tt.code)
			}
		}

		f = reopen(f)
		want := api.Seen{Incarnation: api.Incarnation{Number: 2, Mark: "m"}, Job: 2}
		if got := f.seen(); got != want {
			t.Errorf("seen %+v, want %+v", got, want)
		}
	}

	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}

func TestFenceForgetsTheOldestJobs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fence")

	text := ""
	for n := 1; n <= fenceKeeps+5; n++ {
		text += fmt.Sprintf("- %s 0 .\n", id.NewRun(id.NewJob(uint64(n)), 2))
	}

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	f, err := openFence(atomicfile.OS{}, path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	if len(f.newestEpoch) != fenceKeeps || len(f.ended) != fenceKeeps {
		t.Errorf("%d jobs, %d ends, want %d", len(f.newestEpoch), len(f.ended), fenceKeeps)
	}

	if f.check(key{"j5.1", 0}) != nil || f.check(key{"j6.1", 0}) == nil {
		t.Error("the newest must stay and the oldest go")
	}

	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}

// A node that runs many short jobs must not need more and more memory, nor look at all of them for each.
func TestTheFenceStaysShort(t *testing.T) {
	t.Parallel()
	f, err := openFence(atomicfile.OS{}, filepath.Join(t.TempDir(), "fence"), "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	running := key{id.NewRun(id.NewJob(3*fenceKeeps), 1), 0}
	for n := uint64(1); n < 3*fenceKeeps; n++ {
		k := key{id.NewRun(id.NewJob(n), 1), 0}
		if n == 2*fenceKeeps {
			k = running
		}

		if err := f.recordStart(k, api.Incarnation{}); err != nil {
			t.Fatal(err)
		}

		if k == running {
			if _, err := f.addBegin(k); err != nil {
				t.Fatal(err)
			}

			f.syncs--

			continue
		}

		if err := f.recordEnd(k); err != nil {
			t.Fatal(err)
		}
	}

	if n := len(f.newestEpoch); n > 2*fenceKeeps || len(f.ended) > 2*fenceKeeps {
		t.Errorf("%d jobs and %d ends are remembered", n, len(f.ended))
	}

	info, err := os.Stat(f.path)
	if err != nil || info.Size() != f.size || f.size > 4*fenceKeeps*20 {
		t.Errorf("the file has %d bytes (%d), %v", info.Size(), f.size, err)
	}

	if got := f.seen().Job; got != 3*fenceKeeps || f.begun[running] != "boot-1" {
		t.Errorf("the newest job is %d; begun: %v", got, f.begun)
	}

	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}

func TestResultsLastAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := openResults(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		if err := r.put(api.RankReport{Run: run, Rank: 1, State: job.RunEnded, Reason: "refused"}); err != nil {
			t.Fatal(err)
		}
	}

	for name, text := range map[string]string{"j3.1.0.json.new": "{", "j4.1.0.json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := r.keepOnly(func(k key, _ api.RankReport) bool { return k.run == "j2.1" }); err != nil {
		t.Fatal(err)
	}

	again, err := openResults(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(again.all) != 1 || again.all[key{"j2.1", 1}].Reason != "refused" {
		t.Errorf("results %v", again.all)
	}
}
