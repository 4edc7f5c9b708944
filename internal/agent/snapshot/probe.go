package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fleet"
)

// oldestDriver is the first branch of the NVIDIA driver whose checkpoint calls save a PyTorch program.
const oldestDriver = 570

// Probe finds out which snapshots a machine with these GPUs can take.
type Probe struct {
	CRIU string // name or path; default criu
	CUDA CUDA
	GPUs []fleet.GPU
	// Isolated says that programs run as users of their own.
	Isolated bool
	// Root is "/" outside of tests.
	Root string
}

// Run probes the machine. It starts CRIU and asks the driver, and changes nothing.
func (p Probe) Run(ctx context.Context) fleet.Snapshots {
	driver := p.driver(ctx)
	criu, process := p.process(ctx)

	gpu := process
	if gpu == nil {
		gpu = driver
	}

	suspend := driver
	if len(p.GPUs) > 0 && p.GPUs[0].Fake {
		suspend = nil // programs have no memory there that would have to be moved
	}

	return fleet.Snapshots{Suspend: ability(suspend), Process: ability(process), GPU: ability(gpu), CRIU: criu}
}

// ability is what a node can do, or why it cannot.
func ability(err error) fleet.Ability {
	if err != nil {
		return fleet.Ability{Reason: err.Error()}
	}

	return fleet.Ability{OK: true}
}

// FindCRIU returns the path of CRIU, by default the one that is called criu.
func FindCRIU(name string) (string, error) {
	if name == "" {
		name = "criu"
	}

	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("CRIU is not installed")
	}
	if err != nil {
		return "", fmt.Errorf("CRIU is not installed: %w", err)
	}

	return path, nil
}

// process returns the version of CRIU, or says why processes cannot be dumped and restored here.
func (p Probe) process(ctx context.Context) (version string, err error) {
	path, err := FindCRIU(p.CRIU)
	if err != nil {
		return "", err
	}
	if os.Geteuid() != 0 {
		return "", errors.New("the agent does not run as root")
	}

	version, err = criuVersion(ctx, nil, path)
	if err != nil {
		return "", err
	}

	for _, name := range []string{"proc/self/ns/pid", "proc/self/ns/mnt", "proc/sys/kernel/ns_last_pid"} {
		if _, err := os.Stat(p.path(name)); err != nil {
			return "", fmt.Errorf("the kernel has no /%s", name)
		}
	}

	if p.Isolated {
		if err := sandbox.MaySave(); err != nil {
			return "", err
		}
	}

	if err := checkCRIU(ctx, path); err != nil {
		return "", err
	}

	return version, nil
}

func (p Probe) path(name string) string {
	if p.Root == "" {
		return "/" + name
	}

	return p.Root + "/" + name
}

// driver says why the GPU memory of a program cannot be moved to host memory here, nil if it can.
func (p Probe) driver(ctx context.Context) error {
	switch {
	case len(p.GPUs) == 0:
		return errors.New("no GPU")
	case p.GPUs[0].Fake:
		return errors.New("its GPUs are fake")
	case p.GPUs[0].Driver == "":
		return errors.New("the version of the GPU driver is not known")
	}

	branch, _, _ := strings.Cut(p.GPUs[0].Driver, ".")
	n, err := strconv.Atoi(branch)
	if err != nil {
		return fmt.Errorf("GPU driver %s is not one of NVIDIA's", p.GPUs[0].Driver)
	}
	if n < oldestDriver {
		return fmt.Errorf("GPU driver %s is too old, %d or newer is needed", p.GPUs[0].Driver, oldestDriver)
	}

	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("find the architecture: %w", err)
	}
	if arch := unix.ByteSliceToString(u.Machine[:]); arch != "x86_64" {
		return fmt.Errorf("the NVIDIA driver saves no programs on %s", arch)
	}

	return p.CUDA.Available(ctx)
}
