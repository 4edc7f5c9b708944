package runtime

import (
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sampler"
	"trainyard/internal/api"
	"trainyard/internal/id"
)

// progressVar is the variable with the path of the file in which a program reports its progress.
const progressVar = "TRAINYARD_PROGRESS"

// ProgressFile returns the path of the progress file. Its content belongs to the program: it may be
// half written, and need not even be a file.
func (r *Runtime) ProgressFile(run id.Run, n int) (string, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return "", err
	}

	return rk.rec.Report(rk.dir, rundir.ProgressFile), nil
}

// MetricSources are the places where a rank's program leaves its metrics.
type MetricSources struct {
	Work        string // the working directory
	Checkpoints string
	Metrics     string // TRAINYARD_METRICS_FILE
	Launch      api.Launch
}

// MetricSources returns the sources of a rank. Their content belongs to the program, as with
// ProgressFile. Of a rank that was forgotten they are there while its working directory is kept.
func (r *Runtime) MetricSources(run id.Run, n int) (MetricSources, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return r.keptSources(run, n)
	}

	return MetricSources{
		Work:        filepath.Join(rk.dir, rundir.WorkDir),
		Checkpoints: rk.rec.Checkpoints(r.dir),
		Metrics:     rk.rec.Report(rk.dir, rundir.MetricsFile),
		Launch:      rk.rec.Launch,
	}, nil
}

// Target returns by what the use of resources of a rank is measured.
func (r *Runtime) Target(run id.Run, n int) (sampler.Target, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return sampler.Target{}, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return sampler.Target{Group: rk.state.Group, PID: rk.state.PID}, nil
}
