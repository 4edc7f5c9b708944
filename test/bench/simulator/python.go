package simulator

import (
	"bytes"
	"context"
	_ "embed" // the reference
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"time"

	"trainyard/internal/sim"
)

//go:embed reference.py
var referenceProgram string

// longest is how long the reference may take.
const longest = 10 * time.Minute

// agreement is how far the mean completions of the two may differ, as a share.
const agreement = 1e-6

// reference is what the Python simulator came to.
type reference struct {
	Seconds float64 `json:"seconds"` // of the processor, the best simulation
	Mean    float64 `json:"mean"`    // completion in seconds
	Events  int     `json:"events"`
}

// python simulates rigid jobs on one pool of GPUs with the reference, so many times. It fails with
// exec.ErrNotFound if there is no Python.
func python(ctx context.Context, jobs []*sim.Job, gpus, times int) (*reference, error) {
	program, err := exec.LookPath("python3")
	if err != nil {
		return nil, err
	}

	rows := make([][3]float64, len(jobs))
	for i, j := range jobs {
		rows[i] = [3]float64{j.At.Seconds(), j.Duration.Seconds(), float64(j.Spec.Resources.GPUs.Min)}
	}

	input, err := json.Marshal(map[string]any{"gpus": gpus, "times": times, "jobs": rows})
	if err != nil {
		return nil, fmt.Errorf("write the jobs for reference.py: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()

	var wrong bytes.Buffer

	cmd := exec.CommandContext(ctx, program, "-c", referenceProgram)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &wrong

	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("reference.py: %w: %.300s", err, wrong.String())
	}

	var r reference
	if err := json.Unmarshal(output, &r); err != nil {
		return nil, fmt.Errorf("reference.py answered %.100q: %w", output, err)
	}

	return &r, nil
}

// agrees reports an error if the reference came to another schedule than ours: then the two times do not compare.
func (r *reference) agrees(ours *sim.Result) error {
	if math.Abs(r.Mean-ours.Completion.Mean) > agreement*r.Mean {
		return fmt.Errorf(
			"the simulators differ: mean completion %.3f s in ours, %.3f s in reference.py", ours.Completion.Mean, r.Mean,
		)
	}

	return nil
}
