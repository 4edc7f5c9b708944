package nodes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
	"trainyard/test/fuzzing"
)

const (
	summitSample = "t_s,node,state\n0,1,1\n2396,2,1\n2396,0,1\n2467,2,0\n4000,4733,1\n"
	spotSample   = `{"metadata": {"gap_seconds": 300, "other": [1]}, "x": {"y": 1}, "data": [0, 2, 2,
 1, 3]}`
	bambooSample = "480000,add,node1\n540000,add,node2\n600000,remove,node1\n660000,add,node1\n660000,add,node3\n"
	gcloudSample = "2021-12-10, 23:59:45, 2\n2021-12-11, 00:00:45, 3\n2021-12-11, 00:01:45, 1\n"
)

// told writes changes as text.
func told(changes []sim.Change) []string {
	var list []string
	for _, c := range changes {
		list = append(list, fmt.Sprintf("%d %s %s", int(c.At.Seconds()), c.Kind, c.ID))
	}

	return list
}

func read1(t *testing.T, format, text string, o Options) ([]sim.Change, *Reader, error) {
	t.Helper()
	r, err := Read(strings.NewReader(text), "sample", format, o)
	if err != nil {
		return nil, nil, err
	}

	changes, err := Collect(r)

	return changes, r, err
}

func TestFormatsYieldTheirChanges(t *testing.T) {
	machine := func(name id.Node) fleet.Node { return New(name, "T4", 4, 16<<30) }
	for _, c := range []struct {
		name, format, text string
		opts               Options
		want               []string
	}{
		{
			"summit, three nodes", "summit-nodes", summitSample, Options{Nodes: 3},
			[]string{"0 reclaim summit0000", "0 uncordon summit0001", "0 reclaim summit0002", "2396 uncordon summit0002", "2396 uncordon summit0000", "2467 reclaim summit0002"},
		},
		{
			"summit, nodes that join", "summit-nodes", "t_s,node,state\n0,2,0\n5,1,1\n9,1,0\n12,1,1\n", Options{Nodes: 3, Node: machine},
			[]string{"5 join summit0001", "9 reclaim summit0001", "12 uncordon summit0001"},
		},
		{
			"summit, a stretch of time", "", summitSample, Options{Nodes: 3, From: 2400 * time.Second, Length: 100 * time.Second},
			[]string{"0 uncordon summit0000", "0 uncordon summit0001", "0 uncordon summit0002", "67 reclaim summit0002"},
		},
		{
			"counts by tick", "", spotSample, Options{},
			[]string{"300 uncordon spot-00001", "300 uncordon spot-00002", "900 reclaim spot-00002", "1200 uncordon spot-00002", "1200 uncordon spot-00003"},
		},
		{
			"counts of nodes that join", "spot-counts", spotSample, Options{Node: machine, Prefix: "zone", Nodes: 2},
			[]string{"300 join zone-00001", "300 join zone-00002", "900 reclaim zone-00002", "1200 uncordon zone-00002"},
		},
		{
			"a fleet", "", bambooSample, Options{},
			[]string{"480 uncordon node1", "540 uncordon node2", "600 reclaim node1", "660 uncordon node1", "660 uncordon node3"},
		},
		{
			"a fleet of nodes that join", "bamboo", bambooSample, Options{Node: machine, Nodes: 2, Prefix: "g-"},
			[]string{"480 join g-node1", "540 join g-node2", "600 reclaim g-node1", "660 uncordon g-node1"},
		},
		{
			"looks", "", gcloudSample, Options{},
			[]string{"0 uncordon spot-00001", "0 uncordon spot-00002", "60 uncordon spot-00003", "120 reclaim spot-00003", "120 reclaim spot-00002"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, _, err := read1(t, c.format, c.text, c.opts)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(c.want, told(changes)); diff != "" {
				t.Error(diff)
			}

			for _, ch := range changes {
				if (ch.Kind == sim.NodeJoins) != (ch.Node != nil) ||
					ch.Node != nil && (ch.Node.ID != ch.ID || len(ch.Node.Inventory.GPUs) != 4) {
					t.Errorf("%s of %s brings %v", ch.Kind, ch.ID, ch.Node)
				}
			}
		})
	}
}

func TestMergeKeepsTheOrderOfTime(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []sim.Change {
			var all []sim.Change
			for i, at := range rapid.SliceOfN(rapid.IntRange(0, 20), 0, 10).Draw(t, name) {
				all = append(all, sim.Change{At: time.Duration(at) * time.Second, ID: id.Node(fmt.Sprint(name, i))})
			}

			return all
		}

		first, second := draw("a"), draw("b")

		got, err := Collect(Merge(List(first), List(second)))
		if err != nil {
			t.Fatal(err)
		}

		// A stable sort of both together is the same.
		want, err := Collect(List(append(append([]sim.Change{}, first...), second...)))
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(told(want), told(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBadRowsNameTheirPlaceOrAreSkipped(t *testing.T) {
	for _, c := range []struct {
		name, format, text string
		line               int
		field, says        string
	}{
		{"summit, node", "summit-nodes", strings.Replace(summitSample, "2396,2,1", "2396,4734,1", 1), 3, "node", "at most 4734"},
		{"summit, state", "summit-nodes", strings.Replace(summitSample, "2396,2,1", "2396,2,2", 1), 3, "state", "must be 0 or 1"},
		{"summit, time", "summit-nodes", strings.Replace(summitSample, "2396,2,1", "x,2,1", 1), 3, "t_s", "must be a number"},
		{"counts", "spot-counts", strings.Replace(spotSample, " 1, 3", " 1.5, 3", 1), 2, "data", "invalid number of instances"},
		{"fleet, word", "bamboo", strings.Replace(bambooSample, "add,node2", "plus,node2", 1), 2, "change", "must be add or remove"},
		{"fleet, twice", "bamboo", strings.Replace(bambooSample, "add,node2", "add,node1", 1), 2, "change", "contradicts the rows above"},
		{"fleet, name", "bamboo", strings.Replace(bambooSample, "add,node2", "add,Node 2", 1), 2, "node", "invalid node name"},
		{"looks, clock", "gcloud", strings.Replace(gcloudSample, "00:00:45", "noon", 1), 2, "time", "must be a time of day"},
		{"looks, backwards", "gcloud", strings.Replace(gcloudSample, "2021-12-11, 00:00", "2021-12-10, 00:00", 1), 2, "time", "must not decrease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read1(t, c.format, c.text, Options{})
			var e *fault.Error
			if !errors.As(err, &e) || e.Code != rows.BadRow || e.Line != c.line || e.Field != c.field ||
				!strings.Contains(e.Error(), c.says) ||
				!strings.Contains(e.Error(), "sample") {
				t.Fatalf("got %v, want line %d, field %q, %q", err, c.line, c.field, c.says)
			}

			changes, r, err := read1(t, c.format, c.text, Options{SkipBad: true})
			if err != nil || r.Skipped() != 1 || len(changes) == 0 {
				t.Errorf("skipped %v, kept %d, %v", r, len(changes), err)
			}
		})
	}

	for name, c := range map[string][2]string{
		"no gap": {"spot-counts", `{"metadata": {}, "data": [1]}`}, "no data": {"spot-counts", `{"metadata": {"gap_seconds": 1}}`},
		"data first": {"spot-counts", `{"data": [1], "metadata": {"gap_seconds": 1}}`}, "no end": {"spot-counts", `{"metadata": {"gap_seconds": 1}, "data": [1`},
		"nothing": {"summit-nodes", ""}, "unknown": {"", "hello\n"}, "time goes back": {"summit-nodes", "t_s,node,state\n9,1,1\n3,1,0\n"},
	} {
		if _, _, err := read1(t, c[0], c[1], Options{SkipBad: true}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}

	if len(Formats()) != 4 {
		t.Errorf("%d formats", len(Formats()))
	}
}

// A window must leave every node as the whole trace does.
func TestAWindowLeavesNodesAsTheWholeTraceDoes(t *testing.T) {
	kinds := []sim.ChangeKind{sim.NodeUncordoned, sim.NodeReclaimed, sim.NodeJoins, sim.NodeCordoned}
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(r, "changes")
		var all []sim.Change

		at := time.Duration(0)
		for range n {
			at += time.Duration(rapid.IntRange(0, 3).Draw(r, "gap")) * time.Second
			name := id.Node(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "node"))
			all = append(all, sim.Change{At: at, Kind: rapid.SampledFrom(kinds).Draw(r, "kind"), ID: name})
		}

		from := time.Duration(rapid.IntRange(0, 40).Draw(r, "from")) * time.Second
		length := time.Duration(rapid.IntRange(0, 40).Draw(r, "length")) * time.Second
		got, err := Collect(Window(List(all), from, length))
		if err != nil {
			r.Fatal(err)
		}

		end := from + length
		if length == 0 {
			end = 1 << 60
		}

		want, have := map[id.Node]sim.ChangeKind{}, map[id.Node]sim.ChangeKind{}
		for _, c := range all {
			if c.At < end || c.At <= from {
				want[c.ID] = c.Kind
			}
		}

		last := time.Duration(0)
		for _, c := range got {
			if c.At < last || length > 0 && c.At >= length && c.At > 0 {
				r.Fatalf("a change at %v", c.At)
			}

			last, have[c.ID] = c.At, c.Kind
		}

		if diff := cmp.Diff(want, have); diff != "" {
			r.Fatal(diff)
		}
	})
}

func TestFilesAreOpenedAndClosed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "n.csv")
	if err := os.WriteFile(name, []byte(summitSample), 0o644); err != nil {
		t.Fatal(err)
	}

	r, err := Open(name, "", Options{Nodes: 1, Length: time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	if changes, err := Collect(r); err != nil || len(changes) != 2 {
		t.Errorf("got %v, %v", changes, err)
	}

	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}

	if _, err := Open(name+"x", "", Options{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestSummitNodesAreOneGPUEach(t *testing.T) {
	list := SummitNodes(3)
	if len(list) != 3 || list[2].ID != SummitNode(2) || len(list[2].Inventory.GPUs) != 1 || !id.Name(string(list[2].ID)) {
		t.Errorf("got %+v", list)
	}
}

func fuzz(f *testing.F, format, sample string) {
	f.Helper()
	f.Add(sample)
	f.Add("")
	f.Add("\x00,\n\"")
	f.Add(sample + fuzzing.Long("\",[{\n"))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		for _, skip := range []bool{false, true} {
			r, err := Read(strings.NewReader(text), "fuzz", format, Options{SkipBad: skip, Nodes: 5})
			last := time.Duration(0)
			for err == nil {
				var c sim.Change
				c, err = r.Next()
				if err == nil && (c.At < last || c.ID == "" || c.Kind == "") {
					t.Fatalf("got %+v", c)
				}

				last = c.At
			}

			var e *fault.Error
			if !errors.Is(err, io.EOF) && (!errors.As(err, &e) || e.Message == "") {
				t.Fatalf("an error that is not for people: %v", err)
			}
		}
	})
}

func FuzzSummitNodes(f *testing.F) { fuzz(f, "summit-nodes", summitSample) }

func FuzzSpotCounts(f *testing.F) { fuzz(f, "spot-counts", spotSample) }

func FuzzBamboo(f *testing.F) { fuzz(f, "bamboo", bambooSample) }

func FuzzGcloud(f *testing.F) { fuzz(f, "gcloud", gcloudSample) }
