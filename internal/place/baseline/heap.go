package baseline

// entry is a job's place in an order: by first, then second, then submission.
type entry struct {
	first, second float64
	number        uint64
	at            int32 // where the job is in the list it came from
}

func (e *entry) before(o *entry) bool {
	switch {
	case e.first != o.first:
		return e.first < o.first
	case e.second != o.second:
		return e.second < o.second
	}
	return e.number < o.number
}

// heap hands out entries in order.
type heap []entry

func (h heap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h heap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func (h *heap) pop() entry {
	old := *h
	top, last := old[0], len(old)-1
	old[0] = old[last]
	*h = old[:last]
	(*h).down(0)
	return top
}

func (h *heap) push(e entry) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !(*h)[i].before(&(*h)[up]) {
			return
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}
