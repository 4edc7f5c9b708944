package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/tree"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

// setupPlan says where a rank's set-up is cached.
type setupPlan struct {
	Key string `json:"key"`
	Dir string `json:"dir"` // <data>/setups/<key>
}

// Names inside the folder of a cached set-up.
const (
	setupDirName  = "dir"  // TRAINYARD_SETUP_DIR
	setupTreeName = "tree" // the working directory after the set-up, if that changed it
	setupDone     = "done" // written last; its age is that of the last use
	setupUseLock  = "use"  // held shared by the runs that use it, alone by who removes it
	setupMakeLock = "make" // held by the run that makes it
)

// setupMade is what the file done says.
type setupMade struct {
	Tree bool      `json:"tree"`
	Size job.Bytes `json:"size"`
}

// planSetup returns where the set-up of a launch is cached, nil if it has none.
func planSetup(data string, l api.Launch, base map[string]string) (*setupPlan, error) {
	if l.Setup == "" {
		return nil, nil
	}
	// Maps are written in the order of their keys, so the text is always the same.
	text, err := json.Marshal(struct {
		Owner, Setup, Files string
		Base, Env           map[string]string
	}{string(l.Owner), l.Setup, l.Workdir, base, l.Env})
	if err != nil {
		return nil, fmt.Errorf("plan the set-up: %w", err)
	}
	sum := sha256.Sum256(text)
	key := hex.EncodeToString(sum[:12])
	return &setupPlan{Key: key, Dir: filepath.Join(data, setupsDir, key)}, nil
}

// dir is TRAINYARD_SETUP_DIR.
func (p *setupPlan) dir() string {
	if p == nil {
		return ""
	}
	return filepath.Join(p.Dir, setupDirName)
}

// setUp brings the set-up about, from the cache or by running it. The set-up
// stays in the cache until release is called. It returns false with the end of the rank
// if there is no set-up to go on with.
func (s *supervisor) setUp() (release func(), e ending, ok bool) {
	plan := s.rec.Setup
	use, err := s.lockSetup(setupUseLock, unix.LOCK_SH)
	if err != nil {
		return func() {}, setupTrouble(err), false
	}
	if use == nil {
		return func() {}, s.neverStarted(), false
	}
	release = func() { _ = use.Close() }
	made, have, err := s.cached()
	if err == nil && !have {
		var maker *os.File
		if maker, err = s.lockSetup(setupMakeLock, unix.LOCK_EX); err == nil && maker == nil {
			return release, s.neverStarted(), false
		}
		if err == nil {
			defer func() { _ = maker.Close() }()
			made, have, err = s.cached() // another run may have made it meanwhile
		}
	}
	if err == nil && have {
		err = s.reuse(made)
		if err == nil {
			s.out.remark("set-up %s is taken from the cache", plan.Key)
			return release, ending{}, true
		}
	}
	if err != nil {
		return release, setupTrouble(err), false
	}
	e, ok, err = s.makeSetup()
	if err != nil {
		return release, setupTrouble(err), false
	}
	return release, e, ok
}

// setupTrouble is the end of a rank whose set-up failed through no fault of its own.
func setupTrouble(err error) ending {
	return ending{cause: job.CauseLaunchFailed, reason: fmt.Sprintf("cannot prepare the set-up: %v", err)}
}

// lockSetup takes a lock of the set-up, waiting for who has it. It returns nil
// if the rank is told to stop meanwhile.
func (s *supervisor) lockSetup(name string, how int) (*os.File, error) {
	for told := false; ; {
		f, err := tryLockSetup(s.rec.Setup.Dir, name, how)
		if f != nil || err != nil {
			return f, err
		}
		if !told {
			told = true
			s.out.remark("waiting for another run that makes the same set-up")
		}
		s.await(50 * time.Millisecond)
		if s.toldToStop() {
			return nil, nil
		}
	}
}

// tryLockSetup takes a lock of a set-up, or returns nil if somebody has it. A
// folder that was removed at that very moment is made again.
func tryLockSetup(dir, name string, how int) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		err = unix.EWOULDBLOCK
	}
	if cerr := f.Close(); cerr != nil {
		return nil, cerr
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock set-up %s: %w", path, err)
}

// cached reports whether the set-up is there, ready to be used.
func (s *supervisor) cached() (setupMade, bool, error) {
	var made setupMade
	have, err := readJSON(filepath.Join(s.rec.Setup.Dir, setupDone), &made)
	return made, have, err
}

// reuse puts the cached set-up into the rank's working directory.
func (s *supervisor) reuse(made setupMade) error {
	now := s.clk.Now()
	if err := os.Chtimes(filepath.Join(s.rec.Setup.Dir, setupDone), now, now); err != nil {
		return err
	}
	if !made.Tree {
		return nil
	}
	work := filepath.Join(s.dir, workDir)
	if err := tree.Remove(work); err != nil {
		return err
	}
	return tree.Copy(filepath.Join(s.rec.Setup.Dir, setupTreeName), work)
}

// makeSetup runs the set-up and, if it succeeds, caches what it made.
func (s *supervisor) makeSetup() (ending, bool, error) {
	plan, work := s.rec.Setup, filepath.Join(s.dir, workDir)
	kept := filepath.Join(plan.Dir, setupTreeName)
	// What a failed attempt left behind.
	if err := errors.Join(tree.Remove(plan.dir()), tree.Remove(kept)); err != nil {
		return ending{}, false, err
	}
	if err := os.Mkdir(plan.dir(), 0o700); err != nil {
		return ending{}, false, err
	}
	before, _, err := tree.Fingerprint(work)
	if err != nil {
		return ending{}, false, err
	}
	r, err := s.carryOut(s.rec.Launch.Setup, job.RunPreparing)
	if err != nil {
		return ending{}, false, err
	}
	if !r.ok() {
		return s.judgeSetup(r), false, nil
	}
	after, size, err := tree.Fingerprint(work)
	if err != nil {
		return ending{}, false, err
	}
	made := setupMade{Tree: after != before}
	if _, made.Size, err = tree.Fingerprint(plan.dir()); err != nil {
		return ending{}, false, err
	}
	if made.Tree {
		made.Size += size
		if err := tree.Copy(work, kept); err != nil {
			// The run can go on; the next one makes its set-up again.
			s.complain(err)
			s.out.remark("this set-up is not cached: %v", err)
			return ending{}, true, tree.Remove(kept)
		}
	}
	return ending{}, true, writeJSON(filepath.Join(plan.Dir, setupDone), made, true)
}
