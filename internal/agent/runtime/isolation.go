package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api"
)

// userOf returns as whom a program runs, nil if it runs as the agent does.
func (r *Runtime) userOf(l api.Launch) (*sandbox.User, error) {
	if r.opt.Users == nil {
		return nil, nil
	}

	return r.opt.Users.Of(string(l.Owner), l.OwnerNumber)
}

// makeFolders makes the folders of a rank whose program runs as a user of its own.
func makeFolders(dir string, user *sandbox.User) error {
	if user == nil {
		return nil
	}

	var errs []error
	for _, name := range []string{rundir.HomeDir, rundir.TmpDir, rundir.ReportDir} {
		errs = append(errs, sandbox.MakeFolder(filepath.Join(dir, name), user))
	}

	//nolint:gosec // the program reads it, and nobody else can reach it
	errs = append(errs, os.Mkdir(filepath.Join(dir, rundir.RequestsDir), 0o755),
		os.Mkdir(filepath.Join(dir, rundir.DraftsDir), 0o700))

	return errors.Join(errs...)
}

// cacheDir returns the directory in which the programs of a user cache what they download.
func cacheDir(data string, user *sandbox.User) string {
	return filepath.Join(data, rundir.CachesDir, strconv.Itoa(user.UID))
}

// makeCache makes the cache of a user, whose time says when it was last used.
func (r *Runtime) makeCache(user *sandbox.User) error {
	dir, now := cacheDir(r.dir, user), r.clk.Now()
	if err := sandbox.MakeFolder(dir, user); err != nil {
		return err
	}

	return os.Chtimes(dir, now, now)
}

// pruneCaches removes the caches of users who have had no rank here for SetupAge.
func (r *Runtime) pruneCaches() {
	root := filepath.Join(r.dir, rundir.CachesDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		r.log.Error("cannot list the caches", "error", err)
		return
	}

	for _, e := range entries {
		if err := r.pruneCache(filepath.Join(root, e.Name())); err != nil {
			r.log.Error("cannot remove a cache", "dir", e.Name(), "error", err)
		}
	}
}

// pruneCache removes one cache if it is due. It holds the lock under which new ranks are recorded.
func (r *Runtime) pruneCache(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, rk := range r.ranks {
		if rk.rec.User != nil && cacheDir(r.dir, rk.rec.User) == dir {
			return nil
		}
	}

	info, err := os.Stat(dir)
	if err != nil || r.clk.Now().Sub(info.ModTime()) < r.opt.SetupAge {
		return err
	}

	return rundir.RemoveTree(dir)
}

// privateEnv returns the variables by which programs find what belongs to their user, not to the agent.
func privateEnv(rec *rundir.Record, data, path string) map[string]string {
	cache := cacheDir(data, rec.User)
	env := map[string]string{
		"HOME":           filepath.Join(data, rundir.RunsDir, rec.Name(), rundir.HomeDir),
		"TMPDIR":         "/tmp",
		"USER":           rec.User.Name,
		"LOGNAME":        rec.User.Name,
		"XDG_CACHE_HOME": cache,
		"PIP_CACHE_DIR":  filepath.Join(cache, "pip"),
		"HF_HOME":        filepath.Join(cache, "huggingface"),
	}

	// pip installs here if it may not write to the machine's Python. Later runs with the same set-up find it there.
	if dir := rec.Setup.OutputDir(); dir != "" {
		base := filepath.Join(dir, "python")
		env["PYTHONUSERBASE"] = base
		env["PATH"] = filepath.Join(base, "bin") + ":" + path
	}

	return env
}
