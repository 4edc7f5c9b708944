package yardmaster

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/share"
)

// How fast jobs are beside others on a GPU is learned from the progress that their programs report: of a job that
// shares a GPU, what it gets done beside its neighbours against its share of what it gets done alone. What was learned
// is stored with the report that taught it, so that it survives a restart.

// minBeside is how long a job is observed beside the same neighbours.
const minBeside = time.Minute

// besideRecord is what is observed of a run that shares a GPU.
type besideRecord struct {
	kinds string  // of its neighbours, in order, each in a line
	done  float64 // units of work at that time
	at    time.Time
	alone float64 // units per second on a whole GPU; 0 if that is not known
}

// observeBeside takes in how much of its work a job that shares a GPU has done by now.
func (y *Yard) observeBeside(r *jobRecord, run *runRecord, done float64) {
	k := &run.Ranks[0]
	if len(run.Ranks) != 1 || k.Share == 0 || len(k.GPUs) != 1 || run.Stop != job.StopNone || k.Lends() {
		return
	}

	kinds, known := y.neighbours(r, k)
	b := &run.beside
	names := strings.Join(kinds, "\n")

	// Whoever came or left in between makes the time worthless.
	if !known || b.at.IsZero() || names != b.kinds || done < b.done {
		b.kinds, b.done, b.at = names, done, y.now

		return
	}

	elapsed := y.now.Sub(b.at)
	if elapsed < minBeside || done == b.done {
		return
	}

	rate := (done - b.done) / elapsed.Seconds()
	b.done, b.at = done, y.now
	need := &r.entry.Shape.Need

	if len(kinds) == 0 {
		b.alone = rate
		if need.Limit > 0 {
			b.alone = rate / need.Limit
		}

		return
	}

	alone := b.alone
	if alone == 0 {
		alone = y.aloneRate(r, k)
	}

	// Opportunistic jobs are promised nothing, and a kind of job without a name is not known again.
	if alone == 0 || need.Class == job.ShareOpportunistic || r.entry.Program.Key == "" {
		return
	}

	y.learnBeside(r.entry.Program.Key, kinds, rate/(k.Share*alone))
}

// neighbours returns the kinds of the jobs that share the GPU of a rank; false if one of them is not known.
func (y *Yard) neighbours(r *jobRecord, k *job.Rank) (kinds []string, known bool) {
	room, ok := y.nodes.Rooms.Get(k.Node)
	if !ok {
		return nil, false
	}

	at := room.PartOf(fleet.Mask(k.GPUs))
	if at < 0 {
		return nil, false
	}

	for _, c := range room.Parts[at].Cuts {
		if c.Job != r.ID {
			kinds = append(kinds, c.Kind)
		}
	}

	slices.Sort(kinds)

	return kinds, !slices.Contains(kinds, "")
}

// aloneRate returns how many units a second a job does on a whole GPU of its kind, as declared or measured there; 0 if
// that is not known.
func (y *Yard) aloneRate(r *jobRecord, k *job.Rank) float64 {
	n := y.nodes.Of(k.Node)
	if n == nil {
		return 0
	}

	g := n.Inventory.GPU(k.GPUs[0])
	if g == nil {
		return 0
	}

	if s := r.outlook.DeclaredSpeed(); s != nil {
		return s.On(g.Model, g.Memory).Rate(1, 1)
	}
	if r.outlook.Learned == nil || !r.outlook.Learned.Observed(g.Model, 1, 1) {
		return 0
	}

	tflops, _ := g.TFLOPS()

	return r.outlook.Learned.Rate(g.Model, tflops, 1, 1)
}

// learnBeside takes in how fast a job is beside others. Of several, each is taken to cost it the same.
func (y *Yard) learnBeside(kind string, beside []string, speed float64) {
	// Views have the old one.
	y.beside = y.beside.Clone()
	each := math.Pow(speed, 1/float64(len(beside)))

	for i, other := range beside {
		if i > 0 && other == beside[i-1] {
			continue
		}

		parted := y.beside.Parted(y.now, kind, other)
		y.forgetBeside(y.beside.Observe(y.now, kind, other, each)...)

		if y.beside.Parted(y.now, kind, other) != parted {
			y.planDue = true
		}

		for _, record := range y.beside.Records(kind, other) {
			y.besideChanged[record.Key()] = record
			y.besideForgotten = slices.DeleteFunc(y.besideForgotten, func(key string) bool { return key == record.Key() })
		}
	}
}

// forgetBeside removes from the store what is remembered no more of jobs beside others.
func (y *Yard) forgetBeside(keys ...string) {
	for _, key := range keys {
		delete(y.besideChanged, key)
	}

	y.besideForgotten = append(y.besideForgotten, keys...)
}

// takeBeside adds to a batch what was learned of jobs beside others.
func (y *Yard) takeBeside(b *Batch) {
	b.Beside = b.Beside[:0]
	for _, key := range sortedKeys(y.besideChanged) {
		b.Beside = append(b.Beside, y.besideChanged[key])
	}

	b.BesideForgotten = append(b.BesideForgotten[:0], y.besideForgotten...)

	clear(y.besideChanged)
	y.besideForgotten = y.besideForgotten[:0]
}

// loadBeside restores what was learned of jobs beside others, and forgets what is too old to count.
func (y *Yard) loadBeside(list []share.Record) {
	if len(list) == 0 {
		return
	}

	y.beside = share.NewInterference()
	for i := range list {
		if list[i].Faded(y.now) {
			y.forgetBeside(list[i].Key())
			continue
		}

		y.beside.Add(&list[i])
	}
}
