// Package shares_test runs a whole yard with a GPU that jobs share: server, agent, broker and the library in the
// programs. Only the GPU, its driver and nvidia-smi are fake.
package shares_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/test/yardtest"
)

// patience bounds every wait; it is far longer than anything takes.
const patience = 5 * time.Minute

// build builds the program with the library of a folder in it.
func build(t *testing.T, folder, built string) string {
	t.Helper()

	overlay, err := sharetest.Overlay(built)
	if err != nil {
		t.Fatal(err)
	}

	binary := filepath.Join(folder, "trainyard")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "gpushare", "-overlay", overlay,
		"-o", binary, "trainyard/cmd/trainyard")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	return binary
}

// await asks until the answer is yes.
func await(t *testing.T, what string, ask func(context.Context) (bool, error)) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		yes, err := ask(ctx)
		if yes {
			return
		}

		if !clock.Sleep(ctx, 20*time.Millisecond) {
			t.Fatalf("waited in vain for: %s (%v)", what, err)
		}
	}
}

// sharedYard is a yard with one node that has one fake GPU.
type sharedYard struct {
	*yardtest.Yard
	t     *testing.T
	built string // the folder with the driver and the test program
	gpu   *sharetest.GPU
	admin *api.Client
}

func openYard(t *testing.T) *sharedYard {
	t.Helper()

	built := t.TempDir()
	if err := sharetest.Build(t.Context(), built, ""); err != nil {
		t.Fatal(err)
	}

	binary := build(t, t.TempDir(), built)
	gpu := sharetest.New(t, 64<<30, built)
	t.Setenv("PATH", built+":"+os.Getenv("PATH"))
	t.Setenv("FAKE_GPU", gpu.Env()["FAKE_GPU"])

	folder, err := yardtest.NewFolder("shares-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := yardtest.KillAll(folder); err != nil {
			t.Error(err)
		}

		if !t.Failed() {
			_ = os.RemoveAll(folder)
		}
	})

	y := &yardtest.Yard{Binary: binary, Folder: folder, Flags: []string{"--report-every", "200ms"}}
	if err := y.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := y.LogIn(t.Context()); err != nil {
		t.Fatal(err)
	}

	token, err := y.JoinToken(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := y.StartAgent("n1", token, "--probe", "off", "--mix-users", "yes"); err != nil {
		t.Fatal(err)
	}

	admin, err := y.Client(y.Admin())
	if err != nil {
		t.Fatal(err)
	}

	return &sharedYard{Yard: y, t: t, built: built, gpu: gpu, admin: admin}
}

// submit submits a job that uses a part of the GPU. more are further fields of its resources.
func (y *sharedYard) submit(who *api.Client, part float64, more string) id.Job {
	y.t.Helper()

	file := fmt.Sprintf("run: %s/%s kernel=600 sync=1000000\nresources: {gpus: 1, gpu_share: %g, gpu_memory: 8GB%s}\n"+
		"env: {FAKE_GPU: %q, LD_LIBRARY_PATH: %q}\n", y.built, sharetest.Trainer, part, more, y.gpu.Env()["FAKE_GPU"], y.built)

	reply, err := who.Submit(y.t.Context(), api.SubmitRequest{File: file}, "")
	if err != nil {
		y.t.Fatal(err)
	}

	return reply.Jobs[0].ID
}

// awaitMode waits until a job uses the GPU in a mode.
func (y *sharedYard) awaitMode(j id.Job, mode string) {
	y.t.Helper()
	await(y.t, fmt.Sprintf("%s on the GPU in mode %s", j, mode), func(ctx context.Context) (bool, error) {
		d, err := y.admin.Job(ctx, j)
		if err != nil {
			return false, err
		}

		return d.Share != nil && d.Share.Use != nil && d.Share.Use.Mode == mode, fmt.Errorf("%+v", d.Share)
	})
}

func TestJobsOfAYardGetTheirSharesOfAGPU(t *testing.T) {
	y := openYard(t)

	// The limit needs the token, however little a busy machine lets programs do with the GPU.
	high, low := y.submit(y.admin, 0.7, ", share_limit: 0.99"), y.submit(y.admin, 0.3, "")

	for _, j := range []id.Job{high, low} {
		y.awaitMode(j, "token")
	}

	measure(t, y.gpu, high, low)
}

// TestJobsOfOneOwnerShareAGPUThroughMPS: a job of somebody else waits, though half of the GPU is left, until they have
// ended and their daemon with them.
func TestJobsOfOneOwnerShareAGPUThroughMPS(t *testing.T) {
	y := openYard(t)

	_, err := y.admin.PutUser(t.Context(), "bob", api.UserRequest{Role: tenant.Researcher})
	if err != nil {
		t.Fatal(err)
	}

	token, err := y.admin.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken, Owner: "bob"})
	if err != nil {
		t.Fatal(err)
	}

	bob, err := y.Client(token.Text)
	if err != nil {
		t.Fatal(err)
	}

	await(t, "a node with MPS", func(ctx context.Context) (bool, error) {
		n, err := y.admin.Node(ctx, "n1")
		return err == nil && n.MPS, err
	})

	const through = ", share_mps: true, cpus: 0.1" // nothing but the GPU keeps others away

	first, second := y.submit(y.admin, 0.25, through), y.submit(y.admin, 0.25, through+", share_limit: 0.5")

	for _, j := range []id.Job{first, second} {
		y.awaitMode(j, job.ShareModeMPS)
	}

	other := y.submit(bob, 0.25, through)
	await(t, "bob's job to wait for them", func(ctx context.Context) (bool, error) {
		d, err := bob.Job(ctx, other)
		if err != nil || d.Why == nil {
			return false, err
		}

		return strings.Contains(d.Why.Sentence, "with MPS the fault of one job ends the others"), errors.New(d.Why.Sentence)
	})

	node, err := bob.Node(t.Context(), "n1")
	if err != nil || len(node.GPUs[0].Shares) != 2 || node.GPUs[0].Shares[0].Use.Mode != job.ShareModeMPS {
		t.Errorf("the node shows %+v, %v", node.GPUs[0].Shares, err)
	}

	for _, j := range []id.Job{first, second} {
		if _, err := y.admin.CancelJob(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}

	y.awaitMode(other, job.ShareModeMPS)

	done, err := os.ReadFile(filepath.Join(y.built, sharetest.MPSControl+".log"))
	if err != nil || !strings.HasPrefix(string(done), "start "+sharetest.UUID+"\n") {
		t.Errorf("what was done with MPS: %q, %v", done, err)
	}
}

// measure waits until a job with a share of 0.7 has had about that part of the work of a GPU while both ran. The ends
// of the measurement lie within turns; they matter less the longer it is, and a share that is wrong stays wrong.
func measure(t *testing.T, gpu *sharetest.GPU, high, low id.Job) {
	t.Helper()

	before, part := gpu.Busy(), 0.0

	for total := 4 * time.Second; total <= 32*time.Second; total *= 2 {
		work := map[id.Job]time.Duration{}

		await(t, "work of the GPU", func(context.Context) (bool, error) {
			clear(work)

			for pid, busy := range gpu.Busy() {
				work[jobOf(t, pid)] += busy - before[pid]
			}

			return work[high]+work[low] >= total, nil
		})

		part = work[high].Seconds() / (work[high] + work[low]).Seconds()
		t.Logf("%s of work: %.3f", total, part)

		if part > 0.65 && part < 0.75 { // without shares it is a half
			return
		}
	}

	t.Errorf("the job with a share of 0.7 got %.3f", part)
}

// jobOf returns the job of a process.
func jobOf(t *testing.T, pid int) id.Job {
	t.Helper()

	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		t.Fatal(err)
	}

	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if job, ok := strings.CutPrefix(entry, "TRAINYARD_JOB_ID="); ok {
			return id.Job(job)
		}
	}

	t.Fatalf("process %d belongs to no job", pid)

	return ""
}
