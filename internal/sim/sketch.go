package sim

import "math"

// sketch keeps the distribution of many values in fixed space: counts and sums in buckets
// whose bounds grow by a tenth of a percent, so that a quantile is right to that, and exact where all values
// around it are equal.
type sketch struct {
	counts []uint32
	sums   []float64
	n      int
	sum    float64
	sum2   float64
	min    float64
	max    float64
}

const (
	sketchLeast = 1e-3 // seconds; what is below counts as this
	sketchMost  = 1e10
	sketchStep  = 1.001
)

// sketchLog is the logarithm of sketchStep.
const sketchLog = 0.000999500333083533166809

func (k *sketch) add(v float64) {
	if k.counts == nil {
		k.counts = make([]uint32, int(math.Log(sketchMost/sketchLeast)/sketchLog)+2)
		k.sums = make([]float64, len(k.counts))
		k.min = v
	}

	at := 0
	if v > sketchLeast {
		at = min(int(math.Log(v/sketchLeast)/sketchLog)+1, len(k.counts)-1)
	}

	k.counts[at]++
	k.sums[at] += v
	k.n++
	k.sum += v
	k.sum2 += v * v
	k.min, k.max = math.Min(k.min, v), math.Max(k.max, v)
}

// quantile returns the value below which a share q of the values lies.
func (k *sketch) quantile(q float64) float64 {
	if k.n == 0 {
		return 0
	}

	rank := int(math.Ceil(q * float64(k.n)))

	seen := 0
	for i, c := range k.counts {
		seen += int(c)
		if seen >= rank && c > 0 {
			if i == 0 {
				return math.Min(k.min, sketchLeast)
			}

			return math.Min(math.Max(k.sums[i]/float64(c), k.min), k.max)
		}
	}

	return k.max
}

func (k *sketch) mean() float64 {
	if k.n == 0 {
		return 0
	}

	return k.sum / float64(k.n)
}

// jain returns Jain's index of fairness of the values: 1 if all are equal, 1/n if one has all.
func (k *sketch) jain() float64 {
	if k.sum2 == 0 {
		return 1
	}

	return k.sum * k.sum / (float64(k.n) * k.sum2)
}

// Summary is a distribution of times.
type Summary struct {
	Mean, P50, P95, P99, Max float64 // seconds; quantiles are right to a tenth of a percent
}

func (k *sketch) summary() Summary {
	return Summary{Mean: k.mean(), P50: k.quantile(0.5), P95: k.quantile(0.95), P99: k.quantile(0.99), Max: k.max}
}

// bins returns the distribution as a curve: the share of values up to each of n
// values that are spread evenly on a logarithmic scale.
func (k *sketch) bins(n int) []Point {
	if k.n == 0 {
		return nil
	}

	points := make([]Point, 0, n)

	seen, every := 0, max(1, len(k.counts)/n)
	for i, c := range k.counts {
		seen += int(c)
		if c > 0 && (len(points) == 0 || i%every == 0 || seen == k.n) || i%every == 0 && seen > 0 && seen < k.n {
			points = append(points, Point{X: sketchLeast * math.Pow(sketchStep, float64(i)), Y: float64(seen) / float64(k.n)})
		}

		if seen == k.n {
			break
		}
	}

	return points
}

// Point is a point of a curve.
type Point struct{ X, Y float64 }
