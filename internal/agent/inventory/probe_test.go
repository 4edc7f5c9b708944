package inventory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/atomicfile"
	"trainyard/internal/executable"
	"trainyard/internal/fleet"
)

func twoGPUs() []fleet.GPU {
	return []fleet.GPU{{Index: 1, UUID: "GPU-b", Driver: "550"}, {Index: 3, UUID: "GPU-d", Driver: "550"}}
}

// python writes a program that stands in for an interpreter.
func python(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	if err := executable.Write(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestProbeReadsWhatTheHelperSays(t *testing.T) {
	t.Parallel()
	got := map[string]measure{
		"GPU-b": {Driver: "550", Numbers: "bf16", TFLOPS: 250.5, At: start},
		"GPU-d": {Driver: "550", Numbers: "fp16", TFLOPS: 60, At: start},
	}

	one := map[string]measure{"GPU-d": got["GPU-d"]}
	none := map[string]measure{}
	tests := []struct {
		name, says string
		want       map[string]measure
		missing    bool
		problem    string
	}{
		{
			"both",
			`{"gpu": 0, "numbers": "bf16", "tflops": 250.5}` + "\n" + `{"gpu": 1, "numbers": "fp16", "tflops": 60}`,
			got,
			false,
			"",
		},
		{"chatter between", "hello\n{not json\n" + `{"gpu": 1, "numbers": "fp16", "tflops": 60}` + "\nbye", one, false, ""},
		{
			"one failed",
			`{"gpu": 0, "error": "out of memory"}` + "\n" + `{"gpu": 1, "numbers": "fp16", "tflops": 60}`,
			one,
			false,
			"probe GPU 1: out of memory",
		},
		{"no framework", `{"missing": "torch"}`, none, true, ""},
		{"a GPU that was not asked for", `{"gpu": 7, "numbers": "fp16", "tflops": 60}`, none, false, "no GPU 7"},
		{"a speed that cannot be", `{"gpu": 0, "numbers": "fp16", "tflops": -1}`, none, false, "implausible result"},
		{"numbers that nobody knows", `{"gpu": 0, "numbers": "int3", "tflops": 5}`, none, false, "implausible result"},
		{"nothing", "", none, false, ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, missing, err := parseProbe([]byte(tt.says), twoGPUs(), start)
			if diff := cmp.Diff(tt.want, got); diff != "" || missing != tt.missing {
				t.Errorf("missing %v, (-want +got):\n%s", missing, diff)
			}

			if (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("err = %v, want %q", err, tt.problem)
			}
		})
	}
}

func TestProbeRunsTheHelper(t *testing.T) {
	t.Parallel()

	// It is asked for the GPUs by their names and told how long it may take.
	works := python(
		t,
		`test "$1" = -c && test "$3" = 60 && test "$CUDA_VISIBLE_DEVICES" = GPU-b,GPU-d && test "$PWD" = / || exit 9
echo '{"gpu": 0, "numbers": "bf16", "tflops": 250.5}'`,
	)

	lacks := python(t, `echo '{"missing": "torch"}'`)
	tests := []struct {
		name         string
		interpreters []string
		found        int
		problem      string
	}{
		{"it works", []string{works}, 1, ""},
		{"the first lacks the framework", []string{lacks, works}, 1, ""},
		{"none has it", []string{lacks, "python-that-is-not-there"}, 0, ""},
		{"it fails", []string{python(t, "exit 3")}, 0, "exit status 3"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := probe(t.Context(), tt.interpreters, twoGPUs(), start)
			if len(got) != tt.found || (err == nil) != (tt.problem == "") ||
				err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%d measured, %v", len(got), err)
			}
		})
	}
}

func TestPythonToMeasureWith(t *testing.T) {
	t.Parallel()

	if got := pythons("/opt/venv/bin/python"); !cmp.Equal(got, []string{"/opt/venv/bin/python"}) {
		t.Errorf("a named one: %v", got)
	}

	if got := pythons(""); !cmp.Equal(got, []string{"python3", "/usr/bin/python3"}) {
		t.Errorf("none named: %v", got)
	}
}

// TestTheHelperIsPython runs the real helper where no framework is: it must say so.
// With PyTorch and a GPU it prints the speeds instead.
func TestTheHelperIsPython(t *testing.T) {
	t.Parallel()

	for _, name := range pythons("") {
		if _, err := os.Stat(name); err != nil && filepath.IsAbs(name) {
			continue
		}

		text, err := runProbe(t.Context(), name, nil)
		if err != nil {
			noPython(t)
		}

		if _, missing, err := parseProbe(text, nil, start); err != nil || !missing {
			t.Errorf("%s said %q: %v", name, text, err)
		}

		return
	}

	noPython(t)
}

// noPython skips a test that needs python3, but not where all tests must run.
func noPython(t *testing.T) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal("python3 is not here")
	}

	t.Skip("python3 is not here")
}

func TestMeasuresAreKeptByGPUAndDriver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "speed.json")
	m, err := openMeasures(path)
	if err != nil {
		t.Fatal(err)
	}

	m.all["GPU-b"] = measure{Driver: "550", Numbers: "bf16", TFLOPS: 250, At: start}
	if err := m.save(); err != nil {
		t.Fatal(err)
	}

	again, err := openMeasures(path)
	if err != nil {
		t.Fatal(err)
	}

	for g, want := range map[fleet.GPU]float64{
		{UUID: "GPU-b", Driver: "550"}: 250,
		{UUID: "GPU-b", Driver: "560"}: 0,
		{UUID: "GPU-c", Driver: "550"}: 0,
	} {
		if got := again.of(&g); got != want {
			t.Errorf("%+v has %g, want %g", g, got, want)
		}
	}

	if err := atomicfile.Write(path, []byte("["), atomicfile.SingleWriter()); err != nil {
		t.Fatal(err)
	}

	if broken, err := openMeasures(path); err == nil || len(broken.all) != 0 {
		t.Errorf("a broken file: %v, %v", broken.all, err)
	}
}
