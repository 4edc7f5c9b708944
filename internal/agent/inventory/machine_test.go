package inventory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// scripted is a driver that says what a test wants.
type scripted struct {
	list []device
	err  error
	errs []xid
}

func (s *scripted) devices(context.Context) ([]device, error) {
	return append([]device(nil), s.list...), s.err
}

func (s *scripted) xids() []xid {
	errs := s.errs
	s.errs = nil
	return errs
}

func (*scripted) close() error { return nil }

type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time { return c.now }

// machine is one with a driver and a kernel of the test's making.
func machine(t *testing.T, python string) (*Machine, *scripted, *fakeClock, string) {
	t.Helper()
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"proc/meminfo":                   "MemTotal: 16384 kB\n",
		"proc/uptime":                    "3600.00 100.00\n",
		"proc/sys/kernel/random/boot_id": "boot-1\n",
		"dev/kmsg":                       "",
	})

	clk := &fakeClock{start}
	m := Open(Options{DataDir: t.TempDir(), Server: "https://127.0.0.1:7443", Root: root, Python: python, Clock: clk})
	s := &scripted{}
	m.driver = s
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})

	return m, s, clk, root
}

func look(t *testing.T, m *Machine, held ...int) Found {
	t.Helper()
	found, err := m.Look(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}

	return found
}

func TestGPUsAreDescribed(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, "")
	s.list = []device{sound(0, "1"), sound(1, "2")}
	s.list[0].gpu.Model, s.list[0].gpu.Watts = "NVIDIA A100-SXM4-80GB", 275
	s.list[1].gpu.Model = "Quantum 9000"

	gpus := look(t, m).Inventory.GPUs
	if g := gpus[0]; g.Peak != 312 || g.Bandwidth != 2039 || g.Watts != 275 || g.Measured != 0 {
		t.Errorf("A100: %+v", g)
	}

	if speed, origin := gpus[0].TFLOPS(); speed != 271.2 || origin != "table" {
		t.Errorf("A100 has %g TFLOPS by %s", speed, origin)
	}

	if _, origin := gpus[1].TFLOPS(); origin != "unknown" {
		t.Errorf("an unknown GPU is known by %s", origin)
	}
}

func TestXidsOfTheKernelsLogReachTheirGPU(t *testing.T) {
	t.Parallel()
	m, s, clk, root := machine(t, "")
	s.list = soundOnes("1", "2")
	kmsg := filepath.Join(root, "dev/kmsg")
	say := func(line string) {
		t.Helper()
		f, err := os.OpenFile(kmsg, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(line + "\n")
			err = errors.Join(err, f.Close())
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	say("4,1,600000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=3, name=old, GPU has fallen off the bus.") // 50 minutes ago
	say("4,2,3540000000,-;NVRM: Xid (PCI:0000:02:00): 48, pid=4, name=new, DBE")                        // a minute ago

	found := look(t, m)
	if len(found.Problems) != 0 {
		t.Error(found.Problems)
	}

	gpus := found.Inventory.GPUs
	if gpus[0].Error != "" || gpus[0].Health != "Xid 79: fell off the bus (old, process 3), Nov 15 09:42 UTC" {
		t.Errorf("an old error: %+v", gpus[0])
	}

	if !strings.HasPrefix(gpus[1].Error, "Xid 48: uncorrectable memory error (new, process 4), Nov 15 10:31 UTC; ") {
		t.Errorf("a new error: %+v", gpus[1])
	}

	// The driver tells of the same one as the kernel; the machine has slept, so that
	// the kernel's time is too early.
	clk.now = start.Add(time.Hour)
	writeFiles(t, root, map[string]string{"proc/uptime": "7200.00 1.00\n"})
	say("4,3,3541000000,-;NVRM: Xid (PCI:0000:01:00): 94, pid=5, name=x, Contained")
	s.errs = []xid{{uuid: "GPU-1", code: 94}}

	gpus = look(t, m).Inventory.GPUs
	if !strings.HasPrefix(gpus[0].Error, "Xid 94: contained memory error (x, process 5), Nov 15 11:32 UTC; ") ||
		strings.Count(gpus[0].Health, "Xid 94") != 1 {
		t.Errorf("after a sleep: %+v", gpus[0])
	}

	if gpus[1].Error != "" {
		t.Errorf("an hour later: %q", gpus[1].Error)
	}

	// A new agent reads the same log and marks nothing again.
	again := Open(m.opts)
	again.driver = s
	defer func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}()

	clk.now = start.Add(24 * time.Hour)

	for _, g := range look(t, again).Inventory.GPUs {
		if g.Error != "" {
			t.Errorf("a day later: %+v", g)
		}
	}
}

func TestADriverThatFailsForAMomentHidesNothing(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, "")
	s.list = soundOnes("1", "2")
	s.list[1].procs = []Process{{GPU: 1, PID: 77, Program: "x"}}
	before := look(t, m)
	s.err, s.list = errors.New("it hangs"), nil

	for i := range silentLooks {
		found := look(t, m)
		if len(found.Inventory.GPUs) != 2 || !cmp.Equal(found.Busy, []int{1}) || len(found.Problems) != 1 {
			t.Errorf("look %d: %+v", i, found)
		}

		if erred := found.Inventory.GPUs[0].Error != ""; erred != (i == silentLooks-1) {
			t.Errorf("look %d: %q", i, found.Inventory.GPUs[0].Error)
		}
	}

	s.err = nil // and now it has none

	if found := look(t, m); len(found.Problems) != 1 || len(found.Inventory.GPUs) != len(before.Inventory.GPUs) {
		t.Errorf("no GPUs any more: %+v", found)
	}
}

func TestAMachineWithoutGPUs(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, "")
	if found := look(t, m); len(found.Inventory.GPUs) != 0 || len(found.Problems) != 0 || found.Inventory.Draw != nil {
		t.Errorf("%+v", found)
	}

	if n, err := m.Probe(t.Context(), func() {}); n != 0 || err != nil {
		t.Errorf("measured %d, %v", n, err)
	}

	s.list = soundOnes("1")

	m.opts.NoGPUs = true
	if found := look(t, m); len(found.Inventory.GPUs) != 0 {
		t.Errorf("GPUs were not to be looked for: %+v", found)
	}
}

func TestUseAndDrawOfTheGPUs(t *testing.T) {
	t.Parallel()
	m, s, _, root := machine(t, "")
	writeFiles(t, root, processes(m.opts.DataDir))

	s.list = soundOnes("1", "2", "3")
	for i := range s.list {
		s.list[i].draw = 50
	}

	look(t, m)
	s.list[0].procs = []Process{{PID: 20, Memory: 5}}
	s.list[1].procs = []Process{{GPU: 1, PID: 10}}
	s.list[0].draw, s.list[1].draw = 300, 400

	found := look(t, m, 1, 2)
	if diff := cmp.Diff([]float64{150, 0, 0, 750}, found.Inventory.Draw); diff != "" {
		t.Errorf("draw (-want +got):\n%s", diff)
	}

	if !cmp.Equal(found.Busy, []int{0, 1}) || len(found.Processes) != 2 || found.Processes[0].Ours ||
		!found.Processes[1].Ours {
		t.Errorf("busy %v, processes %+v", found.Busy, found.Processes)
	}

	s.list[0].draw = -1

	if again := look(t, m); !cmp.Equal(again.Inventory.Draw, found.Inventory.Draw) {
		t.Errorf("a reading that is not there changed the draw: %v", again.Inventory.Draw)
	}
}

func TestUseIsAskedForBetweenLooks(t *testing.T) {
	t.Parallel()
	m, driver, _, _ := machine(t, "")

	idle := device{gpu: fleet.GPU{Index: 0, UUID: "GPU-a", Model: "NVIDIA H200", Memory: 140 << 30}, draw: -1}
	other := idle
	other.gpu.Index, other.gpu.UUID = 1, "GPU-b"
	driver.list = []device{idle, other}
	look(t, m)

	other.gpu.Index, other.utilization, other.used = 0, 0.9, 7<<30 // the first is gone
	driver.list = []device{other}

	if err := m.LookAtUse(t.Context()); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]job.GPUUse{{Index: 1, Busy: 0.9, Memory: 7 << 30}}, m.GPUUse()); diff != "" {
		t.Error(diff)
	}
}

func TestProbeOfAMachine(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, python(t, `test "$CUDA_VISIBLE_DEVICES" = GPU-2 || exit 9
echo '{"gpu": 0, "numbers": "bf16", "tflops": 251.5}'`))
	s.list = soundOnes("1", "2", "3")
	s.list[0].procs = []Process{{PID: 20}}
	s.list[2].gpu.Error = remapFailed
	for i := range s.list {
		s.list[i].draw = 50
	}

	look(t, m)
	s.list[1].draw = 700 // the probe shows for a moment

	if n, err := m.Probe(t.Context(), func() {}); n != 1 || err != nil {
		t.Fatalf("measured %d, %v", n, err)
	}

	inv := look(t, m).Inventory
	if !cmp.Equal(inv.Draw, []float64{0, 150}) {
		t.Errorf("the probe shows in the draw: %v", inv.Draw)
	}

	gpus := inv.GPUs
	if got := []float64{gpus[0].Measured, gpus[1].Measured, gpus[2].Measured}; !cmp.Equal(got, []float64{0, 251.5, 0}) {
		t.Errorf("measured %v", got)
	}

	if speed, origin := gpus[1].TFLOPS(); speed != 251.5 || origin != "measured" {
		t.Errorf("%g by %s", speed, origin)
	}

	// Nothing is left to measure: the helper would fail for any other GPU.
	if n, err := m.Probe(t.Context(), func() {}); n != 0 || err != nil {
		t.Errorf("again: measured %d, %v", n, err)
	}

	again := Open(m.opts)
	again.driver = &scripted{list: []device{sound(0, "2")}}
	defer func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}()

	if g := look(t, again).Inventory.GPUs; g[1].Measured != 251.5 && g[0].Measured != 251.5 {
		t.Errorf("a new agent does not know the speed: %+v", g)
	}

	s.list[1].gpu.Driver = "560"

	if g := look(t, m).Inventory.GPUs[1]; g.Measured != 0 {
		t.Errorf("another driver, and still %g", g.Measured)
	}
}

func TestReleaseShowsAtTheNextLook(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, "")
	s.list = soundOnes("1")
	s.errs = []xid{{uuid: "GPU-1", code: 79}}

	if got := look(t, m).Inventory.GPUs[0]; got.Error == "" {
		t.Fatal("Xid 79 marked nothing")
	}

	if news, err := m.Release("GPU-1", start); !news || err != nil {
		t.Fatalf("release: %v, %v", news, err)
	}

	if got := look(t, m).Inventory.GPUs[0]; got.Error != "" {
		t.Errorf("released, and still %q", got.Error)
	}
}

func TestWhatIsFoundIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	m, s, _, _ := machine(t, "")
	s.list = soundOnes("1")
	s.list[0].draw = 50
	found := look(t, m)
	found.Inventory.GPUs[0] = fleet.GPU{}
	found.Inventory.Draw[0] = 0
	if again := look(t, m).Inventory; again.GPUs[0].UUID != "GPU-1" || again.Draw[0] != 50 {
		t.Errorf("the caller changed what the machine knows: %+v", again)
	}
}
