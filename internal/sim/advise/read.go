package advise

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
)

// Source is what is asked of a yard; *api.Client is one.
type Source interface {
	Info(ctx context.Context) (api.Info, error)
	Whoami(ctx context.Context) (api.Whoami, error)
	Nodes(ctx context.Context, p api.Page) (api.NodePage, error)
	Job(ctx context.Context, j id.Job) (api.JobDetail, error)
	Events(ctx context.Context, f api.EventFilter) (api.EventPage, error)
	Offers(ctx context.Context, f api.OfferFilter) (api.OfferPage, error)
	Leases(ctx context.Context, f api.LeaseFilter) (api.LeasePage, error)
	Quotas(ctx context.Context, p api.Page) (api.QuotaPage, error)
	Datasets(ctx context.Context, p api.Page) (api.DatasetPage, error)
	UsageReport(ctx context.Context, q api.UsageQuery) (api.UsageReport, error)
}

var _ Source = (*api.Client)(nil)

// Period says of which time to read. Without a beginning it is Last before its end,
// without an end it ends now.
type Period struct {
	From, To time.Time
	Last     time.Duration
	Idle     time.Duration // for which the yard keeps idle provisioned nodes
}

// pageSize is how much is asked for at once.
const pageSize = 500

// reader reads a history.
type reader struct {
	Source
	h        *History
	now      time.Time
	progress func(what string, n int)
	nodes    map[id.Node]*Node
	offer    map[string]*fleet.Offer // by name, also such as are offered no more
	uses     map[id.Run][]use
	lives    map[id.Job]*jobHistory
}

// Read gets the history of a period from a yard. tell is called now and then with what is
// being read; it may be nil. Only an admin sees the jobs and the usage of all users.
func Read(ctx context.Context, s Source, p Period, tell func(what string, n int)) (*History, error) {
	who, err := s.Whoami(ctx)
	if err != nil {
		return nil, err
	}

	if who.Role != tenant.Admin {
		return nil, fault.New(fault.Denied, "admins_only", "permission denied: recommendations are based on the jobs and "+
			"usage of all users").
			WithRemedy("ask an admin to run this command")
	}

	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}

	if tell == nil {
		tell = func(string, int) {}
	}

	r := &reader{
		Source:   s,
		now:      info.Now,
		progress: tell,
		nodes:    map[id.Node]*Node{},
		offer:    map[string]*fleet.Offer{},
		uses:     map[id.Run][]use{},
		lives:    map[id.Job]*jobHistory{},
		h:        &History{From: p.From, To: p.To, Policy: info.Policy, Idle: p.Idle},
	}

	if err := r.period(&p); err != nil {
		return nil, err
	}

	for _, step := range []func(context.Context) error{r.readNodes, r.readOffers, r.readLeases, r.readRules, r.readUsage,
		r.readFeed, r.readCarried} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}

	r.finish()

	return r.h, nil
}

// period settles of which time is read.
func (r *reader) period(p *Period) error {
	h := r.h
	if h.To.IsZero() || h.To.After(r.now) {
		h.To = r.now
	}

	if h.From.IsZero() {
		h.From = h.To.Add(-p.Last)
	}

	if !h.From.Before(h.To) {
		return fault.New(
			fault.Invalid,
			"empty_period",
			"the period from %s to %s is empty",
			h.From.UTC().Format(time.DateTime),
			h.To.UTC().Format(time.DateTime),
		)
	}

	return nil
}

func (r *reader) gap(format string, args ...any) {
	r.h.Gaps = append(r.h.Gaps, fmt.Sprintf(format, args...))
}

func (r *reader) leftOut(format string, args ...any) {
	r.h.LeftOut = append(r.h.LeftOut, fmt.Sprintf(format, args...))
}

// pages reads all pages of a list.
func pages(read func(cursor string) (next string, err error)) error {
	cursor := ""
	for {
		next, err := read(cursor)
		if err != nil || next == "" {
			return err
		}

		cursor = next
	}
}

// readNodes reads the yard's own nodes and what they cost.
func (r *reader) readNodes(ctx context.Context) error {
	tariff := &fleet.Tariff{}
	free := 0
	err := pages(func(cursor string) (string, error) {
		p, err := r.Nodes(ctx, api.Page{Cursor: cursor, Limit: pageSize})
		for i := range p.Nodes {
			a := &p.Nodes[i]
			if a.Class == fleet.OnDemand || a.State == string(fleet.Removed) {
				continue
			}

			n := ownNode(a)
			if (a.Cordoned || a.State == string(fleet.Lost)) && a.Since.Before(r.h.From) {
				n.Away = []Absence{{From: r.h.From, To: r.h.To, Drained: a.Cordoned}}
			}

			if a.Price == nil {
				free++
			} else {
				price(tariff, &n.Node, a.Price)
			}

			r.nodes[n.ID] = &n
		}

		return p.Next, err
	})

	if len(tariff.Nodes) > 0 {
		r.h.Tariff = tariff
	}

	if free > 0 {
		r.gap("assumed to be free because their price is unknown: %s", humanize.Count(free, "local or reserved node"))
	}

	return err
}

// ownNode converts a node of the API.
func ownNode(a *api.Node) Node {
	n := fleet.Node{
		ID: a.ID, Class: a.Class, Pool: a.Pool, State: fleet.Ready,
		Inventory: fleet.Inventory{
			OS: a.OS, Arch: a.Arch, Version: a.Version, CPUs: a.CPUs, Memory: a.Memory, Disk: a.Disk, Shares: a.Shares,
			MPS: a.MPS,
		},
	}

	for i := range a.GPUs {
		g := &a.GPUs[i]
		gpu := fleet.GPU{
			Index:     g.Index,
			UUID:      g.UUID,
			Model:     g.Model,
			Memory:    g.Memory,
			Fake:      g.Fake,
			Peak:      g.Peak,
			Measured:  g.Measured,
			Bandwidth: g.Bandwidth,
			Watts:     g.Watts,
		}

		if g.Origin == "table" {
			gpu.Achievable = g.TFLOPS
		}

		n.Inventory.GPUs = append(n.Inventory.GPUs, gpu)
	}

	return Node{Node: n}
}

// price enters what a node costs into a tariff: between what it costs unused and with
// all GPUs in use in even steps. Nodes of one class with like GPUs cost the same. How
// much energy it is does not matter here, so that a kWh is taken to cost a dollar.
func price(t *fleet.Tariff, n *fleet.Node, p *api.Price) {
	gpu := kindOf(n)
	if slices.ContainsFunc(t.Nodes, func(o fleet.NodePrice) bool { return o.GPU == gpu && o.Class == n.Class }) {
		return
	}

	t.Energy = 1
	line := fleet.NodePrice{GPU: gpu, Class: n.Class, Off: p.Idle == 0 && p.Hourly > 0}
	rent := min(p.NodeCost, p.Idle)
	energy := p.Idle - rent
	if line.Off { // what it costs when it is on
		rent, energy = p.NodeCost, 0
	}

	gpus := max(len(n.Inventory.GPUs), 1)
	for used := range gpus + 1 {
		part := float64(used) / float64(gpus)
		line.Hourly = append(line.Hourly, money.PerHour(rent+(p.NodeCost-rent)*part))
		line.Watts = append(line.Watts, 1000*(energy+(p.EnergyCost-energy)*part))
	}

	t.Nodes = append(t.Nodes, line)
}

// readOffers reads what can be provisioned.
func (r *reader) readOffers(ctx context.Context) error {
	closed := 0
	err := pages(func(cursor string) (string, error) {
		p, err := r.Offers(ctx, api.OfferFilter{Page: api.Page{Cursor: cursor, Limit: pageSize}})
		r.h.Offers = append(r.h.Offers, p.Offers...)
		closed += len(p.Closed)

		return p.Next, err
	})

	for i := range r.h.Offers {
		r.offer[r.h.Offers[i].Name] = &r.h.Offers[i]
	}

	if closed > 0 {
		r.gap("offers that providers refuse at the moment are not included; see trainyard offers --closed")
	}

	return err
}

// readLeases reads what was provisioned, for the offers that are there no more, and what was
// refused.
func (r *reader) readLeases(ctx context.Context) error {
	refused := 0
	err := pages(func(cursor string) (string, error) {
		p, err := r.Leases(ctx, api.LeaseFilter{From: r.h.From, To: r.h.To, Page: api.Page{Cursor: cursor, Limit: pageSize}})
		for i := range p.Leases {
			l := &p.Leases[i]
			if l.State == fleet.LeaseRefused {
				refused++
			} else if r.offer[l.Offer.Name] == nil && !l.Stray {
				r.offer[l.Offer.Name] = &l.Offer
				r.h.Offers = append(r.h.Offers, l.Offer)
			}
		}

		return p.Next, err
	})

	if refused > 0 {
		r.gap("providers refused %s; the replay assumes that they refuse none", humanize.Count(refused, "node"))
	}

	return err
}

// readRules reads limits and datasets.
func (r *reader) readRules(ctx context.Context) error {
	err := pages(func(cursor string) (string, error) {
		p, err := r.Quotas(ctx, api.Page{Cursor: cursor, Limit: pageSize})
		for _, l := range p.Quotas {
			r.h.Quotas = append(r.h.Quotas, quotaOf(&l))
		}

		return p.Next, err
	})
	if err != nil {
		return err
	}

	if len(r.h.Quotas) > 0 {
		r.gap("quotas are today's, and usage before the period does not count")
	}

	return pages(func(cursor string) (string, error) {
		p, err := r.Datasets(ctx, api.Page{Cursor: cursor, Limit: pageSize})
		for i := range p.Datasets {
			d := &p.Datasets[i]
			data := dataset.Dataset{ID: d.ID, Owner: d.Owner, Created: d.Created, Rule: d.Place, Size: d.Size, Source: d.Source}
			for _, c := range d.Copies {
				data.Copies = append(data.Copies, dataset.Copy{Node: c.Node, Pool: c.Pool, At: c.At, Path: c.Path})
			}

			r.h.Data = append(r.h.Data, data)
		}

		return p.Next, err
	})
}

func quotaOf(a *api.Quota) tenant.Quota {
	l := tenant.Quota{
		GPUs:       a.GPUs,
		Nodes:      a.Nodes,
		GPUHours:   a.GPUHours,
		Budget:     a.Budget,
		Period:     a.Period,
		OnExceeded: a.OnExceeded,
		Borrow:     a.Borrow,
		WarnAt:     a.WarnAt,
	}

	switch kind, name, _ := strings.Cut(a.Subject, "/"); kind {
	case "user":
		l.Subject.User = id.User(name)
	case "project":
		l.Subject.Project = id.Project(name)
	default:
		l.Subject.Each = name
	}

	if l.Period == "" {
		l.Period = tenant.Month
	}

	if l.OnExceeded == "" {
		l.OnExceeded = tenant.ExceededAsk
	}

	return l
}

// use is what a run used on a node.
type use struct {
	node  id.Node
	gpu   string
	offer string
	gpus  float64 // GPU-seconds
}

// readUsage reads the cost of the period, and on which nodes each run was.
func (r *reader) readUsage(ctx context.Context) error {
	r.progress("usage", 0)
	total, err := r.UsageReport(ctx, api.UsageQuery{From: r.h.From, To: r.h.To})
	if err != nil {
		return err
	}

	r.h.Cost = total.Total.Cost
	by := []ledger.Key{ledger.ByRun, ledger.ByJob, ledger.ByNode, ledger.ByGPU, ledger.ByOffer}

	q := api.UsageQuery{From: r.h.From, Where: []string{string(ledger.ByAccount) + "=" + string(ledger.Use)}}
	for _, k := range by {
		q.By = append(q.By, string(k))
	}

	books, err := r.UsageReport(ctx, q)
	if err != nil {
		return err
	}

	for _, row := range books.Rows {
		if len(row.Keys) != len(by) {
			return fault.New(
				fault.Internal,
				"bad_usage_report",
				"a row of the usage report has %d keys instead of %d",
				len(row.Keys),
				len(by),
			)
		}

		run := id.Run(row.Keys[0])
		r.uses[run] = append(
			r.uses[run],
			use{node: id.Node(row.Keys[2]), gpu: row.Keys[3], offer: row.Keys[4], gpus: row.GPUSeconds},
		)

		if j := id.Job(row.Keys[1]); r.lives[j] == nil {
			r.lives[j] = &jobHistory{Job: Job{ID: j, Carried: true}}
		}
	}

	return nil
}

// tries is how often something is asked that the yard refuses because it was asked
// too much.
const tries = 30

// mostCarried is how many jobs of before the period are looked up.
const mostCarried = 1000

// readCarried looks up the jobs that were submitted before the period and ran in it.
func (r *reader) readCarried(ctx context.Context) error {
	looked, lost := 0, 0

	for _, name := range r.names() {
		l := r.lives[name]
		if !l.Carried || l.afterPeriod {
			continue
		}

		looked++
		if looked > mostCarried {
			lost++
			delete(r.lives, name)
			continue
		}

		r.progress("earlier jobs", looked)

		d, err := r.patient(ctx, name)
		if err != nil {
			return err
		}
		if err := l.detail(&d, r.h.From, r.now); err != nil {
			return err
		}
	}

	if looked > lost {
		r.gap(
			"submitted before the period; replayed from its start with the work that remained: %s",
			humanize.Count(looked-lost, "job"),
		)
	}

	if lost > 0 {
		r.leftOut("submitted before the period and too many to look up: %s", humanize.Count(lost, "job"))
	}

	return nil
}

// patient reads a job, and waits a while when the yard was asked too often.
func (r *reader) patient(ctx context.Context, j id.Job) (api.JobDetail, error) {
	for n := 1; ; n++ {
		d, err := r.Job(ctx, j)
		if fault.KindOf(err) != fault.OverLimit || n == tries || !clock.Sleep(ctx, time.Second) {
			return d, err
		}
	}
}

// where says on what a run ran.
func (r *reader) where(run id.Run, spec *job.Spec, held time.Duration, s *Stretch) {
	asked := max(spec.Resources.GPUs.Min, 0)
	seconds := 0.0

	for i, u := range r.uses[run] {
		g := r.gpu(&u)
		speed, _ := g.TFLOPS()
		if i == 0 || speed < s.TFLOPS {
			s.GPU, s.Memory, s.TFLOPS = g.Model, g.Memory, speed
		}

		s.Nodes++
		seconds += u.gpus
	}

	s.GPUs = asked * max(s.Nodes, spec.Resources.Nodes.Min, 1)
	if elastic := spec.Resources.GPUs.Max != spec.Resources.GPUs.Min; elastic && held > 0 && seconds > 0 {
		s.GPUs = max(int(seconds/held.Seconds()+0.5), s.GPUs)
	}
}
