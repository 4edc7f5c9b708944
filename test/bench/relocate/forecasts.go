package relocate

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// forecasts is how wrong the forecasts of running jobs are, as a multiple of how wrong ours were measured to be: 0 for
// perfect ones.
type forecasts float64

const (
	perfect forecasts = 0
	ours    forecasts = 1
	worse   forecasts = 2
)

func (f forecasts) String() string {
	switch f {
	case perfect:
		return "perfect"
	case ours:
		return "ours"
	case worse:
		return "twice as bad"
	}

	return strconv.FormatFloat(float64(f), 'f', -1, 64) + " times as bad"
}

// forecastEvery is how often a running job is forecast.
const forecastEvery = 15 * time.Minute

// measured is the error of the blend in bench-forecast, over all 1,816 forecasts: median and 80th percentile as shares
// of the whole run, after a share of it.
var measured = []struct{ done, median, q80 float64 }{
	{0.2, 0.050, 0.13}, {0.4, 0.041, 0.11}, {0.6, 0.032, 0.08}, {0.8, 0.025, 0.06},
}

// failures is the share of jobs of which the forecast fails, and failure its error.
const (
	failures = 0.001
	failure  = 2.0
)

// errorAt returns the median and the 80th percentile of the error after a share of a run.
func errorAt(done float64) (median, q80 float64) {
	last := len(measured) - 1
	for i := range measured {
		m := &measured[i]
		if done > m.done && i < last {
			continue
		}
		if i == 0 || done >= m.done {
			return m.median, m.q80
		}

		b := &measured[i-1]
		w := (done - b.done) / (m.done - b.done)

		return b.median + w*(m.median-b.median), b.q80 + w*(m.q80-b.q80)
	}

	return 0, 0
}

// maker makes forecasts. A job is over- or underestimated throughout, by an error with the measured median and 80th
// percentile and an exponential tail; its interval holds in 80 % of the cases.
func (f forecasts) maker() func(*sim.Job, time.Duration, time.Duration) *job.Forecast {
	return func(j *sim.Job, _, left time.Duration) *job.Forecast {
		whole := j.Duration.Seconds()
		median, q80 := errorAt(1 - left.Seconds()/whole)
		mid := max(left.Seconds()+float64(f)*errorOf(j.Name, median, q80)*whole, 0)
		width := float64(f) * q80 * whole

		return &job.Forecast{
			Basis:     job.BasisBoth,
			Remaining: job.Band{Low: max(mid-width, 0), Mid: mid, High: mid + width},
		}
	}
}

// errorOf draws the error of the forecasts of a job, from its name.
func errorOf(name string, median, q80 float64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	chance := rand.New(rand.NewPCG(h.Sum64(), 1))
	sign := float64(chance.IntN(2)*2 - 1)

	u := chance.Float64()
	switch {
	case u < failures:
		return failure
	case u < 0.5:
		return sign * median * u / 0.5
	}

	tail := (q80 - median) / (math.Log(5) - math.Log(2))

	return sign * (median + tail*(-math.Log(1-u)-math.Log(2)))
}
