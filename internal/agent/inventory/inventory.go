// Package inventory reads the hardware of a machine and the health of its GPUs.
//
// The agent calls Look at its start and regularly after that, and the server places jobs on what it
// reports. The package reads what the kernel and the GPU driver say and changes nothing; it never
// resets a GPU. A machine without GPUs is not an error. A GPU driver that answers nonsense is
// reported as a problem, together with the rest of the machine. Declared GPUs that do not exist are
// marked as such in every field that people see. The faults of each GPU are remembered over
// restarts of the agent, and a GPU that failed is kept out of use until it has been without a fault
// for a while.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
)

// Options says where to read the hardware.
type Options struct {
	DataDir  string      // its disk is measured, and the history of the GPUs is stored there
	Server   string      // URL of the yard; the local address on the route to it is the node's default address
	Address  string      // how other nodes reach this one; default see Server
	Version  string      // of the agent
	Limits   string      // how the runtime enforces resource limits
	FakeGPUs []fleet.GPU // declared GPUs, see ParseFake; real GPUs are then ignored
	NoGPUs   bool        // do not look for GPUs
	Python   string      // interpreter for the speed probe, which needs PyTorch; default python3
	Root     string      // "/" outside of tests
	Clock    clock.Clock // default: the clock of the machine
}

// Found is the hardware of a machine and its problems.
type Found struct {
	Inventory fleet.Inventory
	// Busy lists the indices of the GPUs that any process uses, also one that does not belong to
	// the yard.
	Busy []int
	// Processes lists the visible processes that use GPUs.
	Processes []Process
	// Problems lists what could not be read.
	Problems []error
}

// Machine is the machine on which the agent runs. Its methods may be called from several
// goroutines.
type Machine struct {
	opts Options

	mu       sync.Mutex
	driver   driver
	log      *kernelLog
	read     time.Time // when the kernel log was last read
	health   *health
	measures *measures
	meter    meter
	busy     []int // at the newest answer of the driver
	procs    []Process
	warm     bool        // a probe has just run, and distorts the power draw of the GPUs
	gpus     []fleet.GPU // at the newest look
	problem  error       // met by Open, reported with the first look

	useMu sync.Mutex // apart from mu, which is held while a driver hangs
	use   []job.GPUUse
	seen  []fleet.GPUReading
}

// Open reads the stored history and measurements of the machine.
func Open(opts Options) *Machine {
	if opts.Root == "" {
		opts.Root = "/"
	}

	if opts.Clock == nil {
		opts.Clock = clock.NewSteady()
	}

	if dir, err := filepath.Abs(opts.DataDir); err == nil {
		opts.DataDir = dir
	}

	m := &Machine{opts: opts, driver: newDriver(), log: &kernelLog{root: opts.Root, fd: -1}}
	var err1, err2 error
	m.health, err1 = openHealth(filepath.Join(opts.DataDir, "gpu-health.json"), bootID(opts.Root))
	m.measures, err2 = openMeasures(filepath.Join(opts.DataDir, "gpu-speed.json"))
	m.problem = errors.Join(err1, err2)

	return m
}

// Close closes the connections to the driver and the kernel log.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.driver.close(), m.log.close())
}

// Look reads the machine; held are the indices of the GPUs that its runs hold. It fails only if ctx
// is cancelled or if the processors, memory or disk cannot be read, without which the machine
// cannot be used.
func (m *Machine) Look(ctx context.Context, held []int) (Found, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	opts := &m.opts
	inv := fleet.Inventory{
		OS:      osName(opts.Root),
		Arch:    goruntime.GOARCH,
		Version: opts.Version,
		Limits:  opts.Limits,
		Address: opts.Address,
	}

	found := Found{}
	if m.problem != nil {
		found.Problems, m.problem = []error{m.problem}, nil
	}

	var err error
	inv.Memory, err = memory(opts.Root)
	if err != nil {
		return Found{}, fmt.Errorf("find memory: %w", err)
	}

	_, inv.Disk, err = diskspace.Free(opts.DataDir)
	if err != nil {
		return Found{}, fmt.Errorf("find disk: %w", err)
	}

	inv.CPUs = cpus(opts.Root, goruntime.NumCPU())
	inv.Kernel, err = kernel()
	if err != nil {
		found.Problems = append(found.Problems, err)
	}

	found.Problems = append(found.Problems, m.findAddresses(ctx, &inv)...)

	switch {
	case len(opts.FakeGPUs) > 0:
		inv.GPUs = slices.Clone(opts.FakeGPUs)
	case !opts.NoGPUs:
		found.Problems = append(found.Problems, m.lookAtGPUs(ctx, held)...)
		inv.GPUs, inv.Draw = slices.Clone(m.gpus), m.meter.draw(opts.Clock.Now())
		found.Busy, found.Processes = slices.Clone(m.busy), slices.Clone(m.procs)
	}

	if ctx.Err() != nil {
		return Found{}, ctx.Err()
	}

	found.Inventory = inv

	return found, nil
}

// lookAtGPUs reads the GPUs from the driver and updates their history. If the driver does not
// answer, its last answer remains valid for silentLooks looks.
func (m *Machine) lookAtGPUs(ctx context.Context, held []int) (problems []error) {
	devices, err := m.driver.devices(ctx)

	if ctx.Err() != nil {
		return nil // the agent is stopping, which is no fault of the driver
	}

	now := m.opts.Clock.Now()
	switch {
	case err != nil:
		problems = append(problems, err)
		m.gpus = m.health.unanswered(now)
	case len(devices) == 0 && m.health.knows():
		problems = append(problems, errors.New("find GPUs: the driver no longer reports any"))
		m.gpus = m.health.unanswered(now)
	case len(devices) == 0:
		return nil
	default:
		devices = m.health.settle(devices)
		errs, err := m.xids(now)
		if err != nil {
			problems = append(problems, err)
		}

		m.gpus = m.health.judge(now, devices, errs)
		m.observeUse(devices, held)
	}

	for i := range m.gpus {
		m.gpus[i] = gpuspec.Describe(m.gpus[i])
		m.gpus[i].Measured = m.measures.of(&m.gpus[i])
	}

	if err := m.health.save(); err != nil {
		problems = append(problems, err)
	}

	return problems
}

// observeUse records which processes use the devices and how much power the devices draw.
func (m *Machine) observeUse(devices []device, held []int) {
	m.busy, m.procs = nil, nil
	used, watts := 0, 0.0

	for i := range devices {
		d := &devices[i]
		if d.busy() {
			m.busy = append(m.busy, d.gpu.Index)
		}

		for _, p := range d.procs {
			p.introduce(m.opts.Root, m.opts.DataDir)
			m.procs = append(m.procs, p)
		}

		if d.busy() || slices.Contains(held, d.gpu.Index) {
			used++
		}

		if d.draw < 0 || watts < 0 {
			watts = -1 // one GPU without a reading makes the sum meaningless
		} else {
			watts += d.draw
		}
	}

	m.noteUse(devices)
	slices.Sort(m.busy)
	if watts >= 0 && !m.warm {
		m.meter.add(used, watts)
	}

	m.warm = false
}

// noteUse remembers how busy the devices are that say so, and what else there is to read from them.
func (m *Machine) noteUse(devices []device) {
	var list []job.GPUUse
	var seen []fleet.GPUReading
	for i := range devices {
		seen = append(seen, devices[i].reading())

		if d := &devices[i]; d.utilization >= 0 {
			list = append(list, job.GPUUse{Index: d.gpu.Index, Busy: d.utilization, Memory: int64(d.used)})
		}
	}

	m.useMu.Lock()
	defer m.useMu.Unlock()

	m.use, m.seen = list, seen
}

// Readings returns what was read from the GPUs at the newest look. It does not wait for a look that is under way.
func (m *Machine) Readings() []fleet.GPUReading {
	m.useMu.Lock()
	defer m.useMu.Unlock()

	return slices.Clone(m.seen)
}

// LookAtUse asks the driver how busy the GPUs are. While a look at the machine is under way, that one tells.
func (m *Machine) LookAtUse(ctx context.Context) error {
	if !m.mu.TryLock() {
		return nil
	}
	defer m.mu.Unlock()

	devices, err := m.driver.devices(ctx)
	if err != nil {
		return err
	}

	var known []device
	for i := range devices {
		d := &devices[i]

		at := slices.IndexFunc(m.gpus, func(g fleet.GPU) bool { return g.UUID == d.gpu.UUID })
		if at >= 0 { // its index stays the same when others are gone
			d.gpu.Index = m.gpus[at].Index
			known = append(known, *d)
		}
	}

	m.noteUse(known)

	return nil
}

// GPUUse returns how busy the GPUs were at the newest look. It does not wait for a look that is under way.
func (m *Machine) GPUUse() []job.GPUUse {
	m.useMu.Lock()
	defer m.useMu.Unlock()

	return slices.Clone(m.use)
}

// xids collects the Xid errors that the driver and the kernel log have reported since the last
// look.
func (m *Machine) xids(now time.Time) ([]xid, error) {
	all := m.driver.xids()
	for i := range all {
		all[i].at = now // the driver reports no time
	}

	up, err := uptime(m.opts.Root)
	if err != nil {
		return all, err
	}

	messages, err := m.log.since(m.health.state.Log)
	for _, msg := range messages {
		m.health.state.Log = max(m.health.state.Log, msg.seq)

		if x, ok := parseXid(msg.text); ok {
			// The kernel's counter stops while the machine sleeps. A message may then seem older
			// than the last look, although it was not there at that time.
			x.at = now.Add(msg.at - up)
			if x.at.Before(m.read) {
				x.at = now
			}

			all = append(all, x)
		}
	}

	if err == nil {
		m.read = now
	}

	return all, err
}

// Release puts a GPU back into use because an operator said so, and reports whether that changed
// anything. The time at identifies the release: one that took effect before, or is older, changes
// nothing.
func (m *Machine) Release(uuid string, at time.Time) (news bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.health.release(m.opts.Clock.Now(), uuid, at)
}

// Probe measures the speed of the GPUs that the newest look found idle and without a fault and that were not yet
// measured with this driver version. It returns how many it measured; the next look reports the result. The caller
// must not start a run on them meanwhile: it cancels ctx first. begins is called if there is anything to measure.
// A machine without PyTorch is not an error.
func (m *Machine) Probe(ctx context.Context, begins func()) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	idle := slices.DeleteFunc(slices.Clone(m.gpus), func(g fleet.GPU) bool {
		return g.Error != "" || g.Measured > 0 || slices.Contains(m.busy, g.Index)
	})
	if len(idle) == 0 {
		return 0, nil
	}

	begins()

	m.warm = true
	found, err := probe(ctx, pythons(m.opts.Python), idle, m.opts.Clock.Now())
	if len(found) == 0 {
		return 0, err
	}

	maps.Copy(m.measures.all, found)

	return len(found), errors.Join(err, m.measures.save())
}

func kernel() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("find kernel: %w", err)
	}

	return unix.ByteSliceToString(u.Release[:]), nil
}

// osName returns the name of the operating system from /etc/os-release.
func osName(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		return goruntime.GOOS // the file does not exist
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

// addressTo returns the local address from which this machine reaches the server. It sends nothing:
// connecting a UDP socket only looks up the route.
func addressTo(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("find own address: invalid server address %.80q", server)
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
