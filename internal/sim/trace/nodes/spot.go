package nodes

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// openSpotCounts reads how many spot instances of a zone could be had at each
// tick: {"metadata": {"gap_seconds": g}, "data": [n0, n1, …]}. The nodes are
// numbered, because the trace does not know one from the other.
func openSpotCounts(f *rows.File, o Options) *stream {
	s := &spotCounts{JSON: rows.NewJSON(f), pool: newPool(o, "spot")}
	return &stream{file: f, skipBad: o.SkipBad, read: s.read}
}

type spotCounts struct {
	*rows.JSON
	pool   *pool
	gap    time.Duration
	tick   int
	inside bool // the list of counts
}

func (s *spotCounts) read() ([]sim.Change, error) {
	if !s.inside {
		if err := s.head(); err != nil {
			return nil, err
		}
	}

	if !s.More() {
		if err := s.Expect(json.Delim(']')); err != nil {
			return nil, err
		}

		return nil, io.EOF
	}

	raw, err := s.Element()
	if err != nil {
		return nil, err
	}

	at := time.Duration(s.tick) * s.gap
	s.tick++

	var n int
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > maxPool {
		return nil, s.Bad(0, "data", "invalid number of instances %s at tick %d", rows.Short(string(raw)), s.tick)
	}
	if at.Seconds() > rows.MaxSeconds {
		return nil, s.Broken(nil, "the trace is longer than 250 years")
	}

	return s.pool.set(at, n), nil
}

// head reads until the list of counts.
func (s *spotCounts) head() error {
	if err := s.Expect(json.Delim('{')); err != nil {
		return err
	}

	for s.More() {
		key, err := s.Key()
		if err != nil {
			return err
		}

		if key == "data" && s.gap > 0 {
			s.inside = true
			return s.Expect(json.Delim('['))
		}

		raw, err := s.Element()
		if err != nil {
			return err
		}

		if key == "metadata" {
			var m struct {
				Gap float64 `json:"gap_seconds"`
			}
			if err := json.Unmarshal(raw, &m); err != nil || m.Gap <= 0 || m.Gap > rows.MaxSeconds {
				return s.Broken(err, "metadata must have a positive gap_seconds")
			}

			s.gap = rows.Scaled(m.Gap, time.Second)
		}
	}

	return s.Broken(nil, "data is missing after metadata")
}

// openBamboo reads the spot instances joining and leaving a fleet: time in
// milliseconds, add or remove, and the node.
func openBamboo(f *rows.File, o Options) *stream {
	t := rows.NewTable(f, ',', "time", "change", "node")
	there := map[string]bool{}

	return &stream{file: f, skipBad: o.SkipBad, read: func() ([]sim.Change, error) {
		if err := t.Read(); err != nil {
			return nil, err
		}

		at := t.Units("time", time.Millisecond)
		change := t.Text("change")
		node := t.Text("node")
		name := id.Node(o.Prefix + node)
		if t.Err == nil && !id.Name(string(name)) {
			t.Fail("node", "invalid node name %q", rows.Short(node))
		}

		open, known := there[node]
		switch {
		case t.Err != nil:
			return nil, t.Err
		case change == "add" && !open:
			if o.Nodes > 0 && !known && len(there) >= o.Nodes {
				return nil, nil
			}

			there[strings.Clone(node)] = true

			if o.Node != nil && !known {
				return []sim.Change{joins(at, name, o.Node)}, nil
			}

			return []sim.Change{{At: at, Kind: sim.NodeUncordoned, ID: name}}, nil
		case change == "remove" && open:
			there[node] = false
			return []sim.Change{{At: at, Kind: sim.NodeReclaimed, ID: name}}, nil
		case change == "remove" && o.Nodes > 0 && !known:
			return nil, nil
		case change == "add", change == "remove":
			return nil, t.Bad(2, "change", "%s contradicts the rows above: the node is already in that state", change)
		}

		return nil, t.Bad(2, "change", "must be add or remove, got %q", rows.Short(change))
	}}
}

// openGcloud reads how many instances were alive when someone looked: date, time
// and number. A look that is older than the one above cannot be used.
func openGcloud(f *rows.File, o Options) *stream {
	t := rows.NewTable(f, ',', "date", "time", "instances")
	p := newPool(o, "spot")
	var zero, last time.Duration
	began := false

	return &stream{file: f, skipBad: o.SkipBad, read: func() ([]sim.Change, error) {
		if err := t.Read(); err != nil {
			return nil, err
		}

		date := t.Wall("date", time.DateOnly)
		daytime := t.Clock("time")
		n := t.Count("instances")

		at := date + daytime
		switch {
		case t.Err != nil:
			return nil, t.Err
		case n > maxPool:
			return nil, t.Bad(3, "instances", "must be at most %d", maxPool)
		case !began:
			zero, began = at, true
		case at < last:
			return nil, t.Bad(2, "time", "times must not decrease")
		}

		last = at

		return p.set(at-zero, n), nil
	}}
}
