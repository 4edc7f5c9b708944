package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// SetAside moves the directory of an ended rank out of the way and returns where it is. The rank is
// forgotten, but nothing of it is deleted: it belongs to a history of the yard that the server does
// not know, and a person has to decide about it.
func (r *Runtime) SetAside(run id.Run, n int) (string, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return "", err
	}

	r.mu.Lock()
	st := rk.state
	if st.State != job.RunEnded {
		r.mu.Unlock()
		return "", fault.New(fault.Conflict, "rank_running", "rank %d of run %s has not ended", n, run)
	}

	name := rk.name
	if uid := rk.rec.Launch.UID; uid != "" {
		name += "-" + string(uid)
	}

	path := ""

	err = r.secureCheckpoints(rk.rec.Spec)
	if err == nil {
		path, err = r.moveAside(rk.dir, name)
	}

	if err == nil {
		delete(r.ranks, rk.name)
		r.announce()
	}

	r.mu.Unlock()

	if err != nil {
		return "", fmt.Errorf("set rank %s aside: %w", rk.name, err)
	}

	r.pruneCheckpoint(rk.rec.Job)

	return path, st.Group.Remove()
}

// moveAside moves a directory into that of what is set aside, under this name or one like it.
func (r *Runtime) moveAside(dir, name string) (string, error) {
	aside := filepath.Join(r.dir, rundir.SetAsideDir)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return "", err
	}

	path := filepath.Join(aside, name)
	for n := 2; ; n++ {
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}

		path = filepath.Join(aside, name+"-"+strconv.Itoa(n))
	}

	if err := os.Rename(dir, path); err != nil {
		return "", err
	}

	return path, atomicfile.SyncDir(aside)
}

// claimCheckpoints makes sure that a rank does not get the checkpoints of another job that had the
// same id in another history of the yard: those are set aside. Whose they are now is not synced, and not written if
// there are none: the record of the rank says it too until Forget does. The caller holds r.mu.
func (r *Runtime) claimCheckpoints(s rundir.Spec) error {
	if s.Launch.JobUID == "" {
		return nil // of an earlier server, which gives no id twice that it knows of
	}

	owner, err := r.checkpointOwner(s.Job)
	if err != nil || owner == s.Launch.JobUID {
		return err
	}

	if owner == "" {
		if none, err := r.noCheckpoints(s.Job); none || err != nil {
			return err
		}
	} else {
		dir := filepath.Join(r.dir, rundir.CheckpointsDir, string(s.Job))
		aside, err := r.moveAside(dir, "checkpoints-"+string(s.Job)+"-"+string(owner))

		switch {
		case err == nil:
			r.log.Warn("checkpoints of another job with the same id were set aside", "job", s.Job, "dir", aside)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("set the checkpoints of another job %s aside: %w", s.Job, err)
		}
	}

	return r.setCheckpointOwner(s, atomicfile.Volatile())
}

// secureCheckpoints makes the record whose checkpoints these are survive a power cut, before that of the rank
// goes. A job that left none needs no record. Checkpoints that another job with the same id has meanwhile are not this
// rank's. The caller holds r.mu.
func (r *Runtime) secureCheckpoints(s rundir.Spec) error {
	if none, err := r.noCheckpoints(s.Job); none || err != nil || s.Launch.JobUID == "" {
		return err
	}

	if owner, err := r.checkpointOwner(s.Job); err != nil || owner != s.Launch.JobUID {
		return err
	}

	return r.setCheckpointOwner(s)
}

// noCheckpoints reports whether a job has no checkpoints here.
func (r *Runtime) noCheckpoints(j id.Job) (bool, error) {
	_, empty, err := lastTouched(filepath.Join(r.dir, rundir.CheckpointsDir, string(j)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}

	return empty, err
}

// checkpointOwner returns the UID of the job whose checkpoints are kept under an id, "" if that is not recorded. The
// caller holds r.mu.
func (r *Runtime) checkpointOwner(j id.Job) (id.UID, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, rundir.CheckpointOwnersDir, string(j)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read whose checkpoints are kept: %w", err)
	}
	if len(text) > 0 { // a power cut may leave an empty file
		return id.UID(text), nil
	}

	owner, epoch := id.UID(""), 0
	for _, rk := range r.ranks {
		if rk.rec.Job == j && rk.rec.Launch.JobUID != "" && rk.rec.Epoch > epoch {
			owner, epoch = rk.rec.Launch.JobUID, rk.rec.Epoch
		}
	}

	return owner, nil
}

func (r *Runtime) setCheckpointOwner(s rundir.Spec, options ...atomicfile.Option) error {
	path := filepath.Join(r.dir, rundir.CheckpointOwnersDir, string(s.Job))
	options = append(options, atomicfile.SingleWriter())
	if err := atomicfile.Write(path, []byte(s.Launch.JobUID), options...); err != nil {
		return fmt.Errorf("record whose checkpoints are kept: %w", err)
	}

	return nil
}
