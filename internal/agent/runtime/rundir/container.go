package rundir

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sandbox"
)

// Names for a rank that runs in a container: a directory inside of its run directory, and what is in it.
const (
	// ContainerDir is mounted into the container, at sandbox.HolderDir, for the process that holds it.
	ContainerDir  = "container"
	ContainerFile = "container.json"
	HolderProgram = "hold" // that process
	HolderPipe    = "alive"
	PasswdFile    = "passwd"
	GroupFile     = "group"
	PreloadFile   = "ld.so.preload" // with the library of a rank that shares its GPU
)

// Container is the container of a rank, as the agent has made it.
type Container struct {
	sandbox.Container

	ID     string `json:"id"`     // with the engine
	Digest string `json:"digest"` // of its image, with the name of that
	// Env and Setup are those of the program, in place of what is in the record: both depend on the image.
	Env   []string   `json:"env"`
	Setup *SetupPlan `json:"setup,omitempty"`
}

// ContainerFD is the descriptor of HolderPipe with which the supervisor of such a rank is started. The container ends
// when the last process that has it does.
const ContainerFD = 3

// MakeHolderPipe makes the pipe that holds a container, and opens it. Its reader is the process of the container.
func MakeHolderPipe(dir string) (*os.File, error) {
	path := filepath.Join(dir, ContainerDir, HolderPipe)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make the pipe of a container: %w", err)
	}

	// Opened for both, so that it does not wait for a reader.
	return os.OpenFile(path, os.O_RDWR, 0)
}

// Accounts returns the mounts by which programs find the name of their user, and the loader the library of a rank that
// shares its GPU, given the run directory.
func (c *Container) Accounts(dir string, shares bool) []sandbox.Mount {
	names := []string{PasswdFile, GroupFile}
	if shares {
		names = append(names, PreloadFile)
	}

	var mounts []sandbox.Mount
	for _, name := range names {
		mounts = append(mounts, sandbox.Mount{
			From: filepath.Join(dir, ContainerDir, name), To: filepath.Join("/etc", name), ReadOnly: true,
		})
	}

	return mounts
}

// ReadContainer reads what the agent has made of a container for a rank.
func ReadContainer(dir string) (*Container, error) {
	var c Container
	path := filepath.Join(dir, ContainerDir, ContainerFile)
	if ok, err := ReadJSON(path, &c); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("%s not found", path)
	}

	return &c, nil
}
