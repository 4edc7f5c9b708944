// Package inventory finds out what a machine has: processors, memory, disk and
// GPUs.
//
// It reads what the kernel and the GPU driver say and changes nothing. A
// machine without GPUs is no error; a GPU driver that answers nonsense is
// reported with the machine's other parts and stops nobody. Declared GPUs that do not
// exist are marked as such in every field that people see. The agent calls
// Take at its start and every so often; the server places jobs by the result.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Options says where to look.
type Options struct {
	DataDir  string      // the disk of which is counted
	Server   string      // URL of the yard: the address on the way to it is the node's
	Address  string      // how other nodes reach this one, if it is not that address
	Version  string      // of the agent
	Limits   string      // how the runtime enforces what a run may use
	FakeGPUs []fleet.GPU // declared GPUs, see ParseFake; real ones are not looked for then
	Root     string      // "/" outside of tests
}

// Found is what a machine has and what is wrong with it.
type Found struct {
	Inventory fleet.Inventory
	// Busy lists the indices of the GPUs on which a process runs, whoever's it is.
	Busy []int
	// Problems says what could not be found out.
	Problems []error
}

// Take looks at the machine. It fails only if ctx ends or the machine's
// processors, memory or disk cannot be told, without which it cannot be used.
func Take(ctx context.Context, opts Options) (Found, error) {
	if opts.Root == "" {
		opts.Root = "/"
	}
	inv := fleet.Inventory{OS: osName(opts.Root), Arch: goruntime.GOARCH, Version: opts.Version, Limits: opts.Limits, Address: opts.Address}
	found := Found{}
	var err error
	if inv.Memory, err = memory(opts.Root); err != nil {
		return Found{}, fmt.Errorf("find memory: %w", err)
	}
	if inv.Disk, err = disk(opts.DataDir); err != nil {
		return Found{}, fmt.Errorf("find disk: %w", err)
	}
	inv.CPUs = cpus(opts.Root, goruntime.NumCPU())
	if inv.Kernel, err = kernel(); err != nil {
		found.Problems = append(found.Problems, err)
	}
	if inv.Address == "" {
		if inv.Address, err = addressTo(ctx, opts.Server); err != nil {
			found.Problems = append(found.Problems, err)
		}
	}
	if len(opts.FakeGPUs) > 0 {
		inv.GPUs = opts.FakeGPUs
	} else if inv.GPUs, found.Busy, err = gpus(ctx); err != nil {
		found.Problems = append(found.Problems, err)
	}
	if ctx.Err() != nil {
		return Found{}, ctx.Err()
	}
	found.Inventory = inv
	return found, nil
}

// disk returns the size of the file system that dir lies on.
func disk(dir string) (job.Bytes, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at file system of %s: %w", dir, err)
	}
	return job.Bytes(int64(st.Blocks) * st.Bsize), nil
}

func kernel() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("find kernel: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// osName returns what the distribution calls itself.
func osName(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		return goruntime.GOOS // a machine without that file
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			if plain, err := strconv.Unquote(name); err == nil {
				return plain
			}
			return name
		}
	}
	return goruntime.GOOS
}

// addressTo returns the local address from which this machine reaches the
// server. Nothing is sent: connecting a UDP socket only asks for the route.
func addressTo(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("find own address: %.80q is no server address", server)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("find own address: %w", err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	addr, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return "", errors.New("find own address: not an IP network")
	}
	return addr.IP.String(), nil
}
