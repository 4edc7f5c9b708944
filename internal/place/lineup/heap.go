package lineup

// Entry is a job's place in an order: by first, then second, then submission.
type Entry struct {
	First, Second float64
	Number        uint64
	At            int32 // where the job is in the list it came from
}

// Before reports whether an entry comes before another: by the first key, then the second, then the number.
func (e *Entry) Before(o *Entry) bool {
	switch {
	case e.First != o.First:
		return e.First < o.First
	case e.Second != o.Second:
		return e.Second < o.Second
	}

	return e.Number < o.Number
}

// Heap hands out entries in order.
type Heap []Entry

// Init puts the entries into heap order.
func (h Heap) Init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h Heap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}

		if c+1 < len(h) && h[c+1].Before(&h[c]) {
			c++
		}

		if !h[c].Before(&h[i]) {
			return
		}

		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// Pop removes and returns the first entry. The heap must not be empty.
func (h *Heap) Pop() Entry {
	old := *h
	top, last := old[0], len(old)-1
	old[0] = old[last]
	*h = old[:last]
	(*h).down(0)

	return top
}

// Push adds an entry.
func (h *Heap) Push(e Entry) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !(*h)[i].Before(&(*h)[up]) {
			return
		}

		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}
