package queue

import (
	"slices"

	"trainyard/internal/id"
)

// Purse is whose limits a job runs into.
type Payer struct {
	User    id.User
	Project id.Project
}

// Aside holds the jobs that are kept out of the line because a limit of who pays for
// them is reached, by who that is and by order of submission. It is not the line:
// policies do not see them.
type Aside struct {
	purses map[Payer][]uint64
	length int
}

// Put sets a job aside.
func (a *Aside) Put(p Payer, number uint64) {
	if a.purses == nil {
		a.purses = map[Payer][]uint64{}
	}

	if at, found := slices.BinarySearch(a.purses[p], number); !found {
		a.purses[p] = slices.Insert(a.purses[p], at, number)
		a.length++
	}
}

// Remove takes a job out, if it is there.
func (a *Aside) Remove(p Payer, number uint64) {
	at, found := slices.BinarySearch(a.purses[p], number)
	if !found {
		return
	}

	a.length--
	a.purses[p] = slices.Delete(a.purses[p], at, at+1)
	if len(a.purses[p]) == 0 {
		delete(a.purses, p)
	}
}

// First returns the earliest job of a purse, and whether there is one.
func (a *Aside) First(p Payer) (uint64, bool) {
	if len(a.purses[p]) == 0 {
		return 0, false
	}

	return a.purses[p][0], true
}

// Purses lists who has jobs aside, in a fixed order.
func (a *Aside) Purses() []Payer {
	list := make([]Payer, 0, len(a.purses))
	for p := range a.purses {
		list = append(list, p)
	}

	slices.SortFunc(list, func(x, z Payer) int {
		if x.User != z.User {
			if x.User < z.User {
				return -1
			}

			return 1
		}

		if x.Project < z.Project {
			return -1
		}
		if x.Project > z.Project {
			return 1
		}

		return 0
	})

	return list
}

// Len returns the number of jobs that are aside.
func (a *Aside) Len() int { return a.length }
