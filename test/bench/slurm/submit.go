package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// heldCode is the "error" with which Slurm accepts a job that was asked to wait.
const heldCode = 2042

// Submit hands in one job.
type Submit func(ctx context.Context) error

// Batch returns a Submit that runs one sbatch process per job. Its script is
// one line of shell; a held job stays in the queue.
func (c *Cluster) Batch(line string, hold bool) (Submit, error) {
	file, err := os.CreateTemp(c.dir, "script-*.sh")
	if err != nil {
		return nil, fmt.Errorf("make a batch script: %w", err)
	}

	_, err = file.WriteString(script(line))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}

	if err != nil {
		return nil, fmt.Errorf("write a batch script: %w", err)
	}

	args := []string{"--parsable", "--output=/dev/null", "--chdir=/"}
	if hold {
		args = append(args, "--hold")
	}

	args = append(args, file.Name())

	return func(ctx context.Context) error {
		_, err := c.output(ctx, "sbatch", args...)
		return err
	}, nil
}

// Interactive returns a Submit that starts line by srun and ends when it has ended. Srun leaves a second process behind
// for a moment that holds its output, so that nobody may wait for the end of that: errors go to a file.
func (c *Cluster) Interactive(line string) Submit {
	return func(ctx context.Context) (err error) {
		wrong, err := os.CreateTemp(c.dir, "srun-*.err")
		if err != nil {
			return fmt.Errorf("make a file for srun's errors: %w", err)
		}

		defer func() { err = errors.Join(err, wrong.Close(), os.Remove(wrong.Name())) }()

		cmd := c.command(ctx, "srun", "/bin/sh", "-c", line)
		cmd.Stderr = wrong

		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(wrong.Name()) // what it says is better than nothing
			return fmt.Errorf("run srun: %w: %s", err, bytes.TrimSpace(text))
		}

		return nil
	}
}

// submission is the body of a REST submission, as v0.0.38 wants it.
type submission struct {
	Script string        `json:"script"`
	Job    jobProperties `json:"job"`
}

type jobProperties struct {
	Name        string            `json:"name"`
	WorkDir     string            `json:"current_working_directory"`
	Output      string            `json:"standard_output"`
	Hold        bool              `json:"hold,omitempty"`
	Environment map[string]string `json:"environment"`
}

// answer is what of slurmrestd's answers we read.
type answer struct {
	JobID  int `json:"job_id"`
	Errors []struct {
		Code int    `json:"error_code"`
		Text string `json:"error"`
	} `json:"errors"`
}

// REST returns a Submit that posts to slurmrestd over one connection of its
// own, kept open from call to call. It is for one client at a time.
func (c *Cluster) REST(line string, hold bool) (Submit, error) {
	name, value, _ := strings.Cut(searchPath, "=")
	body, err := json.Marshal(submission{Script: script(line), Job: jobProperties{
		Name: "bench", WorkDir: "/", Output: "/dev/null", Hold: hold, Environment: map[string]string{name: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode a submission: %w", err)
	}

	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1}}

	return func(ctx context.Context) error {
		var got answer
		if err := c.call(ctx, client, http.MethodPost, "/job/submit", body, &got); err != nil {
			return err
		}

		for _, e := range got.Errors {
			if e.Code != heldCode {
				return fmt.Errorf("submit by REST: %s (%d)", e.Text, e.Code)
			}
		}

		if got.JobID == 0 {
			return fmt.Errorf("submit by REST: no job id in the answer")
		}

		return nil
	}, nil
}

// call makes one REST request and decodes the answer into out, unless that is nil.
func (c *Cluster) call(ctx context.Context, client *http.Client, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.restURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}

	req.Header.Set("X-SLURM-USER-NAME", "root")
	req.Header.Set("X-SLURM-USER-TOKEN", c.token)

	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}

	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask slurmrestd: %w", err)
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read slurmrestd's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("slurmrestd answered %s to %s: %.200s", resp.Status, path, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("decode slurmrestd's answer: %w", err)
	}

	return nil
}

// Pending counts the jobs that wait in the queue, as squeue tells it.
func (c *Cluster) Pending(ctx context.Context) (int, error) {
	out, err := c.output(ctx, "squeue", "-h", "-t", "PD", "-o", "%i")
	if err != nil {
		return 0, err
	}

	return len(strings.Fields(out)), nil
}

func script(line string) string { return "#!/bin/sh\n" + line + "\n" }

// command makes a command in this cluster's environment.
func (c *Cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Dir = c.dir

	return cmd
}

// output runs a client command and returns what it printed.
func (c *Cluster) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := c.command(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", filepath.Base(name), err, strings.TrimSpace(stderr.String()))
	}

	return stdout.String(), nil
}

// ask returns a readiness test: the command's output must contain want.
func (c *Cluster) ask(name, arg, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := c.output(ctx, name, arg)
		if err != nil {
			return err
		}
		if !strings.Contains(out, want) {
			return fmt.Errorf("%s says %q", name, strings.TrimSpace(out))
		}

		return nil
	}
}
