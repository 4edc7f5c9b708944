package elastic

import (
	"time"

	"trainyard/internal/sim"
)

// asReference puts jobs that were submitted in the same second into the order in
// which the reference run had them. More than a thousand jobs of the virtual
// cluster share their second with another, and with strict FIFO their order moves
// the mean by some hundred seconds. The reference run's input was sorted by
// submission with numpy's default sort, which is not stable; with the order of the
// file the mean is 162,324 s, with this one it is the published 162,504 s.
func asReference(jobs []*sim.Job) []*sim.Job {
	at := make([]time.Duration, len(jobs))
	for i, j := range jobs {
		at[i] = j.At
	}

	sorted := make([]*sim.Job, len(jobs))
	for i, from := range introsort(at) {
		sorted[i] = jobs[from]
	}

	return sorted
}

// small is the length below which parts are sorted by insertion.
const small = 16

// introsort returns the order of values as numpy's argument sort makes it: quick
// sort with the median of three in the middle, the larger part put off, short parts
// by insertion. The input is nearly sorted, so the depth at which numpy would turn
// to another sort is not reached.
func introsort(v []time.Duration) []int {
	t := make([]int, len(v))
	for i := range t {
		t[i] = i
	}

	less := func(a, b int) bool { return v[t[a]] < v[t[b]] }
	swap := func(a, b int) { t[a], t[b] = t[b], t[a] }
	type part struct{ left, right int }

	for parts := []part{{0, len(v) - 1}}; len(parts) > 0; {
		p := parts[len(parts)-1]
		parts = parts[:len(parts)-1]

		for p.right-p.left > small {
			middle := p.left + (p.right-p.left)/2
			if less(middle, p.left) {
				swap(middle, p.left)
			}

			if less(p.right, middle) {
				swap(p.right, middle)
			}

			if less(middle, p.left) {
				swap(middle, p.left)
			}

			pivot := v[t[middle]]
			i, j := p.left, p.right-1
			swap(middle, j)

			for {
				for i++; v[t[i]] < pivot; i++ {
				}

				for j--; pivot < v[t[j]]; j-- {
				}

				if i >= j {
					break
				}

				swap(i, j)
			}

			swap(i, p.right-1)

			if i-p.left < p.right-i {
				parts = append(parts, part{i + 1, p.right})
				p.right = i - 1
			} else {
				parts = append(parts, part{p.left, i - 1})
				p.left = i + 1
			}
		}

		insert(v, t, p.left, p.right)
	}

	return t
}

// insert sorts a short part by insertion.
func insert(v []time.Duration, t []int, left, right int) {
	for i := left + 1; i <= right; i++ {
		moved, j := t[i], i
		for ; j > left && v[moved] < v[t[j-1]]; j-- {
			t[j] = t[j-1]
		}

		t[j] = moved
	}
}
