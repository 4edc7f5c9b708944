package share_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/accounts"
)

// shown is what a program sees of the GPU's memory.
type shown struct{ free, total, device, nvmlTotal, nvmlFree uint64 }

func (p *program) memory(word string) shown {
	p.t.Helper()

	var s shown
	line := p.line(word)

	_, err := fmt.Sscanf(line, word+" free %d total %d device %d nvml_total %d nvml_free %d",
		&s.free, &s.total, &s.device, &s.nvmlTotal, &s.nvmlFree)
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}

	return s
}

// allocated returns how much the program could allocate in a round, and what it was answered at the end.
func (p *program) allocated(round int) (bytes uint64, refused int) {
	p.t.Helper()

	line := p.line(fmt.Sprintf("round %d", round))
	if _, err := fmt.Sscanf(line, "round %d allocated %d refused %d", &round, &bytes, &refused); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}

	return bytes, refused
}

const outOfMemory = 2 // the driver's CUDA_ERROR_OUT_OF_MEMORY

func TestCapsHoldForEveryAllocator(t *testing.T) {
	t.Parallel()

	for _, how := range []string{"alloc", "managed", "pitch", "async", "pool", "array", "vmm"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()

			const limit = 4 << 30

			g := newGPU(t, 16<<30)
			g.add("a", normal(0.5), limit)

			lookup := map[bool]string{true: "proc", false: "dlsym"}[how == "async"]
			p := g.run("a", "mode=alloc", "how="+how, "lookup="+lookup)

			if got := p.memory("before"); got != (shown{limit - contextBytes, limit, limit, limit, limit - contextBytes}) {
				t.Errorf("an empty share is shown as %+v", got)
			}

			for round := range 2 {
				bytes, refused := p.allocated(round)
				if bytes != limit-contextBytes || refused != outOfMemory {
					t.Errorf("round %d: %d MiB allocated, refused with %d", round, bytes/mib, refused)
				}

				if got := p.memory("full"); got != (shown{0, limit, limit, limit, 0}) {
					t.Errorf("a full share is shown as %+v", got)
				}
			}

			if got := p.memory("after"); how != "pool" && got.free != limit-contextBytes {
				t.Errorf("%d MiB are free at the end", got.free/mib)
			}

			p.end()
			eventually(t, "refusals are reported", func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()

				return len(g.denials) == 2
			})

			want := accounts.Denial{Bytes: 64 * mib, Used: limit, Cap: limit}
			if d, ago, found, err := accounts.LastDenial(filepath.Join(g.folders, "a")); d != want || !found || ago < 0 ||
				ago > patience || err != nil {
				t.Errorf("the last refusal is %+v, %s ago (%t, %v)", d, ago, found, err)
			}

			if d := g.denials[0]; d.Job != "a" || d.Bytes != 64*mib || d.Used != limit || d.Cap != limit ||
				d.Free != 12<<30 || !d.ByCap() {
				t.Errorf("reported %+v", d)
			}
		})
	}
}

func TestACapIsForAllProcessesOfAJob(t *testing.T) {
	t.Parallel()

	const limit = 4 << 30

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.5), limit)
	g.add("b", normal(0.5), limit)

	first := g.run("a", "mode=alloc", "most=1024", "wait=1")
	if bytes, refused := first.allocated(0); bytes != 1024*mib || refused != 0 {
		t.Fatalf("%d MiB allocated, refused with %d", bytes/mib, refused)
	}

	second := g.run("a", "mode=alloc", "wait=1")
	if bytes, refused := second.allocated(0); bytes != limit-2*contextBytes-1024*mib || refused != outOfMemory {
		t.Errorf("%d MiB allocated by a second process, refused with %d", bytes/mib, refused)
	}

	other := g.run("b", "mode=alloc")
	if bytes, _ := other.allocated(0); bytes != limit-contextBytes {
		t.Errorf("%d MiB allocated by another job", bytes/mib)
	}

	if m := g.uses()["a"].Memory; m.Used() != limit || m.Context != 2*contextBytes || m.Cap != limit || m.Peak == 0 {
		t.Errorf("the account is %+v", m)
	}

	// Whatever way a process goes, its memory can be used again.
	first.kill()
	second.kill()

	third := g.run("a", "mode=alloc")
	if bytes, _ := third.allocated(0); bytes != limit-contextBytes {
		t.Errorf("%d MiB allocated after the others are gone", bytes/mib)
	}
}

func TestACapCanBeChangedAndCorrected(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.5), 4<<30)

	p := g.run("a", "mode=alloc", "most=1024", "wait=1")
	p.allocated(0)
	g.processes("a", 1)

	pid := p.cmd.Process.Pid

	strangers, err := g.broker.Observe(map[int]uint64{pid: 2 << 30, 1: 5})
	if err != nil || fmt.Sprint(strangers) != "[1]" {
		t.Errorf("strangers are %v (%v)", strangers, err)
	}

	if m := g.uses()["a"].Memory; m.Context != 1<<30 || m.Allocated != 1<<30 {
		t.Errorf("NVML says 2 GiB, and the account is %+v", m)
	}

	if err := g.broker.Change("a", normal(0.5), 8<<30); err != nil {
		t.Fatal(err)
	}

	second := g.run("a", "mode=alloc")
	if bytes, _ := second.allocated(0); bytes != 8<<30-2<<30-contextBytes {
		t.Errorf("%d MiB allocated under a higher cap", bytes/mib)
	}

	if err := g.broker.Change("a", share.Terms{Weight: 2}, 0); err == nil {
		t.Error("a share of 2 is accepted")
	}
}

func TestAFullGPUIsReportedAsSuch(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 2<<30)
	g.add("a", normal(0.5), 4<<30)

	p := g.run("a", "mode=alloc")
	if got := p.memory("before"); got.total != 2<<30 || got.free != 2<<30-contextBytes {
		t.Errorf("a cap above the GPU's size is shown as %+v", got)
	}

	p.end()
	eventually(t, "refusals are reported", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()

		return len(g.denials) == 2
	})

	if d := g.denials[0]; d.ByCap() || d.Free != 0 {
		t.Errorf("reported %+v", d)
	}
}

func TestEveryWayToFindTheDriverIsHooked(t *testing.T) {
	t.Parallel()

	for _, way := range []string{"dlsym", "proc", "ptsz", "linked"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()

			g := newGPU(t, 16<<30)
			g.add("a", share.Terms{Weight: 0.5, Limit: 0.9, Class: share.Normal}, 1<<30)

			name := map[bool]string{true: "trainer-linked", false: "trainer"}[way == "linked"]
			g.runAs(name, "a", "lookup="+way, "steps=3").end()

			if use := g.uses()["a"]; use.Grants == 0 {
				t.Error("its launches did not wait for the GPU")
			}

			p := g.runAs(name, "a", "lookup="+way, "mode=alloc")
			if bytes, _ := p.allocated(0); bytes != 512*mib {
				t.Errorf("%d MiB allocated", bytes/mib)
			}

			p.end()
		})
	}
}

func TestTheLibraryLoadsWithOldCLibraries(t *testing.T) {
	t.Parallel()

	file, err := elf.Open(filepath.Join(built, "libtrainyard-gpu.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()

	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range symbols {
		var major, minor int
		if n, _ := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &major, &minor); n == 2 && minor > 17 {
			t.Errorf("%s needs %s: name an older version of it in gpushare.c", s.Name, s.Version)
		}
	}
}

func TestTheLibraryIsInstalledByItsContent(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	if _, err := share.Install(dir, nil); !errors.Is(err, share.ErrUnavailable) {
		t.Errorf("without a library: %v", err)
	}

	one, err := share.Install(dir, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}

	two, err := share.Install(dir, []byte("two"))
	if err != nil || one == two || !strings.Contains(one, share.Version([]byte("one"))) {
		t.Errorf("installed as %s and %s (%v)", one, two, err)
	}

	if err := os.WriteFile(one, []byte("o"), 0o600); err != nil { // half of it, after a crash
		t.Fatal(err)
	}

	again, err := share.Install(dir, []byte("one"))
	content, _ := os.ReadFile(one)

	if err != nil || again != one || string(content) != "one" {
		t.Errorf("a damaged file is %q afterwards (%v)", content, err)
	}
}
