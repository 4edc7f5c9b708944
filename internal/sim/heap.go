package sim

import "time"

// event is something that will happen.
type event struct {
	at  time.Duration
	seq uint64
	do  func(*simulation)
}

// eventHeap has the next event in front. It is written out, because the events of
// a simulation are many and the standard heap makes each an interface.
type eventHeap []event

func (h eventHeap) before(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}

	return h[i].seq < h[j].seq
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(i, up) {
			break
		}

		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	list := *h
	first, last := list[0], len(list)-1
	list[0] = list[last]
	list[last] = event{}
	*h = list[:last]

	for i := 0; ; {
		least, left := i, 2*i+1
		for _, c := range [2]int{left, left + 1} {
			if c < last && h.before(c, least) {
				least = c
			}
		}

		if least == i {
			return first
		}

		list[i], list[least] = list[least], list[i]
		i = least
	}
}

// at lets something happen at a time.
func (s *simulation) at(at time.Duration, do func(*simulation)) {
	s.eventCount++
	s.events.push(event{at: max(at, s.now), seq: s.eventCount, do: do})
}
