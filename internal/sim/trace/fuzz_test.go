package trace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/rows"
	"trainyard/test/fuzzing"
)

// fuzz feeds a reader any text. Whatever comes, it ends, jobs are sound and in
// order, and errors are for people.
func fuzz(f *testing.F, format, sample string, o trace.Options) {
	f.Helper()
	f.Add(sample)
	f.Add("")
	f.Add("\x00\n\"\n,,,\n{}\n[]\n")
	f.Add(sample + fuzzing.Long("\",[{\n"))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		for _, skip := range []bool{false, true} {
			o.SkipBad = skip
			r, err := trace.Read(strings.NewReader(text), "fuzz", format, o)
			if err != nil {
				sound(t, err)
				continue
			}

			var last *sim.Job

			for {
				j, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}

				if err != nil {
					sound(t, err)
					break
				}

				check(t, j, last)
				last = j
			}
		}
	})
}

// sound fails for an error that is not for people.
func sound(t *testing.T, err error) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Message == "" {
		t.Fatalf("an error that is not for people: %v", err)
	}
}

func check(t *testing.T, j, last *sim.Job) {
	t.Helper()
	res := j.Spec.Resources
	switch {
	case last != nil && j.At < last.At || j.At < 0:
		t.Fatalf("%s is submitted at %v", j.Name, j.At)
	case j.Duration <= 0 && (j.Spec.Speed == nil || j.Spec.Speed.Work <= 0 || len(j.Spec.Speed.Rates) == 0):
		t.Fatalf("%s lasts %v and has no speed", j.Name, j.Duration)
	case res.Nodes.Min < 0 || res.GPUs.Min < 0 || res.CPUs < 0 || res.Memory < 0 || res.GPUs.Min > rows.MaxCount ||
		res.Nodes.Min > rows.MaxCount:
		t.Fatalf("%s asks for %+v", j.Name, res)
	case !id.Name(string(j.Owner)):
		t.Fatalf("%s belongs to %q", j.Name, j.Owner)
	}
}

// table writes the second file of a format for a fuzz target.
func table(f *testing.F, name, text string) string {
	f.Helper()
	path := filepath.Join(f.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}

	return path
}

func FuzzSWF(f *testing.F) { fuzz(f, "swf", swfSample, trace.Options{GPUs: true, PerNode: 8}) }

func FuzzPhilly(f *testing.F) { fuzz(f, "philly", phillySample, trace.Options{Exact: true}) }

func FuzzPhillyLog(f *testing.F) {
	fuzz(f, "philly-log", phillyLogSample, trace.Options{Sort: true, PerNode: 2})
}

func FuzzHelios(f *testing.F) { fuzz(f, "helios", heliosSample, trace.Options{CPUs: true}) }

func FuzzPAI(f *testing.F) { fuzz(f, "pai", paiSample, trace.Options{CPUs: true, Sort: true}) }

func FuzzOpenb(f *testing.F) { fuzz(f, "openb", openbSample, trace.Options{CPUs: true}) }

func FuzzGavel(f *testing.F) {
	fuzz(f, "gavel", gavelSample, trace.Options{Tables: table(f, "t.json", gavelTables)})
}

func FuzzPollux(f *testing.F) {
	fuzz(f, "pollux", polluxSample, trace.Options{Tables: profiles(f), Mode: trace.ModeRigid})
}

func FuzzSummitJobs(f *testing.F) { fuzz(f, "summit", summitSample, trace.Options{}) }

func FuzzYardLog(f *testing.F) { fuzz(f, "yard", yardSample, trace.Options{Default: 1}) }

func FuzzCSV(f *testing.F) {
	fuzz(f, "csv", csvSample, trace.Options{Tables: table(f, "m.yaml", csvMapping)})
}

func FuzzMapping(f *testing.F) {
	f.Add(csvMapping)
	f.Add("columns: {submit: asked, run: cards, gpus: cards}\ntime: x\n")

	f.Fuzz(func(t *testing.T, mapping string) {
		defer fuzzing.Bounded(t)()

		r, err := trace.Read(strings.NewReader(csvSample), "fuzz", "csv", trace.Options{Tables: write(t, "m.yaml", mapping)})
		if err != nil {
			sound(t, err)
			return
		}

		if _, err := trace.Collect(r); err != nil {
			sound(t, err)
		}
	})
}

func FuzzThroughputs(f *testing.F) {
	f.Add(gavelTables)
	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		if _, err := trace.Read(
			strings.NewReader(gavelSample),
			"fuzz",
			"gavel",
			trace.Options{Tables: write(t, "t.json", text)},
		); err != nil {
			sound(t, err)
		}
	})
}
