package forecast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/forecast/history"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// Names under which programs take what everyone has a word for.
var (
	batchNames = []string{
		"batch_size",
		"batch",
		"global_batch_size",
		"train_batch_size",
		"bs",
		"per_device_train_batch_size",
	}
	rateNames = []string{"lr", "learning_rate", "base_lr", "rate"}
)

// Features returns what is known of a job before it runs, and where it runs.
func Features(j *job.Job, s Stretch) history.Features {
	spec := j.Resolved()
	f := history.Features{
		Name: spec.Name, Owner: string(j.Owner), Command: spec.Run, Identity: identity(j), Framework: spec.Framework,
		GPU: s.GPU, TFLOPS: s.location().peak(), GPUs: float64(s.GPUs), Nodes: float64(s.Nodes),
	}

	if spec.Model != nil {
		f.Task = spec.Model.Task
		f.Model = spec.Model.Kind
		f.Params = spec.Model.Params
	}

	if t := spec.Target; t != nil {
		f.Metric = t.Metric
		switch {
		case t.AtMost != nil:
			f.Target = *t.AtMost
		case t.AtLeast != nil:
			f.Target = *t.AtLeast
		}
	}

	known := map[string]bool{}
	arguments := history.Arguments(spec.Run)
	take := func(names []string) float64 {
		for _, name := range names {
			if v, ok := numeric(spec.Params[name]); ok {
				known[name] = true
				return v
			}
		}

		for _, name := range names { // the job file does not say, its command may
			if v, ok := arguments[name]; ok {
				return v
			}
		}

		return 0
	}

	f.Batch, f.Rate, f.Amount = take(batchNames), take(rateNames), take(history.AmountNames)
	for name, value := range spec.Params {
		if v, ok := numeric(value); ok && !known[name] {
			if f.Hyper == nil {
				f.Hyper = map[string]float64{}
			}

			f.Hyper[name] = v
		}
	}

	return f
}

// identity returns what only repetitions of a job share: its command, its parameters, its files and its resources. It
// is empty if these cannot be written, which what a job file holds always can.
func identity(j *job.Job) string {
	spec := j.Resolved()
	text, err := json.Marshal(struct {
		Run, Setup, Image, Workdir string
		Params                     map[string]any
		Env                        map[string]string
		Data                       []string
		Resources                  job.Resources
		Target                     *job.Target
	}{
		spec.Run, spec.Setup, spec.Image, j.Workdir, spec.Params, spec.Env, spec.Data, spec.Resources, spec.Target,
	})
	if err != nil {
		return ""
	}

	sum := sha256.Sum256(text)

	return hex.EncodeToString(sum[:8])
}

// features returns what is known of a job, with the metric of its curve if it has no target.
func (v *view) features(in *Input, s Stretch) history.Features {
	f := Features(in.Job, s)
	if f.Metric == "" && v.series != nil {
		f.Metric = v.series.Name
	}

	return f
}

// numeric returns a parameter as a number, if it is one.
func numeric(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}

	return 0, false
}

// pastPoints is how many points of a finished job's curve are kept.
const pastPoints = 128

// Finished returns a job that has ended well as what later jobs are compared with, on the
// same metric and the same axis as forecasts of it went by. It returns false if the job never ran.
func Finished(in *Input) (history.Past, bool) {
	if len(in.Runs) == 0 || in.elapsed() <= 0 {
		return history.Past{}, false
	}

	v := newView(in)
	last := in.Runs[len(in.Runs)-1]
	p := history.Past{
		Job:      in.Job.ID,
		Group:    string(in.Job.Owner) + "/" + history.PlainName(in.Job.Spec.Name),
		Features: v.features(in, last),
		Finished: in.Now,
		Seconds:  in.elapsed(),
		Wait:     max(in.Runs[0].From.Sub(in.Job.Submitted).Seconds(), 0),
		Start:    last.Setup,
	}

	for _, r := range in.Progress.Reports {
		p.Reported = append(p.Reported, history.Reported{At: runSeconds(in, unix(r.At)), Remaining: r.Remaining})
	}

	p.Curve = v.curve
	p.Curve.X, p.Curve.Y, p.At = v.thin(in)
	p.End, _ = v.done()
	for i, y := range p.Curve.Y {
		if p.Curve.Goal.Met(y) {
			p.End = p.Curve.X[i]
			break
		}
	}

	return p, true
}

// thin returns the curve with at most as many points as are kept of a finished job, and
// the seconds that it had run at each. The point at which the goal was met stays.
func (v *view) thin(in *Input) (x, y, at []float64) {
	points := make([]metric.Point, len(v.curve.X))
	goal := -1
	for i := range points {
		points[i] = metric.Point{Step: v.curve.X[i], Value: v.curve.Y[i], At: v.reportedAt[i]}

		if goal < 0 && v.curve.Goal.Met(v.curve.Y[i]) {
			goal = i
		}
	}

	kept := metric.Downsample(points, pastPoints)
	if goal >= 0 {
		i, found := slices.BinarySearchFunc(kept, points[goal].Step, func(p metric.Point, s float64) int {
			switch {
			case p.Step < s:
				return -1
			case p.Step > s:
				return 1
			}

			return 0
		})

		if !found {
			kept = slices.Insert(kept, i, points[goal])
		}
	}

	for _, p := range kept {
		x, y, at = append(x, p.Step), append(y, p.Value), append(at, runSeconds(in, p.At))
	}

	return x, y, at
}

// runSeconds returns the seconds that a job had run at a time: without the waits between its runs.
func runSeconds(in *Input, at float64) float64 {
	sum := 0.0
	for i := range in.Runs {
		s := &in.Runs[i]
		sum += min(max(at-unix(s.From), 0), s.seconds(in.Now))
	}

	return sum
}
