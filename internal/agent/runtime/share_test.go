package runtime

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/test/podman"
)

// oneGPU gives ranks shares of one GPU.
type oneGPU struct {
	broker *share.Broker

	mu   sync.Mutex
	uses map[string]share.Use // at the ends of ranks
}

func newOneGPU(t *testing.T) *oneGPU {
	t.Helper()

	g := &oneGPU{uses: map[string]share.Use{}, broker: share.New(share.Options{
		Clock: clock.NewSteady(), Log: slog.New(slog.DiscardHandler), Tuning: share.DefaultTuning(),
	})}
	t.Cleanup(func() { _ = g.broker.Close() })

	return g
}

func (g *oneGPU) Open(s rundir.Spec, folder string, user *sandbox.User) error {
	tenant := share.Job{
		ID: s.Name(), Folder: folder, UUID: sharetest.UUID, Cap: 1 << 30, UID: -1, GID: -1,
		Terms: share.Terms{Weight: 0.5, Limit: 0.9, Class: share.Normal}, // a limit needs grants
	}
	if user != nil {
		tenant.UID, tenant.GID = user.UID, user.GID
	}

	return g.broker.Add(tenant)
}

// End takes the use of a rank when the broker has heard of it all: programs have ended by then, and what they said last
// may still be under way.
func (g *oneGPU) End(s rundir.Spec) {
	uses, _ := g.broker.Uses()
	for end := time.Now().Add(time.Minute); uses[s.Name()].Denials == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		uses, _ = g.broker.Uses()
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	g.uses[s.Name()] = uses[s.Name()]
	_ = g.broker.Remove(s.Name())
}

// sharing is a script that uses a fake GPU, of which it makes a file of its own: what programs are shown they cannot
// write.
const sharing = `
cat "$FAKE_GPU" > gpu && export FAKE_GPU=$PWD/gpu
"$BUILT/trainer" steps=3 && "$BUILT/trainer" mode=alloc | grep refused
rm -f "$TRAINYARD_GPU_BROKER/socket" 2> /dev/null && echo removed
[ -w "$TRAINYARD_GPU_BROKER/memory" ] && echo accounts`

func TestAProgramSharesAGPU(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()

		built := t.TempDir()
		if err := sharetest.Build(t.Context(), built, ""); err != nil {
			t.Fatal(err)
		}

		g, gpu := newOneGPU(t), sharetest.New(t, 16<<30, built)
		gpu.Share()

		y := newYard(t, mode, func(o *Options) { o.Shares = g })
		s := y.spec(api.Launch{Command: sharing, LogLimit: 1 << 20, GPUs: []int{0}, Share: 0.5, Env: gpu.Env()})
		s.Launch.Env["BUILT"] = built
		s.ShareLibrary = filepath.Join(built, sharetest.Library)
		s.Visible = append(s.Visible, built, filepath.Dir(s.Launch.Env["FAKE_GPU"]))

		if err := y.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		y.end(s.Run)
		want := "done\nround 0 allocated 536870912 refused 2\nround 1 allocated 536870912 refused 2\n"

		if y.opts.Users == nil {
			want += "removed\n" // it has the rights of the agent
		}

		want += "accounts\n"
		if out := y.output(s.Run); out[logs.Stdout] != want {
			t.Errorf("output = %q, errors = %q", out[logs.Stdout], out[logs.Stderr])
		}

		wantGrants(t, g, s)
	})
}

// wantGrants makes sure that a rank came through its socket, and that its share has ended with it.
func wantGrants(t *testing.T, g *oneGPU, s rundir.Spec) {
	t.Helper()

	for ended := false; !ended; clock.Sleep(t.Context(), time.Millisecond) {
		g.mu.Lock()
		_, ended = g.uses[s.Name()]
		g.mu.Unlock()
	}

	if use := g.uses[s.Name()]; use.Grants == 0 || use.Denials == 0 {
		t.Errorf("it was granted the GPU %d times and refused memory %d times", use.Grants, use.Denials)
	}
}

func TestAProgramInAContainerSharesAGPU(t *testing.T) {
	t.Parallel()
	c := newContained(t)

	built := t.TempDir()
	if err := sharetest.Build(t.Context(), built, ""); err != nil {
		t.Fatal(err)
	}

	files := map[string]string{"/etc/ld.so.preload": "libdl.so.2"}
	for path, from := range map[string]string{
		"/opt/gpu":                  sharetest.New(t, 16<<30, built).Env()["FAKE_GPU"],
		"/opt/" + sharetest.Trainer: filepath.Join(built, sharetest.Trainer),
		"/opt/libcuda.so.1":         filepath.Join(built, "libcuda.so.1"),
		"/opt/libnvidia-ml.so.1":    filepath.Join(built, "libnvidia-ml.so.1"),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}

		files[path] = string(content)
	}

	// Every image with a C library has these: up to version 2.33 with functions, later empty.
	var copies []string
	for _, name := range []string{"libdl.so.2", "libpthread.so.0"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		if err != nil {
			t.Fatal(err)
		}

		copies = append(copies, found...)
	}

	c.image = c.engine.Push(t, "gpu:1", podman.Image{Programs: podman.Programs, Copies: copies, Files: files})

	g := newOneGPU(t)
	c.opt.Shares = g

	s := c.spec(api.Launch{
		Image: c.image, LogLimit: 1 << 20, GPUs: []int{0}, Share: 0.5,
		Env:     map[string]string{"FAKE_GPU": "/opt/gpu", "LD_LIBRARY_PATH": "/opt", "BUILT": "/opt"},
		Command: "cat /etc/ld.so.preload; echo \"preload $LD_PRELOAD\"" + sharing,
	})
	s.Fake = true // the engine has no such device
	s.ShareLibrary = filepath.Join(built, sharetest.Library)
	s.Visible = append(s.Visible, s.ShareLibrary)

	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	st := c.end(s.Run)
	want := "libdl.so.2\n" + s.ShareLibrary + "\npreload \ndone\nround 0 allocated 536870912 refused 2\n" +
		"round 1 allocated 536870912 refused 2\naccounts\n"

	if out := c.output(s.Run); out[logs.Stdout] != want || st.Cause != job.CauseNone {
		t.Errorf("output = %q, errors = %q, %s", out[logs.Stdout], out[logs.Stderr], st.Reason)
	}

	wantGrants(t, g, s)
	c.empty()
}
