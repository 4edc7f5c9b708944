package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/agent"
	"trainyard/internal/agent/inventory"
	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// sharedNode is an agent with one fake GPU that jobs share.
type sharedNode struct {
	*fakeYard
	cfg   agent.Config
	gpu   *sharetest.GPU
	built string

	since int // reports before this one are not looked at

	lock      sync.Mutex
	processes []inventory.Process // that use the GPU, as its driver says
}

const sharedMemory = 16 << 30 // of the GPU

func newSharedNode(t *testing.T) *sharedNode {
	t.Helper()
	return newSharedNodeIn(t, t.TempDir())
}

// newSharedNodeIn is newSharedNode with the agent's data in a folder.
func newSharedNodeIn(t *testing.T, dir string) *sharedNode {
	t.Helper()

	n := &sharedNode{fakeYard: newYard(t), built: t.TempDir()}
	if err := sharetest.Build(t.Context(), n.built, ""); err != nil {
		t.Fatal(err)
	}

	library, err := os.ReadFile(filepath.Join(n.built, sharetest.Library))
	if err != nil {
		t.Fatal(err)
	}

	n.gpu = sharetest.New(t, sharedMemory, n.built)
	n.cfg = realConfigIn(t, n.fakeYard, dir)
	n.cfg.ShareLibrary = library
	n.cfg.MPSControl = filepath.Join(n.built, sharetest.MPSControl)
	n.cfg.InventoryEvery = 20 * time.Millisecond
	n.cfg.Inventory = func(context.Context) (inventory.Found, error) {
		n.lock.Lock()
		defer n.lock.Unlock()

		gpus := []fleet.GPU{{UUID: sharetest.UUID, Model: "NVIDIA H200", Memory: sharedMemory}}

		return inventory.Found{
			Inventory: fleet.Inventory{OS: "test", CPUs: 4000, GPUs: gpus}, Processes: n.processes,
		}, nil
	}

	return n
}

// shared is a run of the test program with a share of the GPU.
func (n *sharedNode) shared(run id.Run, part float64, args string) api.Assignment {
	as := realAssignment(run, filepath.Join(n.built, sharetest.Trainer)+" "+args)
	as.Launch.GPUs, as.Launch.Share = []int{0}, part
	as.Launch.Env = n.gpu.Env()

	return as
}

// awaitShare waits until what a run has had of the GPU is reported and is as it should be.
func (n *sharedNode) awaitShare(run id.Run, what string, good func(*job.ShareUse) bool) {
	n.t.Helper()
	n.await(string(run)+" "+what, func() bool {
		i := slices.IndexFunc(n.reports[n.since:], func(r api.Report) bool {
			return slices.ContainsFunc(r.Ranks, func(r api.RankReport) bool { return r.Run == run })
		})
		last, _ := n.last(run)

		return i >= 0 && last.Use != nil && last.Use.Share != nil && good(last.Use.Share)
	})
}

// forgetReports lets awaitShare wait for what is reported from now on.
func (n *sharedNode) forgetReports() {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.since = len(n.reports)
}

// shares returns the version of the library in the newest inventory.
func (n *sharedNode) shares() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	version := "no inventory"
	for _, r := range n.reports {
		if r.Inventory != nil {
			version = r.Inventory.Shares
		}
	}

	return version
}

// awaitWork waits until the GPU has worked for as many processes.
func (n *sharedNode) awaitWork(count int) {
	n.t.Helper()

	before := n.gpu.Busy()
	for worked := 0; worked < count; {
		if !clock.Sleep(n.t.Context(), time.Millisecond) {
			n.t.Fatal("the test was ended")
		}

		worked = 0
		for pid, busy := range n.gpu.Busy() {
			if busy > before[pid] {
				worked++
			}
		}
	}
}

// runOf returns the run of a process.
func (n *sharedNode) runOf(pid int) id.Run {
	n.t.Helper()

	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		n.t.Fatal(err)
	}

	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if run, ok := strings.CutPrefix(entry, "TRAINYARD_RUN="); ok {
			return id.Run(run)
		}
	}

	n.t.Fatalf("process %d belongs to no run", pid)

	return ""
}

// folder is where a run finds the broker.
func (n *sharedNode) folder(run id.Run) string {
	return filepath.Join(n.cfg.Dir, "runs", string(run)+".0", "gpu")
}

func TestRunsShareAGPUAndAreGivenTheirSharesAgainByTheNextAgent(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	stop := launch(t, n.cfg)
	low := n.shared("j2.1", 0.3, "sync=1000000")
	low.Launch.ShareClass, low.Launch.ShareCap = job.ShareOpportunistic, 2<<30
	high := n.shared("j1.1", 0.7, "sync=1000000")
	n.assign(high, low)

	took := func(u *job.ShareUse) bool {
		return u.Mode == "token" && u.Held > 0 && u.Memory >= sharetest.ContextBytes
	}
	n.awaitShare("j1.1", "has had the GPU", func(u *job.ShareUse) bool {
		part := 0.7
		return took(u) && u.Cap == int64(part*sharedMemory)
	})
	n.awaitShare("j2.1", "waits for the GPU", func(u *job.ShareUse) bool { return u.Demanded > 0 && u.Cap == 2<<30 })

	if got, want := n.shares(), share.Version(n.cfg.ShareLibrary); got != want {
		t.Errorf("the inventory says %q, want %q", got, want)
	}

	stop()
	n.forgetReports()
	n.awaitWork(2)
	launch(t, n.cfg)
	n.awaitShare("j1.1", "has its share again", took)

	// The broker ends with the last of them, and leaves nothing.
	high.Stop, low.Stop = job.StopKill, job.StopKill
	n.assign(high, low)

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		n.awaitState(run, job.RunEnded)
		n.awaitShare(run, "had a share until its end", func(u *job.ShareUse) bool { return u.Demanded > 0 })
		n.await("the folder of "+string(run)+" to go", func() bool {
			_, err := os.Stat(n.folder(run))
			return errors.Is(err, fs.ErrNotExist)
		})
	}
}

// TestRunsGetTheirShares judges them by the work of the GPU while both ran. The ends of the measurement lie within
// turns; they matter less the longer it is, and a share that is wrong stays wrong.
func TestRunsGetTheirShares(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	launch(t, n.cfg)

	// The limit needs the token, however little a busy machine lets programs do with the GPU.
	high, low := n.shared("j1.1", 0.7, "kernel=600 sync=1000000"), n.shared("j2.1", 0.3, "kernel=600 sync=1000000")
	high.Launch.ShareLimit = 0.99
	n.assign(high, low)

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		n.awaitShare(run, "has had the GPU in turns", func(u *job.ShareUse) bool { return u.Mode == "token" && u.Held > 0.5 })
	}

	before, part := n.gpu.Busy(), 0.0

	for total := 4 * time.Second; total <= 32*time.Second; total *= 2 {
		work := map[id.Run]time.Duration{}

		for work["j1.1"]+work["j2.1"] < total {
			if !clock.Sleep(t.Context(), 5*time.Millisecond) {
				t.Fatal("the test was ended")
			}

			clear(work)

			for pid, busy := range n.gpu.Busy() {
				work[n.runOf(pid)] += busy - before[pid]
			}
		}

		part = work["j1.1"].Seconds() / (work["j1.1"] + work["j2.1"]).Seconds()
		t.Logf("%s of work: %.3f", total, part)

		if part > 0.67 && part < 0.73 {
			return
		}
	}

	t.Errorf("the run with a share of 0.7 got %.3f", part)
}

// TestARunGivesUpItsConnectionBeforeItIsSuspended: the fake driver cannot suspend it, which is reported, and so the
// other run has the GPU to itself for a while only.
func TestARunGivesUpItsConnectionBeforeItIsSuspended(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	launch(t, n.cfg)

	second := n.shared("j2.1", 0.5, "sync=10")
	n.assign(n.shared("j1.1", 0.5, "sync=10"), second)
	n.awaitShare("j1.1", "has a neighbour", func(u *job.ShareUse) bool { return u.Mode != "whole" })

	second.Suspend = job.SuspendOrder{Number: 1, Room: 1 << 30}
	n.assign(n.shared("j1.1", 0.5, "sync=10"), second)
	n.awaitShare("j1.1", "has none", func(u *job.ShareUse) bool { return u.Mode == "whole" })
	n.await("the suspension of j2.1", func() bool {
		last, _ := n.last("j2.1")
		return last.State == job.RunRunning && last.Suspension.Number == 1
	})
}

func TestARunThatIsRefusedMemoryRanOutOfIt(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	launch(t, n.cfg)

	quiet := n.shared("j1.1", 0.5, "mode=alloc > /dev/null; exit 3")
	quiet.Launch.ShareCap = 1 << 30
	other := n.shared("j2.1", 0.5, "mode=alloc > /dev/null; echo 'ValueError: bad shape'; exit 3")
	other.Launch.ShareCap = 1 << 30
	n.assign(quiet, other)

	end := n.awaitState("j1.1", job.RunEnded)
	want := "out of GPU memory: 64 MB were refused, with 1 GB in use of the 1 GB that the job may have"

	if end.Cause != job.CauseGPUOOM || end.Needed != 1<<30+64<<20 || end.Reason != want {
		t.Errorf("it ended as %s, %q, needing %v", end.Cause, end.Reason, end.Needed)
	}

	if end := n.awaitState("j2.1", job.RunEnded); end.Cause != job.CauseUserCode {
		t.Errorf("a program with another error ended as %s, %q", end.Cause, end.Reason)
	}
}

func TestTheVariablesOfARunThatSharesAGPU(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	launch(t, n.cfg)

	as := n.shared("j1.1", 0.5, "steps=1")
	as.Launch.Command = "echo $LD_PRELOAD; echo $" + share.Variable + "; echo $TRAINYARD_GPU_SHARE"
	as.Launch.Env = maps.Clone(as.Launch.Env)
	as.Launch.Env["LD_PRELOAD"] = "libm.so.6"
	as.Launch.Env[share.Variable] = n.folder("j2.1")

	whole := realAssignment("j3.1", "echo $LD_PRELOAD$"+share.Variable)
	whole.Launch.GPUs = []int{0}
	n.assign(as, whole)

	for _, run := range []id.Run{"j1.1", "j3.1"} {
		n.awaitState(run, job.RunEnded)
		n.awaitOutput(run)
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	library := filepath.Join(n.cfg.Dir, "gpushare", share.Version(n.cfg.ShareLibrary), sharetest.Library)
	got := strings.Join(lines(t, n.logs[rankKey{"j1.1", 0}].data), "\n")

	if want := library + ":libm.so.6\n" + n.folder("j1.1") + "\n0.5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	if got := strings.Join(lines(t, n.logs[rankKey{"j3.1", 0}].data), ""); got != "" {
		t.Errorf("a run with a whole GPU has %q", got)
	}
}

func TestANodeThatCannotShareGPUsSaysSo(t *testing.T) {
	t.Parallel()

	n := newSharedNode(t)
	n.cfg.ShareLibrary = nil
	launch(t, n.cfg)
	n.assign(n.shared("j1.1", 0.5, "steps=1"))

	if end := n.awaitState("j1.1", job.RunEnded); end.Cause != job.CauseLaunchFailed ||
		!strings.Contains(end.Reason, "cannot give the job a share of a GPU") {
		t.Errorf("it ended as %s, %q", end.Cause, end.Reason)
	}

	if got := n.shares(); got != "" {
		t.Errorf("the inventory says %q", got)
	}
}

// see lets the driver see processes on the GPU.
func (n *sharedNode) see(list ...inventory.Process) {
	n.lock.Lock()
	defer n.lock.Unlock()

	n.processes = list
}

func TestProcessesThatDropTheLibraryAreFound(t *testing.T) {
	t.Parallel()

	for _, rule := range []string{"", agent.BypassEvict} {
		t.Run("rule "+rule, func(t *testing.T) {
			t.Parallel()

			n := newSharedNode(t)
			n.cfg.GPUBypass = rule
			launch(t, n.cfg)

			loose := n.shared("j1.1", 0.5, "")
			trainer := filepath.Join(n.built, sharetest.Trainer)
			loose.Launch.Command = "env -u LD_PRELOAD " + trainer + " pause=1000 & " + trainer + " pause=1000"
			n.assign(loose, n.shared("j2.1", 0.5, "pause=1000"))
			n.awaitWork(3)

			var all []inventory.Process
			for pid := range n.gpu.Busy() {
				rank := string(n.runOf(pid)) + ".0"
				all = append(all, inventory.Process{PID: pid, Rank: rank, Ours: true, Seen: true, Memory: 1 << 30})
			}

			n.see(append(all, inventory.Process{PID: 1, User: "root", Program: "init", Seen: true})...)

			if rule == agent.BypassEvict {
				end := n.awaitState("j1.1", job.RunEnded)
				if end.Cause != job.CauseUserCode || !strings.Contains(end.Reason, "1 of its processes used its shared GPU") {
					t.Errorf("it ended as %s, %q", end.Cause, end.Reason)
				}
			} else {
				n.awaitShare("j1.1", "has a process that is not held back", func(u *job.ShareUse) bool { return u.Bypassed == 1 })
			}

			n.awaitShare("j2.1", "has none", func(u *job.ShareUse) bool { return u.Bypassed == 0 && u.Memory == 1<<30 })

			// A process of somebody else is foreign here as on any other GPU.
			n.await("a report of a foreign process", func() bool {
				seen := n.reports[len(n.reports)-1].ForeignProcesses
				return len(seen) == 1 && seen[0].PID == 1
			})
		})
	}
}
