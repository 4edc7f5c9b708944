package share_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/share"
)

func TestProgramsGoOnWhenTheBrokerIsKilledAtRandom(t *testing.T) {
	t.Parallel()

	weights := map[string]float64{"a": 0.7, "b": 0.3}
	g := newGPU(t, 16<<30)
	programs := map[string]*program{}

	for job, w := range weights {
		g.add(job, normal(w), 0)
		programs[job] = g.run(job, "sync=10")
	}

	advance := func(what string) {
		before := g.busy()

		for _, p := range programs {
			eventually(t, what, func() bool {
				return g.busy()[p.cmd.Process.Pid]-before[p.cmd.Process.Pid] > 20*time.Millisecond
			})
		}
	}

	chance := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		advance("both jobs work")
		time.Sleep(time.Duration(chance.IntN(50)) * time.Millisecond) // any moment of a turn

		if err := g.broker.Close(); err != nil {
			t.Fatal(err)
		}

		advance("both jobs work without a broker")
		g.start()

		for job, w := range weights {
			g.add(job, normal(w), 0)
		}
	}

	for job := range weights {
		g.processes(job, 1)
	}

	wantShares(t, g.shares(12, programs), weights)
}

func TestAJobThatIsStoppedDoesNotStopOthers(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) { t.Patience = 300 * time.Millisecond })
	g.add("a", normal(0.7), 0)
	g.add("b", normal(0.3), 0)

	a, b := g.run("a", "sync=10"), g.run("b", "sync=10")
	eventually(t, "turns", func() bool { return g.uses()["a"].Grants > 1 && g.uses()["b"].Grants > 1 })

	reports := func() []string {
		g.mu.Lock()
		defer g.mu.Unlock()

		return slices.Clone(g.lost)
	}

	a.signal(syscall.SIGSTOP)
	eventually(t, "the stopped job is unresponsive", func() bool { return slices.Contains(reports(), "a true") })

	before := g.busy()[b.cmd.Process.Pid]
	eventually(t, "the other job works", func() bool {
		return g.busy()[b.cmd.Process.Pid]-before > 500*time.Millisecond
	})

	a.signal(syscall.SIGCONT)
	eventually(t, "it answers again", func() bool { return slices.Contains(reports(), "a false") })
	wantShares(t, g.shares(12, map[string]*program{"a": a, "b": b}), map[string]float64{"a": 0.7, "b": 0.3})
}

func TestAJobThatDiesWithTheGPUFreesIt(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.7), 0)
	g.add("b", normal(0.3), 0)

	b := g.run("b", "sync=10")
	for range 5 {
		a := g.run("a", "sync=10")
		eventually(t, "a turn", func() bool { return g.uses()["a"].Processes == 1 && g.uses()["a"].Held > 0 })
		a.kill()
		g.processes("a", 0)

		before := g.busy()[b.cmd.Process.Pid]
		eventually(t, "the other job works", func() bool {
			return g.busy()[b.cmd.Process.Pid]-before > 50*time.Millisecond
		})
	}
}

func TestABrokerThatSaysNothingDoesNotStopPrograms(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	folder := filepath.Join(g.folders, "mute")

	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}

	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(folder, "socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })

	g.run("mute", "steps=5").end()
	g.run("nobody", "steps=5").end()
}

func TestChildrenOfAJobStartOver(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.7), 0)
	g.add("b", normal(0.3), 0)
	g.run("b", "sync=10")

	// The early child uses the GPU: it has a connection and a memory account of its own.
	g.run("a", "mode=fork", "early=1", "steps=20").end()
	g.processes("a", 0)
	eventually(t, "its memory is free", func() bool { return g.uses()["a"].Memory.Used() == 0 })
}

func TestRevocationsDoNotSpoilCaptures(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) {
		t.Quantum = 10 * time.Millisecond
		t.Short = time.Millisecond
	})
	g.add("a", normal(0.7), 0)
	g.add("b", normal(0.3), 0)
	g.run("b", "sync=10")

	for _, lookup := range []string{"dlsym", "ptsz"} {
		g.run("a", "mode=capture", "lookup="+lookup).end()
	}

	if use := g.uses()["a"]; use.Grants < 10 {
		t.Errorf("only %d turns while it captured: nothing was revoked", use.Grants)
	}
}

func TestAQuietJobHasNoConnection(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.7), 0)
	a := g.run("a")
	g.processes("a", 1)

	if err := g.broker.Quiesce(t.Context(), "a", 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}

	before := g.busy()[a.cmd.Process.Pid]

	if n := g.uses()["a"].Processes; n != 0 {
		t.Errorf("%d processes are connected", n)
	}

	eventually(t, "it works", func() bool { return g.busy()[a.cmd.Process.Pid] > before })
	g.processes("a", 1)
}

func TestTheLibraryIsCleanUnderSanitizers(t *testing.T) {
	t.Parallel()

	for _, sanitize := range []string{"undefined", "thread"} {
		t.Run(sanitize, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			if err := build(t.Context(), dir, sanitize); err != nil {
				t.Fatal(err)
			}

			g := newGPU(t, 16<<30, func(t *share.Tuning) {
				t.Quantum = 10 * time.Millisecond
				t.Short = time.Millisecond
			})
			g.built = dir
			g.add("a", normal(0.7), 4<<30)
			g.add("b", normal(0.3), 4<<30)

			b := g.run("b", "mode=threads")
			for _, args := range [][]string{
				{"mode=threads", "steps=30"},
				{"mode=capture", "steps=10"},
				{"mode=fork", "early=1", "steps=10"},
				{"mode=alloc", "how=async"},
				{"mode=alloc", "how=vmm", "lookup=ptsz"},
			} {
				g.run("a", args...).end() // it fails if something is found
			}

			if err := b.cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the neighbour has ended: %v", err)
			}
		})
	}
}

func TestAJobCannotPutOtherFilesInPlaceOfItsOwn(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	job := g.job("a", normal(0.5), 1<<30)
	job.UID, job.GID = os.Getuid(), os.Getgid()

	if err := g.broker.Add(job); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]os.FileMode{"": 0o711, "socket": 0o600, "memory": 0o600} {
		info, err := os.Lstat(filepath.Join(job.Folder, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q has mode %v, want %v (%v)", name, info.Mode().Perm(), want, err)
		}
	}

	if err := g.broker.Remove("a"); err != nil {
		t.Fatal(err)
	}

	// Nor is a link followed that was there before.
	victim := filepath.Join(g.folders, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), os.Mkdir(job.Folder, 0o700),
		os.Symlink(victim, filepath.Join(job.Folder, "memory"))); err != nil {
		t.Fatal(err)
	}

	if err := g.broker.Add(job); err == nil {
		t.Error("a link was followed")
	}

	if content, err := os.ReadFile(victim); string(content) != "mine" || err != nil {
		t.Errorf("the file behind it is %q (%v)", content, err)
	}
}

func TestDamagedMemoryAccountsAreMadeAnew(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	job := g.job("a", normal(0.5), 2<<30)

	for _, damage := range []string{"", "short", string(make([]byte, 100_000))} {
		if err := errors.Join(os.MkdirAll(job.Folder, 0o700),
			os.WriteFile(filepath.Join(job.Folder, "memory"), []byte(damage), 0o600), g.broker.Add(job)); err != nil {
			t.Fatal(err)
		}

		p := g.run("a", "mode=alloc")
		if bytes, _ := p.allocated(0); bytes != 2<<30-contextBytes {
			t.Errorf("%d MiB allocated after %d bytes of something else", bytes/mib, len(damage))
		}

		p.kill()

		if err := g.broker.Remove("a"); err != nil {
			t.Fatal(err)
		}
	}
}
