package crash_test

import (
	"fmt"
	"time"

	"trainyard/internal/job"
)

// next makes up the next submission. The order of what is made up depends on
// the seed alone.
func (l *load) next() *plan {
	l.mu.Lock()
	defer l.mu.Unlock()

	name := fmt.Sprintf("p%d", len(l.plans)+1)
	p := l.draw(name)
	p.follow = l.rng.IntN(4) == 0
	p.twice = l.rng.IntN(4) == 0
	p.wait = time.Duration(l.rng.IntN(300)) * time.Millisecond
	p.files = p.files && len(p.jobs) == 1
	if p.files {
		p.jobs[0].flags += " -file name.txt"
		p.jobs[0].keys += "workdir: .\n"
	}

	l.plans = append(l.plans, p)

	return p
}

// draw chooses what kind of submission it is.
func (l *load) draw(name string) *plan {
	a := l.asked(name)
	p := &plan{kind: "quick", jobs: []*asked{a}, files: l.rng.IntN(4) == 0}

	switch l.rng.IntN(14) {
	case 0:
		p.kind, a.flags, a.keys = "failing", a.flags+" -exit 3", "retry: 2\n"
		a.want, a.runs = job.Failed, 3
	case 1:
		p.kind, a.flags, a.keys, a.runs = "flaky", a.flags+" -failing 1", "retry: 2\n", 2
	case 2, 3:
		p.kind = "cancelled"
		p.control = "cancel"
		a.want = job.Cancelled
		a.runs = 0
		a.flags += " -until never"
	case 4:
		p.kind = "deaf"
		p.control = "cancel"
		a.want = job.Cancelled
		a.runs = 0
		a.flags, a.keys = a.flags+" -until never -deaf", "grace: 1s\n"
	case 5:
		p.kind = "killed"
		p.control = "kill"
		a.want = job.Cancelled
		a.runs = 0
		a.flags += " -until never"
	case 6:
		p.kind, p.control, a.runs = "paused", "pause", 0
		a.flags += " -until go/" + name
	case 7:
		p.kind, p.jobs = "pipeline", append(p.jobs, l.asked(name+"b"), l.asked(name+"c"))
		p.jobs[1].keys = "needs: [" + name + "]\n"
		p.jobs[2].keys = "needs: [" + name + "b]\n"
	case 8:
		p.kind, p.jobs = "broken", append(p.jobs, l.asked(name+"b"))
		a.flags, a.want = a.flags+" -exit 4", job.Failed
		p.jobs[1].keys, p.jobs[1].want, p.jobs[1].runs = "needs: ["+name+"]\n", job.Cancelled, -1
	case 9, 10:
		p.kind, a.ranks, a.flags = "gang", 2, a.flags+" -meet"
	}

	return p
}

// asked makes up a job that succeeds at once.
func (l *load) asked(name string) *asked {
	return &asked{
		name: name, lines: 1 + l.rng.IntN(40), want: job.Succeeded, runs: 1, ranks: 1,
		flags: fmt.Sprintf("-every %dms", l.rng.IntN(15)*l.y.pace),
	}
}
