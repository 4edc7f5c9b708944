package advise

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/quantile"
)

// Verdict is the assessment of a change.
type Verdict string

// The verdicts.
const (
	Worth    Verdict = "worth it"
	Trade    Verdict = "a trade" // cheaper and slower, or faster and more expensive
	NotWorth Verdict = "not worth it"
)

// Advice is a change and its effect, compared with the baseline replay.
// Money and hours are for a month of 30 days.
type Advice struct {
	Kind    Kind    `json:"kind"`
	What    string  `json:"what"`
	Verdict Verdict `json:"verdict"`
	Saved   float64 `json:"saved_usd"` // less than 0 if it adds
	// SavedLow and SavedHigh bound the savings in 80 % of the months that are resampled
	// from the weeks or days of the period.
	SavedLow  float64 `json:"saved_usd_low"`
	SavedHigh float64 `json:"saved_usd_high"`
	// Mean and P95 are how much later jobs end, in seconds; less than 0 if sooner.
	Mean          float64  `json:"completion_mean_change_s"`
	P95           float64  `json:"completion_p95_change_s"`
	OnDemand      float64  `json:"on_demand_hours_avoided"`
	OnDemandCost  float64  `json:"on_demand_usd_avoided"`
	NeverFinished int      `json:"jobs_never_done,omitempty"`    // beyond those of the replay of what was
	SpotLosses    int      `json:"spot_nodes_lost,omitempty"`    // in the period
	Price         *float64 `json:"price_usd_per_hour,omitempty"` // of the added or removed node, as assumed
	Priced        string   `json:"price_known,omitempty"`        // how
	// BreakEven is the price of that node below which having it pays.
	BreakEven  *float64   `json:"break_even_usd_per_hour,omitempty"`
	Confidence Confidence `json:"sure"`
	Why        string     `json:"why"`
}

// Confidence is the evidence that a change saves money.
type Confidence struct {
	Unit    string  `json:"unit"` // week or day
	PaidOff int     `json:"paid"` // in how many of them it saved money
	Of      int     `json:"of"`
	Chance  float64 `json:"chance"` // share of resampled months in which it does
}

// What is too little to matter.
const (
	minShare   = 0.005 // of what the yard costs
	minSaving  = 1.0   // dollars a month
	minDelay   = 60.0  // seconds
	slowerMean = 0.02  // of the mean completion time
	slowerP95  = 0.05
	sureEnough = 0.75
)

// judge compares a change with the yard as it was.
func (q *Question) judge(v *variant, base, b *bill) Advice {
	scale := month.Hours() / q.History.span().Hours()
	a := Advice{
		Kind:          v.kind,
		What:          v.what,
		Saved:         cents((base.total() - b.total()).Times(scale)),
		OnDemand:      round((base.hours-b.hours)*scale, 1),
		OnDemandCost:  cents((base.onDemandCost - b.onDemandCost).Times(scale)),
		NeverFinished: b.unfinished - base.unfinished,
		SpotLosses:    b.spotLosses,
	}

	was, is := completedInBoth(base.completion, b.completion)
	a.Mean, a.P95 = round(mean(is)-mean(was), 0), round(quantile.NearestRank(is, 0.95)-quantile.NearestRank(was, 0.95), 0)

	if v.lasts > 0 {
		a.Price, a.Priced = new(cents(v.price)), v.priced
		worth := (base.total() - b.total()).Over(v.lasts) + v.price
		if v.kind == DropNode {
			worth = (b.total() - base.total()).Over(v.lasts) + v.price
		}

		a.BreakEven = new(cents(max(worth, 0)))
	}

	a.Confidence, a.SavedLow, a.SavedHigh = q.sure(base, b, scale)
	q.weigh(
		&a,
		&comparison{
			was:   was,
			is:    is,
			hours: (mean(is) - mean(was)) / time.Hour.Seconds() * float64(len(was)) * scale,
			worth: float64(q.worth(base, b).Times(scale)),
		},
		float64(base.total().Times(scale)),
	)

	return a
}

// worth returns what the time is worth by which jobs end later, by the yard's own
// values of an hour; less than 0 if they end sooner.
func (q *Question) worth(base, b *bill) money.Amount {
	values := Values(q.History.Policy)
	sum := money.Amount(0)
	for _, j := range slices.Sorted(maps.Keys(base.completion)) {
		if took, ended := b.completion[j]; ended {
			value, known := values[base.worth[j]]
			if !known {
				value = values[job.ObjectiveBalanced]
			}

			sum += value.For(took - base.completion[j])
		}
	}

	return sum
}

// comparison is what a verdict rests on.
type comparison struct {
	was, is []float64 // completion times in seconds, sorted
	hours   float64   // by which all jobs of a month together end later
	worth   float64   // what those are worth
}

// slower reports whether jobs end noticeably later.
func (c *comparison) slower(a *Advice) bool {
	return a.Mean > max(slowerMean*mean(c.was), minDelay) ||
		a.P95 > max(slowerP95*quantile.NearestRank(c.was, 0.95), 5*minDelay)
}

// faster reports whether jobs end noticeably sooner.
func (c *comparison) faster(a *Advice) bool { return -a.Mean > max(slowerMean*mean(c.was), minDelay) }

// rate returns what is saved for each hour that jobs end later, or paid for each that
// they end sooner.
func (c *comparison) rate(a *Advice) string {
	if c.hours == 0 {
		return dollars(0)
	}

	return dollars(a.Saved / c.hours)
}

// weigh gives the verdict and says why. A change that saves money for time, or buys
// time, is a trade if that is no worse than what the yard itself says time is worth.
func (q *Question) weigh(a *Advice, c *comparison, cost float64) {
	least := max(minSaving, minShare*cost)
	why := ""

	a.Verdict = NotWorth
	switch saves, adds := a.Saved >= least, a.Saved <= -least; {
	case a.NeverFinished > 0:
		why = humanize.Count(a.NeverFinished, "job") + " would never finish"
	case saves && c.slower(a) && a.Saved < c.worth:
		why = "by the policy's value of time, the delay costs " + dollars(c.worth)
	case saves && a.Confidence.Chance < sureEnough:
		why = "the saving may be due to chance"
	case saves && c.slower(a):
		a.Verdict, why = Trade, "it saves "+c.rate(a)+" per hour of delay"
	case saves:
		a.Verdict = Worth
	case adds && c.faster(a) && -a.Saved <= -c.worth:
		a.Verdict, why = Trade, "each hour gained costs "+c.rate(a)
	case adds && c.faster(a):
		why = "by the policy's value of time, the time gained is worth " + dollars(max(-c.worth, 0))
	case adds:
		why = "it costs more and jobs do not finish earlier"
	case c.faster(a):
		a.Verdict, why = Worth, "it does not cost more"
	case c.slower(a):
		why = "it saves nothing and jobs finish later"
	case a.Saved == 0 && a.Mean == 0 && a.P95 == 0:
		why = "it makes no difference"
	default:
		why = "the difference is too small to matter"
	}

	a.Why = sentence(a, why)
}

// completedInBoth returns the completion times of the jobs that ended in both, sorted, in seconds.
func completedInBoth(was, is map[id.Job]time.Duration) (a, b []float64) {
	for j, d := range was {
		if e, ended := is[j]; ended {
			a, b = append(a, d.Seconds()), append(b, e.Seconds())
		}
	}

	slices.Sort(a)
	slices.Sort(b)

	return a, b
}

func mean(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}

	sum := 0.0
	for _, v := range list {
		sum += v
	}

	return sum / float64(len(list))
}

// resamples is how many months are put together.
const resamples = 2000

// sure looks at the weeks of the period one by one, or at its days if there are fewer
// than three weeks, and at months that are put together from them at random.
func (q *Question) sure(base, b *bill, scale float64) (s Confidence, low, high float64) {
	var blocks []float64
	s.Unit = "day"

	size := 1
	if len(base.days) >= 21 {
		s.Unit, size = "week", 7
	}

	for i := range base.days {
		at := i / size
		if at == len(blocks) && len(base.days)-i >= size {
			blocks = append(blocks, 0)
		}

		blocks[len(blocks)-1] += float64(base.days[i] - b.days[i])
	}

	s.Of = len(blocks)
	for _, d := range blocks {
		if d > tiny {
			s.PaidOff++
		}
	}

	r := rand.New(rand.NewPCG(q.Seed, 0x5ca1ab1e))
	sums := make([]float64, resamples)

	won := 0
	for i := range sums {
		for range blocks {
			sums[i] += blocks[r.IntN(len(blocks))]
		}

		if sums[i] > tiny {
			won++
		}
	}

	slices.Sort(sums)
	s.Chance = float64(won) / resamples

	return s, cents(quantile.NearestRank(sums, 0.1) * scale), cents(quantile.NearestRank(sums, 0.9) * scale)
}

// tiny is money that is nothing but rounding.
const tiny = 1e-6

// sort puts what is worth it first, then trades, then the rest, each by money.
func (r *Report) sort() {
	order := []Verdict{Worth, Trade, NotWorth}
	slices.SortStableFunc(r.Advice, func(a, b Advice) int {
		return cmp.Or(slices.Index(order, a.Verdict)-slices.Index(order, b.Verdict), cmp.Compare(b.Saved, a.Saved))
	})
}

// cents rounds money, so that what people see is what programs see.
func cents[T ~float64](f T) float64 { return round(float64(f), 2) }

func round(f float64, digits int) float64 {
	unit := math.Pow(10, float64(digits))
	r := math.Round(f*unit) / unit
	if r == 0 {
		return 0 // not -0
	}

	return r
}
