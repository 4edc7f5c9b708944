package advise

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/job"
)

// storm is the random process that reclaims spot nodes. It is points in a plane of time and rate,
// one for each hour and each loss an hour on average: a point takes a node back if at
// its time the losses of all spot nodes together are above it. So each node is taken
// back at its own rate however many there are, and two replays with the same nodes at
// some time lose them at the same time.
type storm struct {
	seed   uint64
	layers [][]point // by whole rate
	until  time.Duration
}

type point struct {
	at   time.Duration
	rate float64
}

func newStorm(seed uint64) *storm { return &storm{seed: seed} }

// mostRate bounds what is drawn: more losses an hour than this count as this.
const mostRate = 1000

// layer returns the points between one whole rate and the next until a time.
func (s *storm) layer(n int, until time.Duration) []point {
	if until > s.until {
		s.layers, s.until = nil, 2*until // drawn anew from the same seed: the earlier points are the same
	}

	for len(s.layers) <= n {
		r := rand.New(rand.NewPCG(s.seed, uint64(len(s.layers))+1))
		var points []point
		for at := 0.0; ; {
			at += -math.Log(1-r.Float64()) * time.Hour.Seconds()
			if at > s.until.Seconds() {
				break
			}

			points = append(points, point{job.Seconds(at), float64(len(s.layers)) + r.Float64()})
		}

		s.layers = append(s.layers, points)
	}

	return s.layers[n]
}

// takes returns when the provider takes spot nodes back, in order.
func (s *storm) takes(leases []provisioned) []time.Duration {
	type turn struct {
		at   time.Duration
		rate float64
	}

	var turns []turn
	for i := range leases {
		l := &leases[i]
		if l.losses > 0 && l.to > l.ready {
			turns = append(turns, turn{l.ready, l.losses}, turn{l.to, -l.losses})
		}
	}

	slices.SortFunc(turns, func(a, b turn) int {
		switch {
		case a.at != b.at:
			return int(min(max(a.at-b.at, -1), 1))
		case a.rate < b.rate:
			return -1
		case a.rate > b.rate:
			return 1
		}

		return 0
	})

	var takes []time.Duration

	rate := 0.0
	for i, t := range turns {
		rate += t.rate
		if i+1 == len(turns) || rate < 1e-12 {
			continue
		}

		takes = append(takes, s.between(t.at, turns[i+1].at, min(rate, mostRate))...)
	}

	return takes
}

// between returns the times of the points below a rate from one time to another.
func (s *storm) between(from, to time.Duration, rate float64) []time.Duration {
	var list []time.Duration
	for n := 0; float64(n) < rate; n++ {
		points := s.layer(n, to)
		i, _ := slices.BinarySearchFunc(
			points,
			from,
			func(p point, at time.Duration) int { return int(min(max(p.at-at, -1), 1)) },
		)

		for ; i < len(points) && points[i].at < to; i++ {
			if points[i].rate < rate {
				list = append(list, points[i].at)
			}
		}
	}

	slices.Sort(list)

	return list
}
