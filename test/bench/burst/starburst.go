package burst

import (
	"math"
	"slices"
)

// published is the waiting rule of Starburst as its simulator applies it: a queue in
// order of arrival, the first nodes that fit, and for each job a time that it waits at
// most, settled when it comes. A job whose time is over goes to the cloud.
type published struct {
	waits    func(*task) float64 // hours
	loop     bool                // a job that finds no room does not hold up those behind it
	maxQueue int                 // waiting jobs; the newest beyond go to the cloud at once. Less than 0 for no bound
}

// cluster is the local nodes under the published rule.
type cluster struct {
	free []int
	runs []allocation // by end
}

// allocation is the GPUs that a task has.
type allocation struct {
	end  float64
	at   []int
	take []int
}

// run plays a window by the rule.
func (p published) run(w *window) outcome {
	c := &cluster{free: make([]int, w.nodes)}
	for i := range c.free {
		c.free[i] = perNode
	}

	e := newEnds(w)
	var queue []*task

	next, now := 0, w.tasks[0].at
	for !math.IsInf(now, 1) {
		c.clear(now)
		queue = p.expire(queue, now, e)
		for ; next < len(w.tasks) && w.tasks[next].at <= now; next++ {
			queue = append(queue, &w.tasks[next])
		}

		queue = p.start(queue, now, c, e)
		for p.maxQueue >= 0 && len(queue) > p.maxQueue {
			e.provision(queue[len(queue)-1], now)
			queue = queue[:len(queue)-1]
		}

		queue = p.expire(queue, now, e)
		now = p.after(queue, w.tasks[next:], c)
	}

	return e.outcome()
}

// provision sends a task to the cloud.
func (e *ends) provision(t *task, now float64) {
	e.add(t, now)
	e.cloud += t.cost()
}

// expire sends to the cloud whose time is over.
func (p published) expire(queue []*task, now float64, e *ends) []*task {
	return slices.DeleteFunc(queue, func(t *task) bool {
		over := t.at+p.waits(t) <= now
		if over {
			e.provision(t, now)
		}

		return over
	})
}

// start starts what fits, and returns what is left of the queue.
func (p published) start(queue []*task, now float64, c *cluster, e *ends) []*task {
	blocked := false
	return slices.DeleteFunc(queue, func(t *task) bool {
		if blocked {
			return false
		}

		at, take := c.firstFit(t.gpus)
		if at == nil {
			blocked = !p.loop
			return false
		}

		c.hold(allocation{now + t.run, at, take})
		e.add(t, now)
		e.local(t.gpus, now, now+t.run)

		return true
	})
}

// after returns when something happens next.
func (p published) after(queue []*task, coming []task, c *cluster) float64 {
	at := math.Inf(1)
	if len(coming) > 0 {
		at = coming[0].at
	}

	if len(c.runs) > 0 {
		at = math.Min(at, c.runs[0].end)
	}

	for _, t := range queue {
		at = math.Min(at, t.at+p.waits(t))
	}

	return at
}

func (c *cluster) hold(h allocation) {
	for i, n := range h.at {
		c.free[n] -= h.take[i]
	}

	k, _ := slices.BinarySearchFunc(c.runs, h.end, func(o allocation, end float64) int {
		if o.end <= end {
			return -1
		}

		return 1
	})

	c.runs = slices.Insert(c.runs, k, h)
}

func (c *cluster) clear(now float64) {
	for len(c.runs) > 0 && c.runs[0].end <= now {
		for i, n := range c.runs[0].at {
			c.free[n] += c.runs[0].take[i]
		}

		c.runs = c.runs[1:]
	}
}

// firstFit finds nodes in their order: whole ones first, then one for the rest.
func (c *cluster) firstFit(gpus int) (at, take []int) {
	whole, rest := gpus/perNode, gpus%perNode
	for n := 0; n < len(c.free) && whole > 0; n++ {
		if c.free[n] == perNode {
			at, take = append(at, n), append(take, perNode)
			whole--
		}
	}

	if whole > 0 {
		return nil, nil
	}
	if rest == 0 {
		return at, take
	}

	for n := range c.free {
		if c.free[n] >= rest && !slices.Contains(at, n) {
			return append(at, n), append(take, rest)
		}
	}

	return nil, nil
}
