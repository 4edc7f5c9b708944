package runtime

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// dialTimeout bounds how long a program may take to accept a connection.
const dialTimeout = 10 * time.Second

// DialPort connects to a port that a process of a rank listens on. Programs of one machine share its network, so the
// port of another rank, of the agent or of the machine is refused: what counts is which process has the socket.
func (r *Runtime) DialPort(ctx context.Context, run id.Run, n, port int, shared bool) (net.Conn, error) {
	rk, err := r.visitable(run, n, shared)
	if err != nil {
		return nil, err
	}

	network, err := networkOf(rk)
	if err != nil {
		return nil, err
	}

	before, err := r.listener(rk, network, port)
	if err != nil {
		return nil, err
	}

	conn, err := network.dial(ctx, before.address().String())
	if err != nil {
		return nil, fault.New(fault.Conflict, "port_closed", "port %d of run %s does not accept connections: %v", port, run,
			err)
	}

	// The same socket still listens, so it is the one that was connected to.
	after, err := r.listener(rk, network, port)
	if err == nil && after != before {
		err = portClosed(rk, port)
	}

	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	return conn, nil
}

func portClosed(rk *rank, port int) error {
	return fault.New(fault.Conflict, "port_closed", "no process of run %s listens on port %d", rk.rec.Run, port).
		WithRemedy("start it in the job, on 127.0.0.1 or on all addresses")
}

// listener is a socket that listens.
type listener struct {
	at    netip.AddrPort
	inode string
}

// address returns where to connect to.
func (l listener) address() netip.AddrPort {
	if !l.at.Addr().IsUnspecified() {
		return l.at
	}

	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if l.at.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}

	return netip.AddrPortFrom(loopback, l.at.Port())
}

// listener returns the socket of a rank that listens on a port. It fails if another process listens where a connection
// could end up, too.
func (r *Runtime) listener(rk *rank, in network, port int) (listener, error) {
	r.mu.Lock()
	st := rk.state
	r.mu.Unlock()

	q := rundir.Processes{Dir: rk.dir, Group: st.Group, Session: st.PID, Since: st.Begun, Isolated: st.Isolated}

	procs, err := q.Find(!st.Isolated)
	if err != nil {
		return listener{}, err
	}

	own := map[string]bool{}
	for _, p := range procs {
		if in.has(p.PID) {
			sockets(p.PID, own)
		}
	}

	all, err := in.listeners(port)
	if err != nil {
		return listener{}, err
	}

	at := slices.IndexFunc(all, func(l listener) bool { return own[l.inode] })
	if at < 0 {
		return listener{}, portClosed(rk, port)
	}

	to := all[at].address().Addr()
	for _, l := range all {
		if !own[l.inode] && (l.at.Addr().IsUnspecified() || l.at.Addr() == to) {
			return listener{}, fault.New(fault.Conflict, "port_shared",
				"another process of the machine listens on port %d, too, so connections could end up there", port).
				WithRemedy("let the program use another port")
		}
	}

	return all[at], nil
}

// network is a network namespace, by the directory in /proc of a process that is in it.
type network string

// networkOf returns the network of a rank: that of the machine, or of its container.
func networkOf(rk *rank) (network, error) {
	if rk.rec.Launch.Image == "" {
		return "/proc/self", nil
	}

	c, err := rundir.ReadContainer(rk.dir)
	if err != nil {
		return "", err
	}
	if !c.Alive() {
		return "", sandbox.ErrContainerGone
	}

	return network("/proc/" + strconv.Itoa(c.PID)), nil
}

// has reports whether a process is in the network.
func (n network) has(pid int) bool {
	ours, err1 := os.Readlink(string(n) + "/ns/net")
	theirs, err2 := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")

	return err1 == nil && err2 == nil && ours == theirs
}

// dial connects to an address in the network. A socket belongs to the network that its thread was in when it was made.
func (n network) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = sandbox.InNetwork(string(n)+"/ns/net", func() error {
		conn, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
		return err
	})

	return conn, err
}

// sockets adds the inodes of the sockets that a process has open.
func sockets(pid int, to map[string]bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it has ended
	}

	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if inode, ok := strings.CutPrefix(link, "socket:["); err == nil && ok {
			to[strings.TrimSuffix(inode, "]")] = true
		}
	}
}

// listeners lists the sockets of the network that listen on a port.
func (n network) listeners(port int) ([]listener, error) {
	var all []listener
	for _, name := range []string{"/net/tcp", "/net/tcp6"} {
		text, err := os.ReadFile(string(n) + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a machine without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list the ports of the machine: %w", err)
		}

		all = append(all, parseListeners(string(text), port)...)
	}

	return all, nil
}

// parseListeners reads the sockets that listen on a port from a table of the kernel.
func parseListeners(table string, port int) []listener {
	const listening, inodeField = "0A", 9
	var found []listener

	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) <= inodeField || fields[3] != listening {
			continue
		}

		if at, ok := parseAddress(fields[1]); ok && int(at.Port()) == port {
			found = append(found, listener{at, fields[inodeField]})
		}
	}

	return found
}

// parseAddress reads an address as the kernel writes it: words of four bytes, the last byte first, and the port.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")

	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}

	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, false
	}

	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}

	addr, ok := netip.AddrFromSlice(raw)

	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok
}
