package whatif

import (
	"math"
	"time"

	"trainyard/internal/sim"
)

// Unit says how the values of a measure are written.
type Unit string

// The units.
const (
	UnitTime   Unit = "s"     // a length of time in seconds
	UnitShare  Unit = "share" // 0 to 1
	UnitEnergy Unit = "kWh"
	UnitMoney  Unit = "money"
	UnitCount  Unit = "count"
	UnitNumber Unit = "number"
)

// Measure is something that simulations are compared by.
type Measure struct {
	Key   string // for programs: completion_mean_s
	Group string // what it is a part of: completion time
	Title string // which part: mean; "" if it is the whole
	Unit  Unit
	Best  int // +1 if more is better, -1 if less is, 0 if neither
	Of    func(*sim.Result) float64
}

// Measures lists all measures in the order in which people read them.
func Measures() []Measure {
	seconds := func(of func(*sim.Result) time.Duration) func(*sim.Result) float64 {
		return func(r *sim.Result) float64 { return of(r).Seconds() }
	}
	count := func(of func(*sim.Result) int) func(*sim.Result) float64 {
		return func(r *sim.Result) float64 { return float64(of(r)) }
	}

	return []Measure{
		{"jobs", "jobs", "", UnitCount, 0, count(func(r *sim.Result) int { return r.Jobs })},
		{"failed", "jobs", "failed", UnitCount, -1, count(func(r *sim.Result) int { return r.Failed })},
		{"left", "jobs", "not ended", UnitCount, -1, count(func(r *sim.Result) int { return r.Unfinished })},
		{"completion_mean_s", "completion", "mean", UnitTime, -1, func(r *sim.Result) float64 { return r.Completion.Mean }},
		{"completion_p50_s", "completion", "p50", UnitTime, -1, func(r *sim.Result) float64 { return r.Completion.P50 }},
		{"completion_p95_s", "completion", "p95", UnitTime, -1, func(r *sim.Result) float64 { return r.Completion.P95 }},
		{"completion_p99_s", "completion", "p99", UnitTime, -1, func(r *sim.Result) float64 { return r.Completion.P99 }},
		{"waiting_mean_s", "waiting", "mean", UnitTime, -1, func(r *sim.Result) float64 { return r.Waiting.Mean }},
		{"waiting_p95_s", "waiting", "p95", UnitTime, -1, func(r *sim.Result) float64 { return r.Waiting.P95 }},
		{"waiting_p99_s", "waiting", "p99", UnitTime, -1, func(r *sim.Result) float64 { return r.Waiting.P99 }},
		{"makespan_s", "makespan", "", UnitTime, -1, seconds(func(r *sim.Result) time.Duration { return r.Makespan })},
		{"utilisation", "utilisation", "", UnitShare, 1, func(r *sim.Result) float64 { return r.Utilisation }},
		{"energy_kwh", "energy", "in use", UnitEnergy, -1, func(r *sim.Result) float64 { return r.Energy }},
		{"idle_energy_kwh", "energy", "unused", UnitEnergy, -1, func(r *sim.Result) float64 { return r.IdleEnergy }},
		{"money", "money", "nodes in use", UnitMoney, -1, func(r *sim.Result) float64 { return r.Money }},
		{"idle_money", "money", "unused nodes", UnitMoney, -1, func(r *sim.Result) float64 { return r.IdleMoney }},
		{"late_money", "money", "lateness", UnitMoney, -1, func(r *sim.Result) float64 { return r.LateMoney }},
		{"late", "late", "jobs", UnitCount, -1, count(func(r *sim.Result) int { return r.LateJobs })},
		{"lateness_s", "late", "in all", UnitTime, -1, seconds(func(r *sim.Result) time.Duration { return r.Lateness })},
		{"fairness", "fairness", "", UnitNumber, 1, func(r *sim.Result) float64 { return r.Fairness }},
		{"slowdown", "slowdown", "", UnitNumber, -1, func(r *sim.Result) float64 { return r.Slowdown }},
		{"starved", "starved", "", UnitCount, -1, count(func(r *sim.Result) int { return r.Starved })},
		{"stops", "stops", "", UnitCount, 0, count(func(r *sim.Result) int { return r.Stops })},
		{"moves", "moves", "", UnitCount, 0, count(func(r *sim.Result) int { return r.Moves })},
		{"rescales", "rescales", "", UnitCount, 0, count(func(r *sim.Result) int { return r.Rescales })},
		{"lost_work", "lost work", "", UnitNumber, -1, func(r *sim.Result) float64 { return r.LostWork }},
	}
}

// Estimate is a mean over seeds with half of its 95 % confidence interval.
type Estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"ci95"` // 0 with one seed
}

// Row is what simulations that differ only in their seed come to.
type Row struct {
	Source    string
	Policy    string
	Load      float64
	Seeds     int
	Estimates []Estimate  // by measure
	First     *sim.Result // of the first seed, with its series
}

// Summarise sums up cells over their seeds. Cells come in the order of Run.
func Summarise(cells []Cell) []Row {
	measures := Measures()
	var rows []Row

	for i := 0; i < len(cells); {
		c := &cells[i]
		n := 1
		for i+n < len(cells) && cells[i+n].Source == c.Source && cells[i+n].Policy == c.Policy && cells[i+n].Load == c.Load {
			n++
		}

		row := Row{
			Source:    c.Source,
			Policy:    c.Policy,
			Load:      c.Load,
			Seeds:     n,
			First:     c.Result,
			Estimates: make([]Estimate, len(measures)),
		}

		values := make([]float64, n)
		for j := range measures {
			for k := range values {
				values[k] = measures[j].Of(cells[i+k].Result)
			}

			row.Estimates[j] = estimate(values)
		}

		rows = append(rows, row)
		i += n
	}

	return rows
}

// estimate returns the mean of values and half of its 95 % confidence interval by
// Student's distribution.
func estimate(values []float64) Estimate {
	n := float64(len(values))
	mean := 0.0
	for _, v := range values {
		mean += v / n
	}

	if len(values) < 2 {
		return Estimate{Mean: mean}
	}

	square := 0.0
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}

	return Estimate{Mean: mean, Half: student(len(values)-1) * math.Sqrt(square/(n-1)/n)}
}

// student returns the 97.5 % quantile of Student's distribution.
func student(freedom int) float64 {
	table := []float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}

	if freedom <= len(table) {
		return table[freedom-1]
	}

	// The first terms of the expansion around the normal distribution are right to
	// three decimals from here on.
	const z = 1.959964
	f := float64(freedom)

	return z + (z*z*z+z)/(4*f) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*f*f)
}
