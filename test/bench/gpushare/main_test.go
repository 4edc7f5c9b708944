package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/clock"
	"trainyard/internal/executable"
)

// TestMain lets the test be the broker of a scene.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}

	os.Exit(m.Run())
}

// script is a program that does what train.py does as far as a scene can tell.
const script = `#!/bin/sh
# SCRIPT NAME KIND WINDOWS SECONDS EVERY LEAD
echo 'READY {}'
read begin
case $3 in
fill) echo 'FULL {"bytes": 1000}'; cat >/dev/null ;;
fault) echo sorry; exit 7 ;;
bad) echo 'no GPU'; exit 1 ;;
esac
case $LD_PRELOAD in *.so) rate=30 ;; *) rate=40 ;; esac
for i in $(seq $4); do echo "RESULT {\"rate\": $rate}"; done
`

// clockScript says when the windows would begin in which train.py works.
const clockScript = `#!/bin/sh
# SCRIPT NAME KIND WINDOWS SECONDS EVERY LEAD
echo 'READY {}'
read begin
for i in $(seq 0 $(($4 - 1))); do
	echo "RESULT {\"rate\": $(echo $begin $i $6 | awk '{ printf "%.3f", $1 + $2 * $3 }')}"
done
`

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()

	if err := sharetest.Build(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}

	python := filepath.Join(dir, "python")
	if err := executable.Write(python, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	return &bench{
		out: io.Discard, library: filepath.Join(dir, sharetest.Library), python: python, windows: 3, window: time.Millisecond,
		clk: clock.Wall{}, uuid: sharetest.UUID,
	}
}

func TestAScene(t *testing.T) {
	t.Parallel()
	b := newBench(t)

	for _, c := range []struct {
		s    scene
		want string
	}{
		{pair("sliced", sliced, "gpu", "gpu", 0.5), "a: 40 40 40 b: 40 40 40"},
		{pair("shared", shared, "gpu", "gpu", 0.7), "a: 30 30 30 b: 30 30 30"},
		{pair("fault", shared, "gpu", "fault", 0.5), "a: 30 30 30 b: exit code 7"},
		{scene{name: "broker", way: shared, during: killBroker, programs: pair("", shared, "gpu", "gpu", 0.5).programs},
			"a: 30 30 30 b: 30 30 30"},
	} {
		got, err := b.play(t.Context(), []scene{c.s})
		if err != nil {
			t.Fatalf("%s: %v", c.s.name, err)
		}

		var out bytes.Buffer
		b.out = &out
		b.print(&c.s, &got[0])

		text := strings.Join(strings.Fields(strings.ReplaceAll(out.String(), ".0", "")), " ")
		if want := strings.TrimSpace(c.s.name + " " + c.want); text != want {
			t.Errorf("got %q, want %q", text, want)
		}
	}

	bad := []scene{pair("bad", sliced, "gpu", "bad", 0.5)}
	if _, err := b.play(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "b failed: no GPU") {
		t.Errorf("a program that fails: %v", err)
	}
}

// TestScenesInTurns: the windows of two scenes of one act follow each other.
func TestScenesInTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.window = 50 * time.Millisecond

	if err := executable.Write(b.python, []byte(clockScript), 0o700); err != nil {
		t.Fatal(err)
	}

	both := []scene{
		pair("first", sliced, "gpu", "gpu", 0.5),
		{name: "second", way: sliced, programs: []program{{name: "a", kind: "gpu"}}},
	}

	got, err := b.play(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}

	// The rates of this script are the times at which its windows begin.
	first, second := got[0].rates["a"], got[1].rates["a"]
	if n := 3 * inTurns; len(first) != n || len(got[0].rates["b"]) != n || len(second) != n {
		t.Fatalf("windows %v and %v, want %d of each", first, second, n)
	}

	for i, begin := range first {
		period := 2 * (b.window + lead).Seconds()
		if want := first[0] + float64(i)*period; math.Abs(begin-want) > 0.002 {
			t.Errorf("window %d of the first begins at %v, want %v", i, begin, want)
		}
		if want := begin + period/2; math.Abs(second[i]-want) > 0.002 {
			t.Errorf("window %d of the second begins at %v, want %v", i, second[i], want)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()

	rates := func(all ...float64) outcome {
		o := outcome{rates: map[string][]float64{}}
		for i, r := range all {
			o.rates[string(rune('a'+i))] = []float64{r - 1, r, r + 1}
		}

		return o
	}

	got := figuresOf(map[string]outcome{
		"gpu_alone": rates(100), "gpu_alone_library": rates(99), "gpu_sliced": rates(45, 45), "gpu_70_30": rates(71, 28),
		"host_alone": rates(1000), "host_beside_gpu_50_50": rates(500, 50), "guaranteed": rates(80, 20),
		"fault": rates(90), "broker_killed": rates(70, 30),
		"cap_native": {full: map[string]uint64{"a": capped << 30 * 99 / 100}},
	})

	for name, want := range map[string]float64{
		"overhead_alone_pct": 1, "timeslice_sum_pct": 90, "sum_70_30_pct": 99, "share_error_points": 100 * (71./99 - 0.7),
		"host_beside_gpu_shared_pct": 100, "guaranteed_share_pct": 80, "cap_error_pct": 1,
		"after_fault_pct": 90.5, "after_broker_kill_error_points": 100 * (71./102 - 0.7) * -1,
	} {
		if math.Abs(got[name]-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}

	if _, measured := got["mps_sum_pct"]; measured {
		t.Error("there is a figure of what was not measured")
	}
}

func TestFiguresAreOfScenesThatThereAre(t *testing.T) {
	t.Parallel()

	known := map[string]bool{}
	for _, act := range acts() {
		for _, s := range act {
			known[s.name] = true
		}
	}

	var used []string
	for _, r := range ratios {
		used = append(used, r.scene, r.to)
	}

	for _, list := range divisions {
		for _, d := range list {
			used = append(used, d.scene)
		}
	}

	for _, name := range used {
		if !known[name] {
			t.Errorf("a figure is made of scene %s, which is not played", name)
		}
	}
}

func TestJobsAreParsed(t *testing.T) {
	t.Parallel()

	for _, bad := range []string{"a:weight=x", "a:class=best", "a:colour=red"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
