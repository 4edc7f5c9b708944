package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lasting are the files of a run directory that the next rank can have, and what they are.
var lasting = map[string]fs.FileMode{
	StateFile: 0, StopFile: 0, LockFile: 0, SupervisorLog: 0, LaunchFile: 0, ControlPipe: fs.ModeNamedPipe,
}

// Recycle makes of the run directory of a rank that has ended one that is as Reserve leaves a new one: a file system
// takes many times as long to make and to remove a file as to write it again. The supervisor of the rank must have
// closed all its files. What others may still have open is made again: the watcher holds the lock of a rank until it
// hears of the end, and whoever reads the output may be slow.
//
// Nothing is synced. After a power cut a file may have what it had for the rank before, which its name says. If it
// fails, the directory cannot be used.
func Recycle(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	found := 0

	for _, e := range entries {
		kind, lasts := lasting[e.Name()]

		switch {
		case !lasts:
			err = RemoveTree(filepath.Join(dir, e.Name()))
		case e.Type() != kind:
			err = fmt.Errorf("%s was replaced", e.Name())
		default:
			found++
		}

		if err != nil {
			return err
		}
	}

	if found < len(lasting) {
		return fmt.Errorf("%d of %d files are missing", len(lasting)-found, len(lasting))
	}

	var errs []error
	for _, name := range []string{StateFile, StopFile} {
		errs = append(errs, clearSlots(filepath.Join(dir, name)))
	}

	for _, name := range []string{WatchLockFile, SupervisorLog, OutputFile} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}

	return errors.Join(errs...)
}

// ClearState removes the state from a run directory, and leaves the room for it. No process may have the rank.
func ClearState(dir string) error { return clearSlots(filepath.Join(dir, StateFile)) }

// clearSlots removes the records of a file of slots and leaves it its blocks.
func clearSlots(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteAt(make([]byte, recordSlots*slotSize), 0)

	return errors.Join(err, f.Close())
}
