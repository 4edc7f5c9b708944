package supervisor

import (
	"path/filepath"
	"slices"
	"strconv"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/job"
)

// Names under which a program that is saved by snapshots sees its directories, below snapshot.Root.
const (
	runBind        = "run"
	checkpointBind = "checkpoint"
)

// view returns what a script sees of the machine. A program that is saved by snapshots sees the directories of its run
// in the same place in every run.
func (s *supervisor) view(during job.RunState) (sandbox.View, error) {
	run, checkpoints, saveable := s.dir, s.checkpoints(), s.saveable(during)
	if saveable {
		run, checkpoints = filepath.Join(snapshot.Root, runBind), filepath.Join(snapshot.Root, checkpointBind)
	}

	if s.rec.User == nil {
		return sandbox.View{Mounts: []sandbox.Mount{{From: s.dir, To: run}, {From: s.checkpoints(), To: checkpoints}}}, nil
	}

	covers, masks, err := s.hidden()
	if err != nil {
		return sandbox.View{}, err
	}

	mine := func(name string) string { return filepath.Join(s.dir, name) }
	tmp := mine(rundir.TmpDir)
	cache := s.cache()
	v := sandbox.View{
		Covers: covers, Masks: masks,
		Mounts: []sandbox.Mount{
			{From: tmp, To: "/tmp"}, {From: tmp, To: "/var/tmp"}, {To: "/dev/shm"}, {From: cache, To: cache},
			{From: mine(rundir.RequestsDir), To: filepath.Join(run, rundir.RequestsDir), ReadOnly: true},
		},
	}

	for _, name := range []string{rundir.WorkDir, rundir.HomeDir, rundir.ReportDir} {
		v.Mounts = append(v.Mounts, sandbox.Mount{From: mine(name), To: filepath.Join(run, name)})
	}

	if slices.ContainsFunc(s.rec.Launch.Secrets, asFile) {
		v.Mounts = append(v.Mounts, sandbox.Mount{
			From: mine(rundir.SecretsDir), To: filepath.Join(run, rundir.SecretsDir), ReadOnly: true,
		})
	}

	if s.rec.ShareLibrary != "" { // the folder is the agent's: the program cannot put other files into it
		v.Mounts = append(v.Mounts, sandbox.Mount{From: mine(rundir.ShareDir), To: filepath.Join(run, rundir.ShareDir)})
	}

	for _, path := range s.rec.Visible {
		v.Mounts = append(v.Mounts, sandbox.Mount{From: path, To: path, ReadOnly: true})
	}

	if dir := s.rec.Setup.OutputDir(); dir != "" && !s.env.making() { // a set-up comes after the environment
		// Only the set-up itself writes there: what later runs of the same owner find must be what it made.
		v.Mounts = append(v.Mounts, sandbox.Mount{From: dir, To: dir, ReadOnly: during == job.RunRunning})
	}

	if dir := s.env.outputDir(); dir != "" {
		v.Mounts = append(v.Mounts, sandbox.Mount{From: dir, To: dir, ReadOnly: !s.env.making()})
	}

	if during == job.RunRunning { // before that it need not be there
		v.Mounts = append(v.Mounts, sandbox.Mount{From: s.checkpoints(), To: checkpoints})
	}

	if s.container != nil {
		v.Mounts = append(v.Mounts, s.container.Accounts(s.dir, s.rec.ShareLibrary != "")...)
	}

	if saveable {
		drafts := mine(rundir.DraftsDir) // closed to the program by its mode; for CRIU
		v.Mounts = append(v.Mounts, sandbox.Mount{From: drafts, To: drafts})
	}

	return v, nil
}

// hidden returns which directories a script does not see the content of, and which files it cannot open. A container
// has nothing of the machine, and of its GPUs those of the rank.
func (s *supervisor) hidden() (covers, masks []string, err error) {
	if s.container != nil {
		return []string{sandbox.HolderDir}, nil, nil
	}

	masks, err = sandbox.OtherGPUs(s.rec.Devices, len(s.rec.Launch.GPUs) > 0 && !s.rec.Fake)

	return []string{s.data}, masks, err
}

// cache returns the directory in which the programs of the rank's user cache what they download.
func (s *supervisor) cache() string {
	return filepath.Join(s.data, rundir.CachesDir, strconv.Itoa(s.rec.User.UID))
}

// asFile reports whether the program gets a secret as a file.
func asFile(entry string) bool {
	_, file := job.SecretName(entry)
	return file
}
