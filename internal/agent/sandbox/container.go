package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/metadata"
	"trainyard/internal/agent/runtime/process"
)

// HolderDir is where a container that a program joins has its own process, see Container. Programs do not see it.
const HolderDir = "/.trainyard"

// Container is a container that an engine has made and in which nothing runs but a process that holds it. A program
// joins its mount, network and UTS namespaces, so that it sees the files of its image, and is walled off as any other.
type Container struct {
	PID     int    `json:"pid"`     // of that process
	Started uint64 `json:"started"` // when it was, as the kernel says it
	// OwnNetwork says that it has not that of the machine.
	OwnNetwork bool `json:"own_network,omitempty"`
}

// joinable are the namespaces that a program joins, by their names in /proc and in the order in which they are joined.
// The mounts come last: with them /proc is another one.
var joinable = []struct {
	name string
	kind int
}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

// ErrContainerGone says that a container has ended.
var ErrContainerGone = errors.New("its container has ended")

// Namespaces opens the namespaces of the container.
func (c *Container) Namespaces() (files []*os.File, err error) {
	for _, ns := range joinable {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.PID), "ns", ns.name))
		if err != nil {
			closeFiles(files)
			return nil, errors.Join(ErrContainerGone, err)
		}

		files = append(files, f)
	}

	if !c.Alive() { // its id may have been given to another process
		closeFiles(files)
		return nil, ErrContainerGone
	}

	return files, nil
}

// Alive reports whether the process of the container is there.
func (c *Container) Alive() bool {
	p, ok := process.Read(c.PID)
	return ok && !p.Dead && p.Started == c.Started
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// joined are the namespaces in which the processes of a program are started; nil for those of this process.
type joined []*os.File

// enter moves this thread into the namespaces. The thread must end with its goroutine.
func (j joined) enter() error {
	if j == nil {
		return nil
	}

	// The kernel refuses another mount namespace to a thread that shares its root and its working directory.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter the container: %w", err)
	}

	for i, ns := range joinable {
		if err := unix.Setns(int(j[i].Fd()), ns.kind); err != nil {
			return fmt.Errorf("enter the %s namespace of the container: %w", ns.name, err)
		}
	}

	return nil
}

// join makes a mount namespace of the container's own, with the view of the program, and blocks the metadata service in
// its network. It returns the namespaces in which the program is started.
func join(container joined, p *Program) (j joined, shell string, err error) {
	if len(container) != len(joinable) {
		return nil, "", errors.New("the namespaces of the container are missing")
	}

	onThread(func() {
		enter := func() error {
			if err := container.enter(); err != nil {
				return err
			}
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("separate the mounts of the container: %w", err)
			}

			return nil
		}

		if err = mountAll(p.View, p.User, enter); err != nil {
			return
		}

		if p.Container.OwnNetwork && p.User != nil {
			if err = metadata.Block(p.User.UID, p.User.UID); err != nil {
				return
			}
		}

		if shell, err = FindShell(); err != nil {
			return
		}

		var mounts *os.File
		if mounts, err = os.Open("/proc/thread-self/ns/mnt"); err == nil {
			j = joined{container[0], container[1], mounts}
		}
	})

	return j, shell, err
}

// InNetwork calls a function on a thread that is in the network namespace with this path: sockets that it makes there
// belong to that network.
func InNetwork(path string, fn func() error) (err error) {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}

	defer func() { _ = ns.Close() }()

	onThread(func() {
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			err = fn()
		}
	})

	return err
}

// onThread runs a function on a thread of its own, which ends with it, and waits for it. It is never the first thread
// of the process: that one does not end, and /proc/self shows what it sees.
func onThread(fn func()) {
	done := make(chan struct{})

	go func() {
		defer close(done)
		runtime.LockOSThread()

		if unix.Gettid() == unix.Getpid() {
			onThread(fn) // which gets another one, because this one is taken
			runtime.UnlockOSThread()

			return
		}

		fn() // the thread is never unlocked, so it ends
	}()

	<-done
}

// FindShell returns the path of bash or, without bash, of sh.
func FindShell() (string, error) {
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(shell); err == nil {
			return shell, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}

	return "", errors.New("neither /bin/bash nor /bin/sh exists")
}
