package trace_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

const polluxSample = `name,time,application,num_replicas,batch_size
a-0,53,toy,2,80
a-1,154.5,toy,4,40
`

// profiles writes the profile of a toy application, measured on nodes of two GPUs.
func profiles(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"placements.csv": "placement,local_bsz,step_time,sync_time\n1,10,1,0\n1,40,4,0\n2,10,1.25,0.25\n2,40,4.25,0.25\n" +
			"11,10,2,1\n11,40,5,1\n12,10,2,1\n12,40,5,1\n22,10,2,1\n22,40,5,1\n",
		"validation-20.csv": "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1,0\n200,200,2,0,1\n",
		"validation-80.csv": "progress,iteration,metric,grad_sqr,grad_var\n101,30,1,1,0\n202,60,2,0,1\n",
	} {
		path := filepath.Join(folder, "toy", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return folder
}

func TestPolluxModes(t *testing.T) {
	folder := profiles(t)
	at := func(o trace.Options) []*sim.Job {
		o.Tables = folder
		jobs, _ := mustRead(t, "", polluxSample, o)
		return jobs
	}

	rigid := at(trace.Options{Mode: trace.ModeRigid})
	j := rigid[0]
	if j.At != 53*s || rigid[1].At != 154500*time.Millisecond || j.Spec.Speed.Work != 200 ||
		time.Duration(j.Spec.Speed.Start) != 30*s ||
		len(j.Phases) != 1 ||
		j.Phases[0].From != 100 {
		t.Errorf("got %+v", j)
	}

	if r := j.Spec.Resources; r.Nodes.Max != 1 || r.GPUs.Min != 2 || rigid[1].Spec.Resources.Nodes.Min != 2 {
		t.Errorf("got %+v", r)
	}

	// 80 samples on 2 GPUs are 40 each: 4.25 s. In the first epoch there is no
	// noise, and a batch of four is worth one; in the second there is nothing else.
	near(t, "the first epoch", j.Spec.Speed.On("T4", 0).Rate(2, 1), 1/4.25, 1e-9)
	near(t, "the second epoch", j.Phases[0].Speed.On("T4", 0).Rate(2, 1), 4/4.25, 1e-9)

	if c := j.Spec.Speed.On("T4", 0); c.MinGPUs() != 2 || c.MaxGPUs() != 2 {
		t.Errorf("a rigid job runs on %d to %d GPUs", c.MinGPUs(), c.MaxGPUs())
	}

	elastic := at(trace.Options{Mode: trace.ModeElastic, Start: -1, Save: s})[0]
	if c := elastic.Spec.Speed.On("T4", 0); c.MaxGPUs() != 4 || elastic.Spec.Speed.Start != 0 ||
		time.Duration(elastic.Spec.Speed.Save) != s {
		t.Errorf("got %+v", elastic.Spec.Speed)
	}

	// One GPU does 80 samples in two passes of 40, without waiting for others.
	near(t, "one GPU with a batch of 80", elastic.Phases[0].Speed.On("T4", 0).Rate(1, 1), 4/8.0, 1e-9)

	adaptive := at(trace.Options{})[0]
	if r := adaptive.Spec.Resources; r.GPUs != (job.Range{Min: 1, Max: 2}) || r.Nodes.Max != 16 ||
		!adaptive.ReportsProgress {
		t.Errorf("got %+v", r)
	}

	// Without noise the smallest batch is best: 20 samples are 10 for each of two.
	near(t, "the best batch without noise", adaptive.Spec.Speed.On("T4", 0).Rate(2, 1), 1/1.25, 1e-9)

	// With nothing but noise the largest is: four times the base in 4.25 s.
	near(t, "the best batch with noise", adaptive.Phases[0].Speed.On("T4", 0).Rate(2, 1), 4/4.25, 1e-9)
	near(t, "on two nodes", adaptive.Phases[0].Speed.On("T4", 0).Rate(2, 2), 4/5.0, 1e-9)
}

func TestPolluxMistakes(t *testing.T) {
	folder := profiles(t)
	for _, c := range []struct {
		name, text  string
		opts        trace.Options
		field, says string
	}{
		{"replicas", strings.Replace(polluxSample, "toy,4,", "toy,0,", 1), trace.Options{}, "num_replicas", "number of GPUs is out of range"},
		{"batch", strings.Replace(polluxSample, "toy,4,40", "toy,4,0", 1), trace.Options{}, "batch_size", "must be at least 1"},
		{"not measured", strings.Replace(polluxSample, "toy,4,", "toy,64,", 1), trace.Options{Mode: trace.ModeRigid}, "num_replicas", "was not measured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Tables = folder
			_, _, err := read(t, "pollux", c.text, c.opts)
			badRow(t, err, 3, c.field, c.says)
		})
	}

	for says, o := range map[string]trace.Options{
		"needs the profiles": {}, "unknown mode": {Tables: folder, Mode: "wild"}, "no profile of toy": {Tables: t.TempDir()},
	} {
		if _, _, err := read(t, "pollux", polluxSample, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}

	if _, _, err := read(
		t,
		"pollux",
		strings.Replace(polluxSample, "toy", "../toy", 1),
		trace.Options{Tables: folder},
	); err == nil ||
		!strings.Contains(err.Error(), "invalid application name") {
		t.Errorf("got %v: a name must not lead out of the folder", err)
	}
}

// alone returns how long a rigid job runs when nothing is in its way.
func alone(j *sim.Job) float64 {
	r := j.Spec.Resources
	speed, from, total := j.Spec.Speed, 0.0, 0.0
	for _, p := range append(j.Phases, sim.Phase{From: j.Spec.Speed.Work}) {
		total += (p.From - from) / speed.On("T4", 0).Rate(r.Nodes.Min*r.GPUs.Min, r.Nodes.Min)
		speed, from = p.Speed, p.From
	}

	return total
}

// The authors' own simulator gave these completion times under Tiresias. The first
// jobs of each workload meet an empty cluster: they wait for the next minute, start
// for 30 s, and run.
func TestPolluxJobsTakeAsLongAsInTheAuthorsSimulator(t *testing.T) {
	var results struct{ JCTs map[string]map[string]float64 }
	raw, err := os.ReadFile(data(t, "pollux", "results-jobload", "tiresias-1.0", "summary.json"))
	if err == nil {
		err = json.Unmarshal(raw, &results)
	}

	if err != nil {
		t.Fatal(err)
	}

	for w := 1; w <= 6; w++ {
		r, err := trace.Open(data(t, "pollux", "workloads", fmt.Sprintf("workload-%d.csv", w)), "", trace.Options{
			Tables: data(t, "pollux", "traces"), Mode: trace.ModeRigid,
		})
		if err != nil {
			t.Fatal(err)
		}

		jobs, err := trace.Collect(r)
		if err != nil {
			t.Fatal(err)
		}

		for _, j := range jobs[:4] {
			at := j.At.Seconds()
			took := math.Ceil(at/60)*60 - at + 30 + alone(j)
			near(t, fmt.Sprintf("%s of workload %d", j.Name, w), took, results.JCTs[fmt.Sprintf("workload-%d", w)][j.Name], 0.03)
		}
	}
}
