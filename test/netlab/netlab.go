// Package netlab makes small networks for tests and benchmarks: a bridge and hosts with addresses of their own, each a
// network namespace, between which the network can be broken.
//
// A program that wants one calls Enter first. It is then started again in network and mount namespaces of its own, so
// that nothing it makes is seen outside, carries any traffic of the machine, or outlives its last process. What runs on
// a host is started within Do. The chaos tests and the failover benchmark call it.
package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says that this machine lets us make no networks.
var ErrUnavailable = errors.New("cannot make network namespaces")

// insideVar marks the program that was started again.
const insideVar = "TRAINYARD_NETLAB"

// Enter starts the program again in namespaces of its own, waits for it and returns its exit code. In the program that
// was started again it returns inside = true at once.
func Enter() (code int, inside bool, err error) {
	if os.Getenv(insideVar) != "" {
		return 0, true, ip("link", "set", "lo", "up")
	}

	if err := available(); err != nil {
		return 0, false, err
	}

	self, err := os.Executable()
	if err != nil {
		return 0, false, fmt.Errorf("find this program: %w", err)
	}

	// The kernel ends the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(context.Background(), self, os.Args[1:]...) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), insideVar+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}

	// A test that takes too long is asked for its goroutines with SIGQUIT: those of the child are of interest.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}

	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig) // one that has ended needs none
		}
	}()

	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, false, fmt.Errorf("run the program in its namespaces: %w", err)
	}

	return cmd.ProcessState.ExitCode(), false, nil
}

// available reports why no network can be made here.
func available() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: needs root", ErrUnavailable)
	}

	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: needs the programs ip and nft (packages iproute2 and nftables): %w", ErrUnavailable, err)
		}
	}

	return nil
}

// Lab is one network.
type Lab struct {
	number   int
	hosts    map[string]*Host
	backbone string // bridge of the second network, "" if there is none
}

// subnets is how many networks a program has at a time.
const subnets = 200

// New makes a network with hosts of these names. This program itself is on it, too, at Self.
func New(names ...string) (*Lab, error) {
	l, err := newBridge()
	if err != nil {
		return nil, err
	}

	err = errors.Join(
		ip("address", "add", l.Self()+"/24", "dev", l.bridge()),
		ip("link", "set", l.bridge(), "up"),
	)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	for _, name := range names {
		if err := l.Add(name); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}

	return l, nil
}

// newBridge makes the bridge of a network with the first number that is free, so that each has addresses of its own.
func newBridge() (*Lab, error) {
	var err error
	for n := range subnets {
		l := &Lab{number: n, hosts: map[string]*Host{}}

		err = ip("link", "add", l.bridge(), "type", "bridge")
		if err == nil {
			return l, nil
		}
	}

	return nil, err
}

func (l *Lab) bridge() string { return fmt.Sprintf("br%d", l.number) }

func (l *Lab) address(n int) string { return fmt.Sprintf("10.91.%d.%d", l.number, n) }

// Self is the address of this program on the network.
func (l *Lab) Self() string { return l.address(1) }

// Host returns a host of the network by its name.
func (l *Lab) Host(name string) *Host { return l.hosts[name] }

// Add adds a host.
func (l *Lab) Add(name string) error {
	n := 10 + len(l.hosts)
	h := &Host{Name: name, Address: l.address(n), link: fmt.Sprintf("v%d-%d", l.number, n)}

	var err error
	h.namespace, err = newNamespace()
	if err != nil {
		return fmt.Errorf("make the namespace of host %s: %w", name, err)
	}

	l.hosts[name] = h

	there := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())
	err = errors.Join(
		ip("link", "add", h.link, "type", "veth", "peer", "name", "eth0", "netns", there),
		ip("link", "set", h.link, "master", l.bridge(), "up"),
	)
	if err != nil {
		return fmt.Errorf("connect host %s: %w", name, err)
	}

	err = h.Do(func() error {
		return errors.Join(
			ip("address", "add", h.Address+"/24", "dev", "eth0"),
			ip("link", "set", "eth0", "up"),
			ip("link", "set", "lo", "up"),
		)
	})
	if err != nil {
		return fmt.Errorf("bring up host %s: %w", name, err)
	}

	return nil
}

// AddBackbone gives each host a second interface, eth1, on a network between the hosts alone, which this program does
// not reach. Their addresses there are Host.Backbone.
func (l *Lab) AddBackbone() error {
	bridge := l.bridge() + "b"
	if err := errors.Join(ip("link", "add", bridge, "type", "bridge"), ip("link", "set", bridge, "up")); err != nil {
		return err
	}

	l.backbone = bridge

	for _, h := range l.hosts {
		there := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())
		h.Backbone = strings.Replace(h.Address, "10.91.", "10.92.", 1)

		err := errors.Join(
			ip("link", "add", h.link+"b", "type", "veth", "peer", "name", "eth1", "netns", there),
			ip("link", "set", h.link+"b", "master", bridge, "up"),
		)
		if err != nil {
			return fmt.Errorf("connect host %s to the backbone: %w", h.Name, err)
		}

		err = h.Do(func() error {
			return errors.Join(
				ip("address", "add", h.Backbone+"/24", "dev", "eth1"),
				ip("link", "set", "eth1", "up"),
			)
		})
		if err != nil {
			return fmt.Errorf("bring up host %s on the backbone: %w", h.Name, err)
		}
	}

	return nil
}

// Close removes the network. What still runs on its hosts is cut off.
func (l *Lab) Close() error {
	var err error
	for _, h := range l.hosts {
		err = errors.Join(err, ip("link", "delete", h.link))
		if h.Backbone != "" {
			err = errors.Join(err, ip("link", "delete", h.link+"b"))
		}

		err = errors.Join(err, h.namespace.Close())
	}

	if l.backbone != "" {
		err = errors.Join(err, ip("link", "delete", l.backbone))
	}

	return errors.Join(err, ip("link", "delete", l.bridge()))
}

// newNamespace makes a network namespace that lives as long as the file is open or a process is in it.
func newNamespace() (*os.File, error) {
	var made *os.File

	err := inNamespace(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}

		made, err = os.Open(threadNamespace)

		return err
	})

	return made, err
}

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// inNamespace calls change, which may move the calling thread to another namespace, and moves it back.
func inNamespace(change func() error) error {
	runtime.LockOSThread()

	own, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the namespace of this thread: %w", err)
	}

	defer func() { _ = own.Close() }() // it was only read

	err = change()

	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("return to the namespace of this program: %w", back)) // the thread stays locked
	}

	runtime.UnlockOSThread()

	return err
}

// ip runs iproute2's command.
func ip(args ...string) error { return command("", "ip", args...) }

// command runs a program with a text as its input, in the calling thread's namespace.
func command(input, name string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Stdout, cmd.Stderr = &out, &out

	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}

	return nil
}
