package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Daemons runs NVIDIA's MPS daemon for each GPU that jobs of one owner share through it. A daemon outlives the agent.
// Which jobs use it lies on the disk beside its sockets, so that the next agent finds it and knows when to stop it.
type Daemons struct {
	Dir     string // the data directory of the agent
	Program string // name or path of nvidia-cuda-mps-control

	mu sync.Mutex // held while a daemon is started or stopped
}

const (
	mpsDir   = "mps"  // in the data directory, with a folder for each GPU
	pipesDir = "pipe" // in that folder: the sockets of the daemon
	logsDir  = "log"
	jobsDir  = "jobs" // a file for each job that uses the daemon

	// mpsLimit is how long the daemon may take for an answer.
	mpsLimit = 10 * time.Second
	// maxSocketPath is how many bytes the path of a socket may have, and longestSocket the longest name that the daemon
	// gives one. With a longer path it says that it started, and does not answer.
	maxSocketPath = 107
	longestSocket = "control_privileged"
	// shortUUID is how much of the UUID of a GPU is in the path.
	shortUUID = 8
)

func (m *Daemons) folder(uuid string) string {
	name := strings.TrimPrefix(uuid, "GPU-")

	return filepath.Join(m.Dir, mpsDir, name[:min(len(name), shortUUID)])
}

// Pipes returns the folder in which programs find the daemon of a GPU.
func (m *Daemons) Pipes(uuid string) string { return filepath.Join(m.folder(uuid), pipesDir) }

// Find says why this machine has no MPS, nil if it has.
func (m *Daemons) Find() error {
	if _, err := exec.LookPath(m.Program); err != nil {
		return fmt.Errorf("find NVIDIA MPS: %w", err)
	}

	longest := filepath.Join(m.Pipes(strings.Repeat("x", shortUUID)), longestSocket)
	if len(longest) > maxSocketPath {
		return fmt.Errorf("the data directory has too long a path for NVIDIA MPS: its socket %s would have %d bytes, "+
			"of at most %d", longest, len(longest), maxSocketPath)
	}

	return nil
}

// Use starts the daemon of a GPU for a job, unless it runs.
func (m *Daemons) Use(ctx context.Context, uuid, job string) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	folder := m.folder(uuid)

	err := m.Find()
	if err == nil {
		err = enter(folder, job)
	}

	if err == nil && !m.answers(ctx, folder) {
		err = m.start(ctx, folder, uuid)
	}

	if err != nil {
		return fmt.Errorf("start NVIDIA MPS for %s: %w; remove share_mps from the job, or see %s on the node", uuid, err,
			filepath.Join(folder, logsDir))
	}

	return nil
}

// enter notes that a job uses the daemon of a folder.
func enter(folder, job string) error {
	jobs := filepath.Join(folder, jobsDir)
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(jobs, job), nil, 0o600)
}

// start starts a daemon and waits until it answers.
func (m *Daemons) start(ctx context.Context, folder, uuid string) error {
	pipes := filepath.Join(folder, pipesDir)

	err := os.RemoveAll(pipes) // of a daemon that has gone
	for _, name := range []string{pipes, filepath.Join(folder, logsDir)} {
		err = errors.Join(err, os.MkdirAll(name, 0o700))
	}

	if err != nil {
		return err
	}

	out, err := m.control(ctx, folder, "", "CUDA_VISIBLE_DEVICES="+uuid)
	if err != nil {
		return err
	}

	const between = 50 * time.Millisecond
	for range mpsLimit / between {
		if m.answers(ctx, folder) {
			return nil
		}

		if !clock.Sleep(ctx, between) {
			return context.Cause(ctx)
		}
	}

	return fmt.Errorf("the daemon does not answer: %.200s", out)
}

// answers reports whether the daemon of a folder runs.
func (m *Daemons) answers(ctx context.Context, folder string) bool {
	_, err := m.control(ctx, folder, "get_server_list\n")

	return err == nil
}

// control sends the daemon of a folder a command, or starts one if there is no command.
func (m *Daemons) control(ctx context.Context, folder, command string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, mpsLimit)
	defer cancel()

	cmd := exec.CommandContext(ctx, m.Program)
	if command == "" {
		cmd.Args = append(cmd.Args, "-d")
	}

	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(command)
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(folder, pipesDir),
		"CUDA_MPS_LOG_DIRECTORY="+filepath.Join(folder, logsDir))
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = time.Second

	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) { // the daemon has kept the output
		err = nil
	}

	text := strings.TrimSpace(string(out))
	if err != nil && text != "" {
		err = fmt.Errorf("%w: %.200s", err, text)
	}

	return text, err
}

// Tidy stops the daemons whose jobs have all ended. running is called when it is known which jobs use them.
func (m *Daemons) Tidy(ctx context.Context, running func() map[string]bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	folders, err := filepath.Glob(filepath.Join(m.Dir, mpsDir, "*"))
	if err != nil || len(folders) == 0 {
		return err
	}

	used := map[string][]string{}

	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(folder, jobsDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		for _, e := range entries {
			used[folder] = append(used[folder], e.Name())
		}
	}

	var errs []error

	live := running()
	for _, folder := range folders {
		left := 0

		for _, job := range used[folder] {
			if live[job] {
				left++
			} else {
				errs = append(errs, os.Remove(filepath.Join(folder, jobsDir, job)))
			}
		}

		if left == 0 {
			errs = append(errs, m.stop(ctx, folder))
		}
	}

	return errors.Join(errs...)
}

// stop ends a daemon and removes its folder.
func (m *Daemons) stop(ctx context.Context, folder string) error {
	if m.answers(ctx, folder) {
		if _, err := m.control(ctx, folder, "quit\n"); err != nil {
			return fmt.Errorf("stop NVIDIA MPS in %s: %w", folder, err)
		}
	}

	return os.RemoveAll(folder)
}
