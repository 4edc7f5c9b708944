package api

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"trainyard/test/fuzzing"
)

// readFeed reads a feed to its end.
func readFeed(text string) ([]FeedItem, error) {
	var items []FeedItem
	err := ReadFeed(strings.NewReader(text), func(i FeedItem) error {
		i.Data = bytes.Clone(i.Data)
		items = append(items, i)
		return nil
	})

	return items, err
}

func TestAFeedIsReadItemByItem(t *testing.T) {
	t.Parallel()
	item := func(cursor, kind, data string) FeedItem { return FeedItem{ID: cursor, Kind: kind, Data: []byte(data)} }
	for name, tt := range map[string]struct {
		feed string
		want []FeedItem
	}{
		"nothing":                     {"", nil},
		"one":                         {"data: a\n\n", []FeedItem{item("", "", "a")}},
		"with all fields":             {"id: 7\nevent: state\ndata: {}\n\n", []FeedItem{item("7", "state", "{}")}},
		"in any order":                {"data: {}\nevent: state\nid: 7\n\n", []FeedItem{item("7", "state", "{}")}},
		"without the space":           {"id:7\ndata:a\n\n", []FeedItem{item("7", "", "a")}},
		"with a second space":         {"data:  a\n\n", []FeedItem{item("", "", " a")}},
		"with carriage returns":       {"id: 7\r\ndata: a\r\n\r\n", []FeedItem{item("7", "", "a")}},
		"several lines of data":       {"data: a\ndata:\ndata: b\n\n", []FeedItem{item("", "", "a\n\nb")}},
		"empty data":                  {"data\n\n", []FeedItem{item("", "", "")}},
		"comments":                    {": hello\n\ndata: a\n: between\n\n: bye\n\n", []FeedItem{item("", "", "a")}},
		"fields of a newer server":    {"retry: 5\nfuture: x\ndata: a\n\n", []FeedItem{item("", "", "a")}},
		"an item without data":        {"id: 7\nevent: x\n\ndata: a\n\n", []FeedItem{item("", "", "a")}},
		"one does not tint the other": {"id: 7\nevent: x\ndata: a\n\ndata: b\n\n", []FeedItem{item("7", "x", "a"), item("", "", "b")}},
		"cut off in the middle":       {"data: a\n\nid: 8\ndata: b\n", []FeedItem{item("", "", "a")}},
	} {
		got, err := readFeed(tt.feed)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAFeedEndsWithItsFailure(t *testing.T) {
	t.Parallel()
	stop, broken := errors.New("stop"), errors.New("broken")
	calls := 0
	err := ReadFeed(strings.NewReader("data: a\n\ndata: b\n\n"), func(FeedItem) error {
		calls++
		return stop
	})

	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}

	calls = 0
	err = ReadFeed(iotest.TimeoutReader(strings.NewReader("data: a\n\n")), func(FeedItem) error {
		calls++
		return nil
	})

	if !errors.Is(err, iotest.ErrTimeout) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}

	if err := ReadFeed(iotest.ErrReader(broken), func(FeedItem) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}

	if err := ReadFeed(
		strings.NewReader("data: "+strings.Repeat("x", maxFeedLine)+"\n\n"),
		func(FeedItem) error { return nil },
	); err == nil {
		t.Error("a line past the limit was taken")
	}

	long := strings.Repeat("x", 1<<20)
	if items, err := readFeed("data: " + long + "\n\n"); err != nil || len(items) != 1 || string(items[0].Data) != long {
		t.Errorf("a long line: %v", err)
	}
}

func FuzzFeedRoundTrip(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "id: 1\nevent: e\ndata: a\ndata: b\n\n", ": c\n\n", "\r\n\r\n", "data", "data\n\nid\n\n", "\x00: \xff\n\n", ":::\ndata:::\n\n"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		items, err := readFeed(text)
		if err != nil {
			t.Fatal(err)
		}

		// What was read is written and read again as the same.
		var again strings.Builder
		for _, i := range items {
			fmt.Fprintf(&again, "id: %s\nevent: %s\n", i.ID, i.Kind)
			for line := range strings.SplitSeq(string(i.Data), "\n") {
				fmt.Fprintf(&again, "data: %s\n", line)
			}

			again.WriteString("\n")
		}

		got, err := readFeed(again.String())
		if err != nil {
			t.Fatal(err)
		}

		for i := range items {
			if strings.ContainsRune(items[i].ID+items[i].Kind+string(items[i].Data), '\r') {
				return // a carriage return at the end of a line belongs to its end
			}
		}

		if diff := cmp.Diff(items, got); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
