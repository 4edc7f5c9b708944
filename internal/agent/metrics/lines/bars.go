package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

const (
	// maxBars is how many bars are kept apart.
	maxBars = 32
	// abandoned is how often a bar inside another begins again before the other, if it stands still, is
	// taken for one that was left as it was.
	abandoned = 3
)

// bars are those that a program has drawn, the oldest first. One bar may be inside another: for each
// epoch of the outer the inner counts anew.
type bars struct{ all []*bar }

// bar is one bar over all the times that it counted.
type bar struct {
	drawn
	count  counter
	ages   epochs // what its names have said: "Epoch 3/10"
	laps   int    // how often it has begun again
	still  int    // how often a bar inside it has begun again while this one stood still
	uneven bool   // it does not always count equally far
	inside bool   // another was not complete when it began
	// The count of the bar around this one when it last began, and whether that goes on by one each time.
	around float64
	nested bool
}

func (b *bar) step() float64  { return b.count.offset + b.n }
func (b *bar) complete() bool { return b.total > 0 && b.n >= b.total }

// chores are what bars are called that do not show the training.
var chores = []string{
	"download",
	"fetch",
	"load",
	"map",
	"token",
	"filter",
	"writ",
	"shard",
	"generat",
	"preproc",
	"cach",
	"extract",
	"resolv",
	"sav",
	"upload",
	"build",
	"process",
	"pack",
	"copy",
	"read",
	"import",
	"convert",
	"collect",
	"comput",
	"warm",
	"compil",
	"index",
	"sanity",
}

// checks are what bars are called that show how the model is checked.
var checks = []string{"val", "eval", "test", "predict", "infer"}

func holds(name string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// draw takes a bar and returns what it says. It reports whether the bar is one that counts the training.
func (s *bars) draw(d drawn) (r reading.Reading, counts bool) {
	if holds(d.name, chores) || strings.HasSuffix(d.rate, "B/s") || strings.HasSuffix(d.rate, "examples/s") {
		return r, false
	}

	check := holds(d.name, checks)
	b := s.find(d)
	before := b.drawn
	s.advance(b, d)

	for _, v := range d.postfix {
		checked := holds(strings.ToLower(v.Name), checks)

		// What is told again is old: at the beginning of a lap everything, and what is measured once in a while always.
		if old := slices.Contains(before.postfix, v); old && (d.n == 0 || checked) {
			continue
		}

		if check && !checked {
			v.Name = "val_" + v.Name
		}

		r.Add(v.Name, v.Value)
	}

	fine := s.finest()
	switch {
	case check && fine != nil: // measured at where the training is
		r.Step = reading.Known(fine.step())
		return r, false
	case check:
		return r, false
	}

	r.Step = reading.Known(b.step())
	if b == s.main() && s.inner() != nil { // what is told for each epoch is of the steps in it
		r.Step = reading.Known(fine.step())
	}

	if b == fine || b == s.main() {
		s.progress(&r)
	}

	return r, b == fine
}

// find returns the bar that was drawn again, or makes it one of those that are known.
func (s *bars) find(d drawn) *bar {
	for _, b := range s.all {
		if b.name == d.name && b.total == d.total {
			return b
		}
	}

	if b := s.longer(d); b != nil {
		return b
	}

	b := &bar{}
	b.name, b.total = d.name, d.total
	if main := s.main(); main != nil {
		b.around, b.inside = main.n, !main.complete()
	}

	if len(s.all) == maxBars {
		s.all = slices.Delete(s.all, 0, 1)
	}

	s.all = append(s.all, b)

	return b
}

// longer returns a bar that counts further, or less far, than the last time, nil if there is none: one whose name
// says that
// the next epoch has begun, or that was complete and tells the same metric.
func (s *bars) longer(d drawn) *bar {
	for _, b := range slices.Backward(s.all) {
		if b.name != d.name || b.total == 0 || d.total == 0 {
			continue
		}

		next := d.epoch.Known && b.ages.known && d.epoch.Value > b.ages.current

		same := b.complete() && len(d.postfix) > 0 && len(b.postfix) > 0 && d.postfix[0].Name == b.postfix[0].Name
		if !next && !same {
			continue
		}

		b.count.offset, b.count.high = b.count.newest(), 0
		b.total, b.n, b.uneven = d.total, 0, true
		b.laps++
		s.lapped(b)

		return b
	}

	return nil
}

// advance moves a bar to where it was drawn.
func (s *bars) advance(b *bar, d drawn) {
	if d.epoch.Known {
		b.ages.update(d.epoch.Value, d.epochs.Value)
		b.count.epoch(d.epoch.Value)
	}

	before, n := b.count.offset, b.n
	b.drawn = d
	b.count.total(d.n, d.total)
	lapped := b.count.offset > before

	if d.epoch.Known && d.total > 0 && !b.uneven {
		b.count.offset = b.ages.completed() * d.total
	}

	if lapped {
		b.laps++
		s.lapped(b)
	}

	if d.n != n {
		b.still = 0
	}
}

// lapped notes how the bars around one have moved while it counted once.
func (s *bars) lapped(b *bar) {
	if main := s.main(); main != nil && main != b {
		b.nested = main.n == b.around+1
		b.around = main.n
	}

	for _, outer := range s.all {
		if outer == b {
			return
		}

		outer.still++
	}
}

// main is the bar that shows the whole run: the oldest that is not complete and not abandoned, or else the one
// that was completed last. A complete one that counts again and again is between two laps. A bar that began while
// another was not complete shows only a part, unless that other one never goes on.
func (s *bars) main() *bar {
	var complete, inside *bar
	for _, b := range s.all {
		switch {
		case holds(b.name, checks) || b.still >= abandoned:
		case b.inside:
			inside = b
		case !b.complete() || b.laps > 0:
			return b
		default:
			complete = b
		}
	}

	if complete != nil {
		return complete
	}

	return inside
}

// inner is the bar that counts inside the main one, nil if none does.
func (s *bars) inner() *bar {
	main := s.main()
	if main == nil {
		return nil
	}

	for _, b := range slices.Backward(s.all) {
		if b == main {
			return nil
		}
		if !holds(b.name, checks) && (b.nested || strings.Contains(main.name, "epoch")) {
			return b
		}
	}

	return nil
}

// finest is the bar that counts the steps of the run, nil if none does.
func (s *bars) finest() *bar {
	if in := s.inner(); in != nil {
		return in
	}

	return s.main()
}

// progress tells how far the whole run is.
func (s *bars) progress(r *reading.Reading) {
	main, in := s.main(), s.inner()
	if main == nil {
		return
	}

	total := 0.0
	switch {
	case in != nil:
		if in.total > 0 && main.total > 0 && !in.uneven {
			total = in.total * main.total
		}

		r.Done = reading.Known(in.step())
	case main.ages.known:
		if !main.uneven {
			total = main.total * main.ages.total
		}

		r.Done = reading.Known(main.step())
	default:
		r.Done = reading.Known(main.step())

		if main.laps == 0 {
			total = main.total
		}
	}

	r.Total = reading.Known(total)
}
