package duration

import (
	"math"
	"math/rand/v2"
	"slices"
)

// hidden is how many units each of the two hidden layers has.
const hidden = 64

// network is a perceptron with two hidden layers and a straight way around them, so that
// what is linear in logarithms need not be learned by bends.
type network struct {
	W1   weights `json:"w1"` // input by input, hidden weights of each
	B1   weights `json:"b1"`
	W2   weights `json:"w2"` // unit by unit of the second layer
	B2   weights `json:"b2"`
	W3   weights `json:"w3"`
	Skip weights `json:"skip"`
	B3   weights `json:"b3"`
}

func newNetwork(inputs int, chance *rand.Rand) *network {
	draw := func(n int, fan float64) weights {
		w := make(weights, n)
		for i := range w {
			w[i] = float32(chance.NormFloat64() * math.Sqrt(2/fan))
		}
		return w
	}
	return &network{
		W1: draw(inputs*hidden, 24), B1: make(weights, hidden), W2: draw(hidden*hidden, hidden), B2: make(weights, hidden),
		W3: draw(hidden, 4*hidden), Skip: make(weights, inputs), B3: make(weights, 1),
	}
}

// parts returns all weights, in the order of a gradient.
func (n *network) parts() []weights {
	return []weights{n.W1, n.B1, n.W2, n.B2, n.W3, n.Skip, n.B3}
}

// pass is what a network computes on its way.
type pass struct{ a, b [hidden]float32 }

// run returns what the network says of a job. words is how many of the inputs are words.
func (n *network) run(x *example, words int, p *pass) float64 {
	copy(p.a[:], n.B1)
	out := n.B3[0]
	for _, i := range x.on {
		addTo(p.a[:], n.W1[i*hidden:], 1)
		out += n.Skip[i]
	}
	for i, z := range x.z {
		addTo(p.a[:], n.W1[(words+i)*hidden:], float32(z))
		out += n.Skip[words+i] * float32(z)
	}
	for i, v := range p.a {
		p.a[i] = max(v, 0)
	}
	for j := range p.b {
		p.b[j] = max(n.B2[j]+dot(n.W2[j*hidden:(j+1)*hidden], &p.a), 0)
		out += n.W3[j] * p.b[j]
	}
	return float64(out)
}

// addTo adds a row of hidden numbers, times a factor, to another.
func addTo(sum, row weights, factor float32) {
	sum, row = sum[:hidden], row[:hidden]
	for i := range sum {
		sum[i] += row[i] * factor
	}
}

// dot multiplies a row of weights with a layer, in four sums that do not wait for each other.
func dot(row weights, layer *[hidden]float32) float32 {
	row = row[:hidden]
	var s0, s1, s2, s3 float32
	for i := 0; i < hidden; i += 4 {
		s0 += row[i] * layer[i]
		s1 += row[i+1] * layer[i+1]
		s2 += row[i+2] * layer[i+2]
		s3 += row[i+3] * layer[i+3]
	}
	return s0 + s1 + s2 + s3
}

// back adds the gradient of one job, of which the network's answer is to be moved by -slope.
func (n *network) back(g *network, x *example, words int, p *pass, slope float32) {
	g.B3[0] += slope
	var da [hidden]float32
	for j, b := range p.b {
		g.W3[j] += slope * b
		if b <= 0 {
			continue
		}
		d := slope * n.W3[j]
		g.B2[j] += d
		row, grad := n.W2[j*hidden:(j+1)*hidden], g.W2[j*hidden:(j+1)*hidden]
		for i := range da {
			grad[i] += d * p.a[i]
			da[i] += d * row[i]
		}
	}
	for i, a := range p.a {
		if a <= 0 {
			da[i] = 0
		}
		g.B1[i] += da[i]
	}
	for _, i := range x.on {
		g.Skip[i] += slope
		addTo(g.W1[i*hidden:], da[:], 1)
	}
	for i, z := range x.z {
		g.Skip[words+i] += slope * float32(z)
		addTo(g.W1[(words+i)*hidden:], da[:], float32(z))
	}
}

// How a network is trained. Decay and what is forgotten were chosen on the public MLPerf table by how well unseen
// organisations were told; the rest is what is usual.
const (
	batchSize = 32
	maxEpochs = 150
	minEpochs = 20
	topRate   = 3e-3
	decay     = 1.0
	visits    = 160_000 // examples that are shown in all, so that many records do not take longer
	huber     = 0.15    // of deviations: errors beyond it count by their size, not its square
	stops     = 6       // times in training at which it may be stopped
)

// adam keeps what Adam remembers of each weight.
type adam struct {
	m, v []weights
	t    int
}

func newAdam(n *network) *adam {
	a := &adam{}
	for _, w := range n.parts() {
		a.m, a.v = append(a.m, make(weights, len(w))), append(a.v, make(weights, len(w)))
	}
	return a
}

// step moves the weights along a gradient, which it clears.
func (a *adam) step(n, g *network, rate float64, size int) {
	a.t++
	const b1, b2 = 0.9, 0.999
	c1, c2 := float32(1/(1-math.Pow(b1, float64(a.t)))), float32(1/(1-math.Pow(b2, float64(a.t))))
	r, keep, per := float32(rate), float32(1-rate*decay), 1/float32(size)
	grads := g.parts()
	for k, w := range n.parts() {
		m, v, grad := a.m[k], a.v[k], grads[k]
		m, v, grad = m[:len(w)], v[:len(w)], grad[:len(w)]
		for i, d := range grad {
			d *= per
			m[i] = b1*m[i] + (1-b1)*d
			v[i] = b2*v[i] + (1-b2)*d*d
			w[i] = w[i]*keep - r*m[i]*c1/(float32(math.Sqrt(float64(v[i]*c2)))+1e-8)
			grad[i] = 0
		}
	}
}

// trainNetwork trains on examples with their targets, which have mean 0 and deviation 1, and
// returns the network as it was at each of the stops.
func trainNetwork(xs []example, ys []float64, inputs, words int, chance *rand.Rand) []*network {
	n := newNetwork(inputs, chance)
	g := newNetwork(inputs, chance)
	for _, w := range g.parts() {
		clear(w)
	}
	a := newAdam(n)
	epochs := min(max(visits/len(xs), minEpochs), maxEpochs)
	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}
	var kept []*network
	var some example
	var p pass
	perEpoch := (len(xs) + batchSize - 1) / batchSize
	total := epochs * perEpoch
	for epoch := range epochs {
		chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for at := 0; at < len(order); at += batchSize {
			part := order[at:min(at+batchSize, len(order))]
			for _, i := range part {
				x := lessen(&xs[i], &some, chance)
				d := n.run(x, words, &p) - ys[i]
				n.back(g, x, words, &p, float32(min(max(d, -huber), huber)))
			}
			rate := topRate * 0.5 * (1 + math.Cos(math.Pi*float64(a.t)/float64(total)))
			a.step(n, g, rate, len(part))
		}
		if (epoch+1)*stops/epochs > len(kept) {
			kept = append(kept, n.clone())
		}
	}
	return kept
}

func (n *network) clone() *network {
	return &network{slices.Clone(n.W1), slices.Clone(n.B1), slices.Clone(n.W2), slices.Clone(n.B2), slices.Clone(n.W3), slices.Clone(n.Skip), slices.Clone(n.B3)}
}

// forgotten is the part of the words that a network is not shown at a time, so that it does not go by
// any one of them alone.
const forgotten = 0.15

// lessen returns an example without some of its words.
func lessen(x, into *example, chance *rand.Rand) *example {
	into.on, into.z = into.on[:0], x.z
	for _, w := range x.on {
		if chance.Float64() >= forgotten {
			into.on = append(into.on, w)
		}
	}
	return into
}

// sound reports whether a network that was read can be run.
func (n *network) sound(inputs int) bool {
	return len(n.W1) == inputs*hidden && len(n.B1) == hidden && len(n.W2) == hidden*hidden &&
		len(n.B2) == hidden && len(n.W3) == hidden && len(n.Skip) == inputs && len(n.B3) == 1
}
