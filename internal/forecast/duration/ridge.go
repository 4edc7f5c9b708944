package duration

import "gonum.org/v1/gonum/mat"

// ridge is a linear model of words and log amounts: the baseline that anything cleverer has to beat.
type ridge struct {
	Weights weights `json:"w"`
	Bias    float32 `json:"bias"`
}

// predict returns the standardized log duration of a job.
func (r *ridge) predict(x *example, words int) float64 {
	sum := r.Bias
	for _, i := range x.words {
		sum += r.Weights[i]
	}

	for i, z := range x.amounts {
		sum += r.Weights[words+i] * float32(z)
	}

	return float64(sum)
}

// ridgeLambda is the L2 penalty, in examples. The bias is penalised too: targets have mean 0.
const ridgeLambda = 1.0

// trainRidge solves the normal equations (XᵀX + λI)w = Xᵀy by Cholesky decomposition.
func trainRidge(xs []example, ys []float64, inputs, words int) *ridge {
	n := inputs + 1 // the last is the bias
	gram := mat.NewSymDense(n, nil)
	moment := mat.NewVecDense(n, nil)
	accumulate(gram, moment, xs, ys, words)

	for i := range n {
		gram.SetSym(i, i, gram.At(i, i)+ridgeLambda)
	}

	// The penalty makes the matrix positive definite, so that neither step can fail but for inputs that are not
	// finite, which the encoder does not produce. Then the model predicts the mean.
	var solution mat.VecDense

	var cholesky mat.Cholesky
	if !cholesky.Factorize(gram) || cholesky.SolveVecTo(&solution, moment) != nil {
		return &ridge{Weights: make(weights, inputs)}
	}

	r := &ridge{Weights: make(weights, inputs), Bias: float32(solution.AtVec(n - 1))}
	for i := range r.Weights {
		r.Weights[i] = float32(solution.AtVec(i))
	}

	return r
}

// accumulate adds XᵀX and Xᵀy. Examples are sparse: only the inputs that are set cost time.
func accumulate(gram *mat.SymDense, moment *mat.VecDense, xs []example, ys []float64, words int) {
	bias := moment.Len() - 1
	row := make([]float64, moment.Len())
	raw := gram.RawSymmetric()
	rhs := moment.RawVector().Data

	var set []int
	for k := range xs {
		set = append(set[:0], xs[k].words...)

		for _, i := range xs[k].words {
			row[i] = 1
		}

		for i, z := range xs[k].amounts {
			row[words+i] = z
			set = append(set, words+i)
		}

		row[bias] = 1

		set = append(set, bias)

		for at, i := range set { // set is ascending: the upper triangle
			rhs[i] += row[i] * ys[k]

			for _, j := range set[at:] {
				raw.Data[i*raw.Stride+j] += row[i] * row[j]
			}
		}
	}
}
