package agent

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"trainyard/internal/agent/pyenv"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// environments is with what the machine makes Python environments. It is looked for now and then: somebody may install
// a tool.
type environments struct {
	mu       sync.Mutex
	found    *fleet.Environments
	at       time.Time
	versions map[string]string // of interpreters that were asked, by path
	asking   bool              // some are being asked
}

// look returns with what jobs make Python environments here: programs on their PATH that they may execute.
func (e *environments) look(ctx context.Context, isolated bool, now time.Time) *fleet.Environments {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.found != nil && now.Sub(e.at) < lookEvery {
		return e.found
	}

	var user *sandbox.User
	if isolated {
		user = &sandbox.User{Name: "nobody", UID: nobody, GID: nobody} // who has no more rights than any job
	}

	tools := pyenv.Find(os.Getenv("PATH"), user.MayExecute)
	found := fleet.Environments{UV: baseName(tools.UV), Conda: baseName(tools.Conda)}

	var versions, unknown []string
	for _, python := range tools.Pythons {
		v, known := e.version(python)
		if !known {
			unknown = append(unknown, python)
		}

		if v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}

	found.Pythons = fleet.PythonsOf(versions)
	e.found, e.at = &found, now

	if len(unknown) > 0 {
		e.at = time.Time{} // the next look has their answers
		e.ask(ctx, unknown, isolated)
	}

	return e.found
}

// ask asks interpreters for their versions, beside everything else: each may take seconds on a busy machine. The caller
// holds mu.
func (e *environments) ask(ctx context.Context, pythons []string, isolated bool) {
	if e.asking {
		return
	}

	e.asking = true

	go func() {
		for _, python := range pythons {
			v := askVersion(ctx, python, isolated)
			if ctx.Err() != nil {
				break // the agent is stopping, which says nothing about the machine
			}

			e.mu.Lock()
			if e.versions == nil {
				e.versions = map[string]string{}
			}

			e.versions[python] = v
			e.mu.Unlock()
		}

		e.mu.Lock()
		e.asking = false
		e.mu.Unlock()
	}()
}

// nobody is the uid and gid that own nothing.
const nobody = 65534

// version returns the version of an interpreter that has venv and pip, as in 3.11; "" for others. Most have it in their
// names and bring these modules in a known place, so that nothing has to be started. It reports false for one that has
// to be asked.
func (e *environments) version(python string) (v string, known bool) {
	if real, err := filepath.EvalSymlinks(python); err == nil {
		name := filepath.Base(real)
		lib := filepath.Join(filepath.Dir(filepath.Dir(real)), "lib", name)

		if _, err := os.Stat(filepath.Join(lib, "os.py")); err == nil {
			v = strings.TrimPrefix(name, "python")
			if !job.PythonVersion(v) || !isFile(lib, "venv") || !isFile(lib, "ensurepip") {
				return "", true
			}

			return v, true
		}
	}

	v, known = e.versions[python]

	return v, known
}

func isFile(lib, module string) bool {
	info, err := os.Stat(filepath.Join(lib, module, "__init__.py"))
	return err == nil && info.Mode().IsRegular()
}

// askTimeout is how long an interpreter may take to say its version.
const askTimeout = 10 * time.Second

// askVersion starts an interpreter for its version. Where jobs are walled off it has no rights of the agent.
func askVersion(ctx context.Context, python string, isolated bool) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, python, "-c",
		`import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])`)
	// One that is a script, as those of pyenv are, has children of its own: all end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	if isolated {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}
	}

	out, err := cmd.Output()
	v := strings.TrimSpace(string(out))

	if err != nil || !job.PythonVersion(v) {
		return ""
	}

	return v
}

// baseName returns the name of a program, "" for none.
func baseName(path string) string {
	if path == "" {
		return ""
	}

	return filepath.Base(path)
}
