package runtime

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

func TestTooMuchMemoryIsNamedAsTheCause(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		if !y.limits.Usable() {
			lacking(t, y.Limits())
		}

		// The shell is in its cgroup before tail begins to fill the memory.
		const hog = `while ! grep -q trainyard /proc/$$/cgroup; do :; done
	head -c 300000000 /dev/zero | tail > /dev/null`
		run := y.start(api.Launch{Command: hog, Memory: 64 << 20, CPUs: 500})
		s := y.end(run)
		check(
			t,
			s,
			s.ExitCode,
			s.Signal,
			job.CauseHostOOM,
			false,
			"exceeded its memory limit of 64MB and was killed by the kernel",
		)

		if s.ExitCode == 0 {
			t.Error("exit code 0")
		}

		if _, err := os.Stat(filepath.Join(y.limits.Memory, rundir.GroupName(y.runDir(run)))); !errors.Is(err,
			os.ErrNotExist) {
			t.Errorf("its cgroup is left: %v", err)
		}
	})
}

func TestAllProcessesAreLimited(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	if !y.limits.Usable() {
		lacking(t, y.Limits())
	}

	ready, hold := pipe(t), pipe(t)
	run := y.start(api.Launch{
		Command: "env -i sleep 1000 & setsid sleep 1000 & echo > $READY; read x < $HOLD", CPUs: 2000, Memory: 1 << 30,
		Env: map[string]string{"READY": ready, "HOLD": hold},
	})

	receive(t, ready)
	y.await(run, job.RunRunning)

	var g *cgroup.Group
	for g == nil { // of the old kind it gets one right after the start
		changed := y.Watch()
		target, err := y.Target(run, 0)
		if err != nil {
			t.Fatal(err)
		}

		if g = target.Group; g == nil {
			<-changed
		}
	}

	for len(g.Procs()) < 3 { // of the old kind they are moved there
		if s, _ := y.Status(run, 0); s.State == job.RunEnded {
			t.Fatal("it ended")
		}
	}

	if !g.V2 {
		for file, want := range map[string]string{
			filepath.Join(g.CPU, "cpu.shares"):               "2048\n",
			filepath.Join(g.Memory, "memory.limit_in_bytes"): "1073741824\n",
		} {
			if got, err := os.ReadFile(file); string(got) != want || err != nil {
				t.Errorf("%s = %q, %v, want %q", file, got, err, want)
			}
		}
	}

	// Even what has neither the environment nor the session of the run is found by its cgroup.
	supervisor, err := rundir.LockHolder(y.runDir(run))
	if err != nil || supervisor == 0 {
		t.Fatalf("supervisor = %d, %v", supervisor, err)
	}

	pids := g.Procs()

	if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	y.end(run)

	for pid := range pids {
		if p, ok := process.Read(pid); ok && !p.Dead {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	base := inheritedEnv(
		[]string{"PATH=/bin", "HOME=/root", "LC_ALL=C", "NCCL_DEBUG=INFO", "SLURM_JOB_ID=1", "TRAINYARD_TOKEN=secret", "odd"},
		nil,
	)

	s := rundir.Spec{Run: "j4.2", Job: "j4", Epoch: 2, Rank: 1, Launch: api.Launch{
		Name:       "train",
		GPUs:       []int{2, 5},
		Nodes:      []string{"10.0.0.1", "10.0.0.2"},
		MasterPort: 29500,
		Grace:      job.Duration(90 * time.Second),
		Env: map[string]string{
			"HOME":                 "/home/ada",
			"LR":                   "0.1",
			"PYTHONUNBUFFERED":     "0",
			"RANK":                 "77",
			"CUDA_VISIBLE_DEVICES": "0",
		},
	}}

	want := []string{
		"CUDA_VISIBLE_DEVICES=2,5",
		"HOME=/home/ada",
		"LC_ALL=C",
		"LOCAL_WORLD_SIZE=1",
		"LR=0.1",
		"MASTER_ADDR=10.0.0.1",
		"MASTER_PORT=29500",
		"NCCL_DEBUG=INFO",
		"NNODES=2",
		"NODE_RANK=1",
		"NPROC_PER_NODE=2",
		"NVIDIA_VISIBLE_DEVICES=2,5",
		"PATH=/bin",
		"PET_MASTER_ADDR=10.0.0.1",
		"PET_MASTER_PORT=29500",
		"PET_NNODES=2",
		"PET_NODE_RANK=1",
		"PET_NPROC_PER_NODE=2",
		"PYTHONUNBUFFERED=0",
		"RANK=1",
		"TRAINYARD_CHECKPOINT_DIR=/data/checkpoints/j4",
		"TRAINYARD_EPOCH=2",
		"TRAINYARD_GPU_SHARE=",
		"TRAINYARD_GRACE=90",
		"TRAINYARD_HOSTFILE=/data/runs/j4.2.1/hostfile",
		"TRAINYARD_JOB_ID=j4",
		"TRAINYARD_JOB_NAME=train",
		"TRAINYARD_METRICS_FILE=/data/runs/j4.2.1/metrics.jsonl",
		"TRAINYARD_PROGRESS=/data/runs/j4.2.1/progress.json",
		"TRAINYARD_RANK_DIR=/data/runs/j4.2.1",
		"TRAINYARD_RUN=j4.2",
		"TRAINYARD_SETUP_DIR=/s/dir",
		"WORLD_SIZE=2",
	}

	if diff := cmp.Diff(want, envOf(base, s, "/s")); diff != "" {
		t.Error(diff)
	}

	s.Launch.SaveEvery = job.Duration(90 * time.Second)
	if got := envOf(base, s, "/s"); !slices.Contains(got, "TRAINYARD_CHECKPOINT_EVERY=90") {
		t.Errorf("a program that saves every 90 seconds finds %v", got)
	}

	most := 0.5
	s.Launch.Target = &job.Target{Metric: "val_loss", AtMost: &most}
	if got := strings.Join(envOf(base, s, ""), "\n"); !strings.Contains(
		got,
		`TRAINYARD_TARGET={"metric":"val_loss","at_most":0.5}`+"\n",
	) {
		t.Errorf("the target is not told:\n%s", got)
	}

	s.Devices = []string{"GPU-a", "GPU-b"}
	if got := strings.Join(envOf(base, s, ""), "\n"); !strings.Contains(got, "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\n") {
		t.Errorf("devices are not named as given:\n%s", got)
	}

	s.Launch.Share = 0.25
	if got := strings.Join(envOf(base, s, ""), "\n"); !strings.Contains(got, "TRAINYARD_GPU_SHARE=0.25\n") {
		t.Errorf("the share is not told:\n%s", got)
	}

	s.Launch.GPUs, s.Devices, s.Launch.Nodes = nil, nil, nil
	got := strings.Join(envOf(base, s, ""), "\n") + "\n"
	for _, e := range []string{"CUDA_VISIBLE_DEVICES=\n", "NPROC_PER_NODE=1\n", "WORLD_SIZE=1\n",
		"MASTER_ADDR=127.0.0.1\n"} {
		if !strings.Contains(got, e) {
			t.Errorf("%q is not in\n%s", e, got)
		}
	}
}

func TestWhatTheAgentOffersIsBelowWhatTheJobSets(t *testing.T) {
	t.Parallel()
	s := rundir.Spec{
		Run:      "j4.2",
		Job:      "j4",
		Epoch:    2,
		ExtraEnv: map[string]string{"A": "offered", "B": "offered", SDKVar: "/sdk.whl", "TRAINYARD_RUN": "j9.9"},
	}

	for _, test := range []struct {
		name      string
		base, job map[string]string
		want      []string
	}{
		{"the job's own goes before", nil, map[string]string{"A": "own"}, []string{"A=own", "B=offered",
			"TRAINYARD_RUN=j4.2"}},
		{"the SDK is on the path", nil, nil, []string{"PYTHONPATH=/sdk.whl"}},
		{"behind the job's own path", nil, map[string]string{"PYTHONPATH": "/a:/b"}, []string{"PYTHONPATH=/a:/b:/sdk.whl"}},
		{"no proxy stands between program and agent", map[string]string{"HTTP_PROXY": "p"}, nil,
			[]string{"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}},
		{"nor one whose exceptions are listed", map[string]string{"http_proxy": "p", "no_proxy": "x"}, nil,
			[]string{"no_proxy=x,127.0.0.1"}},
		{"nor one that knows it", map[string]string{"http_proxy": "p", "no_proxy": "127.0.0.1,x"}, nil,
			[]string{"no_proxy=127.0.0.1,x"}},
		{"nor one that is for nothing", map[string]string{"http_proxy": "p", "no_proxy": "*"}, nil, []string{"no_proxy=*"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec := s
			spec.Launch.Env = test.job
			base := map[string]string{"PATH": "/bin"}
			maps.Copy(base, test.base)
			got := envOf(base, spec, "")
			for _, want := range test.want {
				if !slices.Contains(got, want) {
					t.Errorf("%q is not in %q", want, got)
				}
			}

			if test.base["no_proxy"] != "" &&
				slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "NO_PROXY=") }) {
				t.Errorf("a second list hides the first: %q", got)
			}
		})
	}
}

func TestAFullDiskDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	y := newYard(t, func(o *Options) { o.Dir = dir })
	filled, hold := pipe(t), pipe(t)
	run := y.start(api.Launch{
		Command: "head -c 3000000 /dev/zero | tr '\\0' x; echo > $FILLED; read x < $HOLD; echo after; exit 5",
		Env:     map[string]string{"FILLED": filled, "HOLD": hold},
	})

	receive(t, filled)

	// The disk is full and the program goes on. Now it gets some room again.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}

	release(t, hold)
	check(t, y.end(run), 5, "", job.CauseUserCode, false, "exit code 5")

	got := y.output(run)
	if !strings.HasSuffix(got[logs.Stdout], "xafter\n") ||
		!strings.Contains(got[logs.Yard], "bytes of output are missing here") {
		t.Errorf("%d bytes of output, remarks %q", len(got[logs.Stdout]), got[logs.Yard])
	}
}

// envOf is the environment of a rank whose set-up, if it has one, is in a directory.
func envOf(base map[string]string, s rundir.Spec, setup string) []string {
	rec := &rundir.Record{Spec: s}
	if setup != "" {
		rec.Setup = &rundir.SetupPlan{Dir: setup}
	}

	return environment(base, rec, "/data")
}
