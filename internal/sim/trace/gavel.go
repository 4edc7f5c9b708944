package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// The fields of a Gavel trace, which come in two forms. The objective that the
// longer one may set is not read: the published traces set none.
var (
	gavelLong = []string{
		"job_type",
		"command",
		"working_directory",
		"num_steps_arg",
		"needs_data_dir",
		"total_steps",
		"scale_factor",
		"priority_weight",
		"slo",
		"arrival_time",
	}
	gavelShort = []string{
		"job_type",
		"command",
		"num_steps_arg",
		"needs_data_dir",
		"total_steps",
		"arrival_time",
		"scale_factor",
	}
)

// gavelKinds are the GPUs of the throughput tables, and how the tables call a
// job there that is spread over several nodes.
var gavelKinds = []struct{ kind, together, spread string }{
	{"V100", "v100", "v100_unconsolidated"},
	{"P100", "p100", "p100_unconsolidated"},
	{"K80", "k80", "k80_unconsolidated"},
}

// gavel reads a trace of the Gavel scheduler. A job is so many steps on exactly
// as many GPUs as its scale factor, and its speed on each kind is what the
// throughput tables measured for it alone.
type gavel struct {
	*rows.Table
	opts   Options
	steps  throughputs
	speeds map[gavelKey][]job.Rate
	count  int
}

type gavelKey struct {
	model string
	scale int
}

func openGavel(f *rows.File, opts Options) (*gavel, error) {
	if opts.Tables == "" {
		return nil, fault.New(fault.Invalid, "missing_tables", "a Gavel trace needs its table of measured throughputs").
			WithRemedy("name the file, e.g. physical_cluster_throughputs.json")
	}

	steps, err := rows.All(opts.Tables, decodeThroughputs)
	if err != nil {
		return nil, err
	}

	return &gavel{Table: rows.NewTable(f, '\t'), opts: opts, steps: steps, speeds: map[gavelKey][]job.Rate{}}, nil
}

func (g *gavel) job() (*sim.Job, error) {
	if err := g.Read(); err != nil {
		return nil, err
	}

	switch len(g.Fields) {
	case g.Columns(): // like the row above
	case len(gavelLong):
		g.SetColumns(gavelLong)
	case len(gavelShort):
		g.SetColumns(gavelShort)
	default:
		return nil, g.Bad(
			0,
			"",
			"a row of a Gavel trace must have %[2]d or %[3]d fields, got %[1]d",
			len(g.Fields),
			len(gavelShort),
			len(gavelLong),
		)
	}

	key := gavelKey{g.Text("job_type"), g.Table.Count("scale_factor")}

	work, at := g.Number("total_steps"), g.Seconds("arrival_time")
	if g.Err == nil && (work <= 0 || work > 1e15) {
		g.Fail("total_steps", "must be between 1 and 1e15, got %g", work)
	}

	if g.Err == nil && (key.scale < 1 || key.scale > job.MaxCount) {
		g.Fail("scale_factor", "number of GPUs is out of range: %d", key.scale)
	}

	if g.Err != nil {
		return nil, g.Err
	}

	rates := g.rates(key)
	if len(rates) == 0 {
		return nil, g.Bad(1, "job_type", "the table has no throughput of %s on %d GPUs", key.model, key.scale)
	}

	g.count++
	speed := job.NewSpeed(work, g.opts.start(0), g.opts.Save, rates...)
	nodes, each := split(key.scale, g.opts.PerNode)

	return &sim.Job{
		Name: fmt.Sprintf("gavel-%d", g.count), At: at, Owner: "gavel",
		Spec: &job.Spec{
			Name: strings.Clone(key.model), Run: command, Place: job.PlaceAny, Objective: job.ObjectiveTime,
			Resources:  job.Resources{Nodes: exactly(nodes), GPUs: exactly(each), GPU: kinds(speed)},
			Speed:      speed,
			Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
		},
	}, nil
}

// rates returns the speeds of a model. Where it did not run, for want of memory,
// the table has 0, and the job may not go there.
func (g *gavel) rates(key gavelKey) []job.Rate {
	if rates, ok := g.speeds[key]; ok {
		return rates
	}

	key.model = strings.Clone(key.model)

	var rates []job.Rate
	for _, k := range gavelKinds {
		for _, r := range []job.Rate{
			{GPU: k.kind, GPUs: key.scale, PerSecond: g.steps[k.together][key]},
			{GPU: k.kind, GPUs: key.scale, PerSecond: g.steps[k.spread][key], Spread: true},
		} {
			if r.PerSecond > 0 {
				rates = append(rates, r)
			}
		}
	}

	g.speeds[key] = rates

	return rates
}

// throughputs are steps a second by kind of GPU, model and number of GPUs, for a
// model that runs alone.
type throughputs map[string]map[gavelKey]float64

// decodeThroughputs reads the tables, which hold every pair of models too, and
// keeps what is said of a model alone.
func decodeThroughputs(f *rows.File) (throughputs, error) {
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(io.LimitReader(f.Rest(), 1<<28)).Decode(&all); err != nil {
		return nil, fault.New(fault.Invalid, "bad_tables", "%s is not a table of throughputs", f.Name).WithCause(err)
	}

	out := throughputs{}
	for kind, table := range all {
		out[kind] = map[gavelKey]float64{}

		for text, row := range table {
			key, ok := parseGavelKey(text)
			alone, measured := row["null"]
			if !ok || !measured {
				return nil, fault.New(fault.Invalid, "bad_tables", "%s: invalid row of throughputs: %q", f.Name, rows.Short(text)).
					WithField(kind)
			}

			var rate float64
			if err := json.Unmarshal(alone, &rate); err != nil || rate < 0 || rate > 1e12 {
				return nil, fault.New(fault.Invalid, "bad_tables", "%s: the throughput of %s must be a number", f.Name,
					rows.Short(text)).
					WithField(kind)
			}

			out[kind][key] = rate
		}
	}

	if !slices.ContainsFunc(
		gavelKinds,
		func(k struct{ kind, together, spread string }) bool { return len(out[k.together]) > 0 },
	) {
		return nil, fault.New(fault.Invalid, "bad_tables", "%s has no throughputs for v100, p100 or k80", f.Name)
	}

	return out, nil
}

// parseGavelKey reads ('ResNet-18 (batch size 16)', 4).
func parseGavelKey(text string) (gavelKey, bool) {
	rest, ok := strings.CutPrefix(text, "('")
	at := strings.LastIndex(rest, "', ")
	if !ok || at < 0 || !strings.HasSuffix(rest, ")") {
		return gavelKey{}, false
	}

	scale, err := strconv.Atoi(rest[at+3 : len(rest)-1])

	return gavelKey{rest[:at], scale}, err == nil
}
