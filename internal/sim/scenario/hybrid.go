package scenario

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// hybrid is the part of a scenario about provisioning, data and quotas.
type hybrid struct {
	cloud  sim.Cloud
	quotas []tenant.Quota
	data   []dataset.Dataset
	roads  dataset.Network
	strict bool // a job that no node and no offer could ever run is refused

	forecastEvery time.Duration // how often running jobs are forecast; 0 for never
}

// diskRate is how many bytes a second programs write and read of their checkpoints.
const diskRate = job.Bytes(1 << 30)

// forecastLine lets running jobs be forecast.
func (s *Scenario) forecastLine(a *args) *fault.Error {
	return a.only(into(&s.hybrid.forecastEvery, parseLasting))
}

// rightForecast says what is really left of a job, by a tenth more or less.
func rightForecast(_ *sim.Job, _, left time.Duration) *job.Forecast {
	seconds := left.Seconds()

	return &job.Forecast{
		Basis: job.BasisSteps, Remaining: job.Band{Low: 0.9 * seconds, Mid: seconds, High: 1.1 * seconds},
	}
}

// strictLine refuses jobs that could never run.
func (s *Scenario) strictLine(a *args) *fault.Error {
	s.hybrid.strict = true

	if a.hasNext() {
		return a.bad(a.words[0], "unexpected %q at the end of the line", a.words[0].text)
	}

	return nil
}

// offerLine reads a kind of node that can be provisioned.
func (s *Scenario) offerLine(a *args) *fault.Error {
	start := a.last
	w, err := a.must("the name of an offer", "offer aws/g5.xlarge 1x A10G:24GB hourly $1 boot 3m")
	if err != nil {
		return err
	}

	provider, kind, _ := strings.Cut(w.text, "/")
	o := fleet.Offer{Provider: provider, Type: kind, CPUs: usualCPUs, Memory: usualMemory}

	if kind == "" {
		return a.bad(w, "invalid offer name %q", w.text).WithRemedy("use PROVIDER/TYPE, e.g. aws/g5.xlarge")
	}

	g := group{}
	if err := g.devices(a); err != nil {
		return err
	}

	var refused []sim.Refusal

	err = a.keys(map[string]reader{
		"spot":              flag(&o.Spot),
		"region":            value(into(&o.Region, func(s string) (string, error) { return s, nil })),
		"cpus":              value(into(&o.CPUs, job.ParseCPUs)),
		"memory":            value(into(&o.Memory, job.ParseBytes)),
		"hourly":            value(into(&o.Hourly, job.ParseMoney)),
		"boot":              value(into(&o.Boot, job.ParseDuration)),
		"billing_increment": value(into(&o.BillingIncrement, job.ParseDuration)),
		"min_billing":       value(into(&o.MinBilling, job.ParseDuration)),
		"max_nodes":         value(into(&o.MaxNodes, parseCount)),
		"loss_rate":         value(into(&o.LossRate, parseAmount)),
		"refused*": value(func(a *args, w word) *fault.Error {
			var r sim.Refusal
			err := into(&r, parseRefusal)(a, w)
			refused = append(refused, r)

			return err
		}),
	})
	if err != nil {
		return err
	}

	if g.gpus > 0 {
		var k job.GPUKind
		if k.UnmarshalText([]byte(g.kind)) != nil {
			k.Model = g.kind
		}

		described := gpuspec.Describe(fleet.GPU{Model: k.Model, Memory: k.Memory})
		o.GPU = k.Model
		o.GPUMemory = k.Memory
		o.GPUs = g.gpus
		o.TFLOPS = described.Peak
		o.Shares = simulatedShares
	}

	o.Name = o.NameOf()
	if slices.ContainsFunc(s.hybrid.cloud.Offers, func(p fleet.Offer) bool { return p.Name == o.Name }) {
		return a.bad(start, "offer %s is defined twice", o.Name)
	}

	for _, r := range refused {
		r.Offer = o.Name
		s.hybrid.cloud.Refusals = append(s.hybrid.cloud.Refusals, r)
	}

	s.hybrid.cloud.Offers = append(s.hybrid.cloud.Offers, o)

	return nil
}

var stretch = regexp.MustCompile(`^([^.]+)\.\.([^:]+)(?::(\w+))?$`)

// parseRefusal reads FROM..TO or FROM..TO:CODE.
func parseRefusal(s string) (r sim.Refusal, err error) {
	m := stretch.FindStringSubmatch(s)
	if m == nil {
		return r, fmt.Errorf("invalid interval %q: use FROM..TO, e.g. 0..2h or 0..2h:no_quota", s)
	}

	r.From, err = parseDuration(m[1])
	if err == nil {
		r.To, err = parseDuration(m[2])
	}

	r.Code = m[3]
	if r.Code == "" {
		r.Code = fleet.RefusedCapacity
	}

	return r, err
}

// quotaLine reads the quota of a user or project.
func (s *Scenario) quotaLine(a *args) *fault.Error {
	w, err := a.must("the user or project", "quota user/ann gpus 4")
	if err != nil {
		return err
	}

	l := tenant.Quota{Period: tenant.Month, OnExceeded: tenant.ExceededAsk}
	l.Subject, err = parseSubject(a, w)
	if err != nil {
		return err
	}

	err = a.keys(map[string]reader{
		"gpus":        value(into(&l.GPUs, parseCount)),
		"nodes":       value(into(&l.Nodes, parseCount)),
		"gpu_hours":   value(into(&l.GPUHours, parsePositive)),
		"budget":      value(into(&l.Budget, job.ParseMoney)),
		"period":      value(into(&l.Period, oneOf(tenant.Periods()...))),
		"on_exceeded": value(into(&l.OnExceeded, oneOf(tenant.ExceededActions()...))),
		"borrow":      flag(&l.Borrow),
	})

	s.hybrid.quotas = append(s.hybrid.quotas, l)
	s.shares = true

	return err
}

func parseSubject(a *args, w word) (tenant.Subject, *fault.Error) {
	kind, name, _ := strings.Cut(w.text, "/")
	switch {
	case kind == "user" && id.Name(name):
		return tenant.Subject{User: id.User(name)}, nil
	case kind == "project" && id.Name(name):
		return tenant.Subject{Project: id.Project(name)}, nil
	case kind == "each" && (name == "user" || name == "project"):
		return tenant.Subject{Each: name}, nil
	}

	return tenant.Subject{}, a.bad(w, "invalid subject %q", w.text).
		WithRemedy("use user/NAME, project/NAME, each/user or each/project")
}

// dataLine reads a dataset.
func (s *Scenario) dataLine(a *args) *fault.Error {
	w, err := a.must("the name of a dataset", "data cifar10 size 100GB place local at local")
	if err != nil {
		return err
	}

	d := dataset.Dataset{ID: id.Dataset(w.text), Rule: job.PlaceAny}
	at := job.Place("")

	err = a.keys(map[string]reader{
		"size":  value(into(&d.Size, job.ParseBytes)),
		"place": value(into(&d.Rule, oneOf(job.PlaceAny, job.PlaceLocal, job.PlaceCloud))),
		"at":    value(into(&at, oneOf(job.PlaceAny, job.PlaceLocal, job.PlaceCloud))),
	})
	if err != nil {
		return err
	}

	if at != "" {
		d.Copies = []dataset.Copy{{At: at}}
	}

	if err := d.Validate(); err != nil {
		return a.bad(w, "%s", err.Error())
	}

	s.hybrid.data = append(s.hybrid.data, d)

	return nil
}

// roadsLine reads how fast data travels.
func (s *Scenario) roadsLine(a *args) *fault.Error {
	return a.keys(map[string]reader{
		"in":     value(into(&s.hybrid.roads.In, job.ParseBytes)),
		"across": value(into(&s.hybrid.roads.Across, job.ParseBytes)),
		"per_gb": value(into(&s.hybrid.roads.PerGB, parsePrice[money.PerGB])),
	})
}

// spotLine reads how the provider reclaims a spot node at a time.
func (s *Scenario) spotLine(a *args, at time.Duration) *fault.Error {
	r := sim.Reclaim{At: at}
	if err := a.keys(map[string]reader{"notice": value(into(&r.Notice, parseDuration))}); err != nil {
		return err
	}

	s.hybrid.cloud.Reclaims = append(s.hybrid.cloud.Reclaims, r)
	slices.SortStableFunc(s.hybrid.cloud.Reclaims, func(a, b sim.Reclaim) int { return cmp.Compare(a.At, b.At) })

	return nil
}

// setUp adds all of it to the configuration of a simulation.
func (h *hybrid) setUp(cfg *sim.Config) {
	if len(h.cloud.Offers) > 0 {
		cloud := h.cloud
		cfg.Cloud = &cloud
	}

	cfg.Quotas, cfg.Data = h.quotas, h.data
	strict, roads, booked := h.strict, h.roads, len(h.quotas) > 0

	if roads == (dataset.Network{}) {
		roads = dataset.DefaultNetwork()
	}

	cfg.Network = &sim.Network{
		Storage: roads.In, Inside: roads.In, Across: roads.Across, Price: roads.PerGB, Disk: diskRate,
	}

	if h.forecastEvery > 0 {
		cfg.Forecast, cfg.ForecastEvery = rightForecast, h.forecastEvery
	}

	cfg.Yard = func(y *yardmaster.Config) {
		y.RefuseImpossible = strict
		y.Unmetered = !booked
	}
}
