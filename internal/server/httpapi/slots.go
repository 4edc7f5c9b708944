package httpapi

import (
	"sync"

	"trainyard/internal/fault"
)

// Slots bounds how many things of a kind are under way at the same time: of each user or address, and in all. It is
// safe for concurrent use.
type Slots struct {
	each, total int
	code, thing string

	mu    sync.Mutex
	inUse int
	by    map[string]int
}

// NewSlots returns slots for so many things of each and in total; 0 is no limit. Code and thing, in the plural, are for
// the error of those for whom there is none.
func NewSlots(each, total int, code, thing string) *Slots {
	return &Slots{each: each, total: total, code: code, thing: thing, by: map[string]int{}}
}

// Take takes a slot; release gives it back. It fails at once if there is none.
func (s *Slots) Take(who string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.each > 0 && s.by[who] >= s.each:
		return nil, fault.New(fault.OverLimit, s.code, "too many %s at the same time: %s has %d, the limit is %d",
			s.thing, who, s.by[who], s.each).WithRemedy("wait until one has ended")
	case s.total > 0 && s.inUse >= s.total:
		return nil, fault.New(fault.OverLimit, s.code, "too many %s at the same time: the server has %d, the limit is %d",
			s.thing, s.inUse, s.total).WithRemedy("try again in a few seconds")
	}

	s.inUse++
	s.by[who]++

	return sync.OnceFunc(func() { s.release(who) }), nil
}

func (s *Slots) release(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.inUse--
	s.by[who]--

	if s.by[who] == 0 {
		delete(s.by, who)
	}
}
