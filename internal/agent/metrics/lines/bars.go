package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

const (
	// maxBars bounds how many bars are distinguished.
	maxBars = 32
	// abandoned is how many times an inner bar restarts before an outer bar that does not move is
	// considered abandoned.
	abandoned = 3
)

// bars are the progress bars that a program has drawn, the oldest first. Bars may be nested: the
// inner one restarts for each epoch of the outer one.
type bars struct{ all []*bar }

// bar is one bar over all its laps; a lap is one count from 0 to its total.
type bar struct {
	drawn
	count  counter
	ages   epochs // epochs from its names: "Epoch 3/10"
	laps   int    // how many times it has restarted
	still  int    // how many times an inner bar has restarted while this one did not move
	uneven bool   // its laps have different lengths
	inside bool   // another bar was incomplete when it began
	// The count of the surrounding bar when this one last began, and whether that count grows by one per
	// lap.
	around float64
	nested bool
}

func (b *bar) step() float64  { return b.count.offset + b.n }
func (b *bar) complete() bool { return b.total > 0 && b.n >= b.total }

// chores are parts of the names of bars that do not show the training.
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

// checks are parts of the names of bars that show a validation or test.
var checks = []string{"val", "eval", "test", "predict", "infer"}

func holds(name string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// draw processes a drawing of a bar and returns its reading. It reports whether the bar counts the
// training.
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

		// A repeated value is old: at the beginning of a lap every value, and values from a validation always.
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
	case check && fine != nil: // measured at the present step of the training
		r.Step = reading.Known(fine.step())
		return r, false
	case check:
		return r, false
	}

	r.Step = reading.Known(b.step())
	if b == s.main() && s.inner() != nil { // values shown per epoch belong to the steps of the inner bar
		r.Step = reading.Known(fine.step())
	}

	if b == fine || b == s.main() {
		s.progress(&r)
	}

	// What a bar says of the time left is meant for the whole run if it is the outermost, and has but one lap.
	if b == s.main() && b.laps == 0 && !b.ages.known {
		r.Remaining = d.left
	}

	return r, b == fine
}

// find returns the bar that a drawing belongs to, and adds a new one if it is not known.
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

// longer returns the bar that a drawing continues although its total has changed, nil if there is none: one whose
// name announces the next epoch, or that was complete and shows the same metric.
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

// advance moves a bar to the count of a drawing.
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

// lapped updates the surrounding bars of a bar that has completed a lap.
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

// main returns the bar that shows the whole run: the oldest that is neither complete nor abandoned, or else the
// one that was completed last. A complete bar that restarts repeatedly is between two laps. A bar that began
// while another was incomplete shows only a part, unless that other one never moves again.
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

// inner returns the bar that counts inside the main one, nil if there is none.
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

// finest returns the bar that counts the steps of the run, nil if there is none.
func (s *bars) finest() *bar {
	if in := s.inner(); in != nil {
		return in
	}

	return s.main()
}

// progress adds the progress of the whole run to a reading.
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
