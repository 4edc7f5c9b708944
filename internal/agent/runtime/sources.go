package runtime

import (
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
)

// progressVar names the file in which a program tells how far it is.
const progressVar = "TRAINYARD_PROGRESS"

// ProgressFile returns the path of that file. What is there, if anything, is the
// program's: it may be half written, and need not even be a file.
func (r *Runtime) ProgressFile(run id.Run, n int) (string, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return "", err
	}

	return filepath.Join(rk.dir, rundir.ProgressFile), nil
}

// MetricSources are where a rank's program leaves what it measures of itself.
type MetricSources struct {
	Work        string // the working directory
	Checkpoints string
	Metrics     string // TRAINYARD_METRICS_FILE
	Launch      api.Launch
}

// MetricSources returns them. What is there is the program's, as with ProgressFile.
func (r *Runtime) MetricSources(run id.Run, n int) (MetricSources, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return MetricSources{}, err
	}

	return MetricSources{
		Work:        filepath.Join(rk.dir, rundir.WorkDir),
		Checkpoints: filepath.Join(r.dir, rundir.CheckpointsDir, string(rk.rec.Job)),
		Metrics:     filepath.Join(rk.dir, rundir.MetricsFile),
		Launch:      rk.rec.Launch,
	}, nil
}
