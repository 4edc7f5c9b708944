package trace_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/rows"
)

const s = time.Second

func TestFormatsYieldTheirJobs(t *testing.T) {
	gavel := write(t, "throughputs.json", gavelTables)
	summit := write(t, "t.csv", summitTables)

	mapping := write(t, "m.yaml", csvMapping)
	for _, c := range []struct {
		name, format, text string
		opts               trace.Options
		want               []brief
		leftOut            int
	}{
		{
			"swf asks for CPUs and begins with its first job", "swf", swfSample, trace.Options{},
			[]brief{{"swf-1", 0, "user1", 97225 * s, 1, 0}, {"swf-2", 227 * s, "user2", s, 1, 0}, {"swf-4", 400 * s, "unknown", 60 * s, 1, 0}}, 1,
		},
		{
			"swf asks for GPUs divided among nodes", "swf", swfSample, trace.Options{GPUs: true, PerNode: 8, Cluster: "3"},
			[]brief{{"swf-1", 0, "user1", 97225 * s, 7, 8}}, 3,
		},
		{
			"philly", "philly", phillySample, trace.Options{},
			[]brief{{"philly-1", 0, "7f04ca", 2240194 * s, 1, 8}, {"philly-2", 10 * s, "6214e9", s, 1, 1}, {"philly-3", 60 * s, "7f04ca", 60 * s, 1, 16}}, 0,
		},
		{
			"philly of one virtual cluster", "philly", phillySample, trace.Options{Cluster: "7f04ca", PerNode: 8},
			[]brief{{"philly-1", 0, "7f04ca", 2240194 * s, 1, 8}, {"philly-2", 60 * s, "7f04ca", 60 * s, 2, 8}}, 1,
		},
		{
			"philly log, sorted", "philly-log", phillyLogSample, trace.Options{Sort: true},
			[]brief{{"application_1", 0, "ee9e8c", 30 * s, 1, 4}, {"application_2", 60 * s, "ann-b", 70 * s, 2, 2}}, 1,
		},
		{
			"helios", "helios", heliosSample, trace.Options{},
			[]brief{{"helios-11", 0, "u1", 3600 * s, 2, 8}, {"helios-14", 20 * s, "u3", 30 * s, 1, 3}}, 2,
		},
		{
			"helios with CPUs", "helios", heliosSample, trace.Options{CPUs: true, Cluster: "vcB"},
			[]brief{{"helios-12", 0, "u2", 60 * s, 1, 0}}, 3,
		},
		{
			"pai", "pai", paiSample, trace.Options{},
			[]brief{{"a1/worker", 0, "pai", 300 * s, 4, 1}, {"b2/tensorflow", 50 * s, "pai", 100 * s, 1, 3}}, 2,
		},
		{
			"openb", "openb", openbSample, trace.Options{},
			[]brief{{"openb-pod-0000", 0, "ls", 3500 * s, 1, 1}, {"openb-pod-0001", 100 * s, "be", 500 * s, 1, 1}}, 2,
		},
		{
			"gavel keeps its times", "gavel", gavelSample, trace.Options{Tables: gavel, PerNode: 2},
			[]brief{{"gavel-1", 0, "gavel", 0, 2, 2}, {"gavel-2", 303 * s, "gavel", 0, 1, 1}}, 0,
		},
		{
			"summit", "summit", summitSample, trace.Options{Tables: summit},
			[]brief{{"J00000", 0, "mix", 0, 1, 1}, {"J00001", 36 * s, "mix", 0, 2, 1}}, 0,
		},
		{
			"a yard's own feed", "yard", yardSample, trace.Options{Default: 4},
			[]brief{{"j1", 0, "ann", 100 * s, 1, 2}, {"j2", 10 * s, "bob", 10 * s, 1, 4}}, 1,
		},
		{
			"csv", "csv", csvSample, trace.Options{Tables: mapping},
			[]brief{{"7", 0, "ann", 3600 * s, 1, 4}, {"9", 120 * s, "cy", s, 1, 2}}, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs, r := mustRead(t, c.format, c.text, c.opts)
			if diff := cmp.Diff(c.want, briefs(jobs), cmp.AllowUnexported(brief{})); diff != "" {
				t.Error(diff)
			}

			if r.LeftOut() != c.leftOut || r.Skipped() != 0 {
				t.Errorf("left out %d, skipped %d; want %d and 0", r.LeftOut(), r.Skipped(), c.leftOut)
			}
		})
	}
}

func TestGuessedFormats(t *testing.T) {
	tables := map[string]string{"gavel": gavelTables, "csv": csvMapping, "summit": summitTables, "pollux": ""}
	for format, text := range map[string]string{
		"swf": swfSample, "philly": phillySample, "philly-log": phillyLogSample, "helios": heliosSample, "pai": paiSample,
		"openb": openbSample, "gavel": gavelSample, "summit": summitSample, "yard": yardSample, "csv": csvSample,
	} {
		t.Run(format, func(t *testing.T) {
			o := trace.Options{Sort: true, Default: 1}
			if text, ok := tables[format]; ok {
				o.Tables = write(t, map[string]string{"csv": "m.yaml"}[format]+"x.json", text)
			}

			if format == "csv" {
				o.Tables = write(t, "m.yml", csvMapping)
			}

			named, _ := mustRead(t, format, text, o)

			guessed, _ := mustRead(t, "", text, o)
			if len(named) == 0 || len(named) != len(guessed) {
				t.Errorf("%d jobs by name, %d by guess", len(named), len(guessed))
			}
		})
	}

	if _, _, err := read(t, "", "what is this\n", trace.Options{}); !strings.Contains(err.Error(), "helios") {
		t.Errorf("got %v, want the list of formats", err)
	}

	if _, _, err := read(t, "nonsense", swfSample, trace.Options{}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v", err)
	}

	if !slices.ContainsFunc(trace.Formats(), func(f trace.Format) bool { return f.Name == "yard" && f.About != "" }) {
		t.Error("the list of formats lacks a yard's own")
	}
}

func TestBadRowsNameTheirPlaceOrAreSkipped(t *testing.T) {
	gavel := write(t, "throughputs.json", gavelTables)
	summit := write(t, "t.csv", summitTables)

	mapping := write(t, "m.yaml", csvMapping)
	for _, c := range []struct {
		name, format, text string
		opts               trace.Options
		line               int
		field, says        string
	}{
		{"swf, no number", "swf", strings.Replace(swfSample, "   327 ", "   soon ", 1), trace.Options{}, 8, "submit", `must be a number, got "soon"`},
		{"swf, short row", "swf", strings.Replace(swfSample, "4 -1 -1 -1\n 3", "4\n 3", 1), trace.Options{}, 8, "think_time", "field is missing"},
		{"swf, negative submission", "swf", strings.Replace(swfSample, "   327 ", "  -327 ", 1), trace.Options{}, 8, "submit", "must be a time"},
		{"swf, absurd run time", "swf", strings.Replace(swfSample, "291900      0 ", "291900  1e300 ", 1), trace.Options{}, 8, "run", "250 years"},
		{"philly, date", "philly", strings.Replace(phillySample, "2017-09-04 10:30:51", "yesterday", 1), trace.Options{}, 3, "timestamp", "2006-01-02"},
		{"philly, broken count", "philly", strings.Replace(phillySample, "0.0,1,0.0", "0.0,1.5,0.0", 1), trace.Options{}, 3, "num_gpus", "must be an integer between 0 and"},
		{"philly, quotation mark", "philly", strings.Replace(phillySample, ",6214e9", `,"6214e9`, 1), trace.Options{}, 3, "", "unterminated"},
		{"philly log, type", "philly-log", strings.Replace(phillyLogSample, `"jobid": "application_1"`, `"jobid": 1`, 1), trace.Options{Sort: true}, 6, "jobid", "invalid job of a Philly log"},
		{"philly log, attempt", "philly-log", strings.Replace(phillyLogSample, "2017-10-07 01:00:30", "2016-10-07 01:00:30", 1), trace.Options{Sort: true}, 6, "attempts", "invalid attempt from"},
		{"helios", "helios", strings.Replace(heliosSample, ",0,8,1,", ",0,-8,1,", 1), trace.Options{}, 3, "cpu_num", "must be an integer between 0 and"},
		{"helios, duration", "helios", strings.Replace(heliosSample, ",60,55", ",NaN,55", 1), trace.Options{CPUs: true}, 3, "duration", "must be a number"},
		{"pai", "pai", strings.Replace(paiSample, "1200.0,58.6", "many,58.6", 1), trace.Options{}, 3, "plan_cpu", "must be a number"},
		{"openb", "openb", strings.Replace(openbSample, "1,460,", "1,4e99,", 1), trace.Options{}, 3, "gpu_milli", "must be a non-negative number"},
		{"gavel, fields", "gavel", strings.Replace(gavelSample, "\t--steps", "", 1), trace.Options{Tables: gavel}, 2, "", "7 or 10"},
		{"gavel, model", "gavel", strings.Replace(gavelSample, "LM (batch size 5)", "LM (batch size 6)", 1), trace.Options{Tables: gavel}, 2, "job_type", "no throughput of LM"},
		{"summit", "summit", strings.Replace(summitSample, "2,32,", "33,32,", 1), trace.Options{Tables: summit}, 3, "max_nodes", "33 to 32"},
		{"summit, model", "summit", strings.Replace(summitSample, "vgg16", "gpt", 1), trace.Options{Tables: summit}, 3, "model", "no throughputs"},
		{"yard, type", "yard", strings.Replace(yardSample, `"owner":"bob"`, `"owner":7`, 1), trace.Options{Default: 1}, 3, "owner", "expected an event or a job"},
		{"yard, no spec", "yard", yardSample, trace.Options{}, 11, "spec", "has no spec of job j2"},
		{"csv", "csv", strings.Replace(csvSample, ";1;1;", ";one;1;", 1), trace.Options{Tables: mapping}, 0, "", ""}, // left out before it is looked at
		{"csv, end before start", "csv", strings.Replace(csvSample, "2026-01-05T11:05", "2026-01-05T09:05", 1), trace.Options{Tables: mapping}, 2, "done", "ends before it starts"},
		{"csv, amount", "csv", strings.Replace(csvSample, ";4;8192", ";4;lots", 1), trace.Options{Tables: mapping}, 2, "ram", "must be a non-negative number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sound, _, err := read(t, c.format, c.text, c.opts)
			if c.line == 0 {
				if err != nil || len(sound) == 0 {
					t.Errorf("got %d jobs, %v", len(sound), err)
				}

				return
			}

			badRow(t, err, c.line, c.field, c.says)
			o := c.opts
			o.SkipBad = true
			jobs, r := mustRead(t, c.format, c.text, o)
			if r.Skipped() != 1 || len(jobs) == 0 {
				t.Errorf("skipped %d rows and kept %d, want 1 skipped and the others kept", r.Skipped(), len(jobs))
			}
		})
	}
}

func TestTextBehindWhichNothingCanBeReadIsAnErrorEvenIfBadRowsAreSkipped(t *testing.T) {
	for _, c := range []struct{ name, format, text string }{
		{"no list", "philly-log", `{"a": 1}`},
		{"list that does not end", "philly-log", `[{"jobid": "x"},`},
		{"broken page", "yard", `{"events": [{"kind": "a"`},
		{"no JSON", "yard", "{\"kind\": \"a\"}\nwhat\n"},
		{"missing column", "philly", "timestamp,duration,num_gpus\n"},
		{"empty table", "helios", ""},
		{"long line", "swf", strings.Repeat("x ", 1<<20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(t, c.format, c.text, trace.Options{SkipBad: true})
			var e *fault.Error
			if !errors.As(err, &e) || e.Kind != fault.Invalid {
				t.Errorf("got %v, want an error of the text", err)
			}
		})
	}
}

func TestJobsOutOfOrderAreAnErrorUnlessSorted(t *testing.T) {
	text := strings.Replace(phillySample, "10:31:41", "10:30:45", 1)
	_, _, err := read(t, "", text, trace.Options{SkipBad: true})

	var e *fault.Error
	if !errors.As(err, &e) || e.Code != "trace_order" || e.Line != 4 || e.Remedy == "" {
		t.Fatalf("got %v, want an error that names line 4 and the remedy", err)
	}

	jobs, _ := mustRead(t, "", text, trace.Options{Sort: true})
	if got := []time.Duration{jobs[0].At, jobs[1].At, jobs[2].At}; !slices.Equal(got, []time.Duration{0, 4 * s, 10 * s}) {
		t.Errorf("got %v", got)
	}
}

func TestAReaderRepeatsItsError(t *testing.T) {
	r, err := trace.Read(strings.NewReader(strings.Replace(phillySample, ",8,", ",x,", 1)), "sample", "", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}

	_, first := r.Next()

	_, second := r.Next()
	if first == nil || !errors.Is(second, first) {
		t.Errorf("got %v and then %v", first, second)
	}
}

func TestPackedFilesAndMissingOnes(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, "\ufeff"+strings.ReplaceAll(phillySample, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	name := write(t, "jobs.csv.gz", packed.String())
	r, err := trace.Open(name, "philly", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if jobs, err := trace.Collect(r); err != nil || len(jobs) != 3 || jobs[2].Owner != "7f04ca" {
		t.Errorf("got %d jobs, %v", len(jobs), err)
	}

	if _, err := trace.Open(name+"x", "", trace.Options{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}

	plain := write(t, "plain.gz", phillySample)
	if _, err := trace.Open(plain, "", trace.Options{}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v", err)
	}

	if err := os.Truncate(name, int64(packed.Len()-20)); err != nil {
		t.Fatal(err)
	}

	r, err = trace.Open(name, "philly", trace.Options{SkipBad: true})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := trace.Collect(r); err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestWhatJobsAskFor(t *testing.T) {
	jobs, _ := mustRead(t, "swf", swfSample, trace.Options{})
	if got := jobs[0].Spec; got.Resources.CPUs != 56000 || time.Duration(got.Expect) != 210000*s || got.Checkpoint == nil {
		t.Errorf("swf: got %+v", got)
	}

	if got := jobs[1].Spec; got.Resources.CPUs != 80000 || got.Expect != 0 {
		t.Errorf("swf with unknown request: got %+v", got)
	}

	jobs, _ = mustRead(t, "swf", swfSample, trace.Options{Exact: true})
	if a, b := jobs[0].Spec.Expect, jobs[2].Spec.Expect; time.Duration(a) != 210000*s || time.Duration(b) != 60*s {
		t.Errorf("exact: owners expect %v and %v", a, b)
	}

	jobs, _ = mustRead(t, "pai", paiSample, trace.Options{CPUs: true})
	if got := jobs[0].Spec.Resources; got.GPUShare != 0.5 || len(got.GPU) != 0 || got.CPUs != 6000 ||
		got.Memory.Short() != "29.3GB" {
		t.Errorf("pai: got %+v", got)
	}

	if got := jobs[1].Spec.Resources; got.GPUShare != 0 || got.GPU[0].Model != "V100" {
		t.Errorf("pai: got %+v", got)
	}

	jobs, _ = mustRead(t, "openb", openbSample, trace.Options{CPUs: true})
	if got := jobs[1].Spec.Resources; got.GPUShare != 0.46 || len(got.GPU) != 2 || got.GPU[1].Model != "V100M32" ||
		got.CPUs != 6000 ||
		got.Memory != 12<<30 {
		t.Errorf("openb: got %+v", got)
	}

	header, err := trace.ReadSWFHeader(write(t, "a.swf", swfSample))
	if err != nil || header.MaxProcs != 100 || header.MaxNodes != 50 || header.Fields["Computer"] != "IBM SP2" ||
		header.Start.Year() != 1996 {
		t.Errorf("got %+v, %v", header, err)
	}
}

func TestGavelSpeeds(t *testing.T) {
	jobs, _ := mustRead(
		t,
		"gavel",
		gavelSample,
		trace.Options{Tables: write(t, "t.json", gavelTables), Start: 5 * s, Save: 2 * s},
	)

	spec := jobs[0].Spec
	if len(spec.Resources.GPU) != 1 || spec.Resources.GPU[0].Model != "V100" {
		t.Errorf("a model that did not run on a kind may not go there: got %v", spec.Resources.GPU)
	}

	v := spec.Speed.On("V100", 0)
	if spec.Speed.Work != 900 || v.Rate(4, 1) != 70.5 || v.Rate(4, 2) != 35.25 || v.MinGPUs() != 4 ||
		time.Duration(spec.Speed.Start) != 5*s {
		t.Errorf("got %+v", spec.Speed)
	}

	if k := jobs[1].Spec.Speed.On("K80", 0); k.Rate(1, 1) != 2.5 {
		t.Errorf("got %v", k.Rate(1, 1))
	}

	for name, text := range map[string]string{
		"no JSON": "{", "no kinds": "{}", "no key": `{"v100": {"ResNet": {"null": 1}}}`, "no number": `{"v100": {"('a', 1)": {"null": "x"}}}`,
	} {
		if _, err := trace.Read(
			strings.NewReader(gavelSample),
			"sample",
			"gavel",
			trace.Options{Tables: write(t, "t.json", text)},
		); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}

	if _, err := trace.Read(
		strings.NewReader(gavelSample),
		"sample",
		"gavel",
		trace.Options{},
	); !strings.Contains(err.Error(), "throughputs") {
		t.Errorf("got %v", err)
	}
}

func TestSummitJobs(t *testing.T) {
	jobs, _ := mustRead(t, "summit", summitSample, trace.Options{Tables: write(t, "t.csv", summitTables)})
	j := jobs[0]
	if c := j.Spec.Speed.On("any", 0); c.Rate(1, 1) != 7000.5 || c.Rate(2, 2) != 13000 || c.MaxGPUs() != 2 {
		t.Errorf("got %+v", j.Spec.Speed)
	}

	if time.Duration(j.Spec.Speed.Start) != 17788*time.Millisecond || j.MaxLoss != 11273*time.Millisecond {
		t.Errorf("start %v, lost %v", j.Spec.Speed.Start, j.MaxLoss)
	}

	if r := jobs[1].Spec.Resources; r.Nodes != (job.Range{Min: 2, Max: 32}) {
		t.Errorf("got %v nodes", r.Nodes)
	}

	jobs, _ = mustRead(t, "summit", summitSample, trace.Options{Start: -1})
	if c := jobs[0].Spec.Speed; c.Start != 0 || c.On("", 0).Rate(64, 64) != 202135.4 {
		t.Errorf("without tables: got %+v", c)
	}
}

func TestTheYardsOwnFeedIsReplayed(t *testing.T) {
	jobs, _ := mustRead(t, "", yardSample, trace.Options{Default: 1})
	spec := jobs[0].Spec
	if spec.Run != "simulated" || spec.Env != nil || spec.Needs != nil || spec.Resources.GPUs.Min != 2 {
		t.Errorf("got %+v", spec)
	}

	if want := sim.Epoch().Add(time.Hour); !spec.Deadline.Equal(want) {
		t.Errorf("deadline %v, want %v: an hour after submission", spec.Deadline, want)
	}

	var page strings.Builder
	page.WriteString(`{"events": [` + strings.ReplaceAll(strings.TrimSpace(yardSample), "\n", ",\n") + `], "next": "13"}`)

	paged, _ := mustRead(t, "", page.String(), trace.Options{Default: 1})
	if diff := cmp.Diff(briefs(jobs), briefs(paged), cmp.AllowUnexported(brief{})); diff != "" {
		t.Errorf("a page gives other jobs than lines:\n%s", diff)
	}

	detail := `{"id": "j2", "owner": "bob", "submitted": "2026-11-01T10:00:20Z", "ended": "2026-11-01T10:09:00Z",
 "spec": {"run": "x", "resources": {"gpus": "3", "nodes": "2"}},
 "runs": [{"started": "2026-11-01T10:01:00Z", "ended": "2026-11-01T10:01:30Z"}, {"started": "2026-11-01T10:02:00Z", "ended": "2026-11-01T10:02:30Z"}, {}]}
`

	only, _ := mustRead(t, "", detail, trace.Options{})
	if diff := cmp.Diff([]brief{{"j2", 0, "bob", 60 * s, 2, 3}}, briefs(only), cmp.AllowUnexported(brief{})); diff != "" {
		t.Error(diff)
	}

	both, _ := mustRead(t, "", detail+yardSample, trace.Options{Sort: true})
	if len(both) != 2 || both[1].Name != "j2" || both[1].Duration != 60*s || both[1].Spec.Resources.GPUs.Min != 3 {
		t.Errorf("got %v", briefs(both))
	}
}

func TestMappings(t *testing.T) {
	jobs, _ := mustRead(t, "csv", csvSample, trace.Options{Tables: write(t, "m.yaml", csvMapping)})
	spec := jobs[0].Spec
	if !spec.Deadline.Equal(sim.Epoch().Add(2*time.Hour)) || spec.LateCost != 2500000 || spec.Priority != 7 ||
		spec.Resources.Memory != 8<<30 {
		t.Errorf("got %+v", spec)
	}

	text := "5 30 2 0.5 A100|H100\n6.5 1 12 1 A100\n"
	mapping := "names: [a, b, c, d, e]\ncolumns: {submit: a, run: b, gpus: c, expect: d, gpu: e}\nconstants: {owner: team, cpus: 4}\ntime: minutes\nunit: hours\ndelimiter: space\n"
	jobs, _ = mustRead(t, "csv", text, trace.Options{Tables: write(t, "m.yaml", mapping), PerNode: 8})

	want := []brief{{"job-1", 0, "team", 30 * time.Hour, 1, 2}, {"job-2", 90 * s, "team", time.Hour, 2, 6}}
	if diff := cmp.Diff(want, briefs(jobs), cmp.AllowUnexported(brief{})); diff != "" {
		t.Error(diff)
	}

	if r := jobs[1].Spec.Resources; r.CPUs != 2000 || time.Duration(jobs[0].Spec.Expect) != 30*time.Minute ||
		len(jobs[0].Spec.Resources.GPU) != 2 {
		t.Errorf("got %+v", r)
	}

	for says, text := range map[string]string{
		"unknown job field":    "columns: {submit: a, run: b, gpus: c, gpuz: d}\n",
		"required":             "columns: {run: b, gpus: c}\n",
		"gpus or cpus":         "columns: {submit: a, run: b}\n",
		"unknown unit of time": "columns: {submit: a, run: b, gpus: c}\nunit: fortnights\n",
		"delimiter must be":    "columns: {submit: a, run: b, gpus: c}\ndelimiter: ab\n",
		"memory size":          "columns: {submit: a, run: b, gpus: c}\nmemory: x\n",
		"not a valid mapping":  "- a\n",
		"not found in type":    "column: {}\n",
	} {
		if _, err := trace.Read(
			strings.NewReader("a,b,c\n"),
			"sample",
			"csv",
			trace.Options{Tables: write(t, "m.yaml", text)},
		); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}

	if _, err := trace.Read(
		strings.NewReader("x,y\n"),
		"sample",
		"csv",
		trace.Options{Tables: write(t, "m.yaml", "columns: {submit: a, run: b, gpus: c}\n")},
	); err == nil ||
		!strings.Contains(err.Error(), "the columns are x, y") {
		t.Errorf("got %v, want the columns that there are", err)
	}
}

func TestOpenbNodes(t *testing.T) {
	text := "sn,cpu_milli,memory_mib,gpu,model\nn-1,32000,262144,0,\nn-2,96000,786432,8,V100M32\n"
	list, err := trace.OpenbNodes(write(t, "nodes.csv", text))
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}

	if n := list[1]; len(n.Inventory.GPUs) != 8 || n.Inventory.GPUs[7].Model != "V100M32" || n.GPUSize() != 32<<30 ||
		n.Inventory.CPUs != 96000 ||
		n.Inventory.Memory != 768<<30 {
		t.Errorf("got %+v", n)
	}

	_, err = trace.OpenbNodes(write(t, "nodes.csv", strings.Replace(text, ",8,", ",65,", 1)))

	var e *fault.Error
	if !errors.As(err, &e) || e.Code != rows.BadRow || e.Line != 3 || e.Field != "gpu" {
		t.Errorf("got %v", err)
	}
}
