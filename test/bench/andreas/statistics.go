package andreas

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// student are the quantiles of Student's law that a 95 % interval needs, by
// degrees of freedom from 1.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

// Mean returns the mean of a sample and half the width of its 95 % confidence interval.
func Mean(sample []float64) (mean, half float64) {
	n := float64(len(sample))
	for _, x := range sample {
		mean += x / n
	}

	if len(sample) < 2 {
		return mean, math.Inf(1)
	}

	sum := 0.0
	for _, x := range sample {
		sum += (x - mean) * (x - mean)
	}

	t := 1.96
	if len(sample)-2 < len(student) {
		t = student[len(sample)-2]
	}

	return mean, t * math.Sqrt(sum/(n-1)/n)
}

// Versus compares two policies on the same seeds: by how many per cent the first
// costs more, and whether that is more than chance.
func Versus(ours, other []float64) (percent float64, sure bool) {
	a, _ := Mean(ours)
	b, _ := Mean(other)

	differ := make([]float64, len(ours))
	for i := range ours {
		differ[i] = ours[i] - other[i]
	}

	d, half := Mean(differ)

	return (a/b - 1) * 100, math.Abs(d) > half
}

// Totals returns the totals of a sample of costs.
func Totals(costs []Cost) []float64 {
	list := make([]float64, len(costs))
	for i, c := range costs {
		list[i] = c.Total()
	}

	return list
}

// Average returns the mean cost.
func Average(costs []Cost) Cost {
	var sum Cost
	for _, c := range costs {
		n := float64(len(costs))
		sum.Energy += c.Energy / n
		sum.Late += c.Late / n
		sum.Stops += c.Stops / n
	}

	return sum
}

// Printer writes lines, and remembers the first error.
type Printer struct {
	W   io.Writer
	Err error
}

// Line writes one line.
func (p *Printer) Line(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format+"\n", args...)
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}

	return err
}
