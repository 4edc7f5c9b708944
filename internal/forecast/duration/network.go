package duration

import (
	"math"
	"math/rand/v2"
	"slices"
)

// hiddenUnits is how many units each of the two hidden layers has.
const hiddenUnits = 64

// network is a multilayer perceptron with two hidden ReLU layers and a skip connection from the inputs to the output,
// so that what is linear in logarithms need not be approximated by the hidden units.
type network struct {
	W1   weights `json:"w1"` // row-major, a row for each input
	B1   weights `json:"b1"`
	W2   weights `json:"w2"` // row-major, a row for each unit of the second layer
	B2   weights `json:"b2"`
	W3   weights `json:"w3"`
	Skip weights `json:"skip"`
	B3   weights `json:"b3"`
}

// newNetwork initialises a network as He et al. do ("Delving Deep into Rectifiers").
func newNetwork(inputs int, rng *rand.Rand) *network {
	draw := func(n int, fanIn float64) weights {
		w := make(weights, n)
		for i := range w {
			w[i] = float32(rng.NormFloat64() * math.Sqrt(2/fanIn))
		}

		return w
	}

	return &network{
		W1:   draw(inputs*hiddenUnits, 24), // about as many inputs of an example are set
		B1:   make(weights, hiddenUnits),
		W2:   draw(hiddenUnits*hiddenUnits, hiddenUnits),
		B2:   make(weights, hiddenUnits),
		W3:   draw(hiddenUnits, 4*hiddenUnits),
		Skip: make(weights, inputs),
		B3:   make(weights, 1),
	}
}

// parameters returns all weights. A gradient has the same order.
func (n *network) parameters() []weights {
	return []weights{n.W1, n.B1, n.W2, n.B2, n.W3, n.Skip, n.B3}
}

// activations are the outputs of the hidden layers.
type activations struct{ first, second [hiddenUnits]float32 }

// predict returns the standardized log duration of a job. words is how many of the inputs are words.
func (n *network) predict(x *example, words int, p *activations) float64 {
	copy(p.first[:], n.B1)
	out := n.B3[0]
	for _, i := range x.words {
		addScaled(p.first[:], n.W1[i*hiddenUnits:], 1)
		out += n.Skip[i]
	}

	for i, z := range x.amounts {
		addScaled(p.first[:], n.W1[(words+i)*hiddenUnits:], float32(z))
		out += n.Skip[words+i] * float32(z)
	}

	for i, v := range p.first {
		p.first[i] = max(v, 0)
	}

	for j := range p.second {
		p.second[j] = max(n.B2[j]+dot(n.W2[j*hiddenUnits:(j+1)*hiddenUnits], &p.first), 0)
		out += n.W3[j] * p.second[j]
	}

	return float64(out)
}

// addScaled adds a row of weights times a factor to a layer.
func addScaled(sum, row weights, factor float32) {
	sum, row = sum[:hiddenUnits], row[:hiddenUnits]
	for i := range sum {
		sum[i] += row[i] * factor
	}
}

// dot returns the dot product of a row of weights and a layer, in four sums that the processor can overlap.
func dot(row weights, layer *[hiddenUnits]float32) float32 {
	row = row[:hiddenUnits]
	var s0, s1, s2, s3 float32
	for i := 0; i < hiddenUnits; i += 4 {
		s0 += row[i] * layer[i]
		s1 += row[i+1] * layer[i+1]
		s2 += row[i+2] * layer[i+2]
		s3 += row[i+3] * layer[i+3]
	}

	return s0 + s1 + s2 + s3
}

// backpropagate adds the gradient of the loss of one example, of which the derivative with respect to the prediction
// is residual.
func (n *network) backpropagate(g *network, x *example, words int, p *activations, residual float32) {
	g.B3[0] += residual
	var da [hiddenUnits]float32

	for j, b := range p.second {
		g.W3[j] += residual * b

		if b <= 0 {
			continue
		}

		d := residual * n.W3[j]
		g.B2[j] += d
		row, grad := n.W2[j*hiddenUnits:(j+1)*hiddenUnits], g.W2[j*hiddenUnits:(j+1)*hiddenUnits]
		for i := range da {
			grad[i] += d * p.first[i]
			da[i] += d * row[i]
		}
	}

	for i, a := range p.first {
		if a <= 0 {
			da[i] = 0
		}

		g.B1[i] += da[i]
	}

	for _, i := range x.words {
		g.Skip[i] += residual
		addScaled(g.W1[i*hiddenUnits:], da[:], 1)
	}

	for i, z := range x.amounts {
		g.Skip[words+i] += residual * float32(z)
		addScaled(g.W1[(words+i)*hiddenUnits:], da[:], float32(z))
	}
}

// Hyperparameters of training with AdamW. Weight decay and dropout were chosen on the public MLPerf table by the error
// on unseen organisations; the rest are common defaults.
const (
	batchSize    = 32
	maxEpochs    = 150
	minEpochs    = 20
	learningRate = 3e-3
	weightDecay  = 1.0
	maxExamples  = 160_000 // over all epochs, so that many records do not take longer
	huberDelta   = 0.15    // in standard deviations: beyond it the loss is linear
	checkpoints  = 6       // for early stopping
)

// adam holds the moment estimates of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization").
type adam struct {
	m, v []weights
	t    int
}

func newAdam(n *network) *adam {
	a := &adam{}
	for _, w := range n.parameters() {
		a.m, a.v = append(a.m, make(weights, len(w))), append(a.v, make(weights, len(w)))
	}

	return a
}

// step updates the weights by the gradient of a batch, which it clears.
func (a *adam) step(n, g *network, rate float64, batch int) {
	a.t++
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	correction1 := float32(1 / (1 - math.Pow(beta1, float64(a.t))))
	correction2 := float32(1 / (1 - math.Pow(beta2, float64(a.t))))
	step := float32(rate)
	decay := float32(1 - rate*weightDecay)
	perExample := 1 / float32(batch)

	gradients := g.parameters()
	for k, w := range n.parameters() {
		m := a.m[k][:len(w)]
		v := a.v[k][:len(w)]

		gradient := gradients[k][:len(w)]
		for i, d := range gradient {
			d *= perExample
			m[i] = beta1*m[i] + (1-beta1)*d
			v[i] = beta2*v[i] + (1-beta2)*d*d
			w[i] = w[i]*decay - step*m[i]*correction1/(float32(math.Sqrt(float64(v[i]*correction2)))+epsilon)
			gradient[i] = 0
		}
	}
}

// trainNetwork trains on examples and standardized targets with the Huber loss and a cosine learning-rate schedule. It
// returns a snapshot at each checkpoint.
func trainNetwork(xs []example, ys []float64, inputs, words int, rng *rand.Rand) []*network {
	n := newNetwork(inputs, rng)
	gradient := newNetwork(inputs, rng)
	for _, w := range gradient.parameters() {
		clear(w)
	}

	optimizer := newAdam(n)

	epochs := min(max(maxExamples/len(xs), minEpochs), maxEpochs)

	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}

	var snapshots []*network
	var dropped example
	var p activations
	perEpoch := (len(xs) + batchSize - 1) / batchSize
	steps := epochs * perEpoch

	for epoch := range epochs {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })

		for at := 0; at < len(order); at += batchSize {
			batch := order[at:min(at+batchSize, len(order))]
			for _, i := range batch {
				x := dropWords(&xs[i], &dropped, rng)
				residual := n.predict(x, words, &p) - ys[i]
				n.backpropagate(gradient, x, words, &p, float32(min(max(residual, -huberDelta), huberDelta)))
			}

			rate := learningRate * 0.5 * (1 + math.Cos(math.Pi*float64(optimizer.t)/float64(steps)))
			optimizer.step(n, gradient, rate, len(batch))
		}

		if (epoch+1)*checkpoints/epochs > len(snapshots) {
			snapshots = append(snapshots, n.clone())
		}
	}

	return snapshots
}

func (n *network) clone() *network {
	return &network{
		W1:   slices.Clone(n.W1),
		B1:   slices.Clone(n.B1),
		W2:   slices.Clone(n.W2),
		B2:   slices.Clone(n.B2),
		W3:   slices.Clone(n.W3),
		Skip: slices.Clone(n.Skip),
		B3:   slices.Clone(n.B3),
	}
}

// wordDropout is the dropout rate of input words, so that the network does not rely on any one of them alone.
const wordDropout = 0.15

// dropWords returns an example without some of its words. It reuses into.
func dropWords(x, into *example, rng *rand.Rand) *example {
	into.words, into.amounts = into.words[:0], x.amounts
	for _, w := range x.words {
		if rng.Float64() >= wordDropout {
			into.words = append(into.words, w)
		}
	}

	return into
}

// valid reports whether a network that was read has the right dimensions.
func (n *network) valid(inputs int) bool {
	return len(n.W1) == inputs*hiddenUnits && len(n.B1) == hiddenUnits && len(n.W2) == hiddenUnits*hiddenUnits &&
		len(n.B2) == hiddenUnits && len(n.W3) == hiddenUnits && len(n.Skip) == inputs && len(n.B3) == 1
}
