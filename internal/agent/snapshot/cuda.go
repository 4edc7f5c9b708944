package snapshot

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed cuda.py
var cudaScript string

// lockTimeout is how long the driver waits for the work that a program has already given to the GPU.
const lockTimeout = 2 * time.Minute

// CUDA reaches the checkpoint calls of the NVIDIA driver. They are functions of its library, which this binary does not
// link, so Python calls them: what trains on a GPU has Python beside it.
type CUDA struct {
	Python  string  // the interpreter; default python3
	Command Command // runs it; default Execute
}

// errNoCUDA says that the driver, or its checkpoint calls, are missing.
var errNoCUDA = errors.New("the NVIDIA driver has no checkpoint calls")

// usage is what the driver says of one process.
type usage struct {
	PID     int    `json:"pid"`
	State   string `json:"state"` // "" if it does not use CUDA
	Error   string `json:"error"`
	Missing string `json:"missing"`
	Used    int64  `json:"used"` // bytes of a GPU
}

// cudaRunning is the state of a process that uses CUDA and is not suspended.
const cudaRunning = "running"

// ask runs the helper on some processes.
func (c CUDA) ask(ctx context.Context, verb string, pids []int) ([]usage, error) {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}

	return c.run(ctx, verb, words)
}

func (c CUDA) run(ctx context.Context, verb string, words []string) ([]usage, error) {
	python := c.Python
	if python == "" {
		python = "python3"
	}

	args := append([]string{"-c", cudaScript, verb, strconv.FormatInt(lockTimeout.Milliseconds(), 10)}, words...)

	out, err := c.Command.output(ctx, python, args...)
	if err != nil {
		return nil, fmt.Errorf("ask the NVIDIA driver to %s: %w", verb, err)
	}

	return parseUsage(verb, out)
}

// parseUsage reads the answers of the helper. With the error come the answers that are good.
func parseUsage(verb string, out []byte) ([]usage, error) {
	var all []usage
	var errs []error
	for line := range strings.Lines(string(out)) {
		var u usage
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			return nil, fmt.Errorf("ask the NVIDIA driver to %s: %w", verb, err)
		}

		switch {
		case u.Missing != "":
			return nil, fmt.Errorf("%w: %s", errNoCUDA, u.Missing)
		case u.Error != "" && u.PID == 0:
			errs = append(errs, fmt.Errorf("ask the NVIDIA driver to %s: %s", verb, u.Error))
		case u.Error != "":
			errs = append(errs, fmt.Errorf("%s process %d: %s", verb, u.PID, u.Error))
		default:
			all = append(all, u)
		}
	}

	return all, errors.Join(errs...)
}

// Available says why the driver cannot suspend processes, nil if it can.
func (c CUDA) Available(ctx context.Context) error {
	_, err := c.ask(ctx, "state", nil)
	return err
}

// Suspend moves the GPU memory of those processes that use CUDA to host memory, and returns which ones these are. They
// go on until they call CUDA next. On failure all go on as before.
func (c CUDA) Suspend(ctx context.Context, pids []int) ([]int, error) {
	found, err := c.ask(ctx, "state", pids)
	if err != nil {
		return nil, err
	}

	var users []int
	for _, u := range found {
		if u.State != "" {
			users = append(users, u.PID)
		}
	}

	if len(users) == 0 {
		return nil, nil
	}

	_, err = c.ask(ctx, "suspend", users)
	if err != nil {
		return nil, errors.Join(err, c.Resume(context.WithoutCancel(ctx), users))
	}

	return users, nil
}

// Memory returns how many bytes of some GPUs are in use.
func (c CUDA) Memory(ctx context.Context, gpus []string) (int64, error) {
	found, err := c.run(ctx, "memory", gpus)
	if err != nil {
		return 0, err
	}

	var sum int64
	for _, u := range found {
		sum += u.Used
	}

	return sum, nil
}

// Resume gives suspended processes their GPU memory back.
func (c CUDA) Resume(ctx context.Context, pids []int) error {
	if len(pids) == 0 {
		return nil
	}

	found, err := c.ask(ctx, "resume", pids)
	if err != nil {
		return err
	}

	for _, u := range found {
		if u.State != cudaRunning && u.State != "" {
			return fmt.Errorf("resume process %d: the driver says it is %s", u.PID, u.State)
		}
	}

	return nil
}
