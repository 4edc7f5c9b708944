package queue

import (
	"slices"

	"trainyard/internal/id"
)

// Payer is the user and project whose quotas apply to a job.
type Payer struct {
	User    id.User
	Project id.Project
}

// HeldJobs holds the jobs that are kept out of the queue because a quota of their payer is
// reached, by payer and in order of submission. Policies do not see them.
type HeldJobs struct {
	byPayer map[Payer][]uint64
	length  int
}

// Put adds a job.
func (a *HeldJobs) Put(p Payer, number uint64) {
	if a.byPayer == nil {
		a.byPayer = map[Payer][]uint64{}
	}

	if at, found := slices.BinarySearch(a.byPayer[p], number); !found {
		a.byPayer[p] = slices.Insert(a.byPayer[p], at, number)
		a.length++
	}
}

// Remove removes a job, if it is held.
func (a *HeldJobs) Remove(p Payer, number uint64) {
	at, found := slices.BinarySearch(a.byPayer[p], number)
	if !found {
		return
	}

	a.length--
	a.byPayer[p] = slices.Delete(a.byPayer[p], at, at+1)
	if len(a.byPayer[p]) == 0 {
		delete(a.byPayer, p)
	}
}

// Of lists the held jobs of a payer, the earliest first. The list must not be changed, and is valid
// until the next job is added or removed.
func (a *HeldJobs) Of(p Payer) []uint64 { return a.byPayer[p] }

// Payers lists the payers of held jobs, in a fixed order.
func (a *HeldJobs) Payers() []Payer {
	list := make([]Payer, 0, len(a.byPayer))
	for p := range a.byPayer {
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

// Len returns the number of held jobs.
func (a *HeldJobs) Len() int { return a.length }
