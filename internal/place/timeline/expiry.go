package timeline

import "time"

// expiry is when the estimates of a room no longer hold.
type expiry struct {
	at   time.Duration // by the clock
	room int32
}

// expiries is a heap of expiries, the next one on top. A room may have several; the state of the room says which
// counts.
type expiries []expiry

// push adds an expiry, unless it is never.
func (h *expiries) push(x expiry) {
	if x.at == Never {
		return
	}

	*h = append(*h, x)
	list := *h

	for i := len(list) - 1; i > 0; {
		up := (i - 1) / 2
		if list[up].at <= list[i].at {
			break
		}

		list[i], list[up] = list[up], list[i]
		i = up
	}
}

// pop removes the next expiry.
func (h *expiries) pop() expiry {
	list := *h
	next, last := list[0], len(list)-1
	list[0] = list[last]
	*h = list[:last]
	h.down(0)

	return next
}

// order makes a heap of the list.
func (h *expiries) order() {
	for i := len(*h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *expiries) down(i int) {
	list := *h

	for {
		next := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(list); k++ {
			if list[k].at < list[next].at {
				next = k
			}
		}

		if next == i {
			return
		}

		list[i], list[next] = list[next], list[i]
		i = next
	}
}
