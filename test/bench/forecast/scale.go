package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/spec"
)

const (
	scalePoints = 2_000 // that each job has reported
	scalePast   = 200   // jobs of the same kind that have ended
)

// measureScale measures what one pass of forecasts over very many running jobs costs. Each has
// reported 2,000 points, which the yard keeps thinned out as it keeps all metrics, and 200 jobs of its
// kind have ended. It runs on one core.
func measureScale(w io.Writer, jobs int) (map[string]float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))

	rng := rand.New(rand.NewPCG(5, 17))
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	sp, err := scaleSpec(now)
	if err != nil {
		return nil, err
	}

	var past []history.Past
	for i := range scalePast {
		in := running(sp, fmt.Sprintf("p%d", i), now.Add(-time.Hour), 1, rng)
		in.Runs[0].To = in.Now
		if p, ok := forecast.Finished(&in); ok {
			past = append(past, p)
		}
	}

	before := heapBytes()
	library := forecast.NewLibrary(past, nil)
	record := &calibrate.Record{}

	scored := make([]calibrate.JobScore, len(past))
	for i := range past {
		scored[i] = forecast.Score(&past[i], library, nil)
	}

	record.Add(scored...)
	known := heapBytes()

	list := make([]forecast.Input, jobs)
	for i := range list {
		list[i] = running(sp, fmt.Sprintf("j%d", i), now, 0.05+0.9*rng.Float64(), rng)
		list[i].Library, list[i].Record = library, record
	}

	kept := heapBytes()
	results := make([]*job.Forecast, jobs)

	began, err := cpuTime()
	if err != nil {
		return nil, err
	}

	for i := range list {
		results[i] = forecast.Make(&list[i])
	}

	ended, err := cpuTime()
	if err != nil {
		return nil, err
	}

	made := heapBytes()

	basis := map[job.Basis]int{}
	for _, f := range results {
		basis[f.Basis]++
	}

	figures := map[string]float64{
		"jobs":            float64(jobs),
		"points_reported": scalePoints,
		"points_kept":     float64(len(list[0].Series[0].Points)),
		"past_jobs":       float64(library.Len()),
		"pass_cpu_s":      (ended - began).Seconds(),
		"forecast_cpu_ms": 1e3 * (ended - began).Seconds() / float64(jobs),
		"library_mb":      (known - before) / 1e6,
		"inputs_mb":       (kept - known) / 1e6,
		"forecasts_mb":    (made - kept) / 1e6,
	}

	_, err = fmt.Fprintf(w, "%d jobs with %d points each, of which %.0f are kept, and %d past jobs of their kind\n"+
		"a pass costs %.2f s of one core, %.3f ms a job\n"+
		"memory: %.1f MB past jobs and their record, %.0f MB series of the running jobs, %.1f MB forecasts\n"+
		"forecasts by method: %v\n",
		jobs, scalePoints, figures["points_kept"], library.Len(), figures["pass_cpu_s"], figures["forecast_cpu_ms"],
		figures["library_mb"], figures["inputs_mb"], figures["forecasts_mb"], basis)

	runtime.KeepAlive(list)

	return figures, err
}

func scaleSpec(now time.Time) (*job.Spec, error) {
	file, err := spec.Parse([]byte(`name: gpt2-small
run: python train.py
framework: pytorch
model: {kind: gpt2, task: language, params: 124M}
params: {lr: 0.0006, batch_size: 512}
resources: {gpus: 8}
target: {metric: val_loss, at_most: 3.0}
`), spec.Options{Env: func(string) (string, bool) { return "", false }, Now: now, Location: time.UTC})
	if err != nil {
		return nil, fmt.Errorf("make up a job: %w", err)
	}

	return &file.Jobs[0].Spec, nil
}

// running makes up a job that has come to a part of its way: a loss that falls as powers of steps
// do, with an end, a speed and noise of its own.
func running(sp *job.Spec, name string, now time.Time, part float64, rng *rand.Rand) forecast.Input {
	steps := 5_000 * math.Exp(rng.NormFloat64()/2) // until the loss is 3.0
	each := 0.2 + 0.1*rng.Float64()                // seconds a step
	power := 0.2 + 0.2*rng.Float64()
	began := now.Add(-time.Duration(part * steps * each * float64(time.Second)))

	s := metric.Series{Name: "val_loss", Source: "sdk"}
	for i := 1; i <= scalePoints; i++ {
		x := part * steps * float64(i) / scalePoints
		y := 2.5 + 0.5*math.Pow(x/steps, -power) + 0.002*rng.NormFloat64()
		s.Add(1, metric.Point{Step: math.Round(x*16) / 16, At: float64(began.Unix()) + x*each, Value: y})
	}

	return forecast.Input{
		Job: &job.Job{
			ID:        id.Job(name),
			Owner:     "user",
			Spec:      sp,
			State:     job.Running,
			Submitted: began.Add(-time.Minute),
			Started:   began,
			Epoch:     1,
		},
		Now:    now,
		Runs:   []forecast.Stretch{{Epoch: 1, GPU: "NVIDIA A100-SXM4-80GB", GPUs: 8, Nodes: 1, From: began}},
		Series: []metric.Series{s},
		Hourly: 20,
	}
}

// heapBytes returns the bytes that are in use.
func heapBytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return float64(m.HeapAlloc)
}

// cpuTime returns the processor time of this process.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
