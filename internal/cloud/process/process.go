// Package process is a provider whose machines are processes on this machine.
//
// It is for demonstrations and tests: a machine is an agent with declared GPUs that joins the yard
// like any other, and the provider behaves like a cloud. Machines take time to boot, outlive the
// server that provisioned them, cost money by the rules of their offer, can be refused, and are
// reclaimed if they are spot. The state of the cloud is in a directory, so that another server
// process finds it:
//
//	<dir>/lock                held during changes
//	<dir>/next                the number of the next machine
//	<dir>/log.jsonl           the cloud's own log: start, end and bill of every machine
//	<dir>/machines/<id>/
//	    machine.json          the request; complete before anything is started
//	    user-data             the boot script, which a real machine would run
//	    agent.json            the settings of its agent
//	    lock                  held by the machine's process while it lives
//	    pid                   PID of that process
//	    up                    exists once the agent was started
//	    notice.json           the notice that a spot machine is reclaimed, and when
//	    ending                the request to end, with time and reason
//	    ended.json            its end and its bill
//	    machine.log           the output of the machine and its agent
//	    data/                 the agent's data directory
//
// The process of a machine is this binary with a hidden subcommand; see Machine. The provider
// decides nothing: the yardmaster says what to provision, and package reconcile calls the provider.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Config configures a provider. Dir, Program, Yard, Clock and Log are required.
type Config struct {
	Name    string // default "process"
	Yard    string // whose machines are listed
	Dir     string // directory of the cloud; shared by all yards that use it
	Program string // the trainyard program, which is both machine and agent

	// Environ is the environment of the machines. The yard's own variables are removed from it,
	// because the server's settings are not those of its agents.
	Environ []string

	Boot  time.Duration // from creation to the start of the agent; default that of the offer
	Grace time.Duration // between SIGTERM and SIGKILL; default 10 seconds
	Slack time.Duration // after its deadline, before the dead man's switch ends a machine; default cloud.Slack
	Keep  time.Duration // how long ended machines are listed and their directories kept; default one hour

	Types    []string       // available types; default any
	Capacity map[string]int // machines at once by TYPE or TYPE/REGION; others have no limit
	Quota    int            // machines at once in the whole cloud; 0 for no limit

	// Seed determines when spot machines are reclaimed, at the rate of their offer. The same seed
	// gives the same lifetimes.
	Seed uint64
	// Notice is how long before it is reclaimed a spot machine is told so; 0 for no notice.
	Notice time.Duration

	// Faults, if set, is called before every call and returns the fault to inject.
	Faults func(Call) Fault

	Clock clock.Clock
	Log   *slog.Logger
}

// Method names a call.
type Method string

// The calls.
const (
	CreateCall    Method = "create"
	TerminateCall Method = "terminate"
	ListCall      Method = "list"
)

// Call is a call of the provider into which a fault can be injected.
type Call struct {
	Method   Method
	Request  cloud.Request // of a Create
	Instance string        // of a Terminate
}

// Fault is a fault to inject into a call; the zero value injects none.
type Fault struct {
	Delay  time.Duration // wait before the call is carried out
	Refuse error         // return this error and do nothing
	Lose   bool          // carry out the call and lose its answer
	Lag    time.Duration // List shows the state of this long ago
}

// Provider provisions machines that are processes. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	account  *account
	children sync.WaitGroup // machines that this process started
}

var _ cloud.Provider = (*Provider)(nil)

// New opens the cloud in a directory, or creates one.
func New(cfg Config) (*Provider, error) {
	cfg.Name = cmp.Or(cfg.Name, "process")
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.Slack = cmp.Or(cfg.Slack, cloud.Slack)
	cfg.Keep = cmp.Or(cfg.Keep, time.Hour)
	var err error
	cfg.Dir, err = filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the cloud's folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, machinesDir), 0o700); err != nil {
		return nil, fmt.Errorf("create the cloud's folder: %w", err)
	}

	// Without symbolic links, as machines see the path: their processes are found by it.
	cfg.Dir, err = filepath.EvalSymlinks(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the cloud's folder: %w", err)
	}

	return &Provider{cfg: cfg, account: &account{dir: cfg.Dir}}, nil
}

// Name returns the name of the provider.
func (p *Provider) Name() string { return p.cfg.Name }

// Create starts a machine, or returns the one that was started for this lease before.
func (p *Provider) Create(ctx context.Context, r cloud.Request) (made cloud.Instance, err error) {
	err = p.call(ctx, Call{Method: CreateCall, Request: r}, func(Fault) error {
		all, err := p.account.machines()
		if err != nil {
			return err
		}

		for _, m := range all {
			if m.Yard == r.Yard && m.Lease == r.Lease && r.Lease != "" {
				made, err = p.show(m)
				return err
			}
		}

		if err := p.refuse(r, all); err != nil {
			return err
		}

		made, err = p.launch(ctx, r)

		return err
	})
	if err != nil {
		return cloud.Instance{}, err
	}

	return made, nil
}

// call carries out one call with its injected fault, holding the account's lock.
func (p *Provider) call(ctx context.Context, c Call, do func(f Fault) error) error {
	var f Fault
	if p.cfg.Faults != nil {
		f = p.cfg.Faults(c)
	}

	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", c.Method, err)
	}
	if f.Delay > 0 && !clock.Sleep(ctx, f.Delay) {
		return fmt.Errorf("%s: %w", c.Method, ctx.Err())
	}
	if f.Refuse != nil {
		return f.Refuse
	}

	unlock, err := p.account.lock(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Method, err)
	}

	err = do(f)
	unlock()

	if err == nil && f.Lose {
		err = fault.New(fault.Unavailable, "reply_lost", "the response to %s was lost", c.Method)
	}

	return err
}

// gpuModel matches the names that an agent accepts for a declared GPU.
var gpuModel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 _-]{0,39}$`)

// refuse says why a request cannot be met, in general or at present; nil if it can.
func (p *Provider) refuse(r cloud.Request, all []*machine) error {
	o := &r.Offer
	if len(p.cfg.Types) > 0 && !slices.Contains(p.cfg.Types, o.Type) {
		return fault.New(fault.Invalid, "type_unknown", "unknown instance type %.80q", o.Type).
			WithRemedy("available types: %s", strings.Join(p.cfg.Types, ", "))
	}

	if o.GPUs < 0 || o.GPUs > fleet.MaxGPUs || o.GPUs > 0 && (o.GPUMemory <= 0 || !gpuModel.MatchString(o.GPU)) {
		return fault.New(fault.Invalid, "gpus_unclear", "offer %s must have gpu, gpus and gpu_memory", o.Name).
			WithRemedy("add them in the price file")
	}

	total, alike, inRegion := 0, 0, 0
	for _, m := range all {
		if m.ended != nil {
			continue
		}

		total++

		if m.Offer.Type == o.Type {
			alike++

			if m.Offer.Region == o.Region {
				inRegion++
			}
		}
	}

	if p.cfg.Quota > 0 && total >= p.cfg.Quota {
		return fault.New(fault.OverLimit, cloud.CodeQuota, "the account's quota of %d machines is used up", p.cfg.Quota)
	}

	for name, have := range map[string]int{o.Type: alike, o.Type + "/" + o.Region: inRegion} {
		if most, limited := p.cfg.Capacity[name]; limited && have >= most {
			return fault.New(fault.OverLimit, cloud.CodeCapacity, "no capacity for %s", name)
		}
	}

	return nil
}

// launch records a new machine and starts it.
func (p *Provider) launch(ctx context.Context, r cloud.Request) (cloud.Instance, error) {
	number, err := p.account.number()
	if err != nil {
		return cloud.Instance{}, err
	}

	m := &machine{record: record{
		ID:       "m" + strconv.FormatUint(number, 10),
		Yard:     r.Yard,
		Lease:    r.Lease,
		Name:     r.Name,
		Offer:    r.Offer,
		Server:   r.Boot.Server,
		Program:  p.cfg.Program,
		Until:    r.Until,
		Launched: p.cfg.Clock.Now(),
		Boot:     cmp.Or(p.cfg.Boot, time.Duration(r.Offer.Boot)),
		Grace:    p.cfg.Grace,
		Slack:    p.cfg.Slack,
		Notice:   p.cfg.Notice,
	}}

	m.dir = p.account.path(machinesDir, m.ID)
	if r.Offer.Spot && r.Offer.LossRate > 0 {
		m.ReclaimAt = m.Launched.Add(lifetime(p.cfg.Seed, number, r.Offer.LossRate))
	}

	if err := m.write(r.Boot.Script, agentSettings(m, &r.Boot)); err != nil {
		return cloud.Instance{}, fmt.Errorf("record machine %s: %w", m.ID, err)
	}
	if err := p.account.launched(m); err != nil {
		return cloud.Instance{}, err
	}

	if err := p.start(ctx, m); err != nil {
		return cloud.Instance{}, errors.Join(
			fmt.Errorf("start machine %s: %w", m.ID, err),
			p.account.end(m, m.Launched, whyNeverStarted),
		)
	}

	p.cfg.Log.InfoContext(
		ctx,
		"machine started",
		"provider",
		p.cfg.Name,
		"machine",
		m.ID,
		"lease",
		m.Lease,
		"type",
		m.Offer.Type,
		"boot",
		m.Boot,
	)

	return p.show(m)
}

// lifetime returns after what time a spot machine is reclaimed: losses at a constant rate per hour
// give exponentially distributed lifetimes.
func lifetime(seed, number uint64, losses float64) time.Duration {
	hours := rand.New(rand.NewPCG(seed, number)).ExpFloat64() / losses
	return time.Duration(min(hours*float64(time.Hour), math.MaxInt64/2))
}

// agentSettings returns the settings of a machine's agent, by the names of its configuration file.
func agentSettings(m *machine, boot *cloud.Boot) map[string]string {
	o := &m.Offer
	gpus := "none"
	if o.GPUs > 0 {
		gpus = fmt.Sprintf("%dx%s:%s", o.GPUs, o.GPU, o.GPUMemory)
	}

	settings := map[string]string{
		"token":        boot.Token,
		"data_roots":   boot.DataRoots,
		"name":         m.Name,
		"data":         filepath.Join(m.dir, dataDir),
		"address":      address,
		"fake_gpus":    gpus,
		"on_lease_end": "exit",
		"probe":        "off", // the GPUs of the host are not those of the machine
	}

	maps.DeleteFunc(settings, func(_, value string) bool { return value == "" })
	if o.CPUs > 0 {
		settings["cpus"] = o.CPUs.String()
	}

	if o.Spot && m.Notice > 0 {
		settings["spot_notice"] = "file=" + filepath.Join(m.dir, noticeFile)
	}

	if o.Memory > 0 {
		settings["memory"] = o.Memory.String()
	}

	return settings
}

// address is the address under which the runs of all machines reach each other.
const address = "127.0.0.1"

// Terminate asks a machine to end. It gets SIGTERM, which its process passes on to everything that
// runs there, and SIGKILL after the grace period. If Terminate is called again after that, the
// machine is killed from outside. An unknown machine has ended long ago, which is not an error.
func (p *Provider) Terminate(ctx context.Context, region, instance string) error {
	return p.call(ctx, Call{Method: TerminateCall, Instance: instance}, func(Fault) error {
		m, err := p.account.machine(instance)
		if err != nil || m == nil || m.Yard != p.cfg.Yard || m.Offer.Region != region {
			return err
		}

		return p.end(m, whyTerminated)
	})
}

// TakeBack reclaims a spot machine, as a cloud does that needs the capacity: at once, or after the notice that its
// machines get.
func (p *Provider) TakeBack(ctx context.Context, instance string) error {
	unlock, err := p.account.lock(ctx)
	if err != nil {
		return err
	}

	defer unlock()

	m, err := p.account.machine(instance)
	if err == nil && (m == nil || !m.Offer.Spot) {
		err = fault.New(fault.NotFound, "spot_machine_not_found", "no spot machine %.80q", instance)
	}

	if err != nil {
		return err
	}

	if m.Notice > 0 {
		return m.giveNotice(p.cfg.Clock.Now().Add(m.Notice))
	}

	return p.end(m, whySpot)
}

// List returns the yard's machines, by number.
func (p *Provider) List(ctx context.Context) (list []cloud.Instance, err error) {
	err = p.call(ctx, Call{Method: ListCall}, func(f Fault) error {
		all, err := p.account.machines()
		if err != nil {
			return err
		}

		now := p.cfg.Clock.Now()

		for _, m := range all {
			one, err := p.show(m)
			if err != nil {
				return err
			}

			if m.ended != nil && now.Sub(m.ended.At) > p.cfg.Keep+f.Lag {
				if err := m.remove(); err != nil {
					return err
				}

				continue
			}

			known := true
			if f.Lag > 0 {
				one, known = lagging(one, now.Add(-f.Lag))
			}

			if known && m.Yard == p.cfg.Yard {
				list = append(list, one)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return list, nil
}

// lagging returns the state of a machine at an earlier time, and whether it existed then.
func lagging(one cloud.Instance, at time.Time) (cloud.Instance, bool) {
	if one.Launched.After(at) {
		return one, false
	}

	if one.State == cloud.Gone && one.Ended.After(at) {
		one.State = cloud.Up
		one.Ended = time.Time{}
		one.Why = ""
		one.Billed = -1
	}

	return one, true
}

// show returns the state of a machine. If its process is gone without having recorded its end, show
// records the end and kills what the machine left running.
func (p *Provider) show(m *machine) (cloud.Instance, error) {
	one := cloud.Instance{
		ID: m.ID, Lease: m.Lease, Region: m.Offer.Region, Zone: m.Offer.Zone, Type: m.Offer.Type, Spot: m.Offer.Spot,
		Address: address, Launched: m.Launched,
	}

	alive, err := m.alive()
	if err == nil && !alive && m.ended == nil {
		err = p.bury(m)
	}

	if err != nil {
		return one, err
	}

	now := p.cfg.Clock.Now()

	switch {
	case m.ended != nil && alive: // it has recorded its end and is about to exit
		one.State = cloud.Ending
	case m.ended != nil:
		one.State = cloud.Gone
		one.Ended = m.ended.At
		one.Why = m.ended.Why
		one.Billed = m.ended.Bill

		return one, nil
	case m.has(endingFile):
		one.State = cloud.Ending
	case m.has(upFile):
		one.State = cloud.Up
	default:
		one.State = cloud.Pending
	}

	one.Billed = m.Offer.Cost(job.Duration(max(now.Sub(m.Launched), 0)))

	return one, nil
}

// Wait waits until every machine that this process started has ended. Calling it is optional:
// machines are meant to outlive their server.
func (p *Provider) Wait() { p.children.Wait() }
