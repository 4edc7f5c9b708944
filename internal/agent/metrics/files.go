package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/agent/metrics/tfevents"
	"trainyard/internal/agent/metrics/wandbfile"
)

// watchedFile is one file that may hold metrics.
type watchedFile struct {
	tail      tail
	rel       string // inside its root
	format    format
	origin    *origin
	prefix    string // of names: "train" for what lies in a folder of that name
	reader    reader
	abandoned bool // up: it is none of what it seemed
}

// reader turns the bytes of a file into readings.
type reader interface {
	// decode takes what data begins with and says how many bytes that was. A damagedError says that some of it was
	// left out; after any other error the file is not read any more.
	decode(data []byte) (readings []reading.Reading, used int, err error)
}

// damagedError is that some records of a file made no sense.
type damagedError struct{ records int }

func (e damagedError) Error() string {
	return fmt.Sprintf("%d damaged records skipped", e.records)
}

// parts are the names of folders that say of what the metrics in them are.
var parts = []string{"train", "training", "val", "valid", "validation", "eval", "evaluation", "test"}

func newWatchedFile(root, rel string, kind format, ruled bool) *watchedFile {
	w := &watchedFile{tail: tail{dir: root, path: rel}, rel: rel, format: kind}
	dir := path.Dir(rel)
	if base := path.Base(dir); kind == events && slices.Contains(parts, strings.ToLower(base)) {
		w.prefix, dir = base+"/", path.Dir(dir)
	}

	switch kind {
	case events:
		w.origin = &origin{byEvents, in("TensorBoard", dir), path.Base(dir)}
	case wandb:
		w.origin = &origin{byWandb, "W&B's file", path.Base(dir)}
	case table:
		w.origin = &origin{byTable, in("table", rel), path.Base(dir)}
	case jsonLines:
		w.origin = &origin{byJSON, in("JSON lines", rel), strings.TrimSuffix(path.Base(rel), path.Ext(rel))}
	case trainerState:
		w.origin = &origin{byState, "trainer_state.json", ""}
	case mlruns:
		w.origin = &origin{byMLruns, "MLflow's files", path.Base(path.Dir(dir))}
	case unknown, noFormat:
		w.origin = &origin{byRule, in("file", rel), path.Base(rel)}
	}

	if ruled {
		w.origin.trust = byRule
	}

	w.reset()

	return w
}

// in names a source and where it is.
func in(what, where string) string { return fmt.Sprintf("%s (%s)", what, where) }

// reset makes a reader for the beginning of the file.
func (w *watchedFile) reset() {
	switch w.format {
	case events:
		w.reader = &eventsReader{}
	case wandb:
		w.reader = &wandbReader{}
	case table:
		w.reader = &tableReader{}
	case jsonLines:
		w.reader = newLinesReader(true)
	case trainerState:
		w.reader, w.tail.whole = stateReader{}, true
	case mlruns:
		_, name, _ := strings.Cut(w.rel, "/metrics/")
		w.reader = &mlrunsReader{name: name}
	case unknown, noFormat:
		w.reader = nil // chosen by the content
	}
}

// skip passes over what a file held before the program started. Events have times of their own by which that is told.
func (w *watchedFile) skip(info fs.FileInfo) {
	w.tail.state = stateOf(info)
	if w.format == events || w.format == wandb {
		w.tail.state = fileState{}
		return
	}

	w.tail.offset = info.Size()
	if head, err := w.tail.readHead(); err == nil {
		w.tail.head = head
	}

	if t, ok := w.reader.(*tableReader); ok { // its names are in the first line
		t.header(w.tail.head)
	}
}

// readHead reads the beginning of a file.
func (t *tail) readHead() (head []byte, err error) {
	f, err := t.open()
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	return readAt(f, 0, headSize)
}

// pollFiles reads what is new in all files, a piece of each in turn, so that a file that is long or never
// ends does not keep the others waiting. The next poll begins where this one had to stop.
func (g *Gatherer) pollFiles() error {
	var errs []error
	names := slices.Sorted(maps.Keys(g.files))
	first, _ := slices.BinarySearch(names, g.nextFile)

	g.nextFile = ""
	for names = slices.Concat(names[first:], names[:first]); len(names) > 0; {
		var behind []string
		for _, name := range names {
			if g.budget <= 0 {
				g.nextFile = name
				return errors.Join(errs...)
			}

			more, err := g.files[name].poll(g)
			if err != nil {
				errs = append(errs, fmt.Errorf("read %s: %w", g.files[name].rel, err))
			}

			if more {
				behind = append(behind, name)
			}
		}

		names = behind
	}

	return errors.Join(errs...)
}

// poll reads a piece of what is new in the file. It reports whether there is more.
func (w *watchedFile) poll(g *Gatherer) (more bool, err error) {
	if w.abandoned {
		return false, nil
	}

	limit := maxPiece
	if w.tail.whole {
		limit = maxWhole
	}

	p, err := w.tail.read(limit, g.started)
	if err != nil || p == nil {
		w.abandoned = os.IsPermission(err) // it would be so at every poll
		return false, err
	}

	g.budget -= len(p.data)

	if p.restarted {
		w.reset()
	}

	if w.reader == nil && !w.detectFormat(p.data) {
		return false, nil
	}

	readings, used, err := w.reader.decode(p.data)
	w.deliver(g, p, readings)

	var damaged damagedError
	if err != nil && !errors.As(err, &damaged) {
		w.abandoned = true
		return false, err
	}

	if used == 0 && p.rest {
		used = len(p.data) // a line or record longer than is looked at
	}

	w.tail.used(used)

	return p.rest && !w.tail.whole, err
}

// deliver takes the readings of a piece.
func (w *watchedFile) deliver(g *Gatherer, p *piece, readings []reading.Reading) {
	dated := w.format == events || w.format == wandb || w.format == mlruns
	for i, r := range readings {
		if dated && r.At > 0 && r.At < g.started-slack {
			continue // of an earlier run
		}

		if w.format == events {
			r.Values = slices.DeleteFunc(r.Values, func(v reading.Value) bool { return lines.IsCount(v.Name) })
		}

		if w.prefix != "" {
			for j := range r.Values {
				if !strings.HasPrefix(r.Values[j].Name, w.prefix) {
					r.Values[j].Name = w.prefix + r.Values[j].Name
				}
			}
		}

		g.take(w.origin, r, p.at(i+1, len(readings)))
	}
}

// detectFormat chooses the reader of a file that the user has named, by its content. It reports whether that could be
// done.
func (w *watchedFile) detectFormat(data []byte) bool {
	line, _, whole := bytes.Cut(data, []byte("\n"))
	switch {
	case !whole:
		return false
	case bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")):
		w.reader = newLinesReader(true)
	case (&tableReader{ruled: true}).header(line):
		w.reader = &tableReader{ruled: true}
	default:
		w.reader = newLinesReader(false)
	}

	return true
}

// maxPiece is how much of a file is read at once: a whole record must fit into it.
const maxPiece = max(maxRead, tfevents.MaxFrame, wandbfile.MaxFrame)

// maxWhole is how long a file may be that is read as a whole.
const maxWhole = 16 << 20
