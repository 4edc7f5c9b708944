package share_test

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/clock"
)

func TestProgramsGoOnWhenTheBrokerIsKilledAtRandom(t *testing.T) {
	t.Parallel()

	weights := map[string]float64{"a": 0.7, "b": 0.3}
	g := newGPU(t, 16<<30)
	programs := map[string][]*program{}

	for job, w := range weights {
		g.add(job, gated(w), 0)
		programs[job] = []*program{g.run(job, deep...)}
	}

	advance := func(what string) {
		before := g.work(programs)

		for job := range programs {
			eventually(t, what, func() bool { return g.work(programs)[job]-before[job] > 20*time.Millisecond })
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
			g.add(job, gated(w), 0)
		}
	}

	for job := range weights {
		g.processes(job, 1)
	}

	g.wantShares(programs, weights)
}

func TestAJobThatIsStoppedDoesNotStopOthers(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) { t.Patience = time.Second })
	g.add("a", gated(0.7), 0)
	g.add("b", gated(0.3), 0)

	a, b := g.run("a", deep...), g.run("b", deep...)
	eventually(t, "turns", func() bool { return g.uses()["a"].Grants > 1 && g.uses()["b"].Grants > 1 })

	g.stop(a)
	eventually(t, "the stopped job is unresponsive", func() bool { return g.uses()["a"].Unresponsive })

	before := g.Busy()[b.cmd.Process.Pid]
	eventually(t, "the other job works", func() bool {
		return g.Busy()[b.cmd.Process.Pid]-before > 500*time.Millisecond
	})

	a.signal(syscall.SIGCONT)
	eventually(t, "it answers again", func() bool { return !g.uses()["a"].Unresponsive })
	g.wantShares(map[string][]*program{"a": {a}, "b": {b}}, map[string]float64{"a": 0.7, "b": 0.3})

	if reports := g.reports(); !slices.Contains(reports, "a true") || !slices.Contains(reports, "a false") {
		t.Errorf("reported %q", reports)
	}
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

		before := g.Busy()[b.cmd.Process.Pid]
		eventually(t, "the other job works", func() bool {
			return g.Busy()[b.cmd.Process.Pid]-before > 50*time.Millisecond
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

	listener, err := net.ListenUnix("unixpacket", g.socket("mute"))
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
	g.add("a", gated(0.7), 0)
	g.add("b", gated(0.3), 0)
	g.run("b", "sync=1000000")

	for _, lookup := range []string{"dlsym", "ptsz"} {
		before := g.uses()["a"].Grants
		p := g.run("a", "mode=capture", "steps=1000000", "lookup="+lookup)
		eventually(t, "turns while it captures", func() bool { return g.uses()["a"].Grants >= before+15 })
		p.sound()
	}
}

func TestAQuietJobHasNoConnection(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.7), 0)
	a := g.run("a")
	g.processes("a", 1)

	if err := g.broker.Quiesce(t.Context(), "a", 3*time.Second); err != nil {
		t.Fatal(err)
	}

	before := g.Busy()[a.cmd.Process.Pid]

	if n := g.uses()["a"].Processes; n != 0 {
		t.Errorf("%d processes are connected", n)
	}

	eventually(t, "it works", func() bool { return g.Busy()[a.cmd.Process.Pid] > before })
	g.processes("a", 1)
}

// TestTheLastWordsOfAProcessAreHeard is about one that has ended before the broker heard anything of it: what the
// broker answers to its first words must not keep it from the last.
func TestTheLastWordsOfAProcessAreHeard(t *testing.T) {
	t.Parallel()

	const hello, denied = 1, 5

	busy, goOn := make(chan struct{}), make(chan struct{})
	heard := make(chan share.Denial, 1)
	broker := share.New(share.Options{
		Clock: clock.NewSteady(), Log: slog.New(slog.DiscardHandler), Tuning: tuning(),
		Denied: func(d share.Denial) {
			if d.Job == "first" {
				close(busy)
				<-goOn // a broker that is slow, as on a busy machine

				return
			}

			heard <- d
		},
	})
	t.Cleanup(func() { _ = broker.Close() })

	g := newGPU(t, 16<<30)
	for _, job := range []string{"first", "second"} {
		if err := broker.Add(g.job(job, normal(0.5), 0)); err != nil {
			t.Fatal(err)
		}
	}

	say := func(job string) {
		t.Helper()

		conn, err := net.DialUnix("unixpacket", nil, g.socket(job))
		if err != nil {
			t.Fatal(err)
		}

		for _, kind := range []byte{hello, denied} {
			record := make([]byte, 64)
			record[0], record[4], record[8] = kind, 1, 7

			if _, err := conn.Write(record); err != nil {
				t.Fatal(err)
			}
		}

		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}

	say("first")
	<-busy
	say("second")
	close(goOn)

	eventually(t, "the last words are heard", func() bool { return len(heard) == 1 })

	if d := <-heard; d.Bytes != 7 {
		t.Errorf("heard %+v", d)
	}
}

func TestTheLibraryIsCleanUnderSanitizers(t *testing.T) {
	t.Parallel()

	for _, sanitize := range []string{"undefined", "thread"} {
		t.Run(sanitize, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			if err := sharetest.Build(t.Context(), dir, sanitize); err != nil {
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

			if b.ended() {
				t.Error("something was found in the neighbour")
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
