package httpapi

import (
	"errors"
	"strings"
	"testing"

	"trainyard/internal/fault"
)

func TestSlotsAreBoundedForEachAndInTotal(t *testing.T) {
	t.Parallel()
	s := NewSlots(2, 3, "too_many_streams", "live feeds")
	var held []func()
	take := func(who string) error {
		release, err := s.Take(who)
		if err == nil {
			held = append(held, release)
		}

		return err
	}

	if err := errors.Join(take("ada"), take("ada"), take("bob")); err != nil {
		t.Fatal(err)
	}

	for who, want := range map[string]string{
		"ada": "too many live feeds at the same time: ada has 2, the limit is 2",
		"bob": "too many live feeds at the same time: the server has 3, the limit is 3",
	} {
		var f *fault.Error
		if err := take(who); !errors.As(err, &f) || f.Kind != fault.OverLimit || f.Code != "too_many_streams" ||
			!strings.Contains(f.Message, want) {
			t.Errorf("%s: %v", who, err)
		}
	}

	held[0]()
	held[0]() // what was given back is not given back again

	if err := take("ada"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}

	if err := take("bob"); err == nil {
		t.Error("one slot was given back twice")
	}

	for _, release := range held {
		release()
	}

	if s.inUse != 0 || len(s.by) != 0 {
		t.Errorf("%d in use, by %v", s.inUse, s.by)
	}
}

func TestWithoutLimitsThereIsAlwaysASlot(t *testing.T) {
	t.Parallel()
	s := NewSlots(0, 0, "", "")

	for range 1000 {
		if _, err := s.Take("ada"); err != nil {
			t.Fatal(err)
		}
	}
}
