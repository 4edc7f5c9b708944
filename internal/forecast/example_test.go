package forecast_test

import (
	"fmt"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// A job whose program reports progress: 40 of 100 epochs in 40 minutes.
func ExampleMake() {
	start := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	now := start.Add(40 * time.Minute)

	progress := forecast.Progress{Done: 40, Total: 100, At: now, Source: "progress"}
	for epoch := range 40 {
		at := start.Add(time.Duration(epoch) * time.Minute)
		progress.Marks = append(progress.Marks, metric.Point{Step: float64(epoch), At: float64(at.Unix())})
	}

	f := forecast.Make(&forecast.Input{
		Job:      &job.Job{ID: "j1", Owner: "ann", Submitted: start, Spec: &job.Spec{Name: "resnet", Run: "python train.py"}},
		Now:      now,
		Runs:     []forecast.Stretch{{Epoch: 1, GPU: "A100", GPUs: 1, Nodes: 1, From: start}},
		Progress: progress,
		Hourly:   2,
	})

	fmt.Println("estimated finish:", f.End().Round(5*time.Minute).Format("15:04 MST"))
	fmt.Printf("share of work done: %.0f %%\n", 100*f.Done)
	// Output:
	// estimated finish: 13:40 UTC
	// share of work done: 40 %
}
