package checkpoints

import (
	"path"
	"slices"
	"strings"
	"time"

	"trainyard/internal/checkpoint"
)

// sighting is when a file was first seen as it is.
type sighting struct {
	file  file
	since time.Time
}

// finder finds the complete checkpoints of one run. It remembers from look to look which files have changed.
type finder struct {
	rest    time.Duration // for how long the files of an unknown layout must be unchanged
	rank    int
	ranks   int
	started time.Time // the run
	seen    map[string]sighting
	renamed map[string]bool // names at the top that something was renamed to, and not written since
}

// ending is how the program of a rank ended.
type ending struct {
	at    time.Time
	clean bool // by itself and without an error: it did not leave a file half written
}

// look finds the checkpoints that are complete, oldest first. The program has ended if end is not nil.
func (f *finder) look(t *tree, now time.Time, end *ending) []unit {
	f.note(t, now)

	units := recognise(t)
	if len(units) == 0 {
		units = f.loose(t)
	} else {
		units = f.addBeside(t, units, now)
	}

	for i := range units {
		f.adjust(&units[i])
	}

	units = slices.DeleteFunc(units, func(u unit) bool { return !f.complete(t, &u, now, end) })
	slices.SortStableFunc(units, func(a, b unit) int {
		if c := newest(a.files).Compare(newest(b.files)); c != 0 {
			return c
		}

		return int(min(max(a.step-b.step, -1), 1))
	})

	return units
}

// note records which files have changed since the last look.
func (f *finder) note(t *tree, now time.Time) {
	seen := make(map[string]sighting, len(t.files))
	for i := range t.files {
		g := &t.files[i]
		s, ok := f.seen[g.path]
		if !ok || !s.file.same(g) {
			s = sighting{*g, now}
		}

		seen[g.path] = s
	}

	f.seen = seen
}

// since returns since when all of some files are unchanged.
func (f *finder) since(files []file) time.Time {
	var at time.Time
	for i := range files {
		if s := f.seen[files[i].path].since; s.After(at) {
			at = s
		}
	}

	return at
}

// adjust makes the parts of a sharded checkpoint complete that lack what only the first node writes.
func (f *finder) adjust(u *unit) {
	u.sharded = u.sharded && f.ranks > 1
	if u.sharded && f.rank > 0 && u.found == checkpoint.ByDCP && u.settle == never {
		u.settle = quiet
	}
}

// complete reports whether a checkpoint can be saved.
func (f *finder) complete(t *tree, u *unit, now time.Time, end *ending) bool {
	if len(u.files) == 0 || f.rank > 0 && !u.sharded {
		return false // each rank saves its part; what is not in parts is the first rank's
	}

	switch u.settle {
	case settled:
		return true
	case never:
		return false
	case soon, quiet:
	}

	need := f.rest
	if u.settle == soon {
		need = 1 // a nanosecond: unchanged since an earlier look
	} else if newest(u.files).Before(f.started) {
		return false // an earlier run left it, perhaps half written
	}

	switch {
	case end != nil && end.clean:
		return true
	case end != nil:
		// The program was killed, perhaps while it was writing: what it wrote last may be torn.
		return end.at.Sub(newest(u.files)) >= f.rest || f.since(u.files).Before(end.at.Add(-need))
	}

	return now.Sub(f.since(u.files)) >= need && !beingWritten(t, u.files)
}

// loose returns the checkpoints in a directory of which no layout is known: directories with a number in their name
// are one each, and all the rest is one.
func (f *finder) loose(t *tree) []unit {
	var units []unit
	all := unit{name: ".", found: checkpoint.ByRest, settle: quiet, step: -1}
	renamed := true

	for _, top := range tops(t) {
		files := t.below(top)
		if g, ok := t.find(top); ok {
			files = []file{*g}
		}

		switch {
		case isLog(top):
		case t.dirs[top] && stepOf(top) >= 0:
			u := unit{name: top, found: checkpoint.ByRest, settle: quiet, files: files, step: stepOf(top)}
			if f.renamed[top] && f.untouched(t, top, files) {
				u.found, u.settle = checkpoint.ByRename, settled
			}

			units = append(units, u)
		default:
			all.files = append(all.files, files...)
			renamed = renamed && f.renamed[top] && f.untouched(t, top, files)
		}
	}

	if len(units) > 0 {
		for i := range units {
			units[i].beside = f.pointers(t, &units[i], all.files, units)
		}

		return units
	}

	if renamed {
		all.found, all.settle = checkpoint.ByRename, soon // another file of the same checkpoint may follow
	}

	if len(all.files) == 1 {
		all.name = all.files[0].path
		all.step = stepOf(path.Base(all.name))

		if renamed {
			all.settle, all.single = settled, true
		}
	}

	return append(units, all)
}

// untouched reports whether nothing in a directory was written after it was renamed to its name. A file needs no such
// test: the watch sees when it is written.
func (f *finder) untouched(t *tree, top string, files []file) bool {
	if !t.dirs[top] {
		return true
	}

	info, err := t.root.Lstat(top)
	if err != nil {
		return false
	}

	return !newest(files).After(describe(top, info).ctime)
}

// tops lists the entries at the top of a directory.
func tops(t *tree) []string {
	var list []string
	for i := range t.files {
		top, _, _ := strings.Cut(t.files[i].path, "/")
		if len(list) == 0 || list[len(list)-1] != top {
			list = append(list, top)
		}
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// addBeside gives each of the recognised checkpoints the files beside it, and in the directories above it, that have
// stopped changing.
func (f *finder) addBeside(t *tree, units []unit, now time.Time) []unit {
	var free []file
	for i := range t.files {
		g := &t.files[i]
		at := f.seen[g.path].since
		if !claimed(units, g.path) && !isLog(g.path) && !at.Equal(now) {
			free = append(free, *g)
		}
	}

	for i := range units {
		dir := path.Dir(units[i].name)
		reachable := slices.DeleteFunc(slices.Clone(free), func(g file) bool {
			above := path.Dir(g.path)
			return above != "." && above != dir && !strings.HasPrefix(dir, above+"/")
		})
		units[i].beside = f.pointers(t, &units[i], reachable, units)
	}

	return units
}

// pointers returns those of some files that may be restored with a unit: not those that lead to another one.
func (f *finder) pointers(t *tree, u *unit, files []file, units []unit) []file {
	return slices.DeleteFunc(slices.Clone(files), func(g file) bool {
		target := path.Join(path.Dir(g.path), g.link)
		if g.link == "" {
			target = t.pointsTo(&g, units)
		}

		return target != "" && target != u.name && claimed(units, target)
	})
}

// pointsTo returns the unit whose name, or whose step, is all that a small file contains, "" if it is another file.
func (t *tree) pointsTo(g *file, units []unit) string {
	if g.size > maxPointer || g.size == 0 {
		return ""
	}

	text, err := t.read(g.path, maxPointer)
	if err != nil {
		return ""
	}

	word := strings.TrimSpace(string(text))
	for i := range units {
		u := &units[i]
		if word == u.name || word == path.Base(u.name) || strings.HasSuffix(word, "/"+u.name) {
			return u.name
		}
		if u.step >= 0 && stepOf(word) == u.step && strings.Trim(word, "0123456789") == "" {
			return u.name
		}
	}

	return ""
}

// isLog reports whether a path is that of a log, which grows all the time and is not part of a checkpoint.
func isLog(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	base := path.Base(name)

	return slices.Contains([]string{"runs", "logs", "wandb", "mlruns", "tensorboard"}, top) ||
		strings.HasSuffix(base, ".log") || strings.HasPrefix(base, "events.out.tfevents")
}
