package inventory

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

var start = time.Date(2026, 11, 15, 10, 32, 0, 0, time.UTC)

func newHealth(t testing.TB) *health {
	t.Helper()
	h, err := openHealth(filepath.Join(t.TempDir(), "health.json"), "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	return h
}

// sound is a device without fault; the bus is made from its name.
func sound(index int, name string) device {
	return device{
		gpu: fleet.GPU{Index: index, UUID: "GPU-" + name, Model: "A100", Memory: 80 << 30, Driver: "550"},
		bus: "0000:0" + name + ":00", draw: -1, uncorrected: 0,
	}
}

func soundOnes(names ...string) []device {
	var all []device
	for i, name := range names {
		all = append(all, sound(i, name))
	}

	return all
}

func (h *health) see(now time.Time, devices []device, errs ...xid) []fleet.GPU {
	return h.judge(now, h.settle(devices), errs)
}

func TestXidsThatMarkAndXidsThatDoNot(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		err           xid
		error, health string
	}{
		{"a program's own fault is evidence only", xid{bus: "0000:01:00", code: 31, pid: 4711, program: "python3"},
			"", "Xid 31: GPU memory page fault (python3, process 4711), Nov 15 10:32 UTC"},
		{
			"another keeps the GPU out",
			xid{bus: "0000:01:00", code: 79},
			"Xid 79: fell off the bus, Nov 15 10:32 UTC; in quarantine until Nov 15 11:02 UTC if no new fault occurs",
			"Xid 79: fell off the bus, Nov 15 10:32 UTC",
		},
		{
			"also one that nobody knows",
			xid{uuid: "GPU-1", code: 999, pid: 5},
			"Xid 999 (process 5), Nov 15 10:32 UTC; in quarantine until Nov 15 11:02 UTC if no new fault occurs",
			"Xid 999 (process 5), Nov 15 10:32 UTC",
		},
		{
			"the end of a trouble does not",
			xid{bus: "0000:01:00", code: 154, settled: true},
			"",
			"Xid 154: GPU recovery action changed, Nov 15 10:32 UTC",
		},
		{"that of another GPU does not", xid{bus: "0000:09:00", code: 79}, "", ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.err.at = start
			got := newHealth(t).see(start, soundOnes("1", "2"), tt.err)
			if got[0].Error != tt.error || got[0].Health != tt.health {
				t.Errorf("error %q, health %q", got[0].Error, got[0].Health)
			}

			if got[1].Error != "" || got[1].Health != "" {
				t.Errorf("the other GPU: %+v", got[1])
			}
		})
	}
}

func TestEveryApplicationXidLeavesTheGPUAlone(t *testing.T) {
	t.Parallel()

	for _, code := range []int{13, 31, 43, 45, 68, 109} {
		if x := (xid{code: code}); x.fatal() {
			t.Errorf("Xid %d marks the GPU", code)
		}
	}

	for _, code := range []int{48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 154} {
		if x := (xid{code: code}); !x.fatal() || meanings[code] == "" {
			t.Errorf("Xid %d does not mark the GPU, or nobody knows why", code)
		}
	}
}

func TestQuarantineEndsByItself(t *testing.T) {
	t.Parallel()
	h := newHealth(t)
	h.see(start, soundOnes("1"), xid{at: start, bus: "0000:01:00", code: 79})

	if got := h.see(start.Add(Quarantine-time.Second), soundOnes("1")); got[0].Error == "" {
		t.Error("it came back too early")
	}

	// Another one begins it anew.
	again := start.Add(Quarantine - time.Second)
	h.see(again, soundOnes("1"), xid{at: again, bus: "0000:01:00", code: 48})

	if got := h.see(start.Add(Quarantine), soundOnes("1")); !strings.HasPrefix(got[0].Error, "Xid 48") {
		t.Errorf("the second error is not what counts: %q", got[0].Error)
	}

	got := h.see(again.Add(Quarantine), soundOnes("1"))
	if got[0].Error != "" {
		t.Errorf("still out of use: %q", got[0].Error)
	}

	if want := "Xid 79: fell off the bus, Nov 15 10:32 UTC; Xid 48: uncorrectable memory error, Nov 15 11:01 UTC; no faults, back in use, Nov 15 11:31 UTC"; got[0].Health != want {
		t.Errorf("health %q", got[0].Health)
	}

	if got := h.see(again.Add(Quarantine+noteFor+time.Second), soundOnes("1")); got[0].Health != "" {
		t.Errorf("old evidence is still shown: %q", got[0].Health)
	}
}

func TestWhatLastsKeepsTheGPUOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(*device)
		looks int // until it shows
		error string
	}{
		{"rows that wait to be remapped", func(d *device) { d.gpu.Error = remapPending }, 1, remapPending},
		{"recovery action", func(d *device) { d.recovery = "Reset" }, 1, "driver requests recovery: Reset"},
		{"heat", func(d *device) { d.hot = "at 92 °C" }, hotReadings, "thermal throttling at 92 °C"},
		{
			"memory that cannot be read",
			func(d *device) { d.gpu.Error, d.gpu.Memory = "cannot read memory size", 0 },
			1,
			"cannot read memory size",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHealth(t)
			now := start
			h.see(now, soundOnes("1"))
			spoiled := sound(0, "1")
			tt.spoil(&spoiled)
			for i := range tt.looks {
				now = now.Add(30 * time.Second)
				got := h.see(now, []device{spoiled})
				if (got[0].Error != "") != (i == tt.looks-1) {
					t.Fatalf("after %d looks: %q", i+1, got[0].Error)
				}
			}

			want := tt.error + ", since " + moment(now)
			later := now.Add(5 * time.Hour)
			got := h.see(later, []device{spoiled})
			if got[0].Error != want || got[0].Memory != 80<<30 {
				t.Errorf("after hours: %+v, want %q", got[0], want)
			}

			if got := h.see(later.Add(time.Minute), soundOnes("1")); !strings.Contains(got[0].Error, "in quarantine until "+moment(later.Add(Quarantine))) {
				t.Errorf("in quarantine: %q", got[0].Error)
			}

			if got := h.see(later.Add(Quarantine), soundOnes("1")); got[0].Error != "" {
				t.Errorf("after it: %q", got[0].Error)
			}
		})
	}
}

func TestAShortHeatIsNoFault(t *testing.T) {
	t.Parallel()
	h := newHealth(t)
	hot := sound(0, "1")
	hot.hot = "at 92 °C"
	for i := range 20 {
		d := hot
		if i%hotReadings == hotReadings-1 {
			d = sound(0, "1")
		}

		if got := h.see(start.Add(time.Duration(i)*time.Minute), []device{d}); got[0].Error != "" {
			t.Fatalf("after %d readings: %q", i+1, got[0].Error)
		}
	}
}

func TestMemoryErrorsThatRise(t *testing.T) {
	t.Parallel()
	h := newHealth(t)

	counts := []struct {
		count int64
		erred bool
	}{{5, false}, {5, false}, {-1, false}, {5, false}, {7, true}}

	for i, c := range counts {
		d := sound(0, "1")
		d.uncorrected = c.count
		got := h.see(start, []device{d})
		if (got[0].Error != "") != c.erred {
			t.Errorf("look %d: %q", i, got[0].Error)
		}

		if c.erred && !strings.HasPrefix(got[0].Error, "2 uncorrectable memory errors, Nov 15 10:32 UTC") {
			t.Errorf("look %d: %q", i, got[0].Error)
		}
	}
}

func TestAGPUThatVanishesKeepsItsPlace(t *testing.T) {
	t.Parallel()
	lost := "fell off the bus: no longer listed by the driver, since Nov 15 10:32 UTC"

	unnamedOne := device{
		gpu:         fleet.GPU{Index: 1, UUID: unnamedID(1), Error: "the driver cannot reach it"},
		uncorrected: -1,
	}

	byBus := unnamedOne
	byBus.bus = "0000:02:00"
	tests := []struct {
		name  string
		after []device
		error string
	}{
		{"it is not listed", []device{sound(0, "1"), sound(1, "3")}, lost},
		{"its place is listed without a name", []device{sound(0, "1"), unnamedOne, sound(2, "3")}, lost},
		{
			"only its bus is told",
			[]device{sound(0, "1"), byBus, sound(2, "3")},
			"the driver cannot reach it, since Nov 15 10:32 UTC",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHealth(t)
			h.see(start, soundOnes("1", "2", "3"))

			got := h.see(start, tt.after)
			if len(got) != 3 {
				t.Fatalf("%d GPUs: %+v", len(got), got)
			}

			for i, name := range []string{"1", "2", "3"} {
				if got[i].Index != i || got[i].UUID != "GPU-"+name || got[i].Memory != 80<<30 || (got[i].Error != "") != (i == 1) {
					t.Errorf("GPU %d: %+v", i, got[i])
				}
			}

			if got[1].Error != tt.error {
				t.Errorf("error %q, want %q", got[1].Error, tt.error)
			}

			// It is back and numbered as before.
			got = h.see(start.Add(Quarantine), soundOnes("2", "1", "3"))
			if got[1].UUID != "GPU-2" || got[1].Error != "" {
				t.Errorf("back: %+v", got[1])
			}
		})
	}
}

func TestADriverThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := newHealth(t)
	h.see(start, soundOnes("1", "2"))

	for i := range silentLooks {
		got := h.unanswered(start)
		if len(got) != 2 || (got[0].Error != "") != (i == silentLooks-1) {
			t.Errorf("after %d looks: %+v", i+1, got)
		}
	}

	if got := h.unanswered(start); got[0].Error != "the driver no longer responds, since Nov 15 10:32 UTC" {
		t.Errorf("error %q", got[0].Error)
	}

	if got := h.see(start.Add(time.Minute), soundOnes("1", "2")); got[0].Error == "" {
		t.Error("it is used at once although it was away")
	}
}

func TestReleaseByAnOperator(t *testing.T) {
	t.Parallel()
	h := newHealth(t)
	h.see(start, soundOnes("1"), xid{at: start, bus: "0000:01:00", code: 79})
	now := start.Add(time.Minute)
	release := func(at time.Time, want bool) {
		t.Helper()
		news, err := h.release(now, "GPU-1", at)
		if err != nil || news != want {
			t.Errorf("release: %v, %v", news, err)
		}
	}

	release(start, true)

	if got := h.see(now, soundOnes("1")); got[0].Error != "" ||
		!strings.HasSuffix(got[0].Health, "; released by an operator, Nov 15 10:33 UTC") {
		t.Errorf("released: %+v", got[0])
	}

	release(start, false) // told again
	h.see(now, soundOnes("1"), xid{at: now, bus: "0000:01:00", code: 48})
	release(start, false)

	if got := h.see(now, soundOnes("1")); got[0].Error == "" {
		t.Error("an old release undid a new fault")
	}

	release(start.Add(time.Second), true)
	broken := sound(0, "1")
	broken.gpu.Error = remapFailed
	if got := h.see(now, []device{broken}); got[0].Error == "" {
		t.Error("a fault that lasts was released")
	}

	if _, err := h.release(now, "GPU-9", now); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

func TestHistoryOutlivesTheAgentAndTheMachine(t *testing.T) {
	t.Parallel()
	h := newHealth(t)
	h.see(start, soundOnes("1", "2", "3"), xid{at: start, bus: "0000:02:00", code: 79, pid: 7})
	h.see(start, soundOnes("1", "2")) // the third falls off

	if err := h.save(); err != nil {
		t.Fatal(err)
	}

	before := h.verdicts(start)

	again, err := openHealth(h.path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	if !again.knows() {
		t.Error("a new agent does not know what there was")
	}

	if diff := cmp.Diff(before, again.see(start, soundOnes("1", "2"))); diff != "" {
		t.Errorf("a new agent (-before +after):\n%s", diff)
	}

	booted, err := openHealth(h.path, "boot-2")
	if err != nil {
		t.Fatal(err)
	}

	if booted.knows() {
		t.Error("after a start of the machine it claims to have seen GPUs")
	}

	got := booted.see(start, soundOnes("2", "1"))
	if len(got) != 2 || got[0].UUID != "GPU-2" || got[0].Error == "" || got[1].Error != "" {
		t.Errorf("after a start of the machine: %+v", got)
	}
}

func TestHistoryThatCannotBeReadIsBegunAnew(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"{", `{"gpus":{"GPU-1":null}}`, `{"gpus":[]}`} {
		path := filepath.Join(t.TempDir(), "health.json")
		if err := atomicfile.Write(path, []byte(text), atomicfile.SingleWriter()); err != nil {
			t.Fatal(err)
		}

		h, err := openHealth(path, "boot-1")
		if (err == nil) != strings.Contains(text, "null") {
			t.Errorf("%s: %v", text, err)
		}

		if got := h.see(start, soundOnes("1")); len(got) != 1 {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestNoGPUIsLostOrCountedTwice plays random histories: whatever the driver says,
// every GPU that was ever named is there once, under its first number.
func TestNoGPUIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &health{state: healthState{GPUs: map[string]*history{}}}
		now := start
		first := map[string]int{}

		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second)
			var list []device
			for name := 1; name <= 4; name++ {
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0: // missing
				case 1:
					list = append(
						list,
						device{gpu: fleet.GPU{Index: len(list), UUID: unnamedID(len(list)), Error: "lost"}, uncorrected: -1},
					)
				default:
					list = append(list, sound(len(list), fmt.Sprint(name)))
				}
			}

			var errs []xid
			if rapid.Bool().Draw(t, "xid") {
				errs = append(errs, xid{at: now, bus: "0000:02:00", code: rapid.IntRange(1, 200).Draw(t, "code")})
			}

			got := h.see(now, list, errs...)

			index, uuid := map[int]bool{}, map[string]bool{}
			for _, g := range got {
				if index[g.Index] || uuid[g.UUID] {
					t.Fatalf("twice: %+v", got)
				}

				index[g.Index], uuid[g.UUID] = true, true

				if n, ok := first[g.UUID]; ok && n != g.Index && !strings.HasPrefix(g.UUID, unnamed) {
					t.Fatalf("%s was %d and is %d", g.UUID, n, g.Index)
				}

				first[g.UUID] = g.Index
			}

			for id := range first {
				if strings.HasPrefix(id, "GPU-") && !uuid[id] {
					t.Fatalf("%s is lost: %+v", id, got)
				}
			}
		}
	})
}
