package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/pyenv"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/job"
)

// environment is the Python environment of the rank.
type environment struct {
	pyenv.Request

	plan  *rundir.SetupPlan
	maker *os.File // the lock under which it is being made; nil if it is not
	shown string   // the progress that was recorded last
}

// environmentTrouble begins the reason of a rank that has no environment.
const environmentTrouble = "cannot build the Python environment: "

// outputDir returns the directory of the environment, "" for a rank without one.
func (e *environment) outputDir() string {
	if e == nil {
		return ""
	}

	return e.plan.OutputDir()
}

// making reports whether the environment is being made.
func (e *environment) making() bool { return e != nil && e.maker != nil }

// provideEnvironment provides the Python environment that the launch asks for, from the cache or by making it, and lets
// all scripts that follow run in it. It stays in the cache until release is called. If there is none,
// provideEnvironment returns false and the ending of the rank.
func (s *supervisor) provideEnvironment() (release func(), e rundir.Ending, ok bool) {
	release = func() {}

	env, err := s.planEnvironment()
	if err != nil {
		return release, environmentEnding(err), false
	}

	s.env = env

	use, err := s.lockSetup(env.plan.Dir, rundir.SetupUseLock, unix.LOCK_SH, s.showWait)
	if err != nil {
		return release, environmentEnding(err), false
	}
	if use == nil {
		return release, s.neverStarted(), false
	}

	release = func() { _ = use.Close() }

	have, stopped, err := s.takeEnvironment()
	switch {
	case err != nil:
		return release, environmentEnding(err), false
	case stopped:
		return release, s.neverStarted(), false
	}

	if !have {
		e, ok, err := s.makeEnvironment()
		err = errors.Join(err, env.maker.Close())
		env.maker = nil

		if err != nil {
			return release, environmentEnding(err), false
		}
		if !ok {
			return release, e, false
		}
	}

	s.rec.Env = env.Environ(s.rec.Env, env.plan.OutputDir())
	s.state.Reason = ""

	return release, rundir.Ending{}, true
}

// environmentEnding returns the ending of a rank that has no environment: because of its job, or of the machine.
func environmentEnding(err error) rundir.Ending {
	e := rundir.Ending{Cause: job.CauseLaunchFailed, Reason: environmentTrouble + err.Error()}

	var own *pyenv.Error
	if errors.As(err, &own) {
		e.Cause = job.CauseSetupFailed
	}

	return e
}

// planEnvironment finds out which environment the launch asks for.
func (s *supervisor) planEnvironment() (*environment, error) {
	path, uid := "", 0
	for _, entry := range s.rec.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}

	if s.rec.User != nil {
		uid = s.rec.User.UID
	}

	l := &s.rec.Launch
	env := &environment{Request: pyenv.Request{
		Python: *l.Python, Owner: string(l.Owner), UID: uid, Work: filepath.Join(s.dir, rundir.WorkDir), Files: l.Workdir,
		Env: s.rec.Env, Tools: pyenv.Find(path, s.rec.User.MayExecute),
	}}

	key, err := env.Key()
	if err != nil {
		return nil, err
	}

	env.plan = &rundir.SetupPlan{Key: key, Dir: filepath.Join(s.data, rundir.SetupsDir, key)}

	return env, nil
}

// showWait says that another run makes the same environment.
func (s *supervisor) showWait() {
	const words = "waiting for another run that is building the same Python environment"
	s.out.remark(words)
	s.state.Reason = words
	s.record()
}

// takeEnvironment takes the environment from the cache. If it is not there, it takes the lock under which it is made.
// If another run holds that, it waits for the other and takes what that has made.
func (s *supervisor) takeEnvironment() (have, stopped bool, err error) {
	dir := s.env.plan.Dir

	_, have, err = s.cached(dir)
	if err == nil && !have {
		s.env.maker, err = s.lockSetup(dir, rundir.SetupMakeLock, unix.LOCK_EX, s.showWait)
		if err != nil || s.env.maker == nil {
			return false, err == nil, err
		}

		if _, have, err = s.cached(dir); err != nil || have {
			err = errors.Join(err, s.env.maker.Close())
			s.env.maker = nil
		}
	}

	if err != nil || !have {
		return false, false, err
	}

	now := s.clk.Now()
	if err := os.Chtimes(filepath.Join(dir, rundir.SetupResultFile), now, now); err != nil {
		return false, false, err
	}

	s.out.remark("Python environment %s taken from the cache", s.env.plan.Key)

	return true, false, nil
}

// makeEnvironment makes the environment and caches it if that succeeds. The directory has its final name from the
// beginning, because the programs in an environment contain its path; it counts only once its result is written.
func (s *supervisor) makeEnvironment() (rundir.Ending, bool, error) {
	plan := s.env.plan
	dir := plan.OutputDir()

	// A new directory, also for what is left of a maker that was killed: its programs see the old one.
	if err := rundir.RemoveTree(dir); err != nil {
		return rundir.Ending{}, false, err
	}
	if err := s.makeDir(dir); err != nil {
		return rundir.Ending{}, false, err
	}

	text, err := s.env.Script(dir)
	if err != nil {
		return rundir.Ending{}, false, err
	}

	s.out.remark("building Python environment %s", plan.Key)
	s.state.Reason = "building the Python environment"

	r, err := s.runScript(text, job.RunPreparing)
	if err != nil {
		return rundir.Ending{}, false, err
	}
	if !r.ok() {
		e := s.classifyEnvironment(r)
		return e, false, rundir.RemoveTree(dir)
	}

	_, size, err := fingerprint(dir)
	if err != nil {
		return rundir.Ending{}, false, err
	}
	if err := s.sealEnvironment(dir); err != nil {
		return rundir.Ending{}, false, err
	}

	result := filepath.Join(plan.Dir, rundir.SetupResultFile)

	return rundir.Ending{}, true, rundir.WriteJSON(result, rundir.SetupResult{Size: size}, true)
}

// classifyEnvironment determines why an environment could not be made.
func (s *supervisor) classifyEnvironment(r result) rundir.Ending {
	e := s.classify(r)
	if !r.signalled && e.Cause == job.CauseUserCode {
		e.Cause = job.CauseSetupFailed
		e.Reason = environmentTrouble + rundir.ClipTo(pyenv.Explain(s.out.end()), maxExplanation)
	}

	return e
}

// maxExplanation is how many bytes the explanation of a failure may have.
const maxExplanation = 1200

// sealEnvironment lets nobody write to an environment any more, and makes sure that a power cut after this takes none
// of its files.
func (s *supervisor) sealEnvironment(dir string) error {
	if s.rec.User != nil {
		if err := sandbox.Seal(dir, s.rec.User); err != nil {
			return err
		}
	} else if err := protect(dir); err != nil {
		return err
	}

	f, err := os.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// protect makes files and directories read-only. Programs that run as the agent does could change that, but do not by
// accident.
func protect(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}

	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		return root.Chmod(path, info.Mode().Perm()&^0o222)
	})

	return errors.Join(err, root.Close())
}

// environmentEvery is how often the progress of an environment is recorded.
const environmentEvery = time.Second

// showProgress records how far the environment is that is being made.
func (s *supervisor) showProgress() {
	words := pyenv.Progress(s.out.end(), installed(s.env.plan.OutputDir()))
	if words == "" || words == s.env.shown {
		return
	}

	s.env.shown = words
	s.state.Reason = "building the Python environment: " + rundir.Clip(words)
	s.record()
}

// maxListed is how many names in a directory are looked at.
const maxListed = 20_000

// installed counts the packages of an environment that is being made. Its maker may change it meanwhile; no link leads
// out of it.
func installed(dir string) int {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0
	}

	defer func() { _ = root.Close() }()

	lib := filepath.Join(filepath.Base(pyenv.Prefix(dir)), "lib")
	count := 0

	for _, version := range list(root, lib) {
		for _, name := range list(root, filepath.Join(lib, version, "site-packages")) {
			own := strings.HasPrefix(name, "pip-") || strings.HasPrefix(name, "setuptools-") // which come with it
			if strings.HasSuffix(name, ".dist-info") && !own {
				count++
			}
		}
	}

	return count
}

// list returns names in a directory, none if it cannot be read.
func list(root *os.Root, name string) []string {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}

	defer func() { _ = f.Close() }()

	names, _ := f.Readdirnames(maxListed)

	return names
}

// makeDir makes a directory that is given to a script.
func (s *supervisor) makeDir(dir string) error {
	if s.rec.User != nil {
		return sandbox.MakeFolder(dir, s.rec.User)
	}

	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for a script: %w", err)
	}

	return nil
}
