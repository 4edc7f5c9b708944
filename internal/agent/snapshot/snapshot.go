// Package snapshot saves the whole state of a running program without its help, and continues it later.
//
// There are three things that it can do, each only where the machine allows it (Probe says so, and why not):
//
//   - Suspend a program in place: its GPU memory is moved to host memory by the driver and its processes are
//     stopped, so that somebody else can use the GPU. Resume is the inverse.
//   - Dump a program into a directory with CRIU, and end it.
//   - Restore a program from such a directory, on this machine or on another one of the same kind.
//
// A program that can be dumped runs in a Space (package sandbox). CRIU restores processes with the pids that they had,
// and in a new pid namespace these are always free. The mount namespace shows the program its run directory at a path
// that is the same for every run on every machine. CRIU runs beside the program, in its namespaces.
//
// The package decides nothing: the supervisor of a rank calls it.
package snapshot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trainyard/internal/atomicfile"
)

// Names inside a snapshot. The marker is written last: a directory without it is not a snapshot.
const (
	Marker    = "snapshot.json"
	ImagesDir = "criu"
	filesName = "files.tar"
)

// version is that of the layout of a snapshot.
const version = 1

// Meta describes a snapshot.
type Meta struct {
	Version int       `json:"version"`
	Taken   time.Time `json:"taken"`
	CRIU    string    `json:"criu"`     // its version
	Root    int       `json:"root"`     // pid of the first process of the program, in its namespace
	LastPID int       `json:"last_pid"` // newest pid in the namespace
	// Pipes are the kernel's names of the pipes into which the program writes its output.
	Pipes [2]string `json:"pipes"`
	// CUDA lists the pids, in the namespace, of the processes whose GPU memory is part of the snapshot.
	CUDA []int `json:"cuda,omitempty"`
	// Fixed lists directories that the program uses by their path on the machine.
	Fixed []string `json:"fixed,omitempty"`
}

// ReadMeta reads the description of the snapshot in a directory.
func ReadMeta(dir string) (Meta, error) {
	var m Meta
	data, err := os.ReadFile(filepath.Join(dir, Marker))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}

	switch {
	case err != nil:
		return Meta{}, fmt.Errorf("read the snapshot: %w", err)
	case m.Version != version:
		return Meta{}, fmt.Errorf("read the snapshot: its format has version %d, this agent knows %d", m.Version, version)
	}

	return m, nil
}

func writeMeta(dir string, m Meta) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, Marker), data, atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("write the description of the snapshot: %w", err)
	}

	return nil
}
