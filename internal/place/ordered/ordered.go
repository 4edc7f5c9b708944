package ordered

import (
	"math"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// Policy starts jobs in an order of its own, the smallest score first. It leaves
// alone what runs.
type Policy struct {
	name   string
	score  func(v *place.View) score // nil for the order of the queue
	behind backfillMode
}

// score ranks a job: the smallest goes first, and of two with the same the one
// that was submitted first.
type score func(it *queue.Item) float64

var _ place.Policy = Policy{}

// Name is what the policy is called in the configuration.
func (o Policy) Name() string { return o.name }

// Revises reports that it leaves alone what runs.
func (o Policy) Revises() bool { return false }

// Plan starts what can start.
func (o Policy) Plan(v *place.View) place.Plan {
	if o.score == nil {
		return planQueue(v, o.behind)
	}

	f := newPlanner(v, o.behind)
	items := v.Queue.Items()
	by := o.score(v)

	l := lineup.New(v.Queue)
	for i, it := range items {
		l.AddQueued(it.Shape, lineup.Entry{First: by(it), Number: it.Number, At: int32(i)})
	}

	l.Sort()

	for e, more := l.Next(f.open); more && !f.over(); e, more = l.Next(f.open) {
		f.consider(items[e.At])
	}

	return f.plan
}

// takes is how long a job is expected to run, in seconds, and at least one. A
// job of unknown length comes behind all others where short ones go first.
func takes(it *queue.Item) float64 {
	if it.Lasts == 0 {
		return math.Inf(1)
	}

	return math.Max(it.Lasts.Seconds(), 1)
}

// unknown is how long a job is assumed to last of unknown length, where the
// rule weighs waiting against lasting: for ever would be never.
const unknown = time.Hour

func lastsAbout(it *queue.Item) float64 {
	if it.Lasts == 0 {
		return unknown.Seconds()
	}

	return takes(it)
}

// waited is how long a job has been there, in seconds.
func waited(v *place.View, it *queue.Item) float64 {
	return math.Max(v.Now.Sub(it.Outlook.Submitted).Seconds(), 0)
}

// byDeadline is earliest deadline first. Jobs without one come last.
func byDeadline(*place.View) score {
	return func(it *queue.Item) float64 {
		if d := it.Outlook.Deadline; !d.IsZero() {
			return float64(d.UnixMilli())
		}

		return math.Inf(1)
	}
}

// byPriority is highest priority first, without regard to users' shares.
func byPriority(*place.View) score {
	return func(it *queue.Item) float64 { return float64(-it.Priority) }
}

// byTime is shortest job first.
func byTime(*place.View) score { return takes }

// byArea is smallest area first: expected time × processors.
func byArea(*place.View) score {
	return func(it *queue.Item) float64 { return takes(it) * lineup.Processors(it) }
}

// byWFP3 favours jobs that have waited long for what they are, and large ones:
// (waited / expected time)³ × processors, the greatest first. The published
// table of the rule uses a waiting time with the wrong sign, because its
// code subtracts the submission from a start that is not there yet; here it is
// the time that the job has really waited.
func byWFP3(v *place.View) score {
	return func(it *queue.Item) float64 {
		return -math.Pow(waited(v, it)/lastsAbout(it), 3) * lineup.Processors(it)
	}
}

// byUNICEP favours small jobs that have waited: waited / (log2 processors ×
// expected time), the greatest first. The waiting time is the real one, as in
// byWFP3. A job of one processor comes before all greater ones that is, as the
// rule has it.
func byUNICEP(v *place.View) score {
	const one = 1e-9 // instead of the logarithm of 1
	return func(it *queue.Item) float64 {
		return -waited(v, it) / (math.Max(math.Log2(lineup.Processors(it)), one) * lastsAbout(it))
	}
}

// f1Since is how far before the oldest job the time of rule F1 begins, where
// nobody says when it does.
const f1Since = 30 * 24 * time.Hour

// byF1 is a rule that was fitted to many simulated queues: log10 of the expected
// time × processors + 870 × log10 of the submission, in seconds since the
// beginning of the log, the smallest first. Which beginning decides how much age
// counts: the longer ago, the less.
func byF1(origin time.Time) func(v *place.View) score {
	return func(v *place.View) score {
		from := origin
		if from.IsZero() {
			from = oldest(v).Add(-f1Since)
		}

		return func(it *queue.Item) float64 {
			since := math.Max(it.Outlook.Submitted.Sub(from).Seconds(), 1)
			return math.Log10(lastsAbout(it))*lineup.Processors(it) + 870*math.Log10(since)
		}
	}
}

// oldest is when the oldest job was submitted that runs or waits.
func oldest(v *place.View) time.Time {
	at := v.Now
	if items := v.Queue.Items(); len(items) > 0 {
		at = items[0].Outlook.Submitted
	}

	if len(v.Running) > 0 && v.Running[0].Outlook.Submitted.Before(at) {
		at = v.Running[0].Outlook.Submitted
	}

	return at
}

// F1 is the rule F1 with a beginning of time, for logs that have one. With
// backfill jobs behind the first that cannot start go where they do not delay it.
func F1(origin time.Time, backfill bool) Policy {
	o := Policy{name: "f1", score: byF1(origin), behind: block}
	if backfill {
		o.name, o.behind = "f1-easy", easy
	}

	return o
}
