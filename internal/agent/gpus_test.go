//go:build !nvml

package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/agent"
	"trainyard/internal/agent/inventory"
	"trainyard/internal/api"
	"trainyard/internal/executable"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// smi puts a program in the place of nvidia-smi that prints what show was last
// given.
func smi(t *testing.T) (show func(uncorrected int, pid int)) {
	t.Helper()
	dir := t.TempDir()
	answer := filepath.Join(dir, "answer.xml")
	writeProgram(t, filepath.Join(dir, "nvidia-smi"), "cat "+answer)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	return func(uncorrected, pid int) {
		t.Helper()
		gpu := func(n int, more string) string {
			return `<gpu id="0000FFFF:0` + strconv.Itoa(n) + `:00.0"><product_name>NVIDIA A100-SXM4-80GB</product_name><uuid>GPU-` + strconv.Itoa(n) + `</uuid>
				<fb_memory_usage><total>81920 MiB</total></fb_memory_usage>` + more + `</gpu>`
		}

		text := `<nvidia_smi_log><driver_version>550</driver_version>` +
			gpu(
				0,
				`<processes><process_info><pid>`+strconv.Itoa(pid)+`</pid><type>C</type><used_memory>512 MiB</used_memory></process_info></processes>`,
			) +
			gpu(
				1,
				`<ecc_errors><aggregate><dram_uncorrectable>`+strconv.Itoa(uncorrected)+`</dram_uncorrectable></aggregate></ecc_errors>`,
			) + `</nvidia_smi_log>`

		if err := os.WriteFile(answer+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(answer+".new", answer); err != nil {
			t.Fatal(err)
		}
	}
}

func writeProgram(t *testing.T, path, text string) {
	t.Helper()

	if err := executable.Write(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// newest is the inventory that the yard heard of last, nil before the first.
func (y *fakeYard) newest() *fleet.Inventory {
	for i := len(y.reports) - 1; i >= 0; i-- {
		if y.reports[i].Inventory != nil {
			return y.reports[i].Inventory
		}
	}

	return nil
}

// TestGPUsFromJoiningToRelease plays a workstation with two GPUs: someone
// works on the first; the second is measured, fails, and is released.
func TestGPUsFromJoiningToRelease(t *testing.T) {
	show := smi(t)
	show(3, os.Getpid())
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Inventory, cfg.InventoryEvery = nil, 10*time.Millisecond
	cfg.ProbePython = filepath.Join(t.TempDir(), "python")
	writeProgram(
		t,
		cfg.ProbePython,
		`test "$CUDA_VISIBLE_DEVICES" = GPU-1 && echo '{"gpu": 0, "numbers": "bf16", "tflops": 250}'`,
	)

	launch(t, cfg)
	y.await("the GPUs", func() bool {
		return y.newest() != nil && len(y.newest().GPUs) == 2 && y.newest().GPUs[1].Measured > 0
	})
	y.mu.Lock()
	gpus := y.newest().GPUs
	y.mu.Unlock()

	for i, measured := range []float64{0, 250} {
		if g := gpus[i]; g.Peak != 312 || g.Bandwidth != 2039 || g.Watts != 400 || g.Measured != measured || g.Error != "" {
			t.Errorf("GPU %d: %+v", i, g)
		}
	}

	y.assign()

	y.await("the stranger", func() bool {
		r := y.reports[len(y.reports)-1]
		return cmp.Equal(r.Foreign, []int{0}) && len(r.ForeignProcesses) == 1
	})

	y.mu.Lock()
	who := y.reports[len(y.reports)-1].ForeignProcesses[0]
	y.mu.Unlock()

	if who.GPU != 0 || who.PID != os.Getpid() || who.User == "" || !strings.Contains(who.Program, "agent.test") ||
		who.Memory != 512<<20 {
		t.Errorf("the stranger is %+v", who)
	}

	show(5, os.Getpid())
	y.await("the fault", func() bool {
		return strings.HasPrefix(y.newest().GPUs[1].Error, "2 uncorrectable memory errors")
	})
	y.mu.Lock()
	y.release = []api.GPURelease{{UUID: "GPU-unknown", At: time.Now()}, {UUID: "GPU-1", At: time.Now()}}
	y.mu.Unlock()

	y.await("the release", func() bool {
		g := y.newest().GPUs[1]
		return g.Error == "" && strings.Contains(g.Health, "released by an operator")
	})

	// The release is told with every answer and heeded once.
	show(6, os.Getpid())

	y.await(
		"the next fault",
		func() bool { return strings.HasPrefix(y.newest().GPUs[1].Error, "1 uncorrectable memory error") },
	)

	y.mu.Lock()
	seen := len(y.reports)
	y.mu.Unlock()
	y.await("more answers", func() bool { return len(y.reports) >= seen+3 })
	y.mu.Lock()
	defer y.mu.Unlock()

	if got := y.newest().GPUs[1].Error; got == "" {
		t.Error("an old release undid a new fault")
	}
}

// A node joined only when its GPUs were measured, which took 8 seconds on an H200: up said that it was ready, and nodes
// that there were none. Now the node says what it does, and its first job starts on the figure of the table.
func TestTheFirstJobDoesNotWaitForTheProbe(t *testing.T) {
	show := smi(t)
	show(0, os.Getpid())
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Inventory, cfg.InventoryEvery = nil, 10*time.Millisecond
	finish := filepath.Join(t.TempDir(), "finish")
	cfg.ProbePython = filepath.Join(t.TempDir(), "python")
	writeProgram(t, cfg.ProbePython, `while ! test -e `+finish+`; do sleep 0.02; done
		echo '{"gpu": 0, "numbers": "bf16", "tflops": 250}'`)
	launch(t, cfg)

	measures := func() bool { return y.newest() != nil && y.newest().Activity == "measuring its GPUs" }
	y.await("a node that measures its GPUs", func() bool {
		return measures() && y.newest().GPUs[1].Measured == 0 && y.newest().GPUs[1].Peak == 312
	})

	first := assignment("j1.1")
	first.Launch.GPUs = []int{1}
	y.assign(first)
	y.awaitState("j1.1", job.RunRunning)
	y.await("the end of the measurement", func() bool { return !measures() })

	// It begins again when the GPU is free.
	if err := os.WriteFile(finish, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	rt.end("j1.1", 0)
	y.awaitState("j1.1", job.RunEnded)
	y.assign()
	y.await("the measured speed", func() bool { return y.newest().GPUs[1].Measured == 250 && !measures() })
}

func TestProbeCanBeTurnedOff(t *testing.T) {
	show := smi(t)
	show(0, os.Getpid())
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Inventory, cfg.Probe = nil, agent.ProbeOff
	cfg.ProbePython = filepath.Join(t.TempDir(), "python")
	writeProgram(t, cfg.ProbePython, `echo '{"gpu": 0, "numbers": "bf16", "tflops": 250}'`)
	launch(t, cfg)
	y.await("the GPUs", func() bool { return y.newest() != nil && len(y.newest().GPUs) == 2 })
	y.mu.Lock()
	defer y.mu.Unlock()

	if g := y.newest().GPUs[1]; g.Measured != 0 || g.Peak != 312 {
		t.Errorf("%+v", g)
	}
}

func TestProbeThatNobodyKnowsIsRefused(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Probe = "perhaps"
	if _, err := agent.New(cfg); fault.KindOf(err) != fault.Invalid || codeOf(err) != "bad_setting" {
		t.Errorf("got %v", err)
	}
}

func TestWhoIsForeignOnTheGPUsOfARun(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.InventoryEvery = 10 * time.Millisecond
	cfg.Inventory = func(context.Context) (inventory.Found, error) {
		return inventory.Found{
			Inventory: fleet.Inventory{
				GPUs: []fleet.GPU{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 2, UUID: "GPU-c"}},
			},
			Busy: []int{0, 1, 2},
			Processes: []inventory.Process{
				{GPU: 0, PID: 1, Program: "ours", Ours: true, Seen: true},
				{GPU: 0, PID: 2, Program: "hidden"},
				{GPU: 0, PID: 3, Program: "stranger", User: "ben", Seen: true},
				{GPU: 2, PID: 4, Program: "hidden"},
			},
		}, nil
	}

	launch(t, cfg)
	as := assignment("j1.1")
	as.Launch.GPUs = []int{0, 1}
	y.assign(as)
	y.awaitState("j1.1", job.RunRunning)
	want := []api.ForeignProcess{{GPU: 0, PID: 3, Program: "stranger", User: "ben"}, {GPU: 2, PID: 4, Program: "hidden"}}
	y.await("the strangers", func() bool {
		r := y.reports[len(y.reports)-1]
		return cmp.Equal(r.Foreign, []int{2}) && cmp.Equal(r.ForeignProcesses, want)
	})
}
