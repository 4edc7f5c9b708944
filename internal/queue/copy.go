package queue

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Clone returns a queue of the same jobs that does not change with this one.
func (l *Queue) Clone() *Queue { return l.Copy().Queue() }

// Copy is the jobs of a queue at one moment. Making it takes a fraction of the time that Clone takes: where the queue
// belongs to a loop that must not wait, the rest is done elsewhere, by Queue.
type Copy struct{ items []Item }

// Copy copies the jobs.
func (l *Queue) Copy() *Copy {
	return &Copy{CopyItems(l.length, func(yield func(*Item) bool) {
		for _, it := range l.Stays {
			if !yield(it) {
				return
			}
		}
	})}
}

// Queue returns the queue of the copied jobs, which it takes over: it may be called once.
func (c *Copy) Queue() *Queue {
	l := New()

	for i := range c.items {
		it := &c.items[i]
		l.Add(it, it.Shape.Need)
	}

	return l
}

// CopyItems returns copies of at most n jobs that do not change with them. They share the shapes until they are added
// to a queue; the need of a shape never changes.
func CopyItems(n int, jobs iter.Seq[*Item]) []Item {
	items, outlooks := make([]Item, 0, n), make([]job.Outlook, 0, n) // neither grows, for items point to outlooks

	for it := range jobs {
		items = append(items, *it)

		if it.Outlook != nil {
			outlooks = append(outlooks, *it.Outlook)
			items[len(items)-1].Outlook = &outlooks[len(outlooks)-1]
		}
	}

	return items
}

// ShapeOf returns the shape of the jobs with this need, even if none of them is queued.
func (l *Queue) ShapeOf(need fleet.Need) *Shape {
	s, ok := l.shapes[need]
	if !ok {
		s = &Shape{Need: need, lasts: map[length]int{}}
		l.shapes[need] = s
	}

	return s
}

// MarshalJSON writes the queued jobs in order of submission.
func (l *Queue) MarshalJSON() ([]byte, error) {
	items := l.Items()
	if items == nil {
		items = []*Item{} // null would be no queue at all
	}

	return json.Marshal(items)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Queue) UnmarshalJSON(text []byte) error {
	var items []*Item
	if err := json.Unmarshal(text, &items); err != nil {
		return err
	}

	*l = *New()
	for _, it := range items {
		l.Add(it, it.Shape.Need)
	}

	return nil
}

// Clone returns a copy. The samples are shared until one of the two adds to them: there may be
// many, and few change between two clones.
func (p *Past) Clone() *Past {
	for _, s := range p.runs {
		s.shared = true
	}

	return &Past{runs: maps.Clone(p.runs), last: p.last}
}

// clone returns a copy that shares nothing.
func (s *sample) clone() *sample {
	return &sample{order: slices.Clone(s.order), next: s.next, sorted: slices.Clone(s.sorted), sum: s.sum}
}

// pastRecord is the JSON form of a sample, with the oldest run first.
type pastRecord struct {
	User    id.User         `json:"user,omitempty"`
	Program string          `json:"program,omitempty"`
	GPUs    int             `json:"gpus"`
	Runs    []time.Duration `json:"runs"`
}

// MarshalJSON writes the run times, by user and number of GPUs.
func (p *Past) MarshalJSON() ([]byte, error) {
	list := []pastRecord{}

	for k, s := range p.runs {
		runs := make([]time.Duration, 0, len(s.order))
		for _, run := range slices.Concat(s.order[s.next:], s.order[:s.next]) {
			runs = append(runs, run.ran)
		}

		list = append(list, pastRecord{k.user, k.program, k.gpus, runs})
	}

	slices.SortFunc(list, func(a, b pastRecord) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Program, b.Program), cmp.Compare(a.GPUs, b.GPUs))
	})

	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Past) UnmarshalJSON(text []byte) error {
	var list []pastRecord
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}

	*p = Past{runs: map[group]*sample{}}
	for _, r := range list {
		s := &sample{}
		for _, ran := range r.Runs {
			s.add(numberedRun{ran: ran})
		}

		p.runs[group{r.User, r.Program, r.GPUs}] = s
	}

	return nil
}
